/*
 * The end of a program whose standard output was asked for.
 *
 * Threading: from main. Errors: told on standard error.
 */
#ifndef HEARSAY_BASE_OUTPUT_H
#define HEARSAY_BASE_OUTPUT_H

/* Exit status of a program that had nothing else to complain of: 0, or 1 where what it printed was not written as a whole (a full disk). */
int output_finish(const char *program);

#endif

/*
 * Comma-separated values (RFC 4180, without line breaks in fields): how results are kept in a repository.
 *
 * Threading: pure, but for the stream given.
 */
#ifndef HEARSAY_PERF_CSV_H
#define HEARSAY_PERF_CSV_H

#include <stddef.h>
#include <stdio.h>

/* Writes a field, quoted where it must be; behind a comma unless it is the first. */
void csv_write(FILE *file, const char *field, int first);
/* Cuts a line in place into at most cap fields, unquoted; returns how many there are. */
size_t csv_split(char *line, char *fields[], size_t cap);

#endif

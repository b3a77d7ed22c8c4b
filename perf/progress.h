/*
 * One line of progress on standard error: rewritten in place on a terminal, silent elsewhere (the table of results shows the
 * progress there). Threading: one thread.
 */
#ifndef HEARSAY_PERF_PROGRESS_H
#define HEARSAY_PERF_PROGRESS_H

#include <stdint.h>

void progress_show(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Wipes the line, before other output. */
void progress_clear(void);

/* Monotonic nanoseconds. */
uint64_t perf_now_ns(void);

#endif

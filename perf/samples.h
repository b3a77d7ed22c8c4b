/*
 * A growing list of measurements, and the few numbers that describe it.
 *
 * Zero-initialise, samples_fini frees. Running out of memory is sticky (`failed`), checked once at the end. Threading: one thread.
 */
#ifndef HEARSAY_PERF_SAMPLES_H
#define HEARSAY_PERF_SAMPLES_H

#include <stdbool.h>
#include <stddef.h>

struct samples {
    double *values;
    size_t n, cap;
    bool failed;
};

void samples_add(struct samples *samples, double value);
void samples_append(struct samples *samples, const struct samples *more);
/* Ascending; the next two ask for it. */
void samples_sort(struct samples *samples);
/* The value with at least the share p of all values at or below it (nearest rank); NaN when there are none. */
double samples_percentile(const struct samples *samples, double p);
/* The middle value, or the mean of the two middle ones; NaN when there are none. */
double samples_median(const struct samples *samples);
void samples_fini(struct samples *samples);

#endif

#include "perf/samples.h"

#include <math.h>
#include <stdlib.h>

void samples_add(struct samples *samples, double value)
{
    if (samples->n == samples->cap) {
        size_t cap = samples->cap ? samples->cap * 2 : 64;
        double *values = realloc(samples->values, cap * sizeof *values);
        if (!values) {
            samples->failed = true;
            return;
        }
        samples->values = values;
        samples->cap = cap;
    }
    samples->values[samples->n++] = value;
}

void samples_append(struct samples *samples, const struct samples *more)
{
    for (size_t i = 0; i < more->n; i++)
        samples_add(samples, more->values[i]);
    samples->failed |= more->failed;
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

void samples_sort(struct samples *samples)
{
    if (samples->n)
        qsort(samples->values, samples->n, sizeof *samples->values, ascending);
}

double samples_percentile(const struct samples *samples, double p)
{
    if (samples->n == 0)
        return NAN;
    size_t rank = (size_t)ceil(p * (double)samples->n);
    return samples->values[rank > 0 ? rank - 1 : 0];
}

double samples_median(const struct samples *samples)
{
    if (samples->n == 0)
        return NAN;
    size_t half = samples->n / 2;
    return samples->n % 2 ? samples->values[half] : (samples->values[half - 1] + samples->values[half]) / 2;
}

void samples_fini(struct samples *samples)
{
    free(samples->values);
    *samples = (struct samples){0};
}

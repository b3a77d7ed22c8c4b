/*
 * How long the worker pool needs from the end of one stage to the next: stages in which each worker does nothing but wait until all
 * of them are there. A step of the CPU backend has some five stages a layer.
 *
 * Threading: one thread; the pool's own threads come and go within the call.
 */
#ifndef HEARSAY_PERF_HAND_OVER_H
#define HEARSAY_PERF_HAND_OVER_H

#include <stdint.h>

#include "core/base/error.h"
#include "perf/samples.h"

/* Adds a sample of microseconds for each of `runs` jobs, threads as limits_measure takes them. 0 or a worker pool's errors. */
int hand_over_measure(uint32_t threads, const uint32_t *cpus, uint32_t n_cpus, uint32_t runs, struct samples *us,
                      struct error *err);

#endif

/*
 * What the machine allows: streaming reads from memory and multiply-adds in float32 or of bfloat16 pairs, measured with as many threads as the
 * benchmark uses, in the same minute; and from both the least time that a step of a model can take (a roofline).
 *
 * Threading: one caller; the measurements start and join threads of their own.
 */
#ifndef HEARSAY_PERF_LIMITS_H
#define HEARSAY_PERF_LIMITS_H

#include <stdbool.h>
#include <stdint.h>

#include "core/base/error.h"
#include "core/port/model.h"

struct limits {
    double bytes_per_s;
    double flops_per_s; /* a multiply-add is two */
};

/* cpus[n_cpus]: where thread i is pinned (i modulo n_cpus); n_cpus 0: nowhere. */
int limits_measure(uint32_t threads, const uint32_t *cpus, uint32_t n_cpus, bool bfloat, struct limits *out, struct error *err);

/* One step: n_sequences of n_rows rows each, the last row at `context` positions (itself included), one output a sequence. */
double limits_step_seconds(const struct limits *limits, const struct model_desc *model, uint32_t n_sequences, uint32_t n_rows,
                           uint32_t context);

#endif

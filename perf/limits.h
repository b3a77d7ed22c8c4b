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
    uint64_t stream_bytes; /* of the buffer read */
    double bytes_per_s;
    double flops_per_s; /* a multiply-add is two */
};

/*
 * cpus[n_cpus]: where thread i is pinned (i modulo n_cpus); n_cpus 0: nowhere. The read goes over stream_bytes, as many as a step
 * reads: a part of a small model's weights may stay in the caches.
 */
int limits_measure(uint32_t threads, const uint32_t *cpus, uint32_t n_cpus, bool bfloat, uint64_t stream_bytes, struct limits *out,
                   struct error *err);

/* One step that reads weight_bytes once: n_sequences of n_rows rows each, the last row at `context` positions (itself included), one output a sequence. */
double limits_step_seconds(const struct limits *limits, const struct model_desc *model, uint64_t weight_bytes, uint32_t n_sequences,
                           uint32_t n_rows, uint32_t context);

#endif

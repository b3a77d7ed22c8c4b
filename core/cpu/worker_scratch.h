/*
 * What each worker of a forward pass (forward.h) has for itself: memory to work in, and what it keeps from one call to the next. Touched
 * by its worker alone. Memory: forward_create.
 */
#ifndef HEARSAY_CPU_WORKER_SCRATCH_H
#define HEARSAY_CPU_WORKER_SCRATCH_H

#include <stddef.h>
#include <stdint.h>

#include "core/cpu/kernels.h"
#include "core/cpu/sample.h"

struct worker_scratch {
    uint16_t *shorts; /* [max(d_model, 2 * d_head)] */
    float *rows;      /* [tile_rows][max(d_model, d_head)] */
    float *tile;      /* rows that this worker has normalised for the product under way */
    int32_t *fixed;   /* rows that it has made integers for that */
    float *panels;    /* WIDENED_AT_ONCE panels each of gate and up, or of what has the most inputs, as floats; NULL if kernels
                         widen none */
    float *queries;   /* words [d_head][queries] */
    float *scores;    /* [queries][CPU_KV_SEGMENT] */
    struct attention_state part, total;
    struct sample_scratch *sample;
    const char *soon; /* what this worker will probably multiply in the next product: asked for while it waits */
    size_t soon_bytes;
};

#endif

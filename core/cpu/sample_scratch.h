/*
 * Working memory of sampling, and its steps that need it (sample.h is the public side). Candidates are 64-bit keys, the
 * logit's order in the high half and the id in the low one: ascending keys are descending logits, lowest id first.
 */
#ifndef HEARSAY_CPU_SAMPLE_SCRATCH_H
#define HEARSAY_CPU_SAMPLE_SCRATCH_H

#include "core/cpu/sample.h"
#include "core/cpu/sample_kernels.h"

struct sample_scratch {
    uint32_t n_vocab;
    const struct sample_kernels *kernels;
    float *adjusted;          /* [n_vocab] logits after bias and penalties */
    uint32_t *counts;         /* [n_vocab] all 0 between calls */
    uint64_t *keys, *sorting; /* [n_vocab] candidates; sort's other buffer */
};

/* Every token further than this many temperatures below the best loses whatever the noise (which is within -3.2 .. 22.9). */
#define SAMPLE_NOISE_RANGE 27.0

static inline uint32_t sample_key_token(uint64_t key)
{
    return (uint32_t)key;
}

float sample_key_logit(uint64_t key);
/* min_tokens, bias and penalties for the row at `position`: raw logits themselves if none applies, else scratch->adjusted. */
const float *sample_adjust(const float *logits, const struct step_span *span, uint32_t position, struct sample_scratch *scratch);
/* top-k, top-p and min-p: leaves the survivors in scratch->keys and returns their number, at least 1; max is the largest logit. */
uint32_t sample_filter(const float *logits, double max, const struct sampling_params *sampling, struct sample_scratch *scratch);

#endif

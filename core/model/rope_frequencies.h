/*
 * Rotation speeds of rotary position embeddings (arXiv 2104.09864) with the scalings that stretch them to longer contexts:
 * linear (arXiv 2306.15595), Llama 3.1's by-parts rule, and YaRN (arXiv 2309.00071). Computed in double and rounded once.
 *
 * Threading: pure.
 */
#ifndef HEARSAY_MODEL_ROPE_FREQUENCIES_H
#define HEARSAY_MODEL_ROPE_FREQUENCIES_H

#include <stdbool.h>
#include <stdint.h>

#include "core/base/error.h"

enum rope_scaling {
    ROPE_SCALING_NONE,
    ROPE_SCALING_LINEAR,
    ROPE_SCALING_LLAMA3,
    ROPE_SCALING_YARN,
};

struct rope_config {
    double theta; /* base of the geometric row of speeds */
    enum rope_scaling scaling;
    double factor;                            /* how much longer the context became */
    double original_context;                  /* positions; llama3 and yarn */
    double low_freq_factor, high_freq_factor; /* llama3: turns within the original context */
    double beta_fast, beta_slow;              /* yarn: likewise */
    double attention_factor;                  /* yarn: multiplies sine and cosine; 0: derived from factor and the next two */
    double mscale, mscale_all_dim;            /* yarn: 0 when not given */
    bool untruncated;                         /* yarn: the ramp's ends are not rounded to whole pairs */
};

/* theta 10000, no scaling, the papers' defaults for the rest. */
void rope_config_init(struct rope_config *rope);

/*
 * Fills inv_freq[d_head / 2] and *magnitude. freq_factors[d_head / 2], if not NULL, divides each speed (rope_freqs.weight).
 * 0 or HS_ERR_PARSE with a line that names the value at fault.
 */
int rope_frequencies_compute(const struct rope_config *rope, uint32_t d_head, const float *freq_factors, float *inv_freq,
                             float *magnitude, struct error *err);

#endif

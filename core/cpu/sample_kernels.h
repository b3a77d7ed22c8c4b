/*
 * The passes over a whole row of logits, compiled for what the CPU has; every variant gives the same bits (elements and sums are
 * combined in one fixed order, 16 lanes wide).
 */
#ifndef HEARSAY_CPU_SAMPLE_KERNELS_H
#define HEARSAY_CPU_SAMPLE_KERNELS_H

#include <stdint.h>

/* Tokens treated at once by bound_block; four share one Philox output. */
enum { SAMPLE_BLOCK = 256, SAMPLE_TOKENS_PER_CALL = 4 };

/* Coordinates of a row's noise. */
struct sample_noise_key {
    uint64_t seed;
    uint32_t choice, position;
};

struct sample_kernels {
    /* Index of the largest value, the lowest among equals; NaN never wins; 0 when nothing is above minus infinity. */
    uint32_t (*argmax)(const float *x, uint32_t n);
    /* Sum of exp((x[i] - max) * scale), x[i] <= max. */
    double (*sum_exp)(const float *x, uint32_t n, double max, double scale);
    /*
     * The noise's bits of the tokens first .. first + SAMPLE_BLOCK - 1 (first a multiple of SAMPLE_BLOCK), and for each a value
     * that x[i] plus temperature times its noise does not exceed (but for float rounding). Returns the largest of them.
     */
    float (*bound_block)(const float *x, float temperature, const struct sample_noise_key *key, uint32_t first, uint32_t *bits,
                         float *upper);
    /* The largest of x[0 .. SAMPLE_BLOCK - 1]. */
    float (*max_block)(const float *x);
};

/* The widest variant that runs here. */
const struct sample_kernels *sample_kernels_best(void);
/* Variant i of those that run here, the plainest first; NULL behind the last: for tests. */
const struct sample_kernels *sample_kernels_variant(uint32_t i);

#endif

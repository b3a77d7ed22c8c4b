/*
 * The passes over a whole row of logits, compiled for what the CPU has; every variant gives the same bits (elements and sums are
 * combined in one fixed order, 16 lanes wide).
 */
#ifndef HEARSAY_CPU_SAMPLE_KERNELS_H
#define HEARSAY_CPU_SAMPLE_KERNELS_H

#include <stdint.h>

struct sample_kernels {
    /* Index of the largest value, the lowest among equals; NaN never wins; 0 when nothing is above minus infinity. */
    uint32_t (*argmax)(const float *x, uint32_t n);
    /* Sum of exp((x[i] - max) * scale), x[i] <= max. */
    double (*sum_exp)(const float *x, uint32_t n, double max, double scale);
};

/* The widest variant that runs here. */
const struct sample_kernels *sample_kernels_best(void);
/* Variant i of those that run here, the plainest first; NULL behind the last: for tests. */
const struct sample_kernels *sample_kernels_variant(uint32_t i);

#endif

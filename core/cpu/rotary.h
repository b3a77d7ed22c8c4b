/*
 * Rotary position embedding (Su et al., arXiv 2104.09864). The angle is position * inv_freq rounded to float, as the
 * checkpoints' own code computes it; sine and cosine are our own, from plain double arithmetic, so that every machine
 * has the same bits whatever its C library. Pure; any thread.
 */
#ifndef HEARSAY_CPU_ROTARY_H
#define HEARSAY_CPU_ROTARY_H

#include <stdint.h>

#include "core/port/model.h"

/* For the kernels' rotate. table[d_head]: cosine of pair i at [i], sine at [d_head / 2 + i], both times rope_magnitude. */
void rotary_table(const struct model_desc *model, uint32_t position, float *table);
/* For tests: *sine and *cosine of x, |x| < 2^20. */
void rotary_sin_cos(double x, double *sine, double *cosine);

#endif

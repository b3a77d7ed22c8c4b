/*
 * Tensor formats: sizes, names, and conversion to float exactly as the formats define it.
 *
 * A block-quantised row is a run of whole blocks, each holding block_elements values in block_bytes bytes (source: ggml's
 * block structures, https://github.com/ggml-org/ggml). Every value is computed in float32 in the order that the defining
 * implementation uses, so that results are equal to the last bit (tests/vectors/make_dequantize.py).
 *
 * Threading: pure. Data needs no alignment.
 */
#ifndef HEARSAY_MODEL_DEQUANTIZE_H
#define HEARSAY_MODEL_DEQUANTIZE_H

#include <stdbool.h>
#include <stdint.h>

#include "core/port/model.h"

struct tensor_format {
    const char *name; /* "Q4_K" */
    uint32_t block_elements;
    uint32_t block_bytes;
};

/* NULL for TENSOR_NONE, the own 4-bit types (w4.h) and unknown numbers. */
const struct tensor_format *tensor_format(enum tensor_type type);
/* Bytes of a row of cols values in any type but TENSOR_NONE, UINT64_MAX if they cannot be counted. False: the row is not made of
 * whole blocks. */
bool tensor_row_bytes(enum tensor_type type, uint64_t cols, uint64_t *bytes);
/* "F32, F16, ..." for error texts. */
const char *tensor_format_names(void);

/* model_desc.dequantize: rows first_row .. first_row + n_rows - 1 of t into out[n_rows][t->cols]. */
void dequantize_rows(const struct tensor_view *t, uint32_t first_row, uint32_t n_rows, float *out);

/* Two bytes of a row as they lie in a file, little-endian. */
static inline uint16_t load_u16(const uint8_t *p)
{
    return (uint16_t)(p[0] | p[1] << 8);
}

/* IEEE 754 binary16 and bfloat16 to float, exact; NaN stays NaN. */
float float_from_f16(uint16_t bits);
float float_from_bf16(uint16_t bits);
/* The other way, to nearest even; what is too large becomes infinite. */
uint16_t f16_from_float(float value);

/* The 6-bit scale and minimum of group j (of 8) in the 12 packed bytes of Q4_K and Q5_K. */
void tensor_unpack_scale_min(const uint8_t *packed, int j, int *scale, int *minimum);

/* model_desc.groups and read_groups (tensor_groups.c): Q8_0, Q6_K, Q5_0, Q4_0, Q4_1, Q4_K and the own 4-bit types. */
bool tensor_groups_of(const struct tensor_view *t, struct tensor_groups *out);
void tensor_read_groups(const struct tensor_view *t, uint32_t row, int8_t *integers, uint16_t *scales, uint16_t *minima);

#endif

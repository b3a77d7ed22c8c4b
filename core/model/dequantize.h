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

#include <stdint.h>

#include "core/port/model.h"

struct tensor_format {
    const char *name; /* "Q4_K" */
    uint32_t block_elements;
    uint32_t block_bytes;
};

/* NULL for TENSOR_NONE and unknown numbers. */
const struct tensor_format *tensor_format(enum tensor_type type);
/* "F32, F16, ..." for error texts. */
const char *tensor_format_names(void);

/* model_desc.dequantize: rows first_row .. first_row + n_rows - 1 of t into out[n_rows][t->cols]. */
void dequantize_rows(const struct tensor_view *t, uint32_t first_row, uint32_t n_rows, float *out);

/* IEEE 754 binary16 and bfloat16 to float, exact; NaN stays NaN. */
float float_from_f16(uint16_t bits);
float float_from_bf16(uint16_t bits);

#endif

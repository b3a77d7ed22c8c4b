/*
 * The project's own 4-bit weights: rows of groups, each with a scale and perhaps a minimum (docs/quantized-weights.md).
 *
 *     row      [group 0][group 1] ... [last group, shorter if the row is no whole number of groups]
 *     group    [2 scale, FP16][2 minimum, FP16, if the type has one][n/2: byte i holds value 2i low, value 2i+1 high]
 *
 * A stored nibble b means (b - 8) * scale, or with a minimum b * scale + minimum, in float32. Rows hold a multiple of 32 values.
 *
 * Threading: pure. Data needs no alignment.
 */
#ifndef HEARSAY_MODEL_W4_H
#define HEARSAY_MODEL_W4_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/port/model.h"

enum { W4_ROW_UNIT = 32, W4_MAX_GROUP = 128 };

struct w4_layout {
    uint32_t group; /* 32, 64 or 128 values */
    bool has_minimum;
};

/* False if the type is not one of these. */
bool w4_layout_of(enum tensor_type type, struct w4_layout *out);
/* TENSOR_NONE for another group size. */
enum tensor_type w4_type(struct w4_layout layout);

/* "W4_G128", "W4_G128_MIN", ... */
const char *w4_type_name(enum tensor_type type);
enum tensor_type w4_type_by_name(const char *name); /* TENSOR_NONE: none of these */

/* The number that stands for the type in a GGUF file, outside ggml's own: 0x57340000 + group, + 0x1000 with a minimum. */
uint32_t w4_file_number(enum tensor_type type);
enum tensor_type w4_type_from_file(uint32_t number); /* TENSOR_NONE: none of these */

/* Bytes of a row of cols values; cols is a multiple of W4_ROW_UNIT. */
uint64_t w4_row_bytes(struct w4_layout layout, uint64_t cols);
void w4_dequantize_row(struct w4_layout layout, const uint8_t *row, uint32_t cols, float *out);
/* The same row as integers (-8..7, or 0..15 with minima), FP16 scales and minima. */
void w4_read_row(struct w4_layout layout, const uint8_t *row, uint32_t cols, int8_t *integers, uint16_t *scales, uint16_t *minima);

/*
 * Round to nearest. For each group, several scales (and minima) around the one that just covers all values are tried, then the best
 * is refined by least squares; the one with the least squared error wins, the first among equals. The same input gives the same
 * bytes on every machine. False: a value is not finite, or so large that FP16 has no scale for it.
 */
bool w4_quantize_row(struct w4_layout layout, const float *values, uint32_t cols, uint8_t *row);

#endif

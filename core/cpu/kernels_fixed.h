/*
 * Part of kernels_body.h: the inputs of products with integer weights, as integers too.
 *
 *     tile     [group 0][group 1] ... over the groups of the weights
 *     group    scale[n_rows]                  float: an integer means integer * scale
 *              sum[n_rows]                    float: of the group's inputs
 *              start[INPUT_PLANES][n_rows]    int32: what a sum over weights that are stored with an offset begins with
 *              quads[n / 4][INPUT_PLANES][n_rows]   four bytes of four neighbouring inputs
 *
 * An input is rounded to an integer v of INPUT_PLANES bytes below the group's largest magnitude: 24 bits where words are floats, 16
 * where they are pairs of bfloat16. Planes are signed digits, v = plane 0 + 256 * plane 1 + 65536 * plane 2 with each in -128..127,
 * as the multiplications of bytes want them. What is not finite makes the scale of its group no number, and so every output.
 */
#ifndef HEARSAY_CPU_KERNELS_FIXED_H
#define HEARSAY_CPU_KERNELS_FIXED_H

enum {
    INPUT_PLANES = INPUTS_PER_WORD == 1 ? 3 : 2,
    HEADER_WORDS = 2 + INPUT_PLANES, /* of a row and group */
    MOST_GROUP = 128,
    USUAL_GROUP = 32,          /* in files of others */
    ROWS_IN_LANES = LANES / 4, /* from so many on rows are done side by side */
};

/* Below 127 * (65536 + 256 + 1) and 127 * (256 + 1) by more than a product's rounding. */
#define LARGEST_FIXED (INPUT_PLANES == 3 ? 8355000.0f : 32600.0f)
/* A group of smaller inputs counts as one with this magnitude: 1 / scale stays finite. */
#define LEAST_MAGNITUDE 0x1p-100f
#define INFINITE_BITS   0x7f800000u

/* n inputs of one row, as floats. */
KERNEL_INLINE void read_row(const float *words, uint32_t stride, uint32_t n, float *values)
{
    for (uint32_t i = 0; i < n / INPUTS_PER_WORD; i++) {
        if (INPUTS_PER_WORD == 1) {
            values[i] = words[i * stride];
            continue;
        }
        uint32_t pair;
        memcpy(&pair, words + i * stride, sizeof pair);
        values[2 * i] = float_from_bits(pair << 16);
        values[2 * i + 1] = float_from_bits(pair & 0xffff0000u);
    }
}

/* Bits of the largest magnitude; as integers they are ordered, those of what is not finite above all others. */
KERNEL_INLINE uint32_t largest_bits(const float *values, const uint32_t n)
{
    uint32_t largest = 0;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t bits = float_bits(values[i]) & 0x7fffffffu;
        largest = bits > largest ? bits : largest;
    }
    return largest;
}

/* n integers as planes; sums[j] is of plane j's. */
KERNEL_INLINE void split_planes(const int32_t *fixed, const uint32_t n, int8_t planes[INPUT_PLANES][MOST_GROUP], int32_t *sums)
{
    int32_t lowest = 0, middle = 0, highest = 0;
    for (uint32_t i = 0; i < n; i++) {
        const int32_t first = (int8_t)fixed[i], rest = (fixed[i] + 128) >> 8, second = (int8_t)rest, third = (rest + 128) >> 8;
        planes[0][i] = (int8_t)first;
        planes[1][i] = (int8_t)second;
        if (INPUT_PLANES == 3)
            planes[INPUT_PLANES - 1][i] = (int8_t)third;
        lowest += first;
        middle += second;
        highest += third;
    }
    sums[0] = lowest;
    sums[1] = middle;
    if (INPUT_PLANES == 3)
        sums[INPUT_PLANES - 1] = highest;
}

typedef int32_t lane_ints __attribute__((vector_size(LANES * sizeof(int32_t))));

/* What becomes of groups, or rows, whose largest magnitudes these are. */
struct fixed_scales {
    lane_ints finite; /* all bits or none */
    vec scale, inverse;
};

KERNEL_INLINE struct fixed_scales find_scales(lane_ints largest)
{
    const lane_ints finite = largest < (int32_t)INFINITE_BITS, least = (lane_ints)vec_broadcast(LEAST_MAGNITUDE);
    const lane_ints large = finite & (largest > least);
    const vec magnitude = (vec)((largest & large) | (least & ~large));
    const lane_ints scale = (lane_ints)vec_divide(magnitude, vec_broadcast(LARGEST_FIXED));
    return (struct fixed_scales){finite, (vec)((scale & finite) | ((lane_ints)vec_broadcast(NAN) & ~finite)),
                                 vec_divide(vec_broadcast(LARGEST_FIXED), magnitude)};
}

/* ---- few rows, one after the other: groups in lanes ---- */

/*
 * At most LANES groups of n inputs of one row: first all magnitudes, then all scales, then all integers, so that no group waits for
 * another. x is the row's first word, header its first header.
 */
KERNEL_INLINE void fix_groups(const float *x, const uint32_t n_groups, const uint32_t n, int32_t offset, const uint32_t stride,
                              int32_t *header)
{
    _Alignas(64) float values[LANES][MOST_GROUP];
    _Alignas(64) int32_t fixed[MOST_GROUP], largest[LANES] = {0};
    _Alignas(64) float scale[LANES], inverse[LANES];
    _Alignas(64) int8_t planes[INPUT_PLANES][MOST_GROUP];
    const size_t group_words = (size_t)cpu_fixed_group_words(n, INPUT_PLANES) * stride;
    for (uint32_t g = 0; g < n_groups; g++)
        read_row(x + (size_t)g * n / INPUTS_PER_WORD * stride, stride, n, values[g]);
    for (uint32_t g = 0; g < n_groups; g++) /* apart: to read whole what was just written in pieces stalls */
        largest[g] = (int32_t)largest_bits(values[g], n);
    const struct fixed_scales scales = find_scales((lane_ints)load_ints(largest));
    vec_store(scale, scales.scale);
    vec_store(inverse, scales.inverse);
    for (uint32_t g = 0; g < n_groups; g++, header += group_words) {
        int32_t sums[INPUT_PLANES], total = 0, *quads = header + HEADER_WORDS * stride;
        if (largest[g] >= (int32_t)INFINITE_BITS)
            memset(values[g], 0, n * sizeof values[g][0]);
        for (uint32_t i = 0; i < n; i += LANES)
            store_ints(fixed + i, ints_from_floats(vec_multiply(vec_load(values[g] + i), vec_broadcast(inverse[g]))));
        split_planes(fixed, n, planes, sums);
        UNROLL for (uint32_t j = 0; j < INPUT_PLANES; j++)
        {
            header[(2 + j) * stride] = -offset * sums[j];
            total += sums[j] * (1 << 8 * j);
            for (uint32_t i = 0; i < n / 4; i++)
                memcpy(quads + (i * INPUT_PLANES + j) * stride, planes[j] + 4 * i, 4);
        }
        const float sum = scale[g] * (float)total;
        memcpy(header, &scale[g], sizeof *header);
        memcpy(header + stride, &sum, sizeof *header);
    }
}

#include "core/cpu/kernels_fixed_rows.h"

/* ---- tiles ---- */

/* n_groups groups of n inputs; constant n and stride where that is usual leave hardly a loop. */
static void fix_few_rows(const float *x, uint32_t n_groups, const uint32_t n, int32_t offset, uint32_t stride, int32_t *header)
{
    if (stride == 1 && n == MOST_GROUP)
        fix_groups(x, n_groups, MOST_GROUP, offset, 1, header);
    else if (stride == 1 && n == USUAL_GROUP)
        fix_groups(x, n_groups, USUAL_GROUP, offset, 1, header);
    else
        fix_groups(x, n_groups, n, offset, stride, header);
}

/* Rows first .. first+n-1 of a tile. */
static void fix_inputs(enum weight_type type, uint32_t n_inputs, const float *x, uint32_t n_tile_rows, uint32_t first,
                       uint32_t n_rows, int32_t *out)
{
    const uint32_t group = weight_group(type);
    const int32_t offset = weight_offset(type);
    x += first;
    out += first;
    for (uint32_t at = 0, n, n_groups; at < n_inputs; at += n * n_groups) {
        n = n_inputs - at < group ? n_inputs - at : group;
        n_groups = (n_inputs - at) / n < LANES ? (n_inputs - at) / n : LANES;
        if (n_rows >= ROWS_IN_LANES) {
            n_groups = 1;
            fix_rows(x, n_tile_rows, n_rows, n, offset, out, out + HEADER_WORDS * n_tile_rows);
        }
        for (uint32_t r = 0; n_rows < ROWS_IN_LANES && r < n_rows; r++)
            fix_few_rows(x + r, n_groups, n, offset, n_tile_rows, out + r);
        x += (size_t)n_groups * n / INPUTS_PER_WORD * n_tile_rows;
        out += (size_t)n_groups * cpu_fixed_group_words(n, INPUT_PLANES) * n_tile_rows;
    }
}

#endif

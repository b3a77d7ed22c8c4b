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

/* One row's group: n inputs from values, which it changes, to header and quads of rows stride apart. offset: of the weights. */
KERNEL_INLINE void fix_group(float *values, const uint32_t n, int32_t offset, const uint32_t stride, float *header, int32_t *quads)
{
    _Alignas(64) int32_t fixed[MOST_GROUP];
    _Alignas(64) int8_t planes[INPUT_PLANES][MOST_GROUP];
    const uint32_t largest = largest_bits(values, n);
    const bool finite = largest < INFINITE_BITS;
    const float magnitude = finite && float_from_bits(largest) > LEAST_MAGNITUDE ? float_from_bits(largest) : LEAST_MAGNITUDE;
    const float scale = finite ? magnitude / LARGEST_FIXED : NAN, inverse = LARGEST_FIXED / magnitude;
    int32_t sums[INPUT_PLANES], total = 0;
    if (!finite)
        memset(values, 0, n * sizeof *values);
    for (uint32_t i = 0; i < n; i += LANES)
        store_ints(fixed + i, ints_from_floats(vec_multiply(vec_load(values + i), vec_broadcast(inverse))));
    split_planes(fixed, n, planes, sums);
    UNROLL for (uint32_t j = 0; j < INPUT_PLANES; j++)
    {
        const int32_t start = -offset * sums[j];
        memcpy(header + (2 + j) * stride, &start, sizeof start);
        total += sums[j] * (1 << 8 * j);
        for (uint32_t i = 0; i < n / 4; i++)
            memcpy(quads + (i * INPUT_PLANES + j) * stride, planes[j] + 4 * i, 4);
    }
    header[0] = scale;
    header[stride] = scale * (float)total;
}

/* Rows first .. first+n-1 of a tile. */
static void fix_inputs(enum weight_type type, uint32_t n_inputs, const float *x, uint32_t n_tile_rows, uint32_t first,
                       uint32_t n_rows, int32_t *out)
{
    const uint32_t group = weight_group(type);
    const int32_t offset = weight_offset(type);
    _Alignas(64) float values[MOST_GROUP];
    for (uint32_t at = 0, n; at < n_inputs; at += n) {
        n = n_inputs - at < group ? n_inputs - at : group;
        for (uint32_t r = first; r < first + n_rows; r++) {
            float *header = (float *)out + r;
            int32_t *quads = out + HEADER_WORDS * n_tile_rows + r;
            if (n_tile_rows == 1 && n == MOST_GROUP) { /* the usual group of one row, with constants */
                read_row(x, 1, MOST_GROUP, values);
                fix_group(values, MOST_GROUP, offset, 1, header, quads);
            } else {
                read_row(x + r, n_tile_rows, n, values);
                fix_group(values, n, offset, n_tile_rows, header, quads);
            }
        }
        x += (size_t)n / INPUTS_PER_WORD * n_tile_rows;
        out += (size_t)cpu_fixed_group_words(n, INPUT_PLANES) * n_tile_rows;
    }
}

#endif

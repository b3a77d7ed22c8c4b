/*
 * Part of kernels_fixed.h: several rows as integers, each in a lane, as their inputs stand side by side in the tile. The operations on an
 * input are those of fix_groups, and so are the integers.
 */
#ifndef HEARSAY_CPU_KERNELS_FIXED_ROWS_H
#define HEARSAY_CPU_KERNELS_FIXED_ROWS_H

/* Neighbouring inputs k, k+1, ... of all rows, from the words of input k on. */
KERNEL_INLINE void read_inputs(const float *words, uint32_t stride, uint32_t n_rows, const uint32_t n, lane_ints *values)
{
    UNROLL for (uint32_t i = 0; i < n / INPUTS_PER_WORD; i++)
    {
        const lane_ints word = (lane_ints)load_first_ints((const int32_t *)(words + i * stride), n_rows);
        if (INPUTS_PER_WORD == 1) {
            values[i] = word;
        } else {
            values[INPUTS_PER_WORD * i] = word << 16;
            values[INPUTS_PER_WORD * i + INPUTS_PER_WORD - 1] = word & -0x10000;
        }
    }
}

/* The lowest bytes of a, b, c, d. */
KERNEL_INLINE lane_ints pack_bytes(lane_ints a, lane_ints b, lane_ints c, lane_ints d)
{
    const lane_ints low = (a & 0xff) | (b << 8 & 0xff00), high = (c & 0xff) | d << 8;
    return (low & 0xffff) | high << 16;
}

/* As fix_groups: one group of n inputs of n_rows rows. */
KERNEL_INLINE void fix_rows(const float *words, uint32_t stride, uint32_t n_rows, const uint32_t n, int32_t offset, int32_t *header,
                            int32_t *quads)
{
    lane_ints largest = {0}, values[4];
    ints sums[INPUT_PLANES];
    for (uint32_t i = 0; i < n; i += 4) {
        read_inputs(words + (size_t)i / INPUTS_PER_WORD * stride, stride, n_rows, 4, values);
        UNROLL for (uint32_t j = 0; j < 4; j++)
        {
            const lane_ints bits = values[j] & 0x7fffffff, more = bits > largest;
            largest = (bits & more) | (largest & ~more);
        }
    }
    const struct fixed_scales scales = find_scales(largest);
    UNROLL for (uint32_t j = 0; j < INPUT_PLANES; j++) sums[j] = ints_broadcast(0);
    for (uint32_t i = 0; i < n; i += 4, quads += (size_t)INPUT_PLANES * stride) {
        read_inputs(words + (size_t)i / INPUTS_PER_WORD * stride, stride, n_rows, 4, values);
        UNROLL for (uint32_t j = 0; j < 4; j++) values[j] =
            scales.finite & (lane_ints)ints_from_floats(vec_multiply((vec)values[j], scales.inverse));
        UNROLL for (uint32_t j = 0; j < INPUT_PLANES; j++)
        {
            const ints plane = (ints)pack_bytes(values[0], values[1], values[2], values[3]);
            store_first_ints(quads + j * stride, plane, n_rows);
            sums[j] = multiply_bytes(sums[j], ints_broadcast(0x01010101), plane);
            UNROLL for (uint32_t v = 0; v < 4; v++) values[v] = (values[v] + 128) >> 8;
        }
    }
    lane_ints total = {0};
    UNROLL for (uint32_t j = 0; j < INPUT_PLANES; j++)
    {
        total += (lane_ints)sums[j] * (1 << 8 * j);
        store_first_ints(header + (2 + j) * stride, (ints)((lane_ints)sums[j] * -offset), n_rows);
    }
    store_first_ints(header, (ints)(lane_ints)scales.scale, n_rows);
    store_first_ints(header + stride, (ints)(lane_ints)vec_multiply(scales.scale, ints_to_floats((ints)total)), n_rows);
}

#endif

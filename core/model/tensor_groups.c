/* Quantised rows taken apart into integers, scales and minima: see struct tensor_groups. */
#include <string.h>

#include "core/base/panic.h"
#include "core/model/dequantize.h"
#include "core/model/w4.h"

enum { BLOCK = 32, SUPER_BLOCK = 256, Q6_K_GROUP = 16 };

bool tensor_groups_of(const struct tensor_view *t, struct tensor_groups *out)
{
    struct w4_layout layout;
    if (w4_layout_of(t->type, &layout)) {
        *out = (struct tensor_groups){.bits = 4, .size = layout.group, .has_minimum = layout.has_minimum};
        return true;
    }
    switch (t->type) {
    case TENSOR_Q8_0:
    case TENSOR_Q5_0:
        *out = (struct tensor_groups){.bits = 8, .size = BLOCK};
        return true;
    case TENSOR_Q6_K:
        *out = (struct tensor_groups){.bits = 8, .size = Q6_K_GROUP};
        return true;
    case TENSOR_Q4_0:
        *out = (struct tensor_groups){.bits = 4, .size = BLOCK};
        return true;
    case TENSOR_Q4_1:
    case TENSOR_Q4_K:
        *out = (struct tensor_groups){.bits = 4, .size = BLOCK, .has_minimum = true};
        return true;
    default:
        return false;
    }
}

/* 16 bytes: low nibbles are values 0-15, high nibbles 16-31. */
static void split_nibbles(const uint8_t *bytes, int offset, int8_t *integers)
{
    for (int i = 0; i < BLOCK / 2; i++) {
        integers[i] = (int8_t)((bytes[i] & 15) - offset);
        integers[i + BLOCK / 2] = (int8_t)((bytes[i] >> 4) - offset);
    }
}

/* Eight groups: the steps and bases of Q4_K, which are products of FP16 and 6 bits, rounded to FP16. */
static void read_q4_k(const uint8_t *block, int8_t *integers, uint16_t *scales, uint16_t *minima)
{
    const float d = float_from_f16(load_u16(block)), d_min = float_from_f16(load_u16(block + 2));
    for (int j = 0; j < SUPER_BLOCK / BLOCK; j++) {
        const uint8_t *nibbles = block + 16 + BLOCK * (j / 2);
        int scale, minimum;
        tensor_unpack_scale_min(block + 4, j, &scale, &minimum);
        scales[j] = f16_from_float(d * (float)scale);
        minima[j] = f16_from_float(-(d_min * (float)minimum));
        for (int i = 0; i < BLOCK; i++)
            integers[BLOCK * j + i] = (int8_t)(nibbles[i] >> 4 * (j & 1) & 15);
    }
}

static void read_q5_0(const uint8_t *block, int8_t *integers)
{
    uint32_t fifth;
    memcpy(&fifth, block + 2, sizeof fifth);
    split_nibbles(block + 6, 0, integers);
    for (int i = 0; i < BLOCK; i++)
        integers[i] = (int8_t)((integers[i] | (int)(fifth >> i & 1) << 4) - 16);
}

/* Sixteen groups; their steps, products of FP16 and 8 bits, rounded to FP16. */
static void read_q6_k(const uint8_t *block, int8_t *integers, uint16_t *scales)
{
    const float d = float_from_f16(load_u16(block + 208));
    for (int i = 0; i < SUPER_BLOCK / Q6_K_GROUP; i++)
        scales[i] = f16_from_float(d * (float)(int8_t)block[192 + i]);
    for (int i = 0; i < SUPER_BLOCK; i++) {
        int half = i / 128, quarter = i / 32 % 4, lane = i % 32;
        int low = block[64 * half + lane + 32 * (quarter & 1)] >> 4 * (quarter >> 1) & 15;
        integers[i] = (int8_t)((low | (block[128 + 32 * half + lane] >> 2 * quarter & 3) << 4) - 32);
    }
}

static void read_block(enum tensor_type type, const uint8_t *block, int8_t *integers, uint16_t *scales, uint16_t *minima)
{
    switch (type) {
    case TENSOR_Q8_0:
        *scales = load_u16(block);
        memcpy(integers, block + 2, BLOCK);
        return;
    case TENSOR_Q5_0:
        *scales = load_u16(block);
        read_q5_0(block, integers);
        return;
    case TENSOR_Q6_K:
        read_q6_k(block, integers, scales);
        return;
    case TENSOR_Q4_0:
        *scales = load_u16(block);
        split_nibbles(block + 2, 8, integers);
        return;
    case TENSOR_Q4_1:
        *scales = load_u16(block);
        *minima = load_u16(block + 2);
        split_nibbles(block + 4, 0, integers);
        return;
    default:
        hs_assert(type == TENSOR_Q4_K);
        read_q4_k(block, integers, scales, minima);
    }
}

void tensor_read_groups(const struct tensor_view *t, uint32_t row, int8_t *integers, uint16_t *scales, uint16_t *minima)
{
    struct w4_layout layout;
    hs_assert(row < t->rows);
    if (w4_layout_of(t->type, &layout)) {
        w4_read_row(layout, (const uint8_t *)t->data + row * w4_row_bytes(layout, t->cols), t->cols, integers, scales, minima);
        return;
    }
    const struct tensor_format *format = tensor_format(t->type);
    hs_assert(format);
    const uint32_t n_blocks = t->cols / format->block_elements;
    const uint32_t groups = format->block_elements / (t->type == TENSOR_Q6_K ? Q6_K_GROUP : BLOCK);
    const uint8_t *block = (const uint8_t *)t->data + (uint64_t)row * n_blocks * format->block_bytes;
    for (uint32_t i = 0; i < n_blocks; i++) {
        read_block(t->type, block, integers, scales, minima);
        block += format->block_bytes;
        integers += format->block_elements;
        scales += groups;
        minima += minima ? groups : 0;
    }
}

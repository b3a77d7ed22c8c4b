/*
 * What the panels of a matrix hold (kernels.h, kernels_quantised.h). Pure functions of the type; any thread.
 */
#ifndef HEARSAY_CPU_WEIGHT_TYPE_H
#define HEARSAY_CPU_WEIGHT_TYPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum weight_type {
    WEIGHT_F16,
    WEIGHT_BF16,
    WEIGHT_BF16_PAIRS,
    WEIGHT_F32,
    WEIGHT_W4_G32, /* integers of 4 bits and FP16 scales for groups of 32 inputs; the first of the quantised types */
    WEIGHT_W4_G64,
    WEIGHT_W4_G128,
    WEIGHT_W4_G32_MIN, /* with minima */
    WEIGHT_W4_G64_MIN,
    WEIGHT_W4_G128_MIN,
    WEIGHT_W8_G16, /* integers of 8 bits */
    WEIGHT_W8_G32,
};

static inline bool weight_is_quantised(enum weight_type type)
{
    return type >= WEIGHT_W4_G32;
}

/* The next three are for quantised types. */
static inline uint32_t weight_bits(enum weight_type type)
{
    return type >= WEIGHT_W8_G16 ? 8 : 4;
}

static inline bool weight_has_minimum(enum weight_type type)
{
    return type >= WEIGHT_W4_G32_MIN && type <= WEIGHT_W4_G128_MIN;
}

/* Inputs of a group; the last group of a row may have fewer. */
static inline uint32_t weight_group(enum weight_type type)
{
    if (weight_bits(type) == 8)
        return type == WEIGHT_W8_G16 ? 16 : 32;
    return 32u << (type - (weight_has_minimum(type) ? WEIGHT_W4_G32_MIN : WEIGHT_W4_G32));
}

/* What stored integers have more than they mean. */
static inline int32_t weight_offset(enum weight_type type)
{
    if (weight_bits(type) == 8)
        return 128;
    return weight_has_minimum(type) ? 0 : 8;
}

/* Bytes of a group of n inputs in a panel. */
static inline size_t weight_group_bytes(enum weight_type type, uint32_t n, uint32_t panel_width)
{
    const size_t scales = (weight_has_minimum(type) ? 2 : 1) * sizeof(uint16_t);
    return panel_width * ((size_t)n * weight_bits(type) / 8 + scales);
}

/* Bytes of a panel of panel_width outputs; quantised types have n_inputs in multiples of 32. */
static inline size_t weight_panel_bytes(enum weight_type type, uint32_t n_inputs, uint32_t panel_width)
{
    if (!weight_is_quantised(type))
        return (size_t)n_inputs * panel_width * (type == WEIGHT_F32 ? sizeof(float) : sizeof(uint16_t));
    const uint32_t group = weight_group(type), rest = n_inputs % group;
    return n_inputs / group * weight_group_bytes(type, group, panel_width) + (rest ? weight_group_bytes(type, rest, panel_width) : 0);
}

#endif

/*
 * Part of every float32 path, included before kernels_body.h: words are floats,
 * what is stored in 16 bits becomes floats when it is loaded, and a product is
 * multiplied and added as the path does it.
 */
#ifndef HEARSAY_CPU_KERNELS_FLOATS_H
#define HEARSAY_CPU_KERNELS_FLOATS_H

#include <string.h>

#include "core/cpu/kernels.h"

enum { INPUTS_PER_WORD = 1 };
#define KERNELS_WIDEN_PANELS widen_panels

static inline vec load_weights(const void *from, enum weight_type type)
{
    if (type == WEIGHT_F32)
        return vec_load(from);
    return type == WEIGHT_F16 ? vec_load_f16(from) : vec_load_bf16(from);
}

/* The sums of the three planes of a group; the upper two together are below 2^31. */
static inline vec join_planes(const ints *sums)
{
    return vec_multiply_add(ints_to_floats(join_ints(sums[2], sums[1])), vec_broadcast(256.0f), ints_to_floats(sums[0]));
}

static inline vec load_stored(const uint16_t *from)
{
    return vec_load_f16(from);
}

static inline vec load_words(const float *from)
{
    return vec_load(from);
}

static inline vec multiply_words(vec a, vec b, vec sum)
{
    return vec_multiply_add(a, b, sum);
}

/* Words never hold two keys here. */
static inline vec keep_in_pair(vec words, int keep_low, int keep_high)
{
    return words;
}

static inline void store_attention_weights(float *row, uint32_t key, vec low, vec high)
{
    vec_store(row + key, low);
    vec_store(row + key + LANES, high);
}

static void widen_panels(const uint16_t *in, enum weight_type type, size_t n, float *out)
{
    for (size_t i = 0; i < n; i += LANES)
        vec_store(out + i, load_weights(in + i, type));
}

static void pack_inputs(const float *in, uint32_t n, float *words, size_t stride)
{
    if (stride == 1) {
        memcpy(words, in, n * sizeof *words);
        return;
    }
    for (uint32_t i = 0; i < n; i++)
        words[i * stride] = in[i];
}

#endif

/*
 * The kernels themselves, written once over a small set of vector operations.
 * Each path (kernels_generic.c, kernels_avx2.c, kernels_avx512.c,
 * kernels_avx512bf16.c) defines these and then includes this file, which ends
 * in the path's table:
 *
 *     vec, LANES, PANEL_VECS, TILE_ROWS, FOR_EACH_ROW_COUNT(X), KERNELS_NAME,
 * KERNELS_ARITHMETIC vec_zero vec_broadcast vec_load vec_store vec_multiply_add
 * vec_add vec_subtract vec_multiply vec_divide vec_max vec_min vec_round vec_scale_pow2
 * vec_within_exponents vec_keep vec_reduce_max vec_reduce_add store_four_rows load_words shorts_from_floats INPUTS_PER_WORD KERNELS_WIDEN_PANELS load_weights
 * load_stored multiply_words keep_in_pair store_attention_weights pack_inputs
 *
 * and what kernels_quantised.h lists
 *
 * kernels_floats.h has what a word is for the float32 paths. The same
 * source gives each path its own arithmetic class: they differ in what a word
 * is, in how many lanes a sum of exponentials has and in whether a product is
 * rounded before it is added.
 */
#ifndef HEARSAY_CPU_KERNELS_BODY_H
#define HEARSAY_CPU_KERNELS_BODY_H

#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "core/base/panic.h"
#include "core/cpu/half.h"
#include "core/cpu/kernels.h"

#define KERNEL_INLINE static inline __attribute__((always_inline))
#define UNROLL        _Pragma("GCC unroll 16")

enum { PANEL_WIDTH = LANES * PANEL_VECS, KEY_VECS = CPU_KEY_TILE / LANES };
/* 16-bit values behind a vector of words. */
enum { VEC_SHORTS = LANES * INPUTS_PER_WORD };

#include "core/cpu/kernels_exp.h"
#include "core/cpu/kernels_fixed.h"
#include "core/cpu/kernels_quantised.h"
#include "core/cpu/kernels_products.h"
#include "core/cpu/kernels_rows.h"
#include "core/cpu/kernels_scores.h"
#include "core/cpu/kernels_values.h"

static const struct cpu_kernels table = {
    .name = KERNELS_NAME,
    .arithmetic = KERNELS_ARITHMETIC,
    .panel_width = PANEL_WIDTH,
    .tile_rows = TILE_ROWS,
    .inputs_per_word = INPUTS_PER_WORD,
    .shorts_from_floats = shorts_from_floats,
    .pack_inputs = pack_inputs,
    .pack_rows = pack_rows,
    .input_planes = INPUT_PLANES,
    .matmul = matmul,
    .fix_inputs = fix_inputs,
    .widen_panels = KERNELS_WIDEN_PANELS,
    .normalize = normalize,
    .rotate = rotate,
    .silu_multiply = silu_multiply,
    .score_keys = score_keys,
    .softmax_segment = softmax_segment,
    .accumulate_values = accumulate_values,
    .merge_states = merge_states,
    .finish_states = finish_states,
};

#endif

/*
 * Vectors of 16 floats for the two AVX-512 paths: panels of 32 outputs, tiles of 12 rows (24 of 32 registers hold sums).
 * Included by kernels_avx512.c and kernels_avx512bf16.c only; see kernels_body.h for what a path defines.
 */
#ifndef HEARSAY_CPU_KERNELS_AVX512_H
#define HEARSAY_CPU_KERNELS_AVX512_H

#include <immintrin.h>
#include <stdint.h>

#include "core/cpu/kernels_eight.h"

typedef __m512 vec;
enum { LANES = 16, PANEL_VECS = 2, TILE_ROWS = 12 };
#define FOR_EACH_ROW_COUNT(X) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11) X(12)
enum { PASS_ROWS = 6, PANELS_SIDE = 2 };
#define FOR_EACH_PASS_ROWS(X) X(1) X(2) X(3) X(4) X(5) X(6)
enum { BROAD_ROWS = 4 };
#define FOR_EACH_BROAD_ROWS(X) X(3) X(4)
#define FOR_EACH_TALL_ROWS(X)  X(7) X(8)

static inline vec vec_zero(void)
{
    return _mm512_setzero_ps();
}

static inline vec vec_broadcast(float value)
{
    return _mm512_set1_ps(value);
}

static inline vec vec_load(const float *from)
{
    return _mm512_loadu_ps(from);
}

static inline void vec_store(float *to, vec value)
{
    _mm512_storeu_ps(to, value);
}

static inline vec vec_multiply_add(vec a, vec b, vec c)
{
    return _mm512_fmadd_ps(a, b, c);
}

static inline vec vec_add(vec a, vec b)
{
    return _mm512_add_ps(a, b);
}

static inline vec vec_subtract(vec a, vec b)
{
    return _mm512_sub_ps(a, b);
}

static inline vec vec_multiply(vec a, vec b)
{
    return _mm512_mul_ps(a, b);
}

static inline vec vec_divide(vec a, vec b)
{
    return _mm512_div_ps(a, b);
}

static inline vec vec_max(vec a, vec b)
{
    return _mm512_max_ps(a, b);
}

static inline vec vec_min(vec a, vec b)
{
    return _mm512_min_ps(a, b);
}

static inline vec vec_round(vec a)
{
    return _mm512_roundscale_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}

/* value * 2^exponent, exponent integral. */
static inline vec vec_scale_pow2(vec value, vec exponent)
{
    return _mm512_scalef_ps(value, exponent);
}

/* What vec_scale_pow2 takes: anything. */
static inline vec vec_within_exponents(vec a)
{
    return a;
}

/* Bits 0 .. n-1 of those of LANES lanes. */
static inline uint32_t lanes_below(int n)
{
    return n >= LANES ? 0xffffu : n <= 0 ? 0 : (1u << n) - 1;
}

/* Lanes first <= i < last of a, the others of b. */
static inline vec vec_keep(vec a, vec b, int first, int last)
{
    return _mm512_mask_blend_ps((__mmask16)(lanes_below(last) & ~lanes_below(first)), b, a);
}

/* By halves: lane i with i + 8, then as eight. */
static inline float vec_reduce_max(vec a)
{
    return max_of_eight(_mm256_max_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps(a, 1)));
}

static inline float vec_reduce_add(vec a)
{
    return sum_of_eight(_mm256_add_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps(a, 1)));
}

/* to[lane * stride + r] = lane of row r: 4 x 4 blocks transposed within each quarter. */
static inline void store_four_rows(vec a, vec b, vec c, vec d, float *to, size_t stride)
{
    __m512 low_ab = _mm512_unpacklo_ps(a, b), low_cd = _mm512_unpacklo_ps(c, d);
    __m512 high_ab = _mm512_unpackhi_ps(a, b), high_cd = _mm512_unpackhi_ps(c, d);
    const __m512 lanes[4] = {_mm512_shuffle_ps(low_ab, low_cd, 0x44), _mm512_shuffle_ps(low_ab, low_cd, 0xee),
                             _mm512_shuffle_ps(high_ab, high_cd, 0x44), _mm512_shuffle_ps(high_ab, high_cd, 0xee)};
    for (int i = 0; i < 4; i++) {
        _mm_storeu_ps(to + i * stride, _mm512_castps512_ps128(lanes[i]));
        _mm_storeu_ps(to + (4 + i) * stride, _mm512_extractf32x4_ps(lanes[i], 1));
        _mm_storeu_ps(to + (8 + i) * stride, _mm512_extractf32x4_ps(lanes[i], 2));
        _mm_storeu_ps(to + (12 + i) * stride, _mm512_extractf32x4_ps(lanes[i], 3));
    }
}

#include "core/cpu/kernels_avx512_ints.h"

#endif

/*
 * Vectors of 16 floats for the two AVX-512 paths: panels of 32 outputs, tiles of 12 rows (24 of 32 registers hold sums).
 * Included by kernels_avx512.c and kernels_avx512bf16.c only; see kernels_body.h for what a path defines.
 */
#ifndef HEARSAY_CPU_KERNELS_AVX512_H
#define HEARSAY_CPU_KERNELS_AVX512_H

#include <immintrin.h>
#include <stdint.h>

typedef __m512 vec;
enum { LANES = 16, PANEL_VECS = 2, TILE_ROWS = 12 };
#define FOR_EACH_ROW_COUNT(X) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11) X(12)

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

/* Lanes first <= i < last of a, the others of b. */
static inline vec vec_keep(vec a, vec b, int first, int last)
{
    uint32_t below_last = last >= LANES ? 0xffffu : (1u << last) - 1;
    uint32_t below_first = first <= 0 ? 0 : (1u << first) - 1;
    return _mm512_mask_blend_ps((__mmask16)(below_last & ~below_first), b, a);
}

#endif

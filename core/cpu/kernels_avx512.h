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
enum { PASS_ROWS = 6, PANELS_SIDE = 2 };
#define FOR_EACH_PASS_ROWS(X) X(1) X(2) X(3) X(4) X(5) X(6)
enum { ROW_PANELS = 4 };
#define FOR_EACH_ROW_PANELS(X) X(1) X(2) X(3) X(4)

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

/* ---- integers of kernels_quantised.h ---- */

typedef __m512i dwords;

static inline dwords load_packed(const char *from)
{
    return _mm512_loadu_si512(from);
}

static inline vec load_scales(const char *from)
{
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)from));
}

/*
 * bfloat16 pairs of 4-bit integers: a table look-up of 16 bits by the low five bits of each half of a dword. The fifth bit belongs to
 * the next integer, so the table stands there twice.
 */
static inline __m512i look_up_pairs(dwords raw, uint32_t pair, int has_minimum)
{
    static const _Alignas(64) uint16_t from_minus_8[32] = {
        0xc100, 0xc0e0, 0xc0c0, 0xc0a0, 0xc080, 0xc040, 0xc000, 0xbf80, 0x0000, 0x3f80, 0x4000, 0x4040, 0x4080, 0x40a0, 0x40c0, 0x40e0,
        0xc100, 0xc0e0, 0xc0c0, 0xc0a0, 0xc080, 0xc040, 0xc000, 0xbf80, 0x0000, 0x3f80, 0x4000, 0x4040, 0x4080, 0x40a0, 0x40c0, 0x40e0};
    static const _Alignas(64) uint16_t from_0[32] = {
        0x0000, 0x3f80, 0x4000, 0x4040, 0x4080, 0x40a0, 0x40c0, 0x40e0, 0x4100, 0x4110, 0x4120, 0x4130, 0x4140, 0x4150, 0x4160, 0x4170,
        0x0000, 0x3f80, 0x4000, 0x4040, 0x4080, 0x40a0, 0x40c0, 0x40e0, 0x4100, 0x4110, 0x4120, 0x4130, 0x4140, 0x4150, 0x4160, 0x4170};
    const __m512i table = _mm512_load_si512(has_minimum ? from_0 : from_minus_8);
    return _mm512_permutexvar_epi16(_mm512_srli_epi16(raw, 4 * pair), table);
}

/* Byte i of each dword as a float. */
static inline vec byte_to_float(dwords raw, uint32_t i)
{
    return _mm512_cvtepi32_ps(_mm512_srai_epi32(_mm512_slli_epi32(raw, 24 - 8 * i), 24));
}

#endif

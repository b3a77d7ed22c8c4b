/* The integers that kernels_fixed.h and kernels_quantised.h multiply, for the AVX-512 paths. Part of kernels_avx512.h. */
#ifndef HEARSAY_CPU_KERNELS_AVX512_INTS_H
#define HEARSAY_CPU_KERNELS_AVX512_INTS_H

#include <immintrin.h>

typedef __m512i ints;

static inline ints load_ints(const void *from)
{
    return _mm512_loadu_si512(from);
}

static inline void store_ints(int32_t *to, ints value)
{
    _mm512_storeu_si512(to, value);
}

/* The first n lanes: the others become zero, or are not written. */
static inline ints load_first_ints(const int32_t *from, uint32_t n)
{
    return _mm512_maskz_loadu_epi32((__mmask16)((1u << n) - 1), from);
}

static inline void store_first_ints(int32_t *to, ints value, uint32_t n)
{
    _mm512_mask_storeu_epi32(to, (__mmask16)((1u << n) - 1), value);
}

static inline ints ints_broadcast(int32_t value)
{
    return _mm512_set1_epi32(value);
}

static inline ints ints_from_floats(vec a)
{
    return _mm512_cvtps_epi32(a);
}

static inline vec load_scales(const char *from)
{
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)from));
}

/* high * 256 + low, exactly; the sums of a group stay below 2^23. */
static inline ints join_ints(ints high, ints low)
{
    return _mm512_add_epi32(_mm512_slli_epi32(high, 8), low);
}

static inline vec ints_to_floats(ints a)
{
    return _mm512_cvtepi32_ps(a);
}

static inline ints low_nibbles(ints raw)
{
    return _mm512_and_si512(raw, _mm512_set1_epi8(15));
}

static inline ints high_nibbles(ints raw)
{
    return _mm512_and_si512(_mm512_srli_epi16(raw, 4), _mm512_set1_epi8(15));
}

/* Sums plus products of four bytes, a without sign; plus those of two such pairs, a and c below 16. */
#ifdef __AVX512VNNI__
static inline ints multiply_bytes(ints sum, ints a, ints b)
{
    return _mm512_dpbusd_epi32(sum, a, b);
}

static inline ints multiply_nibbles(ints sum, ints a, ints b, ints c, ints d)
{
    return _mm512_dpbusd_epi32(_mm512_dpbusd_epi32(sum, a, b), c, d);
}
#else
static inline ints multiply_nibbles(ints sum, ints a, ints b, ints c, ints d)
{
    ints pairs = _mm512_add_epi16(_mm512_maddubs_epi16(a, b), _mm512_maddubs_epi16(c, d));
    return _mm512_add_epi32(sum, _mm512_madd_epi16(pairs, _mm512_set1_epi16(1)));
}

/* By halves of a, so that no pair of products leaves 16 bits. */
static inline ints multiply_bytes(ints sum, ints a, ints b)
{
    ints low = _mm512_madd_epi16(_mm512_maddubs_epi16(low_nibbles(a), b), _mm512_set1_epi16(1));
    ints high = _mm512_madd_epi16(_mm512_maddubs_epi16(high_nibbles(a), b), _mm512_set1_epi16(16));
    return _mm512_add_epi32(sum, _mm512_add_epi32(low, high));
}
#endif

#endif

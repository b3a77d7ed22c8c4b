/* Eight lanes to one, by halves: lane i with i + 4, then i + 2, i + 1. The end of both the AVX2 and the AVX-512 reductions. */
#ifndef HEARSAY_CPU_KERNELS_EIGHT_H
#define HEARSAY_CPU_KERNELS_EIGHT_H

#include <immintrin.h>

static inline float max_of_eight(__m256 a)
{
    __m128 four = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    four = _mm_max_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_max_ss(four, _mm_movehdup_ps(four)));
}

static inline float sum_of_eight(__m256 a)
{
    __m128 four = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    four = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(four, _mm_movehdup_ps(four)));
}

#endif

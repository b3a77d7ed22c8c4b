/*
 * The AVX-512 paths in float32, with VNNI (kernels_avx512vnni.c) and without (kernels_avx512.c): sums of bytes are exact, so both
 * give the same bits and are one arithmetic class. See kernels.h.
 */
#ifndef HEARSAY_CPU_KERNELS_AVX512_FLOATS_H
#define HEARSAY_CPU_KERNELS_AVX512_FLOATS_H

#include "core/cpu/kernels.h"
#include "core/cpu/kernels_avx512.h"

#define KERNELS_ARITHMETIC "cpu-avx512-f32"

enum { QUANTISED_ROWS = 3 }; /* a fourth, and some sums of the end of a group no longer fit the registers */
#define FOR_EACH_QUANTISED_ROWS(X) X(1) X(2) X(3)

static inline vec vec_load_f16(const uint16_t *from)
{
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)from));
}

static inline vec vec_load_bf16(const uint16_t *from)
{
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)from)), 16));
}

static void shorts_from_floats(const float *in, uint16_t *out, size_t n)
{
    size_t i = 0;
    for (; i + LANES <= n; i += LANES)
        _mm256_storeu_si256((__m256i *)(out + i), _mm512_cvtps_ph(_mm512_loadu_ps(in + i), _MM_FROUND_TO_NEAREST_INT));
    if (i < n) {
        __mmask16 rest = (__mmask16)((1u << (n - i)) - 1);
        __m256i halves = _mm512_cvtps_ph(_mm512_maskz_loadu_ps(rest, in + i), _MM_FROUND_TO_NEAREST_INT);
        _mm256_mask_storeu_epi16(out + i, rest, halves);
    }
}

#include "core/cpu/kernels_floats.h"

#include "core/cpu/kernels_body.h"

static inline const struct cpu_kernels *table_if_supported(void)
{
    __builtin_cpu_init();
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
                   __builtin_cpu_supports("avx512dq")
               ? &table
               : NULL;
}

#endif

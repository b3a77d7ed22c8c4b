/* The AVX-512 path in float32. See kernels.h. */
#include "core/cpu/kernels_avx512.h"
#include "core/cpu/kernels.h"

#define KERNELS_NAME       "avx512"
#define KERNELS_ARITHMETIC "cpu-avx512-f32"

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

static inline __attribute__((always_inline)) void unpack_words(dwords raw, uint32_t pair, uint32_t bits, int has_minimum, vec words[2])
{
    if (bits == 8) {
        words[0] = byte_to_float(raw, 2 * pair);
        words[1] = byte_to_float(raw, 2 * pair + 1);
        return;
    }
    __m512i pairs = look_up_pairs(raw, pair, has_minimum);
    words[0] = _mm512_castsi512_ps(_mm512_slli_epi32(pairs, 16));
    words[1] = _mm512_castsi512_ps(_mm512_and_si512(pairs, _mm512_set1_epi32((int)0xffff0000)));
}

#include "core/cpu/kernels_floats.h"

#include "core/cpu/kernels_body.h"

const struct cpu_kernels *cpu_kernels_avx512(void)
{
    __builtin_cpu_init();
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
                   __builtin_cpu_supports("avx512dq")
               ? &table
               : NULL;
}

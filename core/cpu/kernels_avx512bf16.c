/*
 * The AVX-512 path that multiplies pairs of bfloat16 (VDPBF16PS) and adds in float32. Each lane of the instruction adds the
 * product of the upper halves to the sum, then that of the lower halves, each step rounded to nearest even, denormals taken as
 * zero: one chain of 2 x words in an order that is the same for every number of rows. See kernels.h.
 */
#include "core/cpu/kernels.h"
#include "core/cpu/kernels_avx512.h"

#define KERNELS_NAME       "avx512bf16"
#define KERNELS_ARITHMETIC "cpu-avx512bf16-bf16"

enum { INPUTS_PER_WORD = 2 };
#define KERNELS_WIDEN_PANELS NULL

static inline vec load_weights(const void *from, enum weight_type type)
{
    return _mm512_loadu_ps(from);
}

static inline vec load_stored(const uint16_t *from)
{
    return _mm512_loadu_ps(from);
}

static inline vec load_words(const float *from)
{
    return (vec)_mm512_cvtne2ps_pbh(_mm512_loadu_ps(from + LANES), _mm512_loadu_ps(from));
}

static inline vec multiply_words(vec a, vec b, vec sum)
{
    return _mm512_dpbf16_ps(sum, (__m512bh)a, (__m512bh)b);
}

static inline vec keep_in_pair(vec words, int keep_low, int keep_high)
{
    int mask = (keep_low ? 0xffff : 0) | (keep_high ? (int)0xffff0000 : 0);
    return _mm512_castsi512_ps(_mm512_and_si512(_mm512_castps_si512(words), _mm512_set1_epi32(mask)));
}

/* A row's weights shrink to half its front: what is overwritten has been read. */
static inline void store_attention_weights(float *row, uint32_t key, vec low, vec high)
{
    _mm512_storeu_ps(row + key / 2, (vec)_mm512_cvtne2ps_pbh(high, low));
}

static void shorts_from_floats(const float *in, uint16_t *out, size_t n)
{
    for (size_t i = 0; i < n; i += LANES) {
        __mmask16 rest = n - i < LANES ? (__mmask16)((1u << (n - i)) - 1) : (__mmask16)0xffff;
        __m256i shorts = (__m256i)_mm512_cvtneps_pbh(_mm512_maskz_loadu_ps(rest, in + i));
        _mm256_mask_storeu_epi16(out + i, rest, shorts);
    }
}

static void pack_inputs(const float *in, uint32_t n, float *words, size_t stride)
{
    float pairs[LANES / 2];
    for (uint32_t i = 0; i < n; i += LANES) {
        __mmask16 rest = n - i < LANES ? (__mmask16)((1u << (n - i)) - 1) : (__mmask16)0xffff;
        __m256i packed = (__m256i)_mm512_cvtneps_pbh(_mm512_maskz_loadu_ps(rest, in + i));
        uint32_t count = (n - i < LANES ? n - i : LANES) / 2;
        _mm256_storeu_si256((__m256i *)pairs, packed);
        for (uint32_t j = 0; j < count; j++)
            words[(i / 2 + j) * stride] = pairs[j];
    }
}

static inline __attribute__((always_inline)) void unpack_words(dwords raw, uint32_t pair, uint32_t bits, int has_minimum, vec words[1])
{
    if (bits == 4) {
        words[0] = _mm512_castsi512_ps(look_up_pairs(raw, pair, has_minimum));
        return;
    }
    /* Eight bits are exact in bfloat16: the lower half of the float is zero. */
    __m512i low = _mm512_castps_si512(byte_to_float(raw, 2 * pair)), high = _mm512_castps_si512(byte_to_float(raw, 2 * pair + 1));
    words[0] = _mm512_castsi512_ps(_mm512_or_si512(_mm512_srli_epi32(low, 16), high));
}

/* Sums plus the two inputs of each word, the lower one first. */
static inline vec add_words(vec sums, vec words)
{
    __m512i bits = _mm512_castps_si512(words);
    vec low = _mm512_castsi512_ps(_mm512_slli_epi32(bits, 16));
    vec high = _mm512_castsi512_ps(_mm512_and_si512(bits, _mm512_set1_epi32((int)0xffff0000)));
    return vec_add(vec_add(sums, low), high);
}

#include "core/cpu/kernels_body.h"

const struct cpu_kernels *cpu_kernels_avx512bf16(void)
{
    __builtin_cpu_init();
    return __builtin_cpu_supports("avx512bf16") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
                   __builtin_cpu_supports("avx512dq")
               ? &table
               : NULL;
}

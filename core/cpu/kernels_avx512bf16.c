/*
 * The AVX-512 path that multiplies pairs of bfloat16 (VDPBF16PS) and adds in float32. Each lane of the instruction adds the
 * product of the upper halves to the sum, then that of the lower halves, each step rounded to nearest even, denormals taken as
 * zero: one chain of 2 x words in an order that is the same for every number of rows. See kernels.h.
 */
#include "core/cpu/kernels.h"
#include "core/cpu/kernels_avx512.h"

#define KERNELS_NAME       "avx512bf16"
#define KERNELS_ARITHMETIC "cpu-avx512bf16-bf16"

enum { INPUTS_PER_WORD = 2, QUANTISED_ROWS = 6 };
#define FOR_EACH_QUANTISED_ROWS(X) X(1) X(2) X(3) X(4) X(5) X(6)
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

/* The sums of the lower and the upper planes of a group, below 2^31. */
static inline vec join_planes(const ints *sums)
{
    return ints_to_floats(join_ints(sums[1], sums[0]));
}

#include "core/cpu/kernels_body.h"

const struct cpu_kernels *cpu_kernels_avx512bf16(void)
{
    __builtin_cpu_init();
    return __builtin_cpu_supports("avx512bf16") && __builtin_cpu_supports("avx512vnni") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
                   __builtin_cpu_supports("avx512dq")
               ? &table
               : NULL;
}

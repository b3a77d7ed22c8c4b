#include "core/cpu/sample_kernels.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

#include "core/cpu/sample_math.h"

enum { LANES = 64, BLOCK = 512, SUM_LANES = 16, SUM_BLOCK = 256 };

#define ALWAYS_INLINE static inline __attribute__((always_inline))

ALWAYS_INLINE float block_max(const float *x, uint32_t n)
{
    float lanes[LANES];
    uint32_t i = 0;
    for (uint32_t lane = 0; lane < LANES; lane++)
        lanes[lane] = -INFINITY;
    for (; i + LANES <= n; i += LANES)
        for (uint32_t lane = 0; lane < LANES; lane++)
            lanes[lane] = x[i + lane] > lanes[lane] ? x[i + lane] : lanes[lane];
    for (; i < n; i++)
        lanes[0] = x[i] > lanes[0] ? x[i] : lanes[0];
    for (uint32_t half = LANES / 2; half > 0; half /= 2)
        for (uint32_t lane = 0; lane < half; lane++)
            lanes[lane] = lanes[lane + half] > lanes[lane] ? lanes[lane + half] : lanes[lane];
    return lanes[0];
}

/* One pass for the block that holds the maximum first, then that block again for the place. */
ALWAYS_INLINE uint32_t argmax_body(const float *x, uint32_t n)
{
    float best = -INFINITY;
    uint32_t best_block = 0;
    for (uint32_t i = 0; i < n; i += BLOCK) {
        float max = block_max(x + i, n - i < BLOCK ? n - i : BLOCK);
        if (max > best) {
            best = max;
            best_block = i;
        }
    }
    for (uint32_t i = best_block; i < n && i < best_block + BLOCK; i++)
        if (x[i] == best)
            return i;
    return 0;
}

ALWAYS_INLINE double sum_exp_body(const float *x, uint32_t n, double max, double scale)
{
    double lanes[SUM_LANES] = {0}, terms[SUM_BLOCK];
    for (uint32_t i = 0; i < n; i += SUM_BLOCK) {
        uint32_t count = n - i < SUM_BLOCK ? n - i : SUM_BLOCK;
        for (uint32_t j = 0; j < count; j++)
            terms[j] = sample_exp(((double)x[i + j] - max) * scale);
        for (uint32_t j = count; j < SUM_BLOCK; j++)
            terms[j] = 0;
        for (uint32_t j = 0; j < SUM_BLOCK; j += SUM_LANES)
            for (uint32_t lane = 0; lane < SUM_LANES; lane++)
                lanes[lane] += terms[j + lane];
    }
    for (uint32_t half = SUM_LANES / 2; half > 0; half /= 2)
        for (uint32_t lane = 0; lane < half; lane++)
            lanes[lane] += lanes[lane + half];
    return lanes[0];
}

/*
 * Philox4x32-10 (core/base/rng.c has the plain one; a test holds them together) for SAMPLE_BLOCK / 4 counters side by side. Written
 * so that the loop over counters is the vectorised one.
 */
ALWAYS_INLINE void philox_block(const struct sample_noise_key *key, uint32_t first, uint32_t *bits)
{
    for (uint32_t lane = 0; lane < SAMPLE_BLOCK / SAMPLE_TOKENS_PER_CALL; lane++) {
        uint32_t c0 = first / SAMPLE_TOKENS_PER_CALL + lane, c1 = key->position, c2 = key->choice, c3 = 0;
        uint32_t k0 = (uint32_t)key->seed, k1 = (uint32_t)(key->seed >> 32);
#pragma GCC unroll 10
        for (int round = 0; round < 10; round++) {
            uint32_t low0 = 0xd2511f53u * c0, high0 = (uint32_t)(((uint64_t)0xd2511f53u * c0) >> 32);
            uint32_t low1 = 0xcd9e8d57u * c2, high1 = (uint32_t)(((uint64_t)0xcd9e8d57u * c2) >> 32);
            c0 = high1 ^ c1 ^ k0;
            c1 = low1;
            c2 = high0 ^ c3 ^ k1;
            c3 = low0;
            k0 += 0x9e3779b9u;
            k1 += 0xbb67ae85u;
        }
        bits[SAMPLE_TOKENS_PER_CALL * lane] = c0;
        bits[SAMPLE_TOKENS_PER_CALL * lane + 1] = c1;
        bits[SAMPLE_TOKENS_PER_CALL * lane + 2] = c2;
        bits[SAMPLE_TOKENS_PER_CALL * lane + 3] = c3;
    }
}

/*
 * Never below the Gumbel noise of these bits, without a logarithm. The noise is at most -ln(v) for v = 1 - u, since -ln(u) >= 1 -
 * u; v is at least 2^-31 f; and log2(f) is at least what f's own bits say, read as a number (exponent plus mantissa).
 */
ALWAYS_INLINE float gumbel_bound(uint32_t bits)
{
    float f = (float)(int32_t)(~bits >> 1) + 0.25f;
    int32_t as_whole;
    memcpy(&as_whole, &f, sizeof as_whole);
    return 0.001f + 0.69314718f * (158.0f - (float)as_whole * 0x1p-23f);
}

ALWAYS_INLINE float bound_block_body(const float *x, float temperature, const struct sample_noise_key *key, uint32_t first,
                                     uint32_t *bits, float *upper)
{
    philox_block(key, first, bits);
    for (uint32_t i = 0; i < SAMPLE_BLOCK; i++)
        upper[i] = x[i] + temperature * gumbel_bound(bits[i]);
    return block_max(upper, SAMPLE_BLOCK);
}

#define VARIANT(suffix, attribute)                                                                                                 \
    attribute static uint32_t argmax_##suffix(const float *x, uint32_t n)                                                          \
    {                                                                                                                              \
        return argmax_body(x, n);                                                                                                  \
    }                                                                                                                              \
    attribute static double sum_exp_##suffix(const float *x, uint32_t n, double max, double scale)                                 \
    {                                                                                                                              \
        return sum_exp_body(x, n, max, scale);                                                                                     \
    }                                                                                                                              \
    attribute static float max_block_##suffix(const float *x)                                                                      \
    {                                                                                                                              \
        return block_max(x, SAMPLE_BLOCK);                                                                                         \
    }                                                                                                                              \
    attribute static float bound_block_##suffix(const float *x, float temperature, const struct sample_noise_key *key,             \
                                                uint32_t first, uint32_t *bits, float *upper)                                      \
    {                                                                                                                              \
        return bound_block_body(x, temperature, key, first, bits, upper);                                                          \
    }                                                                                                                              \
    static const struct sample_kernels kernels_##suffix = {.argmax = argmax_##suffix,                                              \
                                                           .sum_exp = sum_exp_##suffix,                                            \
                                                           .bound_block = bound_block_##suffix,                                    \
                                                           .max_block = max_block_##suffix};

VARIANT(generic, )
#ifdef __x86_64__
VARIANT(avx2, __attribute__((target("avx2"))))
#ifdef __clang__ /* which takes no width here, and then ignores the whole attribute */
#define VECTOR_WIDTH ""
#else
#define VECTOR_WIDTH ",prefer-vector-width=512"
#endif
VARIANT(avx512, __attribute__((target("avx512f,avx512dq,avx512vl,avx512bw" VECTOR_WIDTH))))
#endif

const struct sample_kernels *sample_kernels_variant(uint32_t i)
{
    const struct sample_kernels *variants[4] = {&kernels_generic};
    uint32_t n = 1;
#ifdef __x86_64__
    if (__builtin_cpu_supports("avx2"))
        variants[n++] = &kernels_avx2;
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
        __builtin_cpu_supports("avx512bw"))
        variants[n++] = &kernels_avx512;
#endif
    return i < n ? variants[i] : NULL;
}

const struct sample_kernels *sample_kernels_best(void)
{
    const struct sample_kernels *best = NULL;
    for (uint32_t i = 0; sample_kernels_variant(i); i++)
        best = sample_kernels_variant(i);
    return best;
}

#include "core/cpu/sample_kernels.h"

#include <math.h>
#include <stddef.h>

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

#define VARIANT(suffix, attribute)                                                                     \
    attribute static uint32_t argmax_##suffix(const float *x, uint32_t n)                              \
    {                                                                                                  \
        return argmax_body(x, n);                                                                      \
    }                                                                                                  \
    attribute static double sum_exp_##suffix(const float *x, uint32_t n, double max, double scale)     \
    {                                                                                                  \
        return sum_exp_body(x, n, max, scale);                                                         \
    }                                                                                                  \
    static const struct sample_kernels kernels_##suffix = {.argmax = argmax_##suffix, .sum_exp = sum_exp_##suffix};

VARIANT(generic, )
#ifdef __x86_64__
VARIANT(avx2, __attribute__((target("avx2"))))
VARIANT(avx512, __attribute__((target("avx512f,avx512dq,avx512vl,avx512bw,prefer-vector-width=512"))))
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

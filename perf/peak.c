#include "perf/peak.h"

#ifdef __x86_64__
#include <immintrin.h>

/* Enough chains to hide four cycles of latency on two units. */
enum { CHAINS = 12 };

__attribute__((target("avx512f"))) static float read_avx512(const float *data, size_t n)
{
    __m512 sum[8] = {0};
    for (size_t i = 0; i < n; i += 128)
        for (int j = 0; j < 8; j++)
            sum[j] = _mm512_add_ps(sum[j], _mm512_loadu_ps(data + i + 16 * j));
    for (int j = 1; j < 8; j++)
        sum[0] = _mm512_add_ps(sum[0], sum[j]);
    return _mm512_reduce_add_ps(sum[0]);
}

__attribute__((target("avx2,fma"))) static float read_avx2(const float *data, size_t n)
{
    __m256 sum[8] = {0};
    float lanes[8];
    for (size_t i = 0; i < n; i += 64)
        for (int j = 0; j < 8; j++)
            sum[j] = _mm256_add_ps(sum[j], _mm256_loadu_ps(data + i + 8 * j));
    for (int j = 1; j < 8; j++)
        sum[0] = _mm256_add_ps(sum[0], sum[j]);
    _mm256_storeu_ps(lanes, sum[0]);
    return lanes[0] + lanes[1] + lanes[2] + lanes[3] + lanes[4] + lanes[5] + lanes[6] + lanes[7];
}

__attribute__((target("avx512f"))) static uint64_t multiply_add_avx512(uint32_t iterations, float *out)
{
    __m512 chain[CHAINS], factor = _mm512_set1_ps(0.999999f), term = _mm512_set1_ps(1e-6f);
    for (int j = 0; j < CHAINS; j++)
        chain[j] = _mm512_set1_ps((float)j);
    for (uint32_t i = 0; i < iterations; i++)
        for (int j = 0; j < CHAINS; j++)
            chain[j] = _mm512_fmadd_ps(chain[j], factor, term);
    for (int j = 1; j < CHAINS; j++)
        chain[0] = _mm512_add_ps(chain[0], chain[j]);
    *out = _mm512_reduce_add_ps(chain[0]);
    return (uint64_t)iterations * CHAINS * 16 * 2;
}

__attribute__((target("avx2,fma"))) static uint64_t multiply_add_avx2(uint32_t iterations, float *out)
{
    __m256 chain[CHAINS], factor = _mm256_set1_ps(0.999999f), term = _mm256_set1_ps(1e-6f);
    for (int j = 0; j < CHAINS; j++)
        chain[j] = _mm256_set1_ps((float)j);
    for (uint32_t i = 0; i < iterations; i++)
        for (int j = 0; j < CHAINS; j++)
            chain[j] = _mm256_fmadd_ps(chain[j], factor, term);
    float lanes[8];
    for (int j = 1; j < CHAINS; j++)
        chain[0] = _mm256_add_ps(chain[0], chain[j]);
    _mm256_storeu_ps(lanes, chain[0]);
    *out = lanes[0] + lanes[7];
    return (uint64_t)iterations * CHAINS * 8 * 2;
}

__attribute__((target("avx512f,avx512bf16"))) uint64_t peak_multiply_add_bfloat(uint32_t iterations, float *out)
{
    __m512 chain[CHAINS], pairs = _mm512_set1_ps(1e-3f);
    for (int j = 0; j < CHAINS; j++)
        chain[j] = _mm512_set1_ps((float)j);
    for (uint32_t i = 0; i < iterations; i++)
        for (int j = 0; j < CHAINS; j++)
            chain[j] = _mm512_dpbf16_ps(chain[j], (__m512bh)pairs, (__m512bh)pairs);
    for (int j = 1; j < CHAINS; j++)
        chain[0] = _mm512_add_ps(chain[0], chain[j]);
    *out = _mm512_reduce_add_ps(chain[0]);
    return (uint64_t)iterations * CHAINS * 32 * 2;
}

bool peak_has_bfloat(void)
{
    return __builtin_cpu_supports("avx512bf16");
}
#else
uint64_t peak_multiply_add_bfloat(uint32_t iterations, float *out)
{
    return 0;
}

bool peak_has_bfloat(void)
{
    return false;
}
#endif

static float read_generic(const float *data, size_t n)
{
    float sum[16] = {0};
    for (size_t i = 0; i < n; i += 16)
        for (int j = 0; j < 16; j++)
            sum[j] += data[i + j];
    for (int j = 1; j < 16; j++)
        sum[0] += sum[j];
    return sum[0];
}

static uint64_t multiply_add_generic(uint32_t iterations, float *out)
{
    float chain[16];
    for (int j = 0; j < 16; j++)
        chain[j] = (float)j;
    for (uint32_t i = 0; i < iterations; i++)
        for (int j = 0; j < 16; j++)
            chain[j] = chain[j] * 0.999999f + 1e-6f;
    *out = chain[0];
    for (int j = 1; j < 16; j++)
        *out += chain[j];
    return (uint64_t)iterations * 16 * 2;
}

float peak_read(const float *data, size_t n)
{
#ifdef __x86_64__
    if (__builtin_cpu_supports("avx512f"))
        return read_avx512(data, n);
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
        return read_avx2(data, n);
#endif
    return read_generic(data, n);
}

uint64_t peak_multiply_add(uint32_t iterations, float *out)
{
#ifdef __x86_64__
    if (__builtin_cpu_supports("avx512f"))
        return multiply_add_avx512(iterations, out);
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
        return multiply_add_avx2(iterations, out);
#endif
    return multiply_add_generic(iterations, out);
}

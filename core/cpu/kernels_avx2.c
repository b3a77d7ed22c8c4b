/* The AVX2 path (with FMA and F16C): panels of 16 outputs, tiles of 6 rows (12 of 16 registers hold sums). See kernels.h. */
#include <cpuid.h>
#include <immintrin.h>

#include "core/cpu/half.h"
#include "core/cpu/kernels.h"
#include "core/cpu/kernels_eight.h"

typedef __m256 vec;
enum { LANES = 8, PANEL_VECS = 2, TILE_ROWS = 6 };
#define FOR_EACH_ROW_COUNT(X) X(1) X(2) X(3) X(4) X(5) X(6)
enum { PASS_ROWS = 6, PANELS_SIDE = 1 };
#define FOR_EACH_PASS_ROWS(X) X(1) X(2) X(3) X(4) X(5) X(6)
enum { BROAD_ROWS = 0 };
#define FOR_EACH_BROAD_ROWS(X)
#define FOR_EACH_TALL_ROWS(X)
enum { QUANTISED_ROWS = 2 };
#define FOR_EACH_QUANTISED_ROWS(X) X(1) X(2)
#define KERNELS_NAME          "avx2"
#define KERNELS_ARITHMETIC    "cpu-avx2-f32"

static inline vec vec_zero(void)
{
    return _mm256_setzero_ps();
}

static inline vec vec_broadcast(float value)
{
    return _mm256_set1_ps(value);
}

static inline vec vec_load(const float *from)
{
    return _mm256_loadu_ps(from);
}

static inline void vec_store(float *to, vec value)
{
    _mm256_storeu_ps(to, value);
}

static inline vec vec_load_f16(const uint16_t *from)
{
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)from));
}

static inline vec vec_load_bf16(const uint16_t *from)
{
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)from)), 16));
}

static inline vec vec_multiply_add(vec a, vec b, vec c)
{
    return _mm256_fmadd_ps(a, b, c);
}

static inline vec vec_add(vec a, vec b)
{
    return _mm256_add_ps(a, b);
}

static inline vec vec_subtract(vec a, vec b)
{
    return _mm256_sub_ps(a, b);
}

static inline vec vec_multiply(vec a, vec b)
{
    return _mm256_mul_ps(a, b);
}

static inline vec vec_divide(vec a, vec b)
{
    return _mm256_div_ps(a, b);
}

static inline vec vec_max(vec a, vec b)
{
    return _mm256_max_ps(a, b);
}

static inline vec vec_min(vec a, vec b)
{
    return _mm256_min_ps(a, b);
}

static inline vec vec_round(vec a)
{
    return _mm256_round_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}

/* value * 2^exponent, exponent integral and within float's normal range. */
static inline vec vec_scale_pow2(vec value, vec exponent)
{
    __m256i power = _mm256_slli_epi32(_mm256_add_epi32(_mm256_cvtps_epi32(exponent), _mm256_set1_epi32(127)), 23);
    return _mm256_mul_ps(value, _mm256_castsi256_ps(power));
}

/* What vec_scale_pow2 takes. */
static inline vec vec_within_exponents(vec a)
{
    return _mm256_min_ps(_mm256_max_ps(a, _mm256_set1_ps(-126.0f)), _mm256_set1_ps(127.0f));
}

/* Lanes first <= i < last of a, the others of b. */
static inline vec vec_keep(vec a, vec b, int first, int last)
{
    const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    __m256i from_first = _mm256_cmpgt_epi32(lane, _mm256_set1_epi32(first - 1));
    __m256i below_last = _mm256_cmpgt_epi32(_mm256_set1_epi32(last), lane);
    return _mm256_blendv_ps(b, a, _mm256_castsi256_ps(_mm256_and_si256(from_first, below_last)));
}

static inline float vec_reduce_max(vec a)
{
    return max_of_eight(a);
}

static inline float vec_reduce_add(vec a)
{
    return sum_of_eight(a);
}

/* to[lane * stride + r] = lane of row r: 4 x 4 blocks transposed within each half. */
static inline void store_four_rows(vec a, vec b, vec c, vec d, float *to, size_t stride)
{
    __m256 low_ab = _mm256_unpacklo_ps(a, b), low_cd = _mm256_unpacklo_ps(c, d);
    __m256 high_ab = _mm256_unpackhi_ps(a, b), high_cd = _mm256_unpackhi_ps(c, d);
    const __m256 lanes[4] = {_mm256_shuffle_ps(low_ab, low_cd, 0x44), _mm256_shuffle_ps(low_ab, low_cd, 0xee),
                             _mm256_shuffle_ps(high_ab, high_cd, 0x44), _mm256_shuffle_ps(high_ab, high_cd, 0xee)};
    for (int i = 0; i < 4; i++) {
        _mm_storeu_ps(to + i * stride, _mm256_castps256_ps128(lanes[i]));
        _mm_storeu_ps(to + (4 + i) * stride, _mm256_extractf128_ps(lanes[i], 1));
    }
}

static void shorts_from_floats(const float *in, uint16_t *out, size_t n)
{
    size_t i = 0;
    for (; i + LANES <= n; i += LANES)
        _mm_storeu_si128((__m128i *)(out + i), _mm256_cvtps_ph(_mm256_loadu_ps(in + i), _MM_FROUND_TO_NEAREST_INT));
    for (; i < n; i++)
        out[i] = half_from_float(in[i]);
}

/* ---- integers of kernels_fixed.h and kernels_quantised.h, as in kernels_avx512.h ---- */

typedef __m256i ints;

static inline ints load_ints(const void *from)
{
    return _mm256_loadu_si256(from);
}

static inline void store_ints(int32_t *to, ints value)
{
    _mm256_storeu_si256((__m256i *)to, value);
}

static inline __m256i first_lanes(uint32_t n)
{
    return _mm256_cmpgt_epi32(_mm256_set1_epi32((int)n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}

static inline ints load_first_ints(const int32_t *from, uint32_t n)
{
    return _mm256_maskload_epi32(from, first_lanes(n));
}

static inline void store_first_ints(int32_t *to, ints value, uint32_t n)
{
    _mm256_maskstore_epi32(to, first_lanes(n), value);
}

static inline ints ints_broadcast(int32_t value)
{
    return _mm256_set1_epi32(value);
}

static inline ints ints_from_floats(vec a)
{
    return _mm256_cvtps_epi32(a);
}

static inline vec load_scales(const char *from)
{
    return vec_load_f16((const uint16_t *)from);
}

static inline ints join_ints(ints high, ints low)
{
    return _mm256_add_epi32(_mm256_slli_epi32(high, 8), low);
}

static inline vec ints_to_floats(ints a)
{
    return _mm256_cvtepi32_ps(a);
}

static inline ints low_nibbles(ints raw)
{
    return _mm256_and_si256(raw, _mm256_set1_epi8(15));
}

static inline ints high_nibbles(ints raw)
{
    return _mm256_and_si256(_mm256_srli_epi16(raw, 4), _mm256_set1_epi8(15));
}

static inline ints multiply_nibbles(ints sum, ints a, ints b, ints c, ints d)
{
    ints pairs = _mm256_add_epi16(_mm256_maddubs_epi16(a, b), _mm256_maddubs_epi16(c, d));
    return _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
}

static inline ints multiply_bytes(ints sum, ints a, ints b)
{
    ints low = _mm256_madd_epi16(_mm256_maddubs_epi16(low_nibbles(a), b), _mm256_set1_epi16(1));
    ints high = _mm256_madd_epi16(_mm256_maddubs_epi16(high_nibbles(a), b), _mm256_set1_epi16(16));
    return _mm256_add_epi32(sum, _mm256_add_epi32(low, high));
}

#include "core/cpu/kernels_floats.h"

#include "core/cpu/kernels_body.h"

/* Clang's __builtin_cpu_supports does not know the name. */
static int has_f16c(void)
{
    unsigned eax, ebx, ecx = 0, edx;
    return __get_cpuid(1, &eax, &ebx, &ecx, &edx) && (ecx & bit_F16C);
}

const struct cpu_kernels *cpu_kernels_avx2(void)
{
    __builtin_cpu_init();
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c() ? &table : NULL;
}

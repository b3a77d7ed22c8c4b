/*
 * The path for every machine: groups of four floats in the compiler's own vectors, which become whatever the target has (SSE2,
 * NEON); products and sums rounded apart. See kernels.h.
 */
#include <math.h>
#include <string.h>

#include "core/cpu/half.h"
#include "core/cpu/kernels.h"

enum { LANES = 4, PANEL_VECS = 2, TILE_ROWS = 4 };
typedef float vec __attribute__((vector_size(16)));
typedef uint32_t vec_bits __attribute__((vector_size(16)));
typedef uint16_t vec_halves __attribute__((vector_size(8)));
#define FOR_EACH_ROW_COUNT(X) X(1) X(2) X(3) X(4)
enum { PASS_ROWS = 4, PANELS_SIDE = 1 };
#define FOR_EACH_PASS_ROWS(X) X(1) X(2) X(3) X(4)
enum { BROAD_ROWS = 0 };
#define FOR_EACH_BROAD_ROWS(X)
#define FOR_EACH_TALL_ROWS(X)
enum { QUANTISED_ROWS = 2 };
#define FOR_EACH_QUANTISED_ROWS(X) X(1) X(2)
#define KERNELS_NAME          "generic"
#define KERNELS_ARITHMETIC    "cpu-generic-f32"

static inline vec vec_broadcast(float value)
{
    return (vec){value, value, value, value};
}

static inline vec vec_zero(void)
{
    return vec_broadcast(0.0f);
}

static inline vec vec_load(const float *from)
{
    vec value;
    memcpy(&value, from, sizeof value);
    return value;
}

static inline void vec_store(float *to, vec value)
{
    memcpy(to, &value, sizeof value);
}

static inline vec_bits load_16_bits(const uint16_t *from)
{
    vec_halves halves;
    memcpy(&halves, from, sizeof halves);
    return __builtin_convertvector(halves, vec_bits);
}

/* half_to_float on four values. */
static inline vec vec_load_f16(const uint16_t *from)
{
    vec_bits half = load_16_bits(from), magnitude = half & 0x7fffu;
    vec scaled = (vec)(magnitude << 13) * 0x1p112f;
    vec_bits infinite = (vec_bits)(magnitude >= 0x7c00u) & 0x7f800000u;
    return (vec)((vec_bits)scaled | infinite | (half & 0x8000u) << 16);
}

static inline vec vec_load_bf16(const uint16_t *from)
{
    return (vec)(load_16_bits(from) << 16);
}

static inline vec vec_multiply_add(vec a, vec b, vec c)
{
    return a * b + c;
}

static inline vec vec_add(vec a, vec b)
{
    return a + b;
}

static inline vec vec_subtract(vec a, vec b)
{
    return a - b;
}

static inline vec vec_multiply(vec a, vec b)
{
    return a * b;
}

static inline vec vec_divide(vec a, vec b)
{
    return a / b;
}

/* Lanes of a where mask is all ones, of b where it is zero. */
static inline vec vec_select(vec_bits mask, vec a, vec b)
{
    return (vec)((mask & (vec_bits)a) | (~mask & (vec_bits)b));
}

static inline vec vec_max(vec a, vec b)
{
    return vec_select((vec_bits)(a > b), a, b);
}

static inline vec vec_min(vec a, vec b)
{
    return vec_select((vec_bits)(a < b), a, b);
}

/* Adding and taking away 1.5 * 2^23 rounds to the nearest integer; the arguments here are small. */
static inline vec vec_round(vec a)
{
    return (a + 0x1.8p23f) - 0x1.8p23f;
}

/* value * 2^exponent, exponent integral and within float's normal range: 1.5 * 2^23 more, its low bits are the integer. */
static inline vec vec_scale_pow2(vec value, vec exponent)
{
    vec_bits integer = (vec_bits)(exponent + 0x1.8p23f);
    return value * (vec)((integer + 127) << 23);
}

/* What vec_scale_pow2 takes. */
static inline vec vec_within_exponents(vec a)
{
    return vec_min(vec_max(a, vec_broadcast(-126.0f)), vec_broadcast(127.0f));
}

/* Lanes first <= i < last of a, the others of b. */
static inline vec vec_keep(vec a, vec b, int first, int last)
{
    for (int i = 0; i < LANES; i++)
        if (i < first || i >= last)
            a[i] = b[i];
    return a;
}

static inline float vec_reduce_max(vec a)
{
    float low = a[0] > a[2] ? a[0] : a[2], high = a[1] > a[3] ? a[1] : a[3];
    return low > high ? low : high;
}

static inline float vec_reduce_add(vec a)
{
    return (a[0] + a[2]) + (a[1] + a[3]);
}

/* to[lane * stride + r] = lane of row r. */
static inline void store_four_rows(vec a, vec b, vec c, vec d, float *to, size_t stride)
{
    for (int i = 0; i < LANES; i++)
        vec_store(to + i * stride, (vec){a[i], b[i], c[i], d[i]});
}

static void shorts_from_floats(const float *in, uint16_t *out, size_t n)
{
    for (size_t i = 0; i < n; i++)
        out[i] = half_from_float(in[i]);
}

/* ---- integers of kernels_fixed.h and kernels_quantised.h ---- */

typedef int32_t ints __attribute__((vector_size(16)));

static inline ints load_ints(const void *from)
{
    ints value;
    memcpy(&value, from, sizeof value);
    return value;
}

static inline void store_ints(int32_t *to, ints value)
{
    memcpy(to, &value, sizeof value);
}

static inline ints load_first_ints(const int32_t *from, uint32_t n)
{
    ints value = {0};
    for (uint32_t i = 0; i < n; i++)
        value[i] = from[i];
    return value;
}

static inline void store_first_ints(int32_t *to, ints value, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        to[i] = value[i];
}

static inline ints ints_broadcast(int32_t value)
{
    return (ints){value, value, value, value};
}

/* To nearest, halves away from zero. */
static inline ints ints_from_floats(vec a)
{
    vec half = vec_select((vec_bits)(a < vec_zero()), vec_broadcast(-0.5f), vec_broadcast(0.5f));
    return __builtin_convertvector(a + half, ints);
}

static inline vec load_scales(const char *from)
{
    return vec_load_f16((const uint16_t *)from);
}

/* high * 256 + low; below 2^31. */
static inline ints join_ints(ints high, ints low)
{
    return high * 256 + low;
}

static inline vec ints_to_floats(ints a)
{
    return __builtin_convertvector(a, vec);
}

static inline ints low_nibbles(ints raw)
{
    return raw & 0x0f0f0f0f;
}

static inline ints high_nibbles(ints raw)
{
    return raw >> 4 & 0x0f0f0f0f;
}

typedef int16_t shorts __attribute__((vector_size(16)));

/* Bytes 0 and 2 of each lane, and 1 and 3; without sign and with. */
static inline shorts even_bytes(ints a)
{
    return (shorts)(a & 0x00ff00ff);
}

static inline shorts odd_bytes(ints a)
{
    return (shorts)((vec_bits)a >> 8 & 0x00ff00ff);
}

static inline shorts even_signed(ints a)
{
    return (shorts)((vec_bits)a << 8) >> 8;
}

static inline shorts odd_signed(ints a)
{
    return (shorts)a >> 8;
}

/* Sums plus both 16-bit halves of each lane. */
static inline ints add_halves(ints sum, shorts halves)
{
    return sum + ((ints)((vec_bits)halves << 16) >> 16) + ((ints)halves >> 16);
}

/* Sums plus products of four bytes, a without sign: 255 * 128 fits into 16 bits; with a and c below 16 four of them do together. */
static inline ints multiply_bytes(ints sum, ints a, ints b)
{
    return add_halves(add_halves(sum, even_bytes(a) * even_signed(b)), odd_bytes(a) * odd_signed(b));
}

static inline ints multiply_nibbles(ints sum, ints a, ints b, ints c, ints d)
{
    shorts first = even_bytes(a) * even_signed(b) + odd_bytes(a) * odd_signed(b);
    return add_halves(sum, first + even_bytes(c) * even_signed(d) + odd_bytes(c) * odd_signed(d));
}

#include "core/cpu/kernels_floats.h"

#include "core/cpu/kernels_body.h"

const struct cpu_kernels *cpu_kernels_generic(void)
{
    return &table;
}

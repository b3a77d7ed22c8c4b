/* The path for every machine: plain C on groups of four floats, products and sums rounded apart. See kernels.h. */
#include <math.h>

#include "core/cpu/half.h"
#include "core/cpu/kernels.h"

enum { LANES = 4, PANEL_VECS = 2, TILE_ROWS = 4 };
typedef struct {
    float lane[LANES];
} vec;
#define FOR_EACH_ROW_COUNT(X) X(1) X(2) X(3) X(4)
#define KERNELS_NAME          "generic"
#define KERNELS_ARITHMETIC    "cpu-generic-f32"

/* Defines a vec function whose lane i is the expression. */
#define VEC_FUNCTION(name, parameters, expression)         \
    static inline vec name parameters                      \
    {                                                      \
        vec result;                                        \
        for (int i = 0; i < LANES; i++)                    \
            result.lane[i] = (expression);                 \
        return result;                                     \
    }

VEC_FUNCTION(vec_zero, (void), 0.0f)
VEC_FUNCTION(vec_broadcast, (float value), value)
VEC_FUNCTION(vec_load, (const float *from), from[i])
VEC_FUNCTION(vec_load_f16, (const uint16_t *from), half_to_float(from[i]))
VEC_FUNCTION(vec_load_bf16, (const uint16_t *from), bfloat_to_float(from[i]))
VEC_FUNCTION(vec_multiply_add, (vec a, vec b, vec c), a.lane[i] * b.lane[i] + c.lane[i])
VEC_FUNCTION(vec_add, (vec a, vec b), a.lane[i] + b.lane[i])
VEC_FUNCTION(vec_multiply, (vec a, vec b), a.lane[i] * b.lane[i])
VEC_FUNCTION(vec_divide, (vec a, vec b), a.lane[i] / b.lane[i])
VEC_FUNCTION(vec_max, (vec a, vec b), a.lane[i] > b.lane[i] ? a.lane[i] : b.lane[i])
VEC_FUNCTION(vec_min, (vec a, vec b), a.lane[i] < b.lane[i] ? a.lane[i] : b.lane[i])
/* Adding and taking away 1.5 * 2^23 rounds to the nearest integer; the arguments here are small. */
VEC_FUNCTION(vec_round, (vec a), (a.lane[i] + 0x1.8p23f) - 0x1.8p23f)
/* value * 2^exponent, exponent integral and within float's normal range. */
VEC_FUNCTION(vec_scale_pow2, (vec value, vec exponent),
             value.lane[i] * float_from_bits((uint32_t)((int32_t)exponent.lane[i] + 127) << 23))
/* Lanes first <= i < last of a, the others of b. */
VEC_FUNCTION(vec_keep, (vec a, vec b, int first, int last), i >= first && i < last ? a.lane[i] : b.lane[i])

static inline void vec_store(float *to, vec value)
{
    for (int i = 0; i < LANES; i++)
        to[i] = value.lane[i];
}

static void halves_from_floats(const float *in, uint16_t *out, size_t n)
{
    for (size_t i = 0; i < n; i++)
        out[i] = half_from_float(in[i]);
}

#include "core/cpu/kernels_body.h"

const struct cpu_kernels *cpu_kernels_generic(void)
{
    return &table;
}

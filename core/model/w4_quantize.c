/* Rounding to nearest with a search for each group's scale: see w4.h. */
#include <math.h>
#include <string.h>

#include "core/base/panic.h"
#include "core/model/dequantize.h"
#include "core/model/w4.h"

enum { LANES = 8, SHRINKS = 8 };

/* A way of rounding a group: nearest integer of (x - minimum) / scale, within low .. low + 15. */
struct rounding {
    float scale, minimum; /* exactly what FP16 holds */
    float low;
};

struct candidate {
    struct rounding rounding;
    float error; /* sum of squares */
};

/* Nearest even, for magnitudes below 2^22: the sum has no bits left below 1. */
static inline float round_even(float x)
{
    return (x + 0x1.8p23f) - 0x1.8p23f;
}

/* scale is not 0. Clamped first, so that round_even's range holds. */
static inline float to_integer(const struct rounding *r, float inverse, float x)
{
    float q = (x - r->minimum) * inverse;
    q = q < r->low ? r->low : q;
    q = q > r->low + 15 ? r->low + 15 : q;
    return round_even(q);
}

static float sum_lanes(const float lanes[LANES])
{
    return ((lanes[0] + lanes[4]) + (lanes[2] + lanes[6])) + ((lanes[1] + lanes[5]) + (lanes[3] + lanes[7]));
}

/* Eight sums side by side, so that a compiler may use vectors and the result does not depend on whether it does. */
static float squared_error(const struct rounding *r, const float *x, uint32_t n)
{
    float lanes[LANES] = {0};
    const float inverse = 1.0f / r->scale;
    for (uint32_t i = 0; i < n; i += LANES) {
        for (uint32_t l = 0; l < LANES; l++) {
            float miss = x[i + l] - (to_integer(r, inverse, x[i + l]) * r->scale + r->minimum);
            lanes[l] += miss * miss;
        }
    }
    return sum_lanes(lanes);
}

/* The nearest that FP16 holds. */
static float to_half(float value)
{
    return float_from_f16(f16_from_float(value));
}

static void try_rounding(struct candidate *best, const float *x, uint32_t n, float scale, float minimum, float low)
{
    struct candidate c = {.rounding = {.scale = to_half(scale), .minimum = to_half(minimum), .low = low}};
    if (c.rounding.scale == 0 || !isfinite(c.rounding.scale) || !isfinite(1.0f / c.rounding.scale) || !isfinite(c.rounding.minimum))
        return;
    c.error = squared_error(&c.rounding, x, n);
    if (c.error < best->error)
        *best = c;
}

/* Scale and minimum that fit the integers of the best rounding best (least squares), and the rounding that they give. */
static void refine(struct candidate *best, bool has_minimum, const float *x, uint32_t n)
{
    const struct rounding r = best->rounding;
    double count = n, q_sum = 0, qq = 0, x_sum = 0, qx = 0;
    if (r.scale == 0)
        return;
    for (uint32_t i = 0; i < n; i++) {
        double q = to_integer(&r, 1.0f / r.scale, x[i]);
        q_sum += q;
        qq += q * q;
        x_sum += x[i];
        qx += q * x[i];
    }
    if (!has_minimum && qq > 0)
        try_rounding(best, x, n, (float)(qx / qq), 0, r.low);
    double determinant = count * qq - q_sum * q_sum;
    if (has_minimum && determinant > 0) {
        double scale = (count * qx - q_sum * x_sum) / determinant;
        try_rounding(best, x, n, (float)scale, (float)((x_sum - scale * q_sum) / count), r.low);
    }
}

/* Integers -8..7. The largest magnitude m becomes -8 exactly, or 7, or is clipped more and more. */
static struct candidate search_symmetric(const float *x, uint32_t n, float most_negative, float most_positive)
{
    struct candidate best = {.error = INFINITY};
    const float m = -most_negative > most_positive ? most_negative : most_positive;
    for (float divisor = 7.0f; divisor <= 11.0f; divisor += 0.25f) {
        try_rounding(&best, x, n, m / -divisor, 0, -8);
        try_rounding(&best, x, n, m / divisor, 0, -8);
    }
    refine(&best, false, x, n);
    refine(&best, false, x, n);
    return best;
}

/* Integers 0..15 over the range of the values, either end drawn in by up to 28 %. */
static struct candidate search_with_minimum(const float *x, uint32_t n, float lowest, float highest)
{
    struct candidate best = {.error = INFINITY};
    const float range = highest - lowest;
    for (int below = 0; below < SHRINKS; below++) {
        for (int above = 0; above < SHRINKS; above++) {
            float from = lowest + 0.04f * (float)below * range, to = highest - 0.04f * (float)above * range;
            try_rounding(&best, x, n, (to - from) / 15, from, 0);
        }
    }
    refine(&best, true, x, n);
    refine(&best, true, x, n);
    return best;
}

static void store_group(struct w4_layout layout, const struct rounding *r, const float *x, uint32_t n, uint8_t *out)
{
    const uint16_t scale = f16_from_float(r->scale), minimum = f16_from_float(r->minimum);
    const float inverse = r->scale != 0 ? 1.0f / r->scale : 0;
    const int zero = layout.has_minimum ? 0 : 8;
    memcpy(out, &scale, sizeof scale);
    out += sizeof scale;
    if (layout.has_minimum) {
        memcpy(out, &minimum, sizeof minimum);
        out += sizeof minimum;
    }
    for (uint32_t i = 0; i < n; i += 2) {
        int low = inverse != 0 ? (int)to_integer(r, inverse, x[i]) + zero : zero;
        int high = inverse != 0 ? (int)to_integer(r, inverse, x[i + 1]) + zero : zero;
        out[i / 2] = (uint8_t)(low | high << 4);
    }
}

/* Lowest and highest of the values and 0; false if one is not finite. */
static bool find_range(const float *x, uint32_t n, float *lowest, float *highest)
{
    *lowest = *highest = x[0];
    for (uint32_t i = 0; i < n; i++) {
        if (!isfinite(x[i]))
            return false;
        *lowest = x[i] < *lowest ? x[i] : *lowest;
        *highest = x[i] > *highest ? x[i] : *highest;
    }
    return true;
}

static bool quantize_group(struct w4_layout layout, const float *x, uint32_t n, uint8_t *out)
{
    float lowest, highest;
    struct candidate best = {.error = INFINITY};
    if (!find_range(x, n, &lowest, &highest) || lowest < -65504.0f || highest > 65504.0f)
        return false;
    if (layout.has_minimum)
        best = search_with_minimum(x, n, lowest, highest);
    else
        best = search_symmetric(x, n, lowest, highest);
    /* All values equal, or too small for a scale in FP16: zero, or the minimum alone. */
    if (best.error == INFINITY)
        best.rounding = (struct rounding){.minimum = layout.has_minimum ? to_half(lowest) : 0};
    store_group(layout, &best.rounding, x, n, out);
    return true;
}

bool w4_quantize_row(struct w4_layout layout, const float *values, uint32_t cols, uint8_t *row)
{
    hs_assert(cols % W4_ROW_UNIT == 0);
    for (uint32_t at = 0; at < cols;) {
        uint32_t n = cols - at < layout.group ? cols - at : layout.group;
        if (!quantize_group(layout, values + at, n, row))
            return false;
        row += w4_row_bytes(layout, n);
        at += n;
    }
    return true;
}

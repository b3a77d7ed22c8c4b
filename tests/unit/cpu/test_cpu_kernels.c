/*
 * Every kernel of one path (named by the argument) against double precision on random data, and each row count, panel
 * count and query count against the single one, bit for bit. Exit 77 where the CPU lacks the path.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/base/rng.h"
#include "core/cpu/half.h"
#include "core/cpu/kernels.h"
#include "core/cpu/rotary.h"
#include "tests/unit/cpu/tiny_model.h"

enum { MAX_INPUTS = 700, MAX_VALUES = 128 };

static const struct cpu_kernels *kernels;
static struct rng rng;

static float uniform(void)
{
    return (float)(rng_unit(&rng) * 2 - 1);
}

static void fill_floats(float *out, size_t n)
{
    for (size_t i = 0; i < n; i++)
        out[i] = uniform();
}

static void fill_weights(uint16_t *out, size_t n, enum weight_type type)
{
    for (size_t i = 0; i < n; i++)
        out[i] = type == WEIGHT_F16 ? half_from_float(uniform()) : bfloat_from_float(uniform());
}

static double value_of(uint16_t bits, enum weight_type type)
{
    return type == WEIGHT_F16 ? half_to_float(bits) : bfloat_to_float(bits);
}

/* All 65,536 halves there and back, and floats around every rounding border, against arithmetic on exponents. */
static void test_half_conversions(void **state)
{
    for (uint32_t bits = 0; bits < 0x10000; bits++) {
        float value = half_to_float((uint16_t)bits);
        uint16_t back;
        kernels->halves_from_floats(&value, &back, 1);
        assert_int_equal(half_from_float(value), back);
        if ((bits & 0x7fff) > 0x7c00) {
            assert_true(isnan(value) && (back & 0x7fff) > 0x7c00);
            continue;
        }
        assert_int_equal(back, bits);
        if ((bits & 0x7fff) == 0x7c00)
            continue;
        int exponent = bits >> 10 & 31;
        double expected = exponent ? ldexp(1024 + (bits & 1023), exponent - 25) : ldexp(bits & 1023, -24);
        assert_true(value == (bits & 0x8000 ? -expected : expected));
    }
    float in[64];
    uint16_t out[64];
    for (int round = 0; round < 4000; round++) {
        size_t n = 1 + rng_below(&rng, 64);
        for (size_t i = 0; i < n; i++) {
            in[i] = (float)ldexp(uniform(), (int)rng_below(&rng, 48) - 30);
            if (round % 2) /* exactly between two halves, or next to it */
                in[i] = float_from_bits(((float_bits(in[i]) & 0xffffe000u) | 0x1000u) + (uint32_t)rng_below(&rng, 3) - 1);
        }
        kernels->halves_from_floats(in, out, n);
        for (size_t i = 0; i < n; i++) {
            double expected = tiny_round_to_half(in[i]);
            assert_true((double)half_to_float(out[i]) == expected);
            assert_int_equal(out[i], half_from_float(in[i]));
        }
    }
}

static void check_products(enum weight_type type, uint32_t n_inputs)
{
    static uint16_t panels[CPU_MAX_PANELS_AT_ONCE * MAX_INPUTS * CPU_MAX_PANEL_WIDTH];
    static float x[CPU_MAX_TILE_ROWS * MAX_INPUTS], tile[CPU_MAX_TILE_ROWS * MAX_INPUTS];
    static float out[CPU_MAX_PANELS_AT_ONCE * CPU_MAX_TILE_ROWS * CPU_MAX_PANEL_WIDTH];
    static float single[CPU_MAX_PANELS_AT_ONCE][CPU_MAX_TILE_ROWS][CPU_MAX_PANEL_WIDTH];
    const uint32_t width = kernels->panel_width;
    fill_weights(panels, (size_t)CPU_MAX_PANELS_AT_ONCE * n_inputs * width, type);
    fill_floats(x, (size_t)kernels->tile_rows * n_inputs);
    for (uint32_t r = 0; r < kernels->tile_rows; r++) {
        for (uint32_t p = 0; p < CPU_MAX_PANELS_AT_ONCE; p++) {
            const uint16_t *panel = panels + (size_t)p * n_inputs * width;
            kernels->matmul(panel, type, n_inputs, 1, x + (size_t)r * n_inputs, 1, single[p][r]);
            for (uint32_t i = 0; i < width; i++) {
                double expected = 0, magnitude = 0;
                for (uint32_t k = 0; k < n_inputs; k++) {
                    double product = value_of(panel[(size_t)k * width + i], type) * x[(size_t)r * n_inputs + k];
                    expected += product;
                    magnitude += fabs(product);
                }
                assert_true(fabs(single[p][r][i] - expected) <= 1e-6 * magnitude + 1e-7);
            }
        }
    }
    for (uint32_t rows = 1; rows <= kernels->tile_rows; rows++) {
        for (uint32_t k = 0; k < n_inputs; k++)
            for (uint32_t r = 0; r < rows; r++)
                tile[(size_t)k * rows + r] = x[(size_t)r * n_inputs + k];
        for (uint32_t n = 1; n <= CPU_MAX_PANELS_AT_ONCE; n++) {
            kernels->matmul(panels, type, n_inputs, n, tile, rows, out);
            for (uint32_t p = 0; p < n; p++)
                for (uint32_t r = 0; r < rows; r++)
                    assert_memory_equal(out + ((size_t)p * rows + r) * width, single[p][r], width * sizeof(float));
        }
    }
}

static void test_matmul(void **state)
{
    check_products(WEIGHT_F16, 576);
    check_products(WEIGHT_F16, 1);
    check_products(WEIGHT_F16, 37);
    check_products(WEIGHT_BF16, 576);
    check_products(WEIGHT_BF16, 33);
}

static void test_silu(void **state)
{
    float gate[96 * 4], up[96 * 4], out[96 * 4];
    for (uint32_t i = 0; i < 384; i++) {
        gate[i] = uniform() * (i < 64 ? 200.0f : 12.0f);
        up[i] = uniform();
    }
    gate[0] = 0, gate[1] = -0.0f, gate[2] = 88, gate[3] = -88, gate[4] = 1e30f, gate[5] = -1e30f;
    kernels->silu_multiply(gate, up, out, 384);
    for (uint32_t i = 0; i < 384; i++) {
        double expected = gate[i] / (1 + exp(-(double)gate[i])) * up[i];
        if (fabs(gate[i]) > 1e20f && gate[i] < 0)
            assert_true(fabs(out[i]) < 1e-7); /* -1e30 / e^88 */
        else
            assert_true(fabs(out[i] - expected) <= 1e-6 * fabs(expected) + 1e-30);
    }
}

static void test_scores(void **state)
{
    static float queries[CPU_MAX_TILE_ROWS * MAX_VALUES], one[MAX_VALUES];
    static uint16_t keys[MAX_VALUES * CPU_KEY_TILE];
    float out[CPU_MAX_TILE_ROWS * 20], single[CPU_KEY_TILE];
    const uint32_t sizes[] = {64, 128, 24, 2};
    for (uint32_t s = 0; s < 4; s++) {
        uint32_t n_inputs = sizes[s];
        fill_weights(keys, (size_t)n_inputs * CPU_KEY_TILE, WEIGHT_F16);
        for (uint32_t n = 1; n <= kernels->tile_rows; n++) {
            fill_floats(queries, (size_t)n * n_inputs);
            kernels->score_keys(queries, n, n_inputs, keys, out, 20);
            for (uint32_t q = 0; q < n; q++) {
                for (uint32_t i = 0; i < n_inputs; i++)
                    one[i] = queries[(size_t)i * n + q];
                kernels->score_keys(one, 1, n_inputs, keys, single, CPU_KEY_TILE);
                assert_memory_equal(single, out + (size_t)q * 20, sizeof single);
                for (uint32_t key = 0; key < CPU_KEY_TILE; key++) {
                    double expected = 0;
                    for (uint32_t i = 0; i < n_inputs; i++)
                        expected += (double)one[i] * half_to_float(keys[(size_t)i * CPU_KEY_TILE + key]);
                    assert_true(fabs(single[key] - expected) < 1e-5);
                }
            }
        }
    }
}

static void test_softmax(void **state)
{
    float scores[CPU_KV_SEGMENT], before[CPU_KV_SEGMENT], maximum, sum;
    for (int round = 0; round < 3000; round++) {
        uint32_t first = (uint32_t)rng_below(&rng, CPU_KV_SEGMENT);
        uint32_t last = first + 1 + (uint32_t)rng_below(&rng, CPU_KV_SEGMENT - first);
        double top = -INFINITY, total = 0;
        for (uint32_t i = 0; i < CPU_KV_SEGMENT; i++) /* outside the range: what stale pages may give */
            before[i] = i >= first && i < last ? uniform() * 40 : (i % 3 ? NAN : INFINITY);
        memcpy(scores, before, sizeof scores);
        kernels->softmax_segment(scores, first, last, &maximum, &sum);
        for (uint32_t i = first; i < last; i++)
            top = before[i] > top ? before[i] : top;
        assert_true(maximum == top);
        for (uint32_t i = first; i < last; i++) {
            double expected = exp(before[i] - (float)top); /* the difference rounded to float, as is natural */
            total += expected;
            assert_true(fabs(scores[i] - expected) <= 3e-7 * expected + 1e-37);
            if (before[i] == top)
                assert_true(scores[i] == 1);
        }
        assert_true(fabs(sum - total) <= 1e-6 * total);
    }
}

/* Values outside the range are NaN: touching one would show. */
static void test_accumulate(void **state)
{
    static uint16_t values[CPU_KEY_TILE * MAX_VALUES];
    static float weights[CPU_MAX_TILE_ROWS * CPU_KEY_TILE], out[CPU_MAX_TILE_ROWS * MAX_VALUES],
        start[CPU_MAX_TILE_ROWS * MAX_VALUES];
    float single[MAX_VALUES];
    for (uint32_t n_values = CPU_HEAD_ALIGN; n_values <= MAX_VALUES; n_values += CPU_HEAD_ALIGN) {
        for (uint32_t n = 1; n <= kernels->tile_rows; n++) {
            uint32_t first = (uint32_t)rng_below(&rng, CPU_KEY_TILE);
            uint32_t last = first + 1 + (uint32_t)rng_below(&rng, CPU_KEY_TILE - first);
            fill_weights(values, (size_t)CPU_KEY_TILE * n_values, WEIGHT_F16);
            for (uint32_t i = 0; i < CPU_KEY_TILE * n_values; i++)
                if (i / n_values < first || i / n_values >= last)
                    values[i] = 0x7e00;
            fill_floats(weights, (size_t)n * CPU_KEY_TILE);
            fill_floats(start, (size_t)n * n_values);
            memcpy(out, start, sizeof out);
            kernels->accumulate_values(weights, CPU_KEY_TILE, n, values, n_values, first, last, out);
            for (uint32_t q = 0; q < n; q++) {
                memcpy(single, start + (size_t)q * n_values, n_values * sizeof(float));
                kernels->accumulate_values(weights + (size_t)q * CPU_KEY_TILE, CPU_KEY_TILE, 1, values, n_values, first, last,
                                           single);
                assert_memory_equal(single, out + (size_t)q * n_values, n_values * sizeof(float));
                for (uint32_t i = 0; i < n_values; i++) {
                    double expected = start[(size_t)q * n_values + i];
                    for (uint32_t key = first; key < last; key++)
                        expected += (double)weights[q * CPU_KEY_TILE + key] * half_to_float(values[(size_t)key * n_values + i]);
                    assert_true(fabs(single[i] - expected) < 1e-5);
                }
            }
        }
    }
}

/* Against the C library, over the angles that positions up to 131,072 give. */
static void test_sine_and_cosine(void **state)
{
    for (int i = 0; i < 200000; i++) {
        double x = uniform() * (i % 2 ? 131072 : 4), sine, cosine;
        rotary_sin_cos(x, &sine, &cosine);
        assert_true(fabs(sine - sin(x)) < 1e-14 && fabs(cosine - cos(x)) < 1e-14);
    }
}

int main(int argc, char **argv)
{
    const char *path = argc > 1 ? argv[1] : "generic";
    kernels = strcmp(path, "avx512") == 0 ? cpu_kernels_avx512()
              : strcmp(path, "avx2") == 0 ? cpu_kernels_avx2()
                                          : cpu_kernels_generic();
    if (!kernels) {
        printf("skipped: this CPU has no %s\n", path);
        return 77;
    }
    rng_seed(&rng, 7);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_half_conversions), cmocka_unit_test(test_matmul),  cmocka_unit_test(test_silu),
        cmocka_unit_test(test_scores),           cmocka_unit_test(test_softmax), cmocka_unit_test(test_accumulate),
        cmocka_unit_test(test_sine_and_cosine),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

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

/* ---- what depends on the path's words (kernels.h) ---- */

static bool pairs(void)
{
    return kernels->inputs_per_word == 2;
}

/* Of keys and values. */
static enum weight_type stored_type(void)
{
    return pairs() ? WEIGHT_BF16_PAIRS : WEIGHT_F16;
}

/* What a product sees of an input. */
static double input_value(float value)
{
    return pairs() ? tiny_round_to_bfloat(value) : value;
}

/* Index of input (or slot) i, place j, in memory that holds groups of inputs_per_word inputs for each of width places. */
static size_t grouped(uint32_t i, uint32_t j, uint32_t width)
{
    uint32_t group = kernels->inputs_per_word;
    return (size_t)(i / group) * width * group + j * group + i % group;
}

/* All 65,536 halves there and back, and floats around every rounding border, against arithmetic on exponents. */
static void test_half_conversions(void **state)
{
    if (pairs())
        return;
    for (uint32_t bits = 0; bits < 0x10000; bits++) {
        float value = half_to_float((uint16_t)bits);
        uint16_t back;
        kernels->shorts_from_floats(&value, &back, 1);
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
        kernels->shorts_from_floats(in, out, n);
        for (size_t i = 0; i < n; i++) {
            double expected = tiny_round_to_half(in[i]);
            assert_true((double)half_to_float(out[i]) == expected);
            assert_int_equal(out[i], half_from_float(in[i]));
        }
    }
}

/* The same for bfloat16, whose denormals count as zero in this path. */
static void test_bfloat_conversions(void **state)
{
    for (uint32_t bits = 0; bits < 0x10000; bits++) {
        float value = bfloat_to_float((uint16_t)bits);
        uint16_t back = bfloat_from_float(value);
        if ((bits & 0x7fff) > 0x7f80)
            assert_true(isnan(value) && (back & 0x7fff) > 0x7f80);
        else
            assert_int_equal(back, bits);
        if (!pairs() || isnan(value))
            continue;
        kernels->shorts_from_floats(&value, &back, 1);
        assert_int_equal(back, (bits & 0x7f80) ? bits : bits & 0x8000);
    }
    for (int round = 0; round < 20000; round++) {
        float in = (float)ldexp(uniform(), (int)rng_below(&rng, 200) - 100);
        uint16_t out = bfloat_from_float(in);
        if (round % 2) /* exactly between two values, or next to it */
            in = float_from_bits(((float_bits(in) & 0xffff0000u) | 0x8000u) + (uint32_t)rng_below(&rng, 3) - 1);
        assert_true((double)bfloat_to_float(bfloat_from_float(in)) == tiny_round_to_bfloat(in));
        if (pairs()) {
            kernels->shorts_from_floats(&in, &out, 1);
            assert_int_equal(out, bfloat_from_float(in));
        }
    }
}

/* out[rows][panels * panel_width] */
static void multiply(const void *panels, enum weight_type type, uint32_t n_inputs, uint32_t n_panels, const float *x, uint32_t rows,
                     bool add, float *out)
{
    kernels->matmul(&(struct matmul){.panels = panels,
                                     .type = type,
                                     .n_inputs = n_inputs,
                                     .n_panels = n_panels,
                                     .x = x,
                                     .n_rows = rows,
                                     .out = out,
                                     .out_stride = n_panels * kernels->panel_width,
                                     .add = add,
                                     .ahead = rows % 2 ? panels : NULL,
                                     .ahead_bytes = 999});
}

static void check_products(enum weight_type type, uint32_t n_inputs)
{
    static uint16_t panels[CPU_MAX_PANELS_AT_ONCE * MAX_INPUTS * CPU_MAX_PANEL_WIDTH];
    static float x[CPU_MAX_TILE_ROWS * MAX_INPUTS], tile[CPU_MAX_TILE_ROWS * MAX_INPUTS], row[MAX_INPUTS];
    static float out[CPU_MAX_PANELS_AT_ONCE * CPU_MAX_TILE_ROWS * CPU_MAX_PANEL_WIDTH];
    static float single[CPU_MAX_PANELS_AT_ONCE][CPU_MAX_TILE_ROWS][CPU_MAX_PANEL_WIDTH];
    const uint32_t width = kernels->panel_width;
    fill_weights(panels, (size_t)CPU_MAX_PANELS_AT_ONCE * n_inputs * width, type);
    fill_floats(x, (size_t)kernels->tile_rows * n_inputs);
    for (uint32_t r = 0; r < kernels->tile_rows; r++) {
        for (uint32_t p = 0; p < CPU_MAX_PANELS_AT_ONCE; p++) {
            const uint16_t *panel = panels + (size_t)p * n_inputs * width;
            kernels->pack_inputs(x + (size_t)r * n_inputs, n_inputs, row, 1);
            multiply(panel, type, n_inputs, 1, row, 1, false, single[p][r]);
            for (uint32_t i = 0; i < width; i++) {
                double expected = 0, magnitude = 0;
                for (uint32_t k = 0; k < n_inputs; k++) {
                    double product = value_of(panel[grouped(k, i, width)], type) * input_value(x[(size_t)r * n_inputs + k]);
                    expected += product;
                    magnitude += fabs(product);
                }
                assert_true(fabs(single[p][r][i] - expected) <= 1e-6 * magnitude + 1e-7);
            }
        }
    }
    for (uint32_t rows = 1; rows <= kernels->tile_rows; rows++) {
        for (uint32_t r = 0; r < rows; r++)
            kernels->pack_inputs(x + (size_t)r * n_inputs, n_inputs, tile + r, rows);
        for (uint32_t n = 1; n <= CPU_MAX_PANELS_AT_ONCE; n++) {
            multiply(panels, type, n_inputs, n, tile, rows, false, out);
            for (uint32_t p = 0; p < n; p++)
                for (uint32_t r = 0; r < rows; r++)
                    assert_memory_equal(out + ((size_t)r * n + p) * width, single[p][r], width * sizeof(float));
            for (uint32_t i = 0; i < rows * n * width; i++)
                out[i] = 0.5f;
            multiply(panels, type, n_inputs, n, tile, rows, true, out);
            for (uint32_t i = 0; i < rows * n * width; i++)
                assert_true(out[i] == 0.5f + single[i / width % n][i / width / n][i % width]);
        }
    }
}

/* Panels made floats give the same bits. */
static void check_widened(enum weight_type type)
{
    enum { INPUTS = 77 };
    static uint16_t panels[INPUTS * CPU_MAX_PANEL_WIDTH];
    static float x[CPU_MAX_TILE_ROWS * INPUTS], widened[INPUTS * CPU_MAX_PANEL_WIDTH];
    float expected[CPU_MAX_TILE_ROWS * CPU_MAX_PANEL_WIDTH], out[CPU_MAX_TILE_ROWS * CPU_MAX_PANEL_WIDTH];
    const uint32_t rows = kernels->tile_rows, n = INPUTS * kernels->panel_width;
    fill_weights(panels, n, type);
    fill_floats(x, (size_t)rows * INPUTS);
    kernels->widen_panels(panels, type, n, widened);
    multiply(panels, type, INPUTS, 1, x, rows, false, expected);
    multiply(widened, WEIGHT_F32, INPUTS, 1, x, rows, false, out);
    assert_memory_equal(out, expected, (size_t)rows * kernels->panel_width * sizeof *out);
}

static void test_widened_panels(void **state)
{
    if (!kernels->widen_panels)
        return;
    check_widened(WEIGHT_F16);
    check_widened(WEIGHT_BF16);
}

static void test_matmul(void **state)
{
    if (pairs()) {
        check_products(WEIGHT_BF16_PAIRS, 576);
        check_products(WEIGHT_BF16_PAIRS, 2);
        check_products(WEIGHT_BF16_PAIRS, 38);
        return;
    }
    check_products(WEIGHT_F16, 576);
    check_products(WEIGHT_F16, 1);
    check_products(WEIGHT_F16, 37);
    check_products(WEIGHT_BF16, 576);
    check_products(WEIGHT_BF16, 33);
}

static void test_normalize(void **state)
{
    const uint32_t sizes[] = {576, 64, 24, 1, 37};
    float x[MAX_INPUTS], weight[MAX_INPUTS], out[MAX_INPUTS];
    for (uint32_t s = 0; s < 5; s++) {
        double squares = 0;
        fill_floats(x, sizes[s]);
        fill_floats(weight, sizes[s]);
        for (uint32_t i = 0; i < sizes[s]; i++)
            squares += (double)x[i] * x[i];
        kernels->normalize(x, weight, sizes[s], 1e-5f, out);
        for (uint32_t i = 0; i < sizes[s]; i++) {
            double expected = x[i] * weight[i] / sqrt(squares / sizes[s] + (double)1e-5f);
            assert_true(fabs(out[i] - expected) <= 1e-6 * fabs(expected));
        }
        kernels->normalize(x, weight, sizes[s], 1e-5f, x);
        assert_memory_equal(x, out, sizes[s] * sizeof *x);
    }
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

/* Tiles in any order in memory. */
static void test_scores(void **state)
{
    enum { TILES = 5, STRIDE = TILES * CPU_KEY_TILE + 4 };
    static float queries[CPU_MAX_TILE_ROWS * MAX_VALUES], vectors[CPU_MAX_TILE_ROWS * MAX_VALUES], one[MAX_VALUES];
    static uint16_t keys[TILES][MAX_VALUES * CPU_KEY_TILE];
    const uint16_t *const tiles[TILES] = {keys[3], keys[0], keys[4], keys[1], keys[2]};
    float out[CPU_MAX_TILE_ROWS * STRIDE], single[CPU_KEY_TILE];
    const uint32_t sizes[] = {64, 128, 24, 2};
    for (uint32_t s = 0; s < 4; s++) {
        uint32_t n_inputs = sizes[s];
        for (uint32_t t = 0; t < TILES; t++)
            fill_weights(keys[t], (size_t)n_inputs * CPU_KEY_TILE, stored_type());
        for (uint32_t n = 1; n <= kernels->tile_rows; n++) {
            uint32_t n_tiles = 1 + n % TILES;
            fill_floats(vectors, (size_t)n * n_inputs);
            for (uint32_t q = 0; q < n; q++)
                kernels->pack_inputs(vectors + (size_t)q * n_inputs, n_inputs, queries + q, n);
            kernels->score_keys(queries, n, n_inputs, tiles, n_tiles, out, STRIDE);
            for (uint32_t i = 0; i < n * n_tiles; i++) {
                uint32_t q = i / n_tiles, t = i % n_tiles;
                const float *vector = vectors + (size_t)q * n_inputs;
                kernels->pack_inputs(vector, n_inputs, one, 1);
                kernels->score_keys(one, 1, n_inputs, tiles + t, 1, single, CPU_KEY_TILE);
                assert_memory_equal(single, out + (size_t)q * STRIDE + (size_t)t * CPU_KEY_TILE, sizeof single);
                for (uint32_t key = 0; key < CPU_KEY_TILE; key++) {
                    double expected = 0;
                    for (uint32_t k = 0; k < n_inputs; k++)
                        expected += input_value(vector[k]) * value_of(tiles[t][grouped(k, key, CPU_KEY_TILE)], stored_type());
                    assert_true(fabs(single[key] - expected) < 1e-5);
                }
            }
        }
    }
}

/* Weight of a key in a row of weights. */
static double weight_of(const float *row, uint32_t key)
{
    uint16_t two[2];
    if (!pairs())
        return row[key];
    memcpy(two, row + key / 2, sizeof two);
    return bfloat_to_float(two[key % 2]);
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
            double tolerance = pairs() ? 0x1.01p-8 : 3e-7, weight = weight_of(scores, i);
            total += expected;
            assert_true(fabs(weight - expected) <= tolerance * expected + 1e-37);
            if (before[i] == top)
                assert_true(weight == 1);
        }
        if (pairs() && first % 2)
            assert_true(weight_of(scores, first - 1) == 0);
        if (pairs() && last % 2)
            assert_true(weight_of(scores, last) == 0);
        assert_true(fabs(sum - total) <= 1e-6 * total);
    }
}

/* Values outside the range are NaN: taking one into account would show. */
static void check_accumulate(uint32_t n_values, uint32_t n, uint32_t n_tiles)
{
    enum { TILES = 4, KEYS = TILES * CPU_KEY_TILE };
    static uint16_t values[TILES][CPU_KEY_TILE * MAX_VALUES];
    static float plain[CPU_MAX_TILE_ROWS * KEYS], weights[CPU_MAX_TILE_ROWS * KEYS], out[CPU_MAX_TILE_ROWS * MAX_VALUES],
        start[CPU_MAX_TILE_ROWS * MAX_VALUES];
    const uint16_t *const tiles[TILES] = {values[2], values[0], values[3], values[1]};
    float single[MAX_VALUES];
    uint32_t first = (uint32_t)rng_below(&rng, CPU_KEY_TILE), end = n_tiles * CPU_KEY_TILE;
    uint32_t last = end - (uint32_t)rng_below(&rng, n_tiles > 1 ? CPU_KEY_TILE : end - first);
    for (uint32_t key = 0; key < end; key++)
        for (uint32_t i = 0; i < n_values; i++) {
            uint16_t *value = (uint16_t *)tiles[key / CPU_KEY_TILE] + grouped(key % CPU_KEY_TILE, i, n_values);
            *value = 0x7fff; /* NaN in both formats */
            if (key >= first && key < last)
                fill_weights(value, 1, stored_type());
        }
    fill_floats(plain, (size_t)n * KEYS);
    fill_floats(start, (size_t)n * n_values);
    for (uint32_t q = 0; q < n; q++) {
        for (uint32_t key = 0; key < KEYS; key++) /* as softmax_segment leaves them */
            plain[q * KEYS + key] = key >= first && key < last ? plain[q * KEYS + key] : 0;
        kernels->pack_inputs(plain + (size_t)q * KEYS, KEYS, weights + (size_t)q * KEYS, 1);
    }
    memcpy(out, start, sizeof out);
    kernels->accumulate_values(weights, KEYS, n, tiles, n_values, first, last, out);
    for (uint32_t q = 0; q < n; q++) {
        memcpy(single, start + (size_t)q * n_values, n_values * sizeof(float));
        for (uint32_t t = 0; t < n_tiles; t++) /* tile by tile */
            kernels->accumulate_values(weights + (size_t)q * KEYS + t * CPU_KEY_TILE / kernels->inputs_per_word, KEYS, 1, tiles + t,
                                       n_values, t == 0 ? first : 0, t + 1 == n_tiles ? last - t * CPU_KEY_TILE : CPU_KEY_TILE,
                                       single);
        assert_memory_equal(single, out + (size_t)q * n_values, n_values * sizeof(float));
        for (uint32_t i = 0; i < n_values; i++) {
            double expected = start[(size_t)q * n_values + i];
            for (uint32_t key = first; key < last; key++)
                expected += weight_of(weights + (size_t)q * KEYS, key) *
                            value_of(tiles[key / CPU_KEY_TILE][grouped(key % CPU_KEY_TILE, i, n_values)], stored_type());
            assert_true(fabs(single[i] - expected) < 3e-5);
        }
    }
}

static void test_accumulate(void **state)
{
    for (uint32_t n_values = CPU_HEAD_ALIGN; n_values <= MAX_VALUES; n_values += CPU_HEAD_ALIGN)
        for (uint32_t n = 1; n <= kernels->tile_rows; n++)
            for (uint32_t n_tiles = 1; n_tiles <= 4; n_tiles++)
                check_accumulate(n_values, n, n_tiles);
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
    kernels = strcmp(path, "avx512bf16") == 0 ? cpu_kernels_avx512bf16()
              : strcmp(path, "avx512") == 0   ? cpu_kernels_avx512()
              : strcmp(path, "avx2") == 0     ? cpu_kernels_avx2()
                                              : cpu_kernels_generic();
    if (!kernels) {
        printf("skipped: this CPU has no %s\n", path);
        return 77;
    }
    rng_seed(&rng, 7);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_half_conversions), cmocka_unit_test(test_bfloat_conversions),
        cmocka_unit_test(test_matmul),           cmocka_unit_test(test_silu),
        cmocka_unit_test(test_scores),           cmocka_unit_test(test_softmax),
        cmocka_unit_test(test_accumulate),       cmocka_unit_test(test_sine_and_cosine),
        cmocka_unit_test(test_widened_panels),   cmocka_unit_test(test_normalize),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

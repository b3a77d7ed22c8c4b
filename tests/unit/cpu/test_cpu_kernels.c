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
            assert_true(fabs(out[i] - expected) <=
                        (pairs() ? 2e-4 : 1e-6) * fabs(expected) + 1e-30); /* pairs: it becomes bfloat16 */
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
            kernels->score_keys(queries, n, n_inputs, tiles, n_tiles, n % 2 ? tiles : NULL, out, STRIDE);
            for (uint32_t i = 0; i < n * n_tiles; i++) {
                uint32_t q = i / n_tiles, t = i % n_tiles;
                const float *vector = vectors + (size_t)q * n_inputs;
                kernels->pack_inputs(vector, n_inputs, one, 1);
                kernels->score_keys(one, 1, n_inputs, tiles + t, 1, NULL, single, CPU_KEY_TILE);
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

static struct key_range random_range(uint32_t size, bool empty_too)
{
    uint32_t first = (uint32_t)rng_below(&rng, size);
    return (struct key_range){first, first + !empty_too + (uint32_t)rng_below(&rng, size - first + empty_too)};
}

/* One query's weights against exact powers of two, whatever stands outside of its range. */
static void check_weights(const float *scores, const float *weights, struct key_range range, float maximum, float sum)
{
    double top = (double)CPU_NO_SCORE, total = 0;
    for (uint32_t i = range.first; i < range.last; i++)
        top = scores[i] > top ? scores[i] : top;
    assert_true(maximum == top);
    for (uint32_t i = range.first; i < range.last; i++) {
        double expected = exp2(scores[i] - (float)top); /* the difference rounded to float, as is natural */
        double tolerance = pairs() ? 0x1.05p-8 : 3e-7, weight = weight_of(weights, i);
        total += expected;
        assert_true(fabs(weight - expected) <= tolerance * expected + 2e-38);
        if (scores[i] == top)
            assert_true(weight == 1);
    }
    if (pairs() && range.first % 2 && range.first < range.last)
        assert_true(weight_of(weights, range.first - 1) == 0);
    if (pairs() && range.last % 2 && range.first < range.last)
        assert_true(weight_of(weights, range.last) == 0);
    assert_true(fabs(sum - total) <= (pairs() ? 2e-4 : 1e-6) * total);
}

static void test_softmax(void **state)
{
    static float scores[CPU_MAX_TILE_ROWS][CPU_KV_SEGMENT], before[CPU_MAX_TILE_ROWS][CPU_KV_SEGMENT];
    float maximum[CPU_MAX_TILE_ROWS], sum[CPU_MAX_TILE_ROWS], single_maximum, single_sum;
    struct key_range ranges[CPU_MAX_TILE_ROWS];
    for (int round = 0; round < 1000; round++) {
        uint32_t n = 1 + (uint32_t)rng_below(&rng, kernels->tile_rows);
        for (uint32_t q = 0; q < n; q++) {
            ranges[q] = random_range(CPU_KV_SEGMENT, true);
            for (uint32_t i = 0; i < CPU_KV_SEGMENT; i++) /* outside the range: what stale pages may give */
                before[q][i] = i >= ranges[q].first && i < ranges[q].last ? uniform() * 60 : (i % 3 ? NAN : INFINITY);
        }
        memcpy(scores, before, sizeof scores);
        kernels->softmax_segment(scores[0], CPU_KV_SEGMENT, n, ranges, maximum, sum);
        for (uint32_t q = 0; q < n; q++) {
            check_weights(before[q], scores[q], ranges[q], maximum[q], sum[q]);
            kernels->softmax_segment(before[q], CPU_KV_SEGMENT, 1, &ranges[q], &single_maximum, &single_sum);
            assert_true(single_maximum == maximum[q] && single_sum == sum[q]);
            for (uint32_t i = ranges[q].first; i < ranges[q].last; i++)
                assert_true(weight_of(before[q], i) == weight_of(scores[q], i));
        }
    }
}

/*
 * Random ranges with both ends moving upward from query to query, as attention has them, and queries together against each alone.
 * Values that no query of a call sees are NaN: taking one into account would show. So are, alone, those the query does not see.
 */
static void check_accumulate(uint32_t n_values, uint32_t n, uint32_t n_tiles)
{
    enum { TILES = 4, KEYS = TILES * CPU_KEY_TILE };
    static uint16_t values[TILES][CPU_KEY_TILE * MAX_VALUES], seen[TILES][CPU_KEY_TILE * MAX_VALUES];
    static float plain[CPU_MAX_TILE_ROWS * KEYS], weights[CPU_MAX_TILE_ROWS * KEYS], out[CPU_MAX_TILE_ROWS * MAX_VALUES];
    const uint16_t *const tiles[TILES] = {values[2], values[0], values[3], values[1]};
    const uint16_t *const alone[TILES] = {seen[2], seen[0], seen[3], seen[1]};
    const uint32_t end = n_tiles * CPU_KEY_TILE;
    struct key_range ranges[CPU_MAX_TILE_ROWS] = {random_range(end, false)};
    float single[MAX_VALUES];
    for (uint32_t q = 1; q < n; q++) {
        uint32_t step = (uint32_t)rng_below(&rng, 3), first = ranges[q - 1].first + step, last = ranges[q - 1].last + step;
        ranges[q] = (struct key_range){first < end ? first : end, last < end ? last : end};
    }
    for (uint32_t key = 0; key < end; key++)
        for (uint32_t i = 0; i < n_values; i++) {
            uint16_t *value = (uint16_t *)tiles[key / CPU_KEY_TILE] + grouped(key % CPU_KEY_TILE, i, n_values);
            *value = 0x7fff; /* NaN in both formats */
            if (key >= ranges[0].first && key < ranges[n - 1].last)
                fill_weights(value, 1, stored_type());
        }
    fill_floats(plain, (size_t)n * KEYS);
    for (uint32_t q = 0; q < n; q++) {
        for (uint32_t key = 0; key < KEYS; key++) /* as softmax_segment leaves them */
            plain[q * KEYS + key] = key >= ranges[q].first && key < ranges[q].last ? plain[q * KEYS + key] : 0;
        kernels->pack_inputs(plain + (size_t)q * KEYS, KEYS, weights + (size_t)q * KEYS, 1);
    }
    kernels->accumulate_values(weights, KEYS, n, ranges, tiles, n % 2 ? tiles : NULL, n_values, out);
    for (uint32_t q = 0; q < n; q++) {
        memcpy(seen, values, sizeof seen);
        for (uint32_t key = 0; key < end; key++)
            for (uint32_t i = 0; i < n_values && (key < ranges[q].first || key >= ranges[q].last); i++)
                ((uint16_t *)alone[key / CPU_KEY_TILE])[grouped(key % CPU_KEY_TILE, i, n_values)] = 0x7fff;
        kernels->accumulate_values(weights + (size_t)q * KEYS, KEYS, 1, &ranges[q], alone, NULL, n_values, single);
        assert_memory_equal(single, out + (size_t)q * n_values, n_values * sizeof(float));
        for (uint32_t i = 0; i < n_values; i++) {
            double expected = 0;
            for (uint32_t key = ranges[q].first; key < ranges[q].last; key++)
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

/* Two parts against one state over all keys, by hand; a part without keys leaves every bit. */
static void test_states(void **state)
{
    enum { VALUES = 64 };
    static float values[3][CPU_MAX_TILE_ROWS * VALUES];
    struct attention_state a = {.values = values[0]}, b = {.values = values[1]}, before = {.values = values[2]};
    for (int round = 0; round < 200; round++) {
        uint32_t n = 1 + (uint32_t)rng_below(&rng, kernels->tile_rows);
        for (uint32_t q = 0; q < n; q++) {
            a.maximum[q] = uniform() * 30, b.maximum[q] = uniform() * 30;
            a.sum[q] = 1 + (float)rng_unit(&rng), b.sum[q] = 1 + (float)rng_unit(&rng);
        }
        fill_floats(a.values, (size_t)n * VALUES);
        fill_floats(b.values, (size_t)n * VALUES);
        const uint32_t empty = (uint32_t)rng_below(&rng, n), *of_a = round % 2 ? &empty : NULL;
        struct attention_state *none = of_a ? &a : &b;
        none->maximum[empty] = CPU_NO_SCORE, none->sum[empty] = 0;
        memset(none->values + (size_t)empty * VALUES, 0, VALUES * sizeof(float));
        memcpy(before.maximum, a.maximum, sizeof a.maximum);
        memcpy(before.sum, a.sum, sizeof a.sum);
        memcpy(before.values, a.values, sizeof values[0]);
        kernels->merge_states(n, VALUES, &b, &a);
        for (uint32_t q = 0; q < n; q++) {
            double top = fmax(before.maximum[q], b.maximum[q]);
            double keep = exp2(before.maximum[q] - top), add = exp2(b.maximum[q] - top),
                   sum = before.sum[q] * keep + b.sum[q] * add;
            double tolerance = pairs() ? 2e-4 : 1e-6;
            assert_true(a.maximum[q] == top && fabs(a.sum[q] - sum) <= tolerance * sum);
            for (uint32_t i = 0; i < VALUES; i++) {
                float x = before.values[q * VALUES + i], y = b.values[q * VALUES + i];
                assert_true(fabs(a.values[q * VALUES + i] - (x * keep + y * add)) <= tolerance * 2);
            }
        }
        const struct attention_state *other = of_a ? &b : &before;
        assert_true(a.sum[empty] == other->sum[empty]);
        assert_memory_equal(a.values + empty * VALUES, other->values + empty * VALUES, VALUES * sizeof(float));
        memcpy(before.values, a.values, sizeof values[0]);
        kernels->finish_states(n, VALUES, &a);
        for (uint32_t i = 0; i < n * VALUES; i++)
            assert_true(fabs(a.values[i] * (double)a.sum[i / VALUES] - before.values[i]) <= 1e-6 * fabs(before.values[i]));
    }
}

/* A tile of rows at once is what each row alone is. */
static void test_pack_rows(void **state)
{
    const uint32_t sizes[] = {576, 64, 24, 2, 38};
    static float in[CPU_MAX_TILE_ROWS][MAX_INPUTS], together[CPU_MAX_TILE_ROWS * MAX_INPUTS], apart[CPU_MAX_TILE_ROWS * MAX_INPUTS];
    const float *rows[CPU_MAX_TILE_ROWS];
    for (uint32_t s = 0; s < 5; s++)
        for (uint32_t n = 1; n <= kernels->tile_rows; n++) {
            for (uint32_t r = 0; r < n; r++) {
                rows[r] = in[n - 1 - r];
                fill_floats(in[r], sizes[s]);
            }
            kernels->pack_rows(rows, n, sizes[s], together, n);
            for (uint32_t r = 0; r < n; r++)
                kernels->pack_inputs(rows[r], sizes[s], apart + r, n);
            assert_memory_equal(together, apart, (size_t)n * sizes[s] / kernels->inputs_per_word * sizeof(float));
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
        cmocka_unit_test(test_states),           cmocka_unit_test(test_pack_rows),
        cmocka_unit_test(test_widened_panels),   cmocka_unit_test(test_normalize),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

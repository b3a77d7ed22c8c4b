/* The 4-bit format and its quantiser against slow ones written from docs/quantized-weights.md, in double precision. */
#include "tests/unit/model/check.h"

#include <math.h>

#include "core/base/rng.h"
#include "core/model/dequantize.h"
#include "core/model/w4.h"

enum { COLS = 288, ROW_BYTES = COLS };

static const struct w4_layout layouts[] = {{32, false}, {64, false}, {128, false}, {32, true}, {64, true}, {128, true}};
enum { N_LAYOUTS = sizeof layouts / sizeof layouts[0] };

static struct rng rng;

/* Sums of uniform values: dense in the middle as weights are. */
static void random_row(float *row, uint32_t cols, float size)
{
    for (uint32_t i = 0; i < cols; i++)
        row[i] = size * (float)(rng_unit(&rng) + rng_unit(&rng) + rng_unit(&rng) + rng_unit(&rng) - 2);
}

static double half_at(const uint8_t *p)
{
    unsigned bits = p[0] | p[1] << 8, exponent = bits >> 10 & 31, mantissa = bits & 1023;
    double value = exponent ? ldexp(1024 + mantissa, (int)exponent - 25) : ldexp(mantissa, -24);
    return bits & 0x8000 ? -value : value;
}

/* The values of a row by the format's description; integers[] receives what is stored. */
static void read_row(struct w4_layout layout, const uint8_t *row, uint32_t cols, double *values, int *integers)
{
    for (uint32_t first = 0, n; first < cols; first += n) {
        n = cols - first < layout.group ? cols - first : layout.group;
        double scale = half_at(row), minimum = layout.has_minimum ? half_at(row + 2) : 0;
        row += layout.has_minimum ? 4 : 2;
        for (uint32_t i = 0; i < n; i++) {
            int b = i % 2 ? row[i / 2] >> 4 : row[i / 2] & 15;
            integers[first + i] = b;
            values[first + i] = (layout.has_minimum ? b : b - 8) * scale + minimum;
        }
        row += n / 2;
    }
}

static void test_sizes(void **state)
{
    assert_int_equal(w4_row_bytes((struct w4_layout){128, false}, 576), 5 * 2 + 288);
    assert_int_equal(w4_row_bytes((struct w4_layout){128, true}, 576), 5 * 4 + 288);
    assert_int_equal(w4_row_bytes((struct w4_layout){32, false}, 64), 2 * 18);
    for (enum tensor_type type = TENSOR_W4_G32; type <= TENSOR_W4_G128_MIN; type++) {
        struct w4_layout layout;
        assert_true(w4_layout_of(type, &layout) && tensor_is_w4(type));
        assert_int_equal(w4_type(layout), type);
        assert_int_equal(w4_type_by_name(w4_type_name(type)), type);
        assert_int_equal(w4_type_from_file(w4_file_number(type)), type);
        assert_int_equal(w4_file_number(type), 0x57340000u + layout.group + (layout.has_minimum ? 0x1000 : 0));
    }
    assert_int_equal(w4_type((struct w4_layout){256, false}), TENSOR_NONE);
    assert_int_equal(w4_type_by_name("W4_G16"), TENSOR_NONE);
    assert_int_equal(w4_type_from_file(0x57340010u), TENSOR_NONE);
    assert_false(tensor_is_w4(TENSOR_Q6_K));
}

static void check_reading(struct w4_layout layout, const uint8_t *row)
{
    float values[COLS];
    double expected[COLS];
    int stored[COLS];
    int8_t integers[COLS];
    uint16_t scales[COLS / 32], minima[COLS / 32];
    read_row(layout, row, COLS, expected, stored);
    w4_dequantize_row(layout, row, COLS, values);
    w4_read_row(layout, row, COLS, integers, scales, minima);
    for (uint32_t i = 0; i < COLS; i++) {
        assert_true(fabs(values[i] - expected[i]) <= 1e-6 * fabs(expected[i]) + 1e-7);
        assert_int_equal(integers[i], layout.has_minimum ? stored[i] : stored[i] - 8);
        double scale = float_from_f16(scales[i / layout.group]);
        double minimum = layout.has_minimum ? float_from_f16(minima[i / layout.group]) : 0;
        assert_true(integers[i] * scale + minimum == expected[i]);
    }
}

/* Error of rounding x to the nearest of 16 steps from low on. */
static double plain_error(const float *x, uint32_t n, double scale, double minimum, double low)
{
    double error = 0;
    for (uint32_t i = 0; i < n; i++) {
        double q = scale != 0 ? rint((x[i] - minimum) / scale) : 0;
        q = fmin(fmax(q, low), low + 15);
        error += pow(x[i] - (q * scale + minimum), 2);
    }
    return error;
}

static double to_half(double value)
{
    return float_from_f16(f16_from_float((float)value));
}

/* What rounding without a search would give: the scale that just covers the values. */
static double simple_error(struct w4_layout layout, const float *x, uint32_t n)
{
    double low = x[0], high = x[0];
    for (uint32_t i = 0; i < n; i++) {
        low = fmin(low, x[i]);
        high = fmax(high, x[i]);
    }
    if (layout.has_minimum)
        return plain_error(x, n, to_half((high - low) / 15), to_half(low), 0);
    return fmin(plain_error(x, n, to_half(fmax(-low, high) / 7), 0, -8),
                plain_error(x, n, to_half((-low > high ? low : high) / -8), 0, -8));
}

/* Every integer is the nearest one for its scale, and the search is worth its time. */
static void check_quantising(struct w4_layout layout, const float *row, double *found, double *simple)
{
    uint8_t bytes[ROW_BYTES];
    double values[COLS];
    int stored[COLS];
    assert_true(w4_quantize_row(layout, row, COLS, bytes));
    check_reading(layout, bytes);
    read_row(layout, bytes, COLS, values, stored);
    const uint8_t *at = bytes;
    for (uint32_t first = 0, n; first < COLS; first += n) {
        n = COLS - first < layout.group ? COLS - first : layout.group;
        double scale = half_at(at), minimum = layout.has_minimum ? half_at(at + 2) : 0, error = 0;
        for (uint32_t i = first; i < first + n; i++) {
            int q = stored[i] - (layout.has_minimum ? 0 : 8), low = layout.has_minimum ? 0 : -8;
            double exact = scale != 0 ? (row[i] - minimum) / scale : 0;
            assert_true(fabs(fmin(fmax(exact, low), low + 15) - q) <= 0.5 + 1e-3);
            error += pow(row[i] - values[i], 2);
        }
        double without_search = simple_error(layout, row + first, n);
        assert_true(error <= without_search * 1.001 + 1e-12);
        *found += error;
        *simple += without_search;
        at += w4_row_bytes(layout, n);
    }
}

static void test_quantising(void **state)
{
    for (int l = 0; l < N_LAYOUTS; l++) {
        double found = 0, simple = 0;
        for (int round = 0; round < 60; round++) {
            float row[COLS];
            random_row(row, COLS, powf(10, (float)(round % 7) - 4));
            if (round % 5 == 0)
                row[rng_below(&rng, COLS)] *= 6; /* an outlier */
            check_quantising(layouts[l], row, &found, &simple);
        }
        print_message("group %u%s: squared error %.3f of that without a search\n", layouts[l].group,
                      layouts[l].has_minimum ? " with minimum" : "", found / simple);
        assert_true(found < 0.97 * simple);
    }
}

/* What the format can hold comes back exactly. */
static void test_exact_values(void **state)
{
    for (int l = 0; l < N_LAYOUTS; l++) {
        const struct w4_layout layout = layouts[l];
        float row[COLS], back[COLS];
        uint8_t bytes[ROW_BYTES];
        for (uint32_t i = 0; i < COLS; i++) {
            int b = i % 32 < 16 ? (int)(i % 16) : (int)rng_below(&rng, 16);
            row[i] = layout.has_minimum ? (float)b * 0.125f - 0.75f : (float)(b - 8) * 0.125f;
        }
        assert_true(w4_quantize_row(layout, row, COLS, bytes));
        w4_dequantize_row(layout, bytes, COLS, back);
        assert_memory_equal(row, back, sizeof row);
    }
}

static void test_odd_values(void **state)
{
    for (int l = 0; l < N_LAYOUTS; l++) {
        float row[COLS] = {0}, back[COLS];
        uint8_t bytes[ROW_BYTES];
        assert_true(w4_quantize_row(layouts[l], row, COLS, bytes));
        w4_dequantize_row(layouts[l], bytes, COLS, back);
        for (uint32_t i = 0; i < COLS; i++)
            assert_true(back[i] == 0);
        for (uint32_t i = 0; i < COLS; i++)
            row[i] = 0.5f; /* all equal: a scale of its own cannot be found with minima, nor is it needed */
        assert_true(w4_quantize_row(layouts[l], row, COLS, bytes));
        w4_dequantize_row(layouts[l], bytes, COLS, back);
        for (uint32_t i = 0; i < COLS; i++)
            assert_true(fabsf(back[i] - 0.5f) < 1e-3f);
        for (uint32_t i = 0; i < COLS; i++)
            row[i] = 1e-12f * (float)i; /* below FP16 */
        assert_true(w4_quantize_row(layouts[l], row, COLS, bytes));
        w4_dequantize_row(layouts[l], bytes, COLS, back);
        for (uint32_t i = 0; i < COLS; i++)
            assert_true(fabsf(back[i]) < 1e-7f);
        const float bad[] = {NAN, INFINITY, -INFINITY, 1e9f, -1e6f};
        for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
            memset(row, 0, sizeof row);
            row[COLS - 1] = bad[i];
            assert_false(w4_quantize_row(layouts[l], row, COLS, bytes));
        }
    }
}

/* All halves there and back, and floats beside every rounding border. */
static void test_halves(void **state)
{
    for (uint32_t bits = 0; bits < 0x10000; bits++)
        if ((bits & 0x7c00) != 0x7c00 || !(bits & 0x3ff))
            assert_int_equal(f16_from_float(float_from_f16((uint16_t)bits)), bits);
    for (uint32_t bits = 0; bits < 0x7bff; bits++) { /* between two neighbours: the even one at the middle */
        float low = float_from_f16((uint16_t)bits), high = float_from_f16((uint16_t)(bits + 1)), middle = low + (high - low) / 2;
        assert_int_equal(f16_from_float(middle), bits + (bits & 1));
        assert_int_equal(f16_from_float(nextafterf(middle, 0)), bits);
        assert_int_equal(f16_from_float(nextafterf(middle, INFINITY)), bits + 1);
        assert_int_equal(f16_from_float(-middle), 0x8000u | (bits + (bits & 1)));
    }
    assert_int_equal(f16_from_float(65519.0f), 0x7bff);
    assert_int_equal(f16_from_float(65520.0f), 0x7c00);
    assert_int_equal(f16_from_float(INFINITY), 0x7c00);
    assert_true((f16_from_float(NAN) & 0x7fff) > 0x7c00);
}

/* Rows taken apart stand for what dequantising gives; Q4_K's steps are rounded to FP16 on the way. */
static void check_groups(enum tensor_type type, double tolerance)
{
    enum { BLOCKS = 2, MAX_COLS = BLOCKS * 256 };
    const struct tensor_format *format = tensor_format(type);
    const uint32_t cols = BLOCKS * format->block_elements;
    uint8_t data[BLOCKS * 256];
    float values[MAX_COLS];
    int8_t integers[MAX_COLS];
    uint16_t scales[MAX_COLS / 16], minima[MAX_COLS / 32];
    struct tensor_view t = {.name = "t", .data = data, .bytes = BLOCKS * format->block_bytes, .type = type, .rows = 1, .cols = cols};
    struct tensor_groups groups;
    assert_true(tensor_groups_of(&t, &groups));
    assert_int_equal(groups.size, type == TENSOR_Q6_K ? 16 : 32);
    assert_int_equal(groups.bits, type == TENSOR_Q8_0 || type == TENSOR_Q5_0 || type == TENSOR_Q6_K ? 8 : 4);
    for (int round = 0; round < 100; round++) {
        for (size_t i = 0; i < t.bytes; i++)
            data[i] = (uint8_t)rng_below(&rng, 256);
        for (uint32_t b = 0; b < BLOCKS; b++) { /* scales of a usual size */
            data[b * format->block_bytes + 1] = 0x20 | (data[b * format->block_bytes + 1] & 0x83);
            data[b * format->block_bytes + 3] = 0x20 | (data[b * format->block_bytes + 3] & 0x83);
            if (type == TENSOR_Q6_K)
                data[b * format->block_bytes + 209] = 0x20 | (data[b * format->block_bytes + 209] & 0x83);
        }
        dequantize_rows(&t, 0, 1, values);
        tensor_read_groups(&t, 0, integers, scales, groups.has_minimum ? minima : NULL);
        for (uint32_t i = 0; i < cols; i++) {
            double scale = float_from_f16(scales[i / groups.size]), minimum = groups.has_minimum ? float_from_f16(minima[i / 32]) : 0;
            double slack = tolerance * (fabs(integers[i] * scale) + fabs(minimum)) + 1e-9;
            assert_true(fabs(integers[i] * scale + minimum - values[i]) <= slack);
        }
    }
}

static void test_groups(void **state)
{
    const struct tensor_view f16 = {.type = TENSOR_F16, .rows = 1, .cols = 32}, q5_1 = {.type = TENSOR_Q5_1, .rows = 1, .cols = 32};
    struct tensor_groups groups;
    check_groups(TENSOR_Q8_0, 1e-7);
    check_groups(TENSOR_Q5_0, 1e-7);
    check_groups(TENSOR_Q6_K, 0.0006);
    check_groups(TENSOR_Q4_0, 1e-7);
    check_groups(TENSOR_Q4_1, 1e-6);
    check_groups(TENSOR_Q4_K, 0.0006);
    assert_false(tensor_groups_of(&f16, &groups));
    assert_false(tensor_groups_of(&q5_1, &groups));
}

int main(void)
{
    rng_seed(&rng, 3);
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_sizes),        cmocka_unit_test(test_quantising),
                                       cmocka_unit_test(test_exact_values), cmocka_unit_test(test_odd_values),
                                       cmocka_unit_test(test_halves),       cmocka_unit_test(test_groups)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

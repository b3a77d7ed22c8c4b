/*
 * Products with integer weights of one path (named by the argument): each type against double precision on random data laid out
 * as kernels_quantised.h draws it, and each number of rows and panels against one row and one panel, bit for bit. Exit 77 where the
 * CPU lacks the path.
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
#include "tests/unit/cpu/tiny_model.h"

enum { MAX_INPUTS = 576, MAX_PANEL_BYTES = MAX_INPUTS * CPU_MAX_PANEL_WIDTH * 2 };

static const struct cpu_kernels *kernels;
static struct rng rng;

static float uniform(void)
{
    return (float)(rng_unit(&rng) * 2 - 1);
}

static double input_value(float value)
{
    return kernels->inputs_per_word == 2 ? tiny_round_to_bfloat(value) : value;
}

/* Of inputs below one, as integers. */
static double input_step(void)
{
    return kernels->input_planes == 2 ? 1 / 32600.0 : 1 / 8355000.0;
}

/* A random panel, and the values that it means: values[output][input]. */
static void make_panel(enum weight_type type, uint32_t n_inputs, uint8_t *panel, double values[CPU_MAX_PANEL_WIDTH][MAX_INPUTS])
{
    const uint32_t width = kernels->panel_width, bits = type >= WEIGHT_W8_G16 ? 8 : 4;
    const bool has_minimum = weight_has_minimum(type);
    for (uint32_t first = 0, n; first < n_inputs; first += n) {
        n = n_inputs - first < weight_group(type) ? n_inputs - first : weight_group(type);
        uint16_t scales[CPU_MAX_PANEL_WIDTH], minima[CPU_MAX_PANEL_WIDTH];
        const size_t integer_bytes = (size_t)n * width * bits / 8;
        for (size_t i = 0; i < integer_bytes; i++)
            panel[i] = (uint8_t)rng_below(&rng, 256);
        for (uint32_t o = 0; o < width; o++) {
            scales[o] = half_from_float(uniform() * 0.1f);
            minima[o] = half_from_float(uniform());
            for (uint32_t i = 0; i < n; i++) {
                uint32_t per_dword = 32 / bits, dword = 0, k = i % per_dword;
                memcpy(&dword, panel + ((size_t)(i / per_dword) * width + o) * 4, sizeof dword);
                int integer = (int)(bits == 8 ? dword >> 8 * k & 255 : dword >> (8 * (k % 4) + 4 * (k / 4)) & 15);
                integer -= bits == 8 ? 128 : has_minimum ? 0 : 8;
                values[o][first + i] = integer * half_to_float(scales[o]) + (has_minimum ? half_to_float(minima[o]) : 0.0f);
            }
        }
        panel += integer_bytes;
        memcpy(panel, scales, width * sizeof *scales);
        panel += width * sizeof *scales;
        if (has_minimum) {
            memcpy(panel, minima, width * sizeof *minima);
            panel += width * sizeof *minima;
        }
    }
}

static void multiply(const void *panels, enum weight_type type, uint32_t n_inputs, uint32_t n_panels, const float *x, uint32_t rows,
                     const float *base, float *out)
{
    static int32_t fixed[CPU_MAX_TILE_ROWS * 2 * MAX_INPUTS];
    struct matmul m = {.panels = panels,
                       .type = type,
                       .n_inputs = n_inputs,
                       .n_panels = n_panels,
                       .x = x,
                       .n_rows = rows,
                       .out = out,
                       .out_stride = (size_t)CPU_MAX_PANELS_AT_ONCE * kernels->panel_width + 3,
                       .add = base != NULL};
    assert_true(rows * cpu_fixed_words(type, n_inputs, kernels->input_planes) <= sizeof fixed / sizeof fixed[0]);
    for (uint32_t r = 0; r < rows; r += 5) /* in two or three parts, as workers do it */
        kernels->fix_inputs(type, n_inputs, x, rows, r, rows - r < 5 ? rows - r : 5, fixed);
    m.fixed = fixed;
    if (rows % 2) {
        m.ahead = panels;
        m.ahead_bytes = n_panels * weight_panel_bytes(type, n_inputs, kernels->panel_width);
    }
    for (uint32_t r = 0; base && r < rows; r++)
        memcpy(out + r * m.out_stride, base, n_panels * kernels->panel_width * sizeof *out);
    kernels->matmul(&m);
}

static void check_type(enum weight_type type, uint32_t n_inputs)
{
    static uint8_t panels[CPU_MAX_PANELS_AT_ONCE * MAX_PANEL_BYTES];
    static double values[CPU_MAX_PANEL_WIDTH][MAX_INPUTS];
    static float x[CPU_MAX_TILE_ROWS][MAX_INPUTS], tile[CPU_MAX_TILE_ROWS * MAX_INPUTS];
    static float single[CPU_MAX_PANELS_AT_ONCE][CPU_MAX_TILE_ROWS][CPU_MAX_PANEL_WIDTH];
    static float out[CPU_MAX_TILE_ROWS * (CPU_MAX_PANELS_AT_ONCE * CPU_MAX_PANEL_WIDTH + 3)];
    float base[CPU_MAX_PANELS_AT_ONCE * CPU_MAX_PANEL_WIDTH];
    const uint32_t width = kernels->panel_width, stride = CPU_MAX_PANELS_AT_ONCE * width + 3;
    const size_t panel_bytes = weight_panel_bytes(type, n_inputs, width);
    assert_true(panel_bytes <= MAX_PANEL_BYTES);
    for (uint32_t r = 0; r < kernels->tile_rows; r++)
        for (uint32_t k = 0; k < n_inputs; k++)
            x[r][k] = uniform();
    for (uint32_t i = 0; i < CPU_MAX_PANELS_AT_ONCE * width; i++)
        base[i] = uniform();
    for (uint32_t p = 0; p < CPU_MAX_PANELS_AT_ONCE; p++) {
        make_panel(type, n_inputs, panels + p * panel_bytes, values);
        for (uint32_t r = 0; r < kernels->tile_rows; r++) {
            kernels->pack_inputs(x[r], n_inputs, tile, 1);
            multiply(panels + p * panel_bytes, type, n_inputs, 1, tile, 1, NULL, single[p][r]);
            for (uint32_t o = 0; o < width; o++) {
                double expected = 0, magnitude = 0, rounded = 0;
                for (uint32_t k = 0; k < n_inputs; k++) {
                    expected += values[o][k] * input_value(x[r][k]);
                    magnitude += (fabs(values[o][k]) + 2) * fabs(x[r][k]);
                    rounded += (fabs(values[o][k]) + 2) * input_step() / 2;
                }
                if (!(fabs(single[p][r][o] - expected) <= 1e-6 * magnitude + rounded))
                    fail_msg("type %d, %u inputs, output %u: %.9g, expected %.9g", type, n_inputs, o, single[p][r][o], expected);
            }
        }
    }
    for (uint32_t rows = 1; rows <= kernels->tile_rows; rows++) {
        for (uint32_t r = 0; r < rows; r++)
            kernels->pack_inputs(x[r], n_inputs, tile + r, rows);
        for (uint32_t n = 1; n <= CPU_MAX_PANELS_AT_ONCE; n++) {
            multiply(panels, type, n_inputs, n, tile, rows, NULL, out);
            for (uint32_t p = 0; p < n; p++)
                for (uint32_t r = 0; r < rows; r++)
                    assert_memory_equal(out + (size_t)r * stride + p * width, single[p][r], width * sizeof(float));
            multiply(panels, type, n_inputs, n, tile, rows, base, out);
            for (uint32_t p = 0; p < n; p++)
                for (uint32_t r = 0; r < rows; r++)
                    for (uint32_t i = 0; i < width; i++)
                        assert_true(out[(size_t)r * stride + p * width + i] == base[p * width + i] + single[p][r][i]);
        }
    }
}

/* Whole groups, a shorter last one, and fewer inputs than a group. */
static void test_all_types(void **state)
{
    static const uint32_t inputs[] = {576, 128, 160, 32, 96};
    for (enum weight_type type = WEIGHT_W4_G32; type <= WEIGHT_W8_G32; type++)
        for (size_t i = 0; i < sizeof inputs / sizeof inputs[0]; i++)
            check_type(type, inputs[i]);
}

/* One infinite input: its row has no number in it, the others are as before. */
static void test_infinite_input(void **state)
{
    static uint8_t panel[MAX_PANEL_BYTES];
    static double values[CPU_MAX_PANEL_WIDTH][MAX_INPUTS];
    static float x[2][MAX_INPUTS], tile[2 * MAX_INPUTS], before[2 * (CPU_MAX_PANELS_AT_ONCE * CPU_MAX_PANEL_WIDTH + 3)],
        after[2 * (CPU_MAX_PANELS_AT_ONCE * CPU_MAX_PANEL_WIDTH + 3)];
    const uint32_t width = kernels->panel_width, stride = CPU_MAX_PANELS_AT_ONCE * width + 3;
    for (enum weight_type type = WEIGHT_W4_G32; type <= WEIGHT_W8_G32; type++) {
        make_panel(type, MAX_INPUTS, panel, values);
        for (uint32_t k = 0; k < 2 * MAX_INPUTS; k++)
            x[k / MAX_INPUTS][k % MAX_INPUTS] = uniform();
        for (int i = 0; i < 2; i++) {
            for (uint32_t r = 0; r < 2; r++)
                kernels->pack_inputs(x[r], MAX_INPUTS, tile + r, 2);
            multiply(panel, type, MAX_INPUTS, 1, tile, 2, NULL, i ? after : before);
            x[1][77] = -INFINITY;
        }
        assert_memory_equal(before, after, width * sizeof *after);
        for (uint32_t o = 0; o < width; o++) {
            assert_false(isnan(before[stride + o]));
            assert_true(isnan(after[stride + o]));
        }
    }
}

/* Inputs so small that their reciprocals are infinite, and zeros: the products are finite, and those of zeros zero. */
static void test_tiny_inputs(void **state)
{
    static uint8_t panel[MAX_PANEL_BYTES];
    static double values[CPU_MAX_PANEL_WIDTH][MAX_INPUTS];
    static float x[MAX_INPUTS], tile[MAX_INPUTS], out[CPU_MAX_PANEL_WIDTH];
    for (enum weight_type type = WEIGHT_W4_G32; type <= WEIGHT_W8_G32; type++) {
        make_panel(type, MAX_INPUTS, panel, values);
        for (float tiny = 1e-44f; tiny >= 0; tiny = tiny > 0 ? 0 : -1) {
            for (uint32_t k = 0; k < MAX_INPUTS; k++)
                x[k] = tiny;
            kernels->pack_inputs(x, MAX_INPUTS, tile, 1);
            multiply(panel, type, MAX_INPUTS, 1, tile, 1, NULL, out);
            for (uint32_t o = 0; o < kernels->panel_width; o++)
                assert_true(tiny > 0 ? fabsf(out[o]) < 1e-30f : out[o] == 0);
        }
    }
}

/* A panel whose integers are all zero bits or all ones, with scales of 1 and minima of 0. */
static void fill_panel(enum weight_type type, uint8_t byte, uint8_t *panel)
{
    const uint32_t group = weight_group(type), width = kernels->panel_width;
    const uint16_t one = 0x3c00, zero = 0;
    for (uint32_t first = 0, n; first < MAX_INPUTS; first += n) {
        n = MAX_INPUTS - first < group ? MAX_INPUTS - first : group;
        const size_t integer_bytes = (size_t)n * width * weight_bits(type) / 8;
        memset(panel, byte, integer_bytes);
        panel += integer_bytes;
        for (uint32_t i = 0; i < width * (weight_has_minimum(type) ? 2 : 1); i++, panel += sizeof one)
            memcpy(panel, i < width ? &one : &zero, sizeof one);
    }
}

/* The largest integers with the largest inputs of either sign, so that no sum on the way, nor a pair of products, may be cut. */
static void test_extremes(void **state)
{
    static uint8_t panel[MAX_PANEL_BYTES];
    static float x[MAX_INPUTS], tile[MAX_INPUTS], out[CPU_MAX_PANEL_WIDTH];
    static const float inputs[] = {1, -1, 0x1p100f, -0x1p100f, 0x1p-99f};
    for (enum weight_type type = WEIGHT_W4_G32; type <= WEIGHT_W8_G32; type++)
        for (int ones = 0; ones < 2; ones++)
            for (size_t i = 0; i < sizeof inputs / sizeof inputs[0]; i++) {
                const int integer = (ones ? (1 << weight_bits(type)) - 1 : 0) - weight_offset(type);
                const double expected = (double)integer * inputs[i] * MAX_INPUTS;
                fill_panel(type, ones ? 0xff : 0, panel);
                for (uint32_t k = 0; k < MAX_INPUTS; k++)
                    x[k] = inputs[i];
                kernels->pack_inputs(x, MAX_INPUTS, tile, 1);
                multiply(panel, type, MAX_INPUTS, 1, tile, 1, NULL, out);
                for (uint32_t o = 0; o < kernels->panel_width; o++)
                    if (!(fabs(out[o] - expected) <= 1e-5 * fabs(expected)))
                        fail_msg("type %d, all %d, inputs %g: %.9g, expected %.9g", type, integer, inputs[i], out[o], expected);
            }
}

/* Paths of one arithmetic class give the same bits. */
static void test_same_class(void **state)
{
    static uint8_t panel[MAX_PANEL_BYTES];
    static double values[CPU_MAX_PANEL_WIDTH][MAX_INPUTS];
    static float tile[MAX_INPUTS], out[2][CPU_MAX_PANEL_WIDTH];
    const struct cpu_kernels *const both[] = {cpu_kernels_avx512(), cpu_kernels_avx512vnni()};
    if (kernels != both[1])
        skip();
    assert_string_equal(both[0]->arithmetic, both[1]->arithmetic);
    for (enum weight_type type = WEIGHT_W4_G32; type <= WEIGHT_W8_G32; type++) {
        make_panel(type, MAX_INPUTS, panel, values);
        for (uint32_t k = 0; k < MAX_INPUTS; k++)
            tile[k] = uniform();
        for (int i = 0; i < 2; i++) {
            kernels = both[i];
            multiply(panel, type, MAX_INPUTS, 1, tile, 1, NULL, out[i]);
        }
        assert_memory_equal(out[0], out[1], sizeof out[0]);
    }
}

static void test_sizes(void **state)
{
    /* 4 groups of 128 and one of 64, in panels of 32: 4 x 2048 + 1024 bytes of integers, 5 x 64 of scales. */
    assert_int_equal(weight_panel_bytes(WEIGHT_W4_G128, 576, 32), 4 * 2048 + 1024 + 5 * 64);
    assert_int_equal(weight_panel_bytes(WEIGHT_W4_G128_MIN, 576, 32), 4 * 2048 + 1024 + 5 * 128);
    assert_int_equal(weight_panel_bytes(WEIGHT_W4_G64, 576, 16), 9 * (512 + 32));
    assert_int_equal(weight_panel_bytes(WEIGHT_W4_G32_MIN, 576, 8), 18 * (128 + 32));
    assert_int_equal(weight_panel_bytes(WEIGHT_W8_G32, 576, 32), 18 * (1024 + 64));
    assert_int_equal(weight_panel_bytes(WEIGHT_W8_G16, 576, 32), 36 * (512 + 64));
    assert_int_equal(weight_panel_bytes(WEIGHT_F16, 577, 32), 577 * 64);
    assert_int_equal(weight_panel_bytes(WEIGHT_F32, 577, 8), 577 * 32);
}

int main(int argc, char **argv)
{
    const char *name = argc > 1 ? argv[1] : "generic";
    const struct cpu_kernels *const all[] = {cpu_kernels_generic(), cpu_kernels_avx2(), cpu_kernels_avx512(), cpu_kernels_avx512vnni(),
                                             cpu_kernels_avx512bf16()};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        if (all[i] && strcmp(all[i]->name, name) == 0)
            kernels = all[i];
    if (!kernels) {
        printf("skipped: this CPU has no %s\n", name);
        return 77;
    }
    rng_seed(&rng, 5);
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_all_types), cmocka_unit_test(test_infinite_input), cmocka_unit_test(test_tiny_inputs), cmocka_unit_test(test_extremes),
                                       cmocka_unit_test(test_same_class), cmocka_unit_test(test_sizes)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

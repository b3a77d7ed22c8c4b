/* Every format, bit for bit, against the `gguf` package (tests/vectors/make_dequantize.py). */
#include "tests/unit/model/check.h"

#include "core/base/codec.h"
#include "core/model/dequantize.h"
#include "core/model/model_file.h"

static enum tensor_type type_by_name(const char *name)
{
    for (int type = TENSOR_F32; tensor_format(type); type++)
        if (strcmp(tensor_format(type)->name, name) == 0)
            return type;
    fail_msg("no format is called %s", name);
    return TENSOR_NONE;
}

/* The whole tensor at once, then row by row. */
static void check_case(const char *name, const struct tensor_view *t, const float *expected)
{
    size_t n = (size_t)t->rows * t->cols;
    float *values = calloc(n, sizeof *values), *one_row = calloc(t->cols, sizeof *one_row);
    assert_non_null(values);
    assert_non_null(one_row);
    dequantize_rows(t, 0, t->rows, values);
    for (size_t i = 0; i < n; i++)
        if (memcmp(&values[i], &expected[i], sizeof values[i]) != 0)
            fail_msg("%s: value %zu is %a, expected %a", name, i, (double)values[i], (double)expected[i]);
    for (uint32_t row = 0; row < t->rows; row++) {
        dequantize_rows(t, row, 1, one_row);
        assert_memory_equal(one_row, expected + (size_t)row * t->cols, t->cols * sizeof *one_row);
    }
    free(values);
    free(one_row);
}

static void test_all_formats(void **state)
{
    struct model_file file;
    struct error err = {0};
    struct reader in;
    if (model_file_map("tests/vectors/dequantize.bin", &file, &err) < 0)
        fail_msg("%s", err.text);
    reader_init(&in, file.data, file.len);
    uint32_t n_cases = read_u32(&in);
    assert_int_equal(n_cases, 11);
    for (uint32_t i = 0; i < n_cases; i++) {
        char name[9] = {0};
        read_bytes(&in, name, 8);
        struct tensor_view t = {.type = type_by_name(name), .rows = read_u32(&in), .cols = read_u32(&in)};
        t.bytes = read_u32(&in);
        const struct tensor_format *format = tensor_format(t.type);
        assert_int_equal(t.bytes, (size_t)t.rows * t.cols / format->block_elements * format->block_bytes);
        t.data = read_view(&in, t.bytes);
        size_t n = (size_t)t.rows * t.cols;
        float *expected = malloc(n * sizeof *expected);
        assert_non_null(expected);
        read_bytes(&in, expected, n * sizeof *expected);
        assert_false(in.failed);
        check_case(name, &t, expected);
        free(expected);
    }
    assert_int_equal(reader_left(&in), 0);
    model_file_unmap(&file);
}

/* IEEE 754-2008, binary16: known patterns. */
static void test_half_floats(void **state)
{
    static const struct {
        uint16_t bits;
        float value;
    } cases[] = {{0x0000, 0.0f},       {0x3c00, 1.0f},     {0xc000, -2.0f},     {0x7bff, 65504.0f},   {0x0001, 0x1p-24f},
                 {0x03ff, 0x3ffp-24f}, {0x0400, 0x1p-14f}, {0x8001, -0x1p-24f}, {0x3555, 0x1.554p-2f}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        assert_true(float_from_f16(cases[i].bits) == cases[i].value);
    assert_true(__builtin_signbit(float_from_f16(0x8000)) != 0);
    assert_true(__builtin_isinf(float_from_f16(0x7c00)) && float_from_f16(0xfc00) < 0);
    assert_true(__builtin_isnan(float_from_f16(0x7e00)) && __builtin_isnan(float_from_bf16(0x7fc0)));
    assert_true(float_from_bf16(0x3f80) == 1.0f && float_from_bf16(0xc049) == -0x1.92p1f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_all_formats), cmocka_unit_test(test_half_floats)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

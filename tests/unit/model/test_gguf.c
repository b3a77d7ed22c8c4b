/* The GGUF reader on whole files: one written here byte by byte, and one written by the `gguf` package. */
#include "tests/unit/model/check.h"

#include "tests/unit/model/gguf_builder.h"

static void build_sample(struct gguf_builder *b, uint32_t version)
{
    build_header(b, version, 2, 13);
    build_string(b, "general.name", "sample");
    build_key(b, "u8", GGUF_U8), write_u8(&b->out, 200);
    build_key(b, "i8", GGUF_I8), write_u8(&b->out, 0xfe);
    build_key(b, "i16", GGUF_I16), write_u16(&b->out, 0x8000);
    build_key(b, "i32", GGUF_I32), write_u32(&b->out, (uint32_t)-7);
    build_key(b, "u64", GGUF_U64), write_u64(&b->out, UINT64_MAX);
    build_key(b, "i64", GGUF_I64), write_i64(&b->out, INT64_MIN);
    build_f32(b, "f32", 1.5f);
    build_key(b, "f64", GGUF_F64), write_f64(&b->out, -0.1);
    build_key(b, "yes", GGUF_BOOL), write_u8(&b->out, 1);
    build_array(b, "words", GGUF_STRING, 3), build_text(b, "a"), build_text(b, ""), build_text(b, "long one");
    build_array(b, "counts", GGUF_U16, 2), write_u16(&b->out, 3), write_u16(&b->out, 65535);
    build_array(b, "empty", GGUF_F32, 0);
    build_tensor(b, "second", 32, 2, 8, 32); /* Q8_0: 68 bytes */
    build_tensor(b, "first", 2, 3, 0, 0);    /* F32: 24 bytes */
    build_padding(b, 32);
    for (int i = 0; i < 6; i++)
        write_f32(&b->out, (float)i);
    build_zeros(b, 8);
    for (int i = 0; i < 68; i++)
        write_u8(&b->out, (uint8_t)i);
}

static struct gguf *open_sample(struct gguf_builder *b, uint32_t version, uint8_t **copy)
{
    struct gguf *gguf = NULL;
    struct error err = {0};
    build_sample(b, version);
    if (build_open(b, b->out.len, copy, &gguf, &err) < 0)
        fail_msg("%s", err.text);
    return gguf;
}

static void test_values(void **state)
{
    struct gguf_builder b;
    uint8_t *copy;
    int64_t i;
    uint32_t u;
    double d;
    bool yes;
    struct gguf_string s;
    struct gguf *gguf = open_sample(&b, 3, &copy);

    assert_int_equal(gguf_count_values(gguf), 13);
    assert_string_equal(gguf_path(gguf), "small.gguf");
    assert_ok(gguf_get_string(gguf, "general.name", &s, NULL));
    assert_true(gguf_string_equals(s, "sample") && !gguf_string_equals(s, "samples"));
    assert_ok(gguf_get_u32(gguf, "u8", &u, NULL));
    assert_int_equal(u, 200);
    assert_ok(gguf_get_i64(gguf, "i8", &i, NULL));
    assert_int_equal(i, -2);
    assert_ok(gguf_get_i64(gguf, "i16", &i, NULL));
    assert_int_equal(i, -32768);
    assert_ok(gguf_get_i64(gguf, "i32", &i, NULL));
    assert_int_equal(i, -7);
    assert_ok(gguf_get_i64(gguf, "u64", &i, NULL));
    assert_true(i == INT64_MAX);
    assert_ok(gguf_get_i64(gguf, "i64", &i, NULL));
    assert_true(i == INT64_MIN);
    assert_ok(gguf_get_f64(gguf, "f32", &d, NULL));
    assert_true(d == 1.5);
    assert_ok(gguf_get_f64(gguf, "f64", &d, NULL));
    assert_true(d == -0.1);
    assert_ok(gguf_get_bool(gguf, "yes", &yes, NULL));
    assert_true(yes);
    gguf_close(gguf);
    free(copy);
}

static void test_arrays(void **state)
{
    struct gguf_builder b;
    uint8_t *copy;
    const struct gguf_value *v;
    struct gguf_string s;
    struct gguf *gguf = open_sample(&b, 3, &copy);

    assert_ok(gguf_get_array(gguf, "words", GGUF_STRING, &v, NULL));
    assert_int_equal(v->count, 3);
    struct gguf_cursor cursor = gguf_cursor_start(v);
    assert_true(gguf_cursor_next(&cursor, &s) && gguf_string_equals(s, "a"));
    assert_true(gguf_cursor_next(&cursor, &s) && s.len == 0);
    assert_true(gguf_cursor_next(&cursor, &s) && gguf_string_equals(s, "long one"));
    assert_false(gguf_cursor_next(&cursor, &s));
    assert_ok(gguf_get_array(gguf, "counts", GGUF_I64, &v, NULL));
    assert_int_equal(gguf_value_i64(v, 0), 3);
    assert_int_equal(gguf_value_i64(v, 1), 65535);
    assert_ok(gguf_get_array(gguf, "empty", GGUF_F64, &v, NULL));
    assert_int_equal(v->count, 0);
    gguf_close(gguf);
    free(copy);
}

static void test_tensors(void **state)
{
    struct gguf_builder b;
    uint8_t *copy;
    struct gguf *gguf = open_sample(&b, 2, &copy);
    const struct gguf_tensor *t = gguf_find_tensor(gguf, "first");

    assert_int_equal(gguf_count_tensors(gguf), 2);
    assert_ptr_equal(gguf_tensor_at(gguf, 0), t);
    assert_int_equal(t->type, TENSOR_F32);
    assert_int_equal(t->dims[0], 2);
    assert_int_equal(t->dims[1], 3);
    assert_int_equal(t->dims[2], 1);
    assert_int_equal(t->bytes, 24);
    assert_true(((const float *)t->data)[5] == 5.0f);
    t = gguf_find_tensor(gguf, "second");
    assert_int_equal(t->type, TENSOR_Q8_0);
    assert_int_equal(t->bytes, 68);
    assert_int_equal(((const uint8_t *)t->data)[67], 67);
    assert_null(gguf_find_tensor(gguf, "third"));
    gguf_close(gguf);
    free(copy);
}

/* What is absent, of another type or too large names the key and the file. */
static void test_lookup_errors(void **state)
{
    struct gguf_builder b;
    uint8_t *copy;
    struct error err;
    uint32_t u = 77;
    bool yes;
    const struct gguf_value *v;
    struct gguf_string s;
    struct gguf *gguf = open_sample(&b, 3, &copy);

    assert_int_equal(gguf_get_u32(gguf, "none", &u, &err), HS_ERR_NOT_FOUND);
    assert_text_contains(err.text, "small.gguf: metadata \"none\" is missing");
    assert_int_equal(gguf_get_u32(gguf, "f32", &u, &err), HS_ERR_PARSE);
    assert_text_contains(err.text, "\"f32\" is float32 where an integer belongs");
    assert_int_equal(gguf_get_u32(gguf, "i32", &u, &err), HS_ERR_RANGE);
    assert_int_equal(gguf_get_u32(gguf, "counts", &u, &err), HS_ERR_PARSE);
    assert_text_contains(err.text, "array of uint16");
    assert_int_equal(gguf_get_bool(gguf, "u8", &yes, &err), HS_ERR_PARSE);
    assert_int_equal(gguf_get_string(gguf, "words", &s, &err), HS_ERR_PARSE);
    assert_int_equal(gguf_get_array(gguf, "words", GGUF_I64, &v, &err), HS_ERR_PARSE);
    assert_int_equal(gguf_get_array(gguf, "u8", GGUF_I64, &v, &err), HS_ERR_PARSE);
    assert_int_equal(u, 77);
    gguf_close(gguf);
    free(copy);
}

/* Written by gguf.GGUFWriter. */
static void test_foreign_file(void **state)
{
    struct gguf *gguf;
    struct error err = {0};
    const struct gguf_value *v;
    struct gguf_string s;
    if (gguf_open("tests/vectors/tiny/llama3.gguf", &gguf, &err) < 0)
        fail_msg("%s", err.text);
    assert_ok(gguf_get_string(gguf, "general.architecture", &s, NULL));
    assert_true(gguf_string_equals(s, "llama"));
    assert_ok(gguf_get_array(gguf, "tokenizer.ggml.tokens", GGUF_STRING, &v, NULL));
    assert_int_equal(v->count, 264);
    const struct gguf_tensor *t = gguf_find_tensor(gguf, "blk.1.ffn_down.weight");
    assert_int_equal(t->type, TENSOR_BF16);
    assert_int_equal(t->dims[0], 64);
    assert_int_equal(t->dims[1], 32);
    gguf_close(gguf);
}

static void test_no_file(void **state)
{
    struct gguf *gguf;
    struct error err;
    assert_int_equal(gguf_open("tests/vectors/tiny/absent.gguf", &gguf, &err), HS_ERR_NOT_FOUND);
    assert_text_contains(err.text, "absent.gguf");
    assert_int_equal(gguf_open("tests/vectors", &gguf, &err), HS_ERR_IO);
    assert_text_contains(err.text, "not a regular file");
    assert_int_equal(gguf_open("/dev/null", &gguf, &err), HS_ERR_IO);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_values),        cmocka_unit_test(test_arrays),       cmocka_unit_test(test_tensors),
        cmocka_unit_test(test_lookup_errors), cmocka_unit_test(test_foreign_file), cmocka_unit_test(test_no_file),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Files cut off at every length, with every kind of lie, and with random bits flipped. */
#include "tests/unit/model/check.h"

#include "core/base/rng.h"
#include "tests/unit/model/gguf_builder.h"

enum { FLIP_ROUNDS = 20000 };

/* Ends exactly with the last byte of its last tensor, so no shorter file is whole. */
static void build_small(struct gguf_builder *b)
{
    build_header(b, 3, 2, 5);
    build_u32(b, "general.alignment", 32);
    build_string(b, "general.name", "sample");
    build_array(b, "words", GGUF_STRING, 2), build_text(b, "one"), build_text(b, "two");
    build_array(b, "numbers", GGUF_I32, 3), write_u32(&b->out, 1), write_u32(&b->out, 2), write_u32(&b->out, 3);
    build_key(b, "yes", GGUF_BOOL), write_u8(&b->out, 1);
    build_tensor(b, "a", 4, 2, 0, 0);   /* F32: 32 bytes */
    build_tensor(b, "b", 32, 1, 2, 32); /* Q4_0: 18 bytes */
    build_padding(b, 32);
    build_zeros(b, 32 + 18);
}

static void test_truncations(void **state)
{
    struct gguf_builder b;
    build_small(&b);
    for (size_t len = 0; len < b.out.len; len++) {
        struct gguf *gguf = NULL;
        uint8_t *copy;
        struct error err = {0};
        if (build_open(&b, len, &copy, &gguf, &err) == 0)
            fail_msg("a file cut to %zu of %zu bytes was taken", len, b.out.len);
        assert_null(gguf);
        assert_text_contains(err.text, "small.gguf: ");
        assert_text_contains(err.text, "get a whole copy");
    }
}

/* Reads everything that an open file offers. */
static uint64_t read_all(const struct gguf *gguf)
{
    uint64_t sum = 0;
    for (uint64_t i = 0; i < gguf_count_values(gguf); i++) {
        const struct gguf_value *v = gguf_value_at(gguf, i);
        if (v->element == GGUF_STRING) {
            struct gguf_cursor cursor = gguf_cursor_start(v);
            struct gguf_string s;
            while (gguf_cursor_next(&cursor, &s))
                for (size_t j = 0; j < s.len; j++)
                    sum += (uint8_t)s.text[j];
        } else {
            for (uint64_t j = 0; j < v->count; j++)
                sum += v->element == GGUF_F32 || v->element == GGUF_F64 ? gguf_value_f64(v, j) > 0 : (uint64_t)gguf_value_i64(v, j);
        }
    }
    for (uint64_t i = 0; i < gguf_count_tensors(gguf); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(gguf, i);
        for (size_t j = 0; j < t->bytes; j++)
            sum += ((const uint8_t *)t->data)[j];
        sum += gguf_find_tensor(gguf, t->name) == t;
    }
    return sum;
}

static void test_bit_flips(void **state)
{
    struct gguf_builder b, clean;
    struct rng rng;
    unsigned taken = 0, refused = 0;
    uint64_t sum = 0;
    build_small(&clean);
    rng_seed(&rng, 20240607);
    for (int round = 0; round < FLIP_ROUNDS; round++) {
        struct gguf *gguf;
        uint8_t *copy;
        struct error err = {0};
        b = clean;
        for (uint64_t flips = 1 + rng_below(&rng, 3); flips; flips--)
            b.bytes[rng_below(&rng, b.out.len)] ^= (uint8_t)(1u << rng_below(&rng, 8));
        if (build_open(&b, b.out.len, &copy, &gguf, &err) < 0) {
            assert_true(err.code < 0 && err.text[0]);
            refused++;
            continue;
        }
        sum += read_all(gguf);
        taken++;
        gguf_close(gguf);
        free(copy);
    }
    assert_true(taken > 100 && refused > 100 && sum > 0);
}

/* One lie: how to build the file, and what the error must say. */
struct lie {
    const char *name;
    void (*build)(struct gguf_builder *b);
    int code;
    const char *text;
};

static void one_tensor(struct gguf_builder *b, uint64_t cols, uint64_t rows, uint32_t type, uint64_t offset)
{
    build_header(b, 3, 1, 0);
    build_tensor(b, "t", cols, rows, type, offset);
    build_padding(b, 32);
    build_zeros(b, 128);
}

static void alignment(struct gguf_builder *b, uint32_t value)
{
    build_header(b, 3, 1, 1);
    build_u32(b, "general.alignment", value);
    build_tensor(b, "t", 4, 1, 0, 0);
    build_zeros(b, 256);
}

static void no_magic(struct gguf_builder *b)
{
    build_small(b), b->bytes[0] = 'X';
}
static void version_1(struct gguf_builder *b)
{
    build_header(b, 1, 0, 0);
}
static void version_4(struct gguf_builder *b)
{
    build_header(b, 4, 0, 0);
}
static void big_endian(struct gguf_builder *b)
{
    build_header(b, 0x03000000, 0, 0);
}
static void many_tensors(struct gguf_builder *b)
{
    build_header(b, 3, UINT64_MAX, 0), build_zeros(b, 64);
}
static void many_values(struct gguf_builder *b)
{
    build_header(b, 3, 0, 1ull << 40), build_zeros(b, 64);
}
static void long_key(struct gguf_builder *b)
{
    build_header(b, 3, 0, 1), write_u64(&b->out, UINT64_MAX - 7), build_zeros(b, 64);
}
static void odd_type(struct gguf_builder *b)
{
    build_header(b, 3, 0, 1), build_key(b, "k", 13), build_zeros(b, 64);
}
static void odd_element(struct gguf_builder *b)
{
    build_header(b, 3, 0, 1), build_array(b, "k", 99, 1), build_zeros(b, 64);
}
static void long_array(struct gguf_builder *b)
{
    build_header(b, 3, 0, 1), build_array(b, "k", GGUF_U64, 1ull << 61), build_zeros(b, 64);
}
static void long_strings(struct gguf_builder *b)
{
    build_header(b, 3, 0, 1), build_array(b, "k", GGUF_STRING, 1ull << 60), build_zeros(b, 64);
}
static void nested(struct gguf_builder *b)
{
    build_header(b, 3, 0, 1), build_array(b, "deep", GGUF_ARRAY, 1), build_zeros(b, 64);
}
static void odd_bool(struct gguf_builder *b)
{
    build_header(b, 3, 0, 1), build_key(b, "k", GGUF_BOOL), write_u8(&b->out, 2);
}
static void two_keys(struct gguf_builder *b)
{
    build_header(b, 3, 0, 2), build_u32(b, "twin", 1), build_u32(b, "twin", 2);
}
static void two_tensors(struct gguf_builder *b)
{
    build_header(b, 3, 2, 0), build_tensor(b, "twin", 4, 1, 0, 0), build_tensor(b, "twin", 4, 1, 0, 0), build_zeros(b, 128);
}
static void align_0(struct gguf_builder *b)
{
    alignment(b, 0);
}
static void align_24(struct gguf_builder *b)
{
    alignment(b, 24);
}
static void align_huge(struct gguf_builder *b)
{
    alignment(b, 1u << 31);
}
static void align_text(struct gguf_builder *b)
{
    build_header(b, 3, 1, 1), build_string(b, "general.alignment", "32"), build_tensor(b, "t", 4, 1, 0, 0), build_zeros(b, 128);
}
static void zero_dim(struct gguf_builder *b)
{
    one_tensor(b, 4, 0, 0, 0);
}
static void overflow(struct gguf_builder *b)
{
    one_tensor(b, 1ull << 33, 1ull << 33, 0, 0);
}
static void byte_overflow(struct gguf_builder *b)
{
    one_tensor(b, 1ull << 62, 1, 0, 0);
}
static void half_block(struct gguf_builder *b)
{
    one_tensor(b, 48, 1, 2, 0);
}
static void w4_odd_row(struct gguf_builder *b)
{
    one_tensor(b, 48, 1, 0x57340020, 0);
}
static void w4_too_large(struct gguf_builder *b) /* 10 bytes a group too many for what one_tensor leaves */
{
    one_tensor(b, 256, 9, 0x57341020, 0);
}
static void w4_overflow(struct gguf_builder *b)
{
    one_tensor(b, 1ull << 32, 1ull << 32, 0x57340080, 0);
}
static void w4_overflow_rows(struct gguf_builder *b)
{
    one_tensor(b, 1ull << 34, 1ull << 29, 0x57340080, 0);
}
static void w4_group_16(struct gguf_builder *b)
{
    one_tensor(b, 256, 1, 0x57340010, 0);
}
static void odd_offset(struct gguf_builder *b)
{
    one_tensor(b, 4, 1, 0, 4);
}
static void far_offset(struct gguf_builder *b)
{
    one_tensor(b, 8, 1, 0, UINT64_MAX - 31);
}
static void too_large(struct gguf_builder *b)
{
    one_tensor(b, 4, 9, 0, 0);
}
static void iq4_xs(struct gguf_builder *b)
{
    one_tensor(b, 256, 1, 23, 0);
}
static void type_99(struct gguf_builder *b)
{
    one_tensor(b, 256, 1, 99, 0);
}
static void no_name(struct gguf_builder *b)
{
    build_header(b, 3, 1, 0), build_tensor(b, "", 4, 1, 0, 0), build_zeros(b, 128);
}

static void nul_in_name(struct gguf_builder *b)
{
    one_tensor(b, 4, 1, 0, 0);
    b->bytes[24 + 8] = 0;
}

static void five_dims(struct gguf_builder *b)
{
    one_tensor(b, 4, 1, 0, 0);
    b->bytes[24 + 8 + 1] = 5;
}

static const struct lie lies[] = {
    {"no magic", no_magic, HS_ERR_PARSE, "is not a GGUF file"},
    {"version 1", version_1, HS_ERR_UNSUPPORTED, "version 1; versions 2 and 3"},
    {"version 4", version_4, HS_ERR_UNSUPPORTED, "version 4"},
    {"big-endian", big_endian, HS_ERR_UNSUPPORTED, "big-endian"},
    {"more tensors than bytes", many_tensors, HS_ERR_PARSE, "more than its 88 bytes can hold"},
    {"more values than bytes", many_values, HS_ERR_PARSE, "more than its 88 bytes can hold"},
    {"key longer than the file", long_key, HS_ERR_PARSE, "ends within metadata value 1 of 1"},
    {"unknown value type", odd_type, HS_ERR_PARSE, "\"k\" has a type that the format does not know"},
    {"unknown member type", odd_element, HS_ERR_PARSE, "\"k\" has a type that the format does not know"},
    {"array longer than the file", long_array, HS_ERR_PARSE, "ends within metadata value 1"},
    {"array of strings longer than the file", long_strings, HS_ERR_PARSE, "ends within metadata value 1"},
    {"array of arrays", nested, HS_ERR_UNSUPPORTED, "\"deep\" is an array of arrays"},
    {"boolean of 2", odd_bool, HS_ERR_PARSE, "neither 0 nor 1"},
    {"the same key twice", two_keys, HS_ERR_PARSE, "metadata \"twin\" is there twice"},
    {"the same tensor twice", two_tensors, HS_ERR_PARSE, "tensor \"twin\" is there twice"},
    {"alignment 0", align_0, HS_ERR_PARSE, "general.alignment is 0"},
    {"alignment 24", align_24, HS_ERR_PARSE, "general.alignment is 24"},
    {"alignment 2^31", align_huge, HS_ERR_PARSE, "general.alignment is 2147483648"},
    {"alignment as text", align_text, HS_ERR_PARSE, "\"general.alignment\" is string"},
    {"dimension of zero", zero_dim, HS_ERR_PARSE, "tensor \"t\" has a dimension of zero"},
    {"elements overflow", overflow, HS_ERR_PARSE, "tensor \"t\" has a dimension of zero or an impossible size"},
    {"bytes overflow", byte_overflow, HS_ERR_PARSE, "tensor \"t\" has an impossible size"},
    {"half a block", half_block, HS_ERR_PARSE, "whole quantisation blocks"},
    {"4 bits, rows of 48", w4_odd_row, HS_ERR_PARSE, "whole quantisation blocks"},
    {"4 bits, larger than the file", w4_too_large, HS_ERR_PARSE, "tensor \"t\" lies beyond the end"},
    {"4 bits, elements overflow", w4_overflow, HS_ERR_PARSE, "impossible size"},
    {"4 bits, more bytes than any file", w4_overflow_rows, HS_ERR_PARSE, "tensor \"t\" lies beyond the end"},
    {"4 bits, another group", w4_group_16, HS_ERR_UNSUPPORTED, "has type unknown (number 1463025680)"},
    {"offset between alignments", odd_offset, HS_ERR_PARSE, "multiple of the file's alignment"},
    {"offset beyond the end", far_offset, HS_ERR_PARSE, "tensor \"t\" lies beyond the end"},
    {"tensor larger than the file", too_large, HS_ERR_PARSE, "tensor \"t\" lies beyond the end"},
    {"a format that is not read", iq4_xs, HS_ERR_UNSUPPORTED, "has type IQ4_XS (number 23); supported are F32, F16"},
    {"an unknown format", type_99, HS_ERR_UNSUPPORTED, "has type unknown (number 99)"},
    {"tensor without a name", no_name, HS_ERR_PARSE, "overlong or broken name"},
    {"NUL in a name", nul_in_name, HS_ERR_PARSE, "overlong or broken name"},
    {"five dimensions", five_dims, HS_ERR_PARSE, "1 to 4 dimensions"},
};

static void test_lies(void **state)
{
    for (size_t i = 0; i < sizeof lies / sizeof lies[0]; i++) {
        struct gguf_builder b;
        struct gguf *gguf = NULL;
        uint8_t *copy;
        struct error err = {0};
        lies[i].build(&b);
        int rc = build_open(&b, b.out.len, &copy, &gguf, &err);
        if (rc != lies[i].code)
            fail_msg("%s: returned %d (%s)", lies[i].name, rc, err.text);
        assert_text_contains(err.text, "small.gguf: ");
        assert_text_contains(err.text, lies[i].text);
        assert_null(gguf);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_truncations), cmocka_unit_test(test_lies),
                                       cmocka_unit_test(test_bit_flips)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "core/base/codec.h"
#include "core/base/rng.h"

static void test_little_endian_layout(void **unused)
{
    uint8_t data[64];
    struct writer w;
    writer_init(&w, data, sizeof data);
    write_u8(&w, 0x01);
    write_u16(&w, 0x0203);
    write_u32(&w, 0x04050607);
    write_u64(&w, 0x08090a0b0c0d0e0full);
    write_f32(&w, 1.0f); /* IEEE 754: 3f800000 */
    static const uint8_t expected[] = {0x01, 0x03, 0x02, 0x07, 0x06, 0x05, 0x04, 0x0f, 0x0e, 0x0d,
                                       0x0c, 0x0b, 0x0a, 0x09, 0x08, 0x00, 0x00, 0x80, 0x3f};
    assert_false(w.failed);
    assert_int_equal(w.len, sizeof expected);
    assert_memory_equal(data, expected, sizeof expected);
}

/* Encodings from the LEB128 section of the DWARF 4 standard (figure 22) and the edges of 64 bits. */
static void test_varint_known_encodings(void **unused)
{
    static const struct {
        uint64_t value;
        uint8_t bytes[10];
        size_t len;
    } cases[] = {
        {0, {0}, 1},
        {2, {2}, 1},
        {127, {0x7f}, 1},
        {128, {0x80, 1}, 2},
        {129, {0x81, 1}, 2},
        {12857, {0xb9, 0x64}, 2},
        {UINT64_MAX, {0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01}, 10},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        uint8_t data[10];
        struct writer w;
        writer_init(&w, data, sizeof data);
        write_varint(&w, cases[i].value);
        assert_int_equal(w.len, cases[i].len);
        assert_memory_equal(data, cases[i].bytes, cases[i].len);
        struct reader r;
        reader_init(&r, data, w.len);
        assert_int_equal(read_varint(&r), cases[i].value);
        assert_false(r.failed);
        assert_int_equal(reader_left(&r), 0);
    }
}

static void test_bad_varints_fail(void **unused)
{
    static const struct {
        uint8_t bytes[11];
        size_t len;
    } cases[] = {
        {{0}, 0},                                                                          /* nothing there */
        {{0x80}, 1},                                                                       /* cut off */
        {{0x80, 0x00}, 2},                                                                 /* over-long zero */
        {{0x81, 0x80, 0x00}, 3},                                                           /* over-long one */
        {{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x02}, 10},                /* 65 bits */
        {{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x81, 0x01}, 11},          /* 11 bytes */
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct reader r;
        reader_init(&r, cases[i].bytes, cases[i].len);
        assert_int_equal(read_varint(&r), 0);
        assert_true(r.failed);
    }
}

static void test_failures_are_sticky(void **unused)
{
    uint8_t data[4] = {1, 2, 3, 4};
    struct reader r;
    reader_init(&r, data, sizeof data);
    assert_int_equal(read_u8(&r), 1);
    assert_int_equal(read_u32(&r), 0);
    assert_true(r.failed);
    assert_int_equal(read_u8(&r), 0);
    assert_int_equal(reader_left(&r), 0);

    struct writer w;
    writer_init(&w, data, sizeof data);
    write_u64(&w, 1);
    write_u8(&w, 9);
    assert_true(w.failed);
    assert_int_equal(w.len, 0);
    assert_int_equal(data[0], 1);
}

static void test_strings_respect_the_buffer(void **unused)
{
    uint8_t data[32];
    char out[6];
    struct writer w;
    writer_init(&w, data, sizeof data);
    write_string(&w, "hello", 5);
    write_string(&w, "", 0);
    struct reader r;
    reader_init(&r, data, w.len);
    assert_int_equal(read_string(&r, out, sizeof out), 5);
    assert_string_equal(out, "hello");
    assert_int_equal(read_string(&r, out, sizeof out), 0);
    assert_string_equal(out, "");
    assert_false(r.failed);
    reader_init(&r, data, w.len);
    assert_int_equal(read_string(&r, out, 5), 0); /* no room for the NUL */
    assert_true(r.failed);
    assert_string_equal(out, "");
    reader_init(&r, "\3a\0b", 4);
    assert_int_equal(read_string(&r, out, sizeof out), 0);
    assert_true(r.failed);
    assert_string_equal(out, "");
}

/* Random bytes: whatever is read stays inside the buffer (sanitizers watch) and what reads well writes back alike. */
static void test_fuzz_reader(void **unused)
{
    struct rng rng;
    rng_seed(&rng, 3);
    for (int round = 0; round < 20000; round++) {
        uint8_t data[24], again[24];
        char text[16];
        size_t len = rng_below(&rng, sizeof data + 1);
        for (size_t i = 0; i < len; i++)
            data[i] = (uint8_t)(rng_below(&rng, 3) ? rng_below(&rng, 12) : rng_u64(&rng));
        struct reader r;
        struct writer w;
        reader_init(&r, data, len);
        writer_init(&w, again, sizeof again);
        while (reader_left(&r)) {
            size_t before = r.pos;
            if (rng_below(&rng, 2)) {
                uint64_t value = read_varint(&r);
                if (!r.failed)
                    write_varint(&w, value);
            } else {
                size_t n = read_string(&r, text, sizeof text);
                if (!r.failed)
                    write_string(&w, text, n);
            }
            if (r.failed)
                break;
            assert_true(r.pos > before && r.pos <= len);
            assert_int_equal(w.len, r.pos);
            assert_memory_equal(again, data, w.len);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_little_endian_layout), cmocka_unit_test(test_varint_known_encodings),
        cmocka_unit_test(test_bad_varints_fail),     cmocka_unit_test(test_failures_are_sticky),
        cmocka_unit_test(test_strings_respect_the_buffer), cmocka_unit_test(test_fuzz_reader),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

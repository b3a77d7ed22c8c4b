/* Repair against the tables of the Unicode Standard 15.0, section 3.9; composition against Python 3.11's
 * unicodedata.normalize("NFC", ...). */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/base/utf8.h"
#include "core/model/unicode.h"

#define R "\xEF\xBF\xBD"

static void test_repair_replaces_maximal_subparts(void **state)
{
    (void)state;
    static const struct {
        const char *broken, *repaired;
    } cases[] = {
        {"plain \xC3\xA9 \xF0\x9F\x98\x80", "plain \xC3\xA9 \xF0\x9F\x98\x80"},
        {"\xC0\xAF\xE0\x80\xBF\xF0\x81\x82\x41", R R R R R R R R "\x41"},      /* table 3-8: not shortest */
        {"\xED\xA0\x80\xED\xBF\xBF\xED\xAF\x41", R R R R R R R R "\x41"},      /* table 3-9: surrogates */
        {"\xF4\x91\x92\x93\xFF\x41\x80\xBF\x42", R R R R R "\x41" R R "\x42"}, /* table 3-10: other */
        {"\xE1\x80\xE2\xF0\x91\x92\xF1\xBF\x41", R R R R "\x41"},              /* table 3-11: truncated */
        {"\xF0\x9F\x98", R},
        {"\xE2\x82", R},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct strbuf out = {0};
        utf8_repair(cases[i].broken, strlen(cases[i].broken), &out);
        assert_string_equal(strbuf_text(&out), cases[i].repaired);
        assert_int_equal(utf8_is_clean(cases[i].broken, strlen(cases[i].broken)), i == 0);
        assert_true(utf8_is_clean(out.data, out.len));
        strbuf_fini(&out);
    }
}

static void write_all(const uint32_t *codes, struct strbuf *out)
{
    for (; *codes; codes++) {
        char bytes[4];
        strbuf_add(out, bytes, utf8_write(*codes, bytes));
    }
}

static void test_composition(void **state)
{
    (void)state;
    static const struct {
        uint32_t source[8], composed[8];
    } cases[] = {
        {{0x1E0A, 0x323}, {0x1E0C, 0x307}},
        {{'D', 0x307, 0x323}, {0x1E0C, 0x307}},
        {{0x212B}, {0xC5}},
        {{0x1100, 0xAC00, 0x11A8}, {0x1100, 0xAC01}},
        {{0x1112, 0x1161, 0x11AB}, {0xD55C}},
        {{0x344}, {0x308, 0x301}},
        {{0x958}, {0x915, 0x93C}},
        {{0x1D15E}, {0x1D157, 0x1D165}},
        {{0x2ADC}, {0x2ADD, 0x338}},
        {{0x61, 0x315, 0x300, 0x5AE, 0x300, 0x62}, {0xE0, 0x5AE, 0x300, 0x315, 0x62}},
        {{0x1F82}, {0x1F82}},
        {{0x3B1, 0x345, 0x300, 0x313}, {0x1FB2, 0x313}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct strbuf source = {0}, expected = {0}, out = {0};
        write_all(cases[i].source, &source);
        write_all(cases[i].composed, &expected);
        assert_int_equal(unicode_compose(source.data, source.len, &out), 0);
        assert_string_equal(strbuf_text(&out), expected.data);
        strbuf_fini(&source);
        strbuf_fini(&expected);
        strbuf_fini(&out);
    }
    assert_true(unicode_is_plainly_composed("caf\xC3\xA9", 5));
    assert_false(unicode_is_plainly_composed("e\xCC\x81", 3));
}

/* Swapping neighbours would take 10^11 steps here; the test's time limit holds it. */
static void test_long_runs_of_marks(void **state)
{
    (void)state;
    const size_t n = 300000;
    struct strbuf source = {0}, expected = {0}, out = {0};
    strbuf_puts(&source, "q");
    strbuf_puts(&expected, "q");
    for (size_t i = 0; i < n; i++)
        strbuf_puts(&source, "\xCC\x87\xCC\xA3"); /* above, below: class 230 before 220 */
    for (size_t i = 0; i < n; i++)
        strbuf_puts(&expected, "\xCC\xA3");
    for (size_t i = 0; i < n; i++)
        strbuf_puts(&expected, "\xCC\x87");
    assert_int_equal(unicode_compose(source.data, source.len, &out), 0);
    assert_int_equal(out.len, expected.len);
    assert_memory_equal(out.data, expected.data, out.len);
    strbuf_fini(&source);
    strbuf_fini(&expected);
    strbuf_fini(&out);
}

static void test_classes(void **state)
{
    (void)state;
    static const uint32_t spaces[] = {0x09, 0x0D, 0x20, 0x85, 0xA0, 0x1680, 0x2000, 0x200A, 0x2028, 0x2029, 0x202F, 0x205F, 0x3000};
    static const uint32_t others[] = {0x08, 0x0E, 0x1C, 0x180E, 0x200B, 0x2060, 0xFEFF, 'a'};
    for (size_t i = 0; i < sizeof spaces / sizeof spaces[0]; i++)
        assert_true(unicode_is_space(spaces[i]));
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        assert_false(unicode_is_space(others[i]));
    assert_true(unicode_is_word('_') && unicode_is_word('9') && unicode_is_word(0x6F22) && unicode_is_word(0x301));
    assert_false(unicode_is_word('-') || unicode_is_word(' ') || unicode_is_word(0x1F600));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_repair_replaces_maximal_subparts),
        cmocka_unit_test(test_composition),
        cmocka_unit_test(test_long_runs_of_marks),
        cmocka_unit_test(test_classes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

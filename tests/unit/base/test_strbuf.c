#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "core/base/strbuf.h"

static void test_grows_and_stays_terminated(void **unused)
{
    struct strbuf s = {0};
    assert_string_equal(strbuf_text(&s), "");
    for (int i = 0; i < 1000; i++)
        strbuf_printf(&s, "%03d,", i);
    assert_false(s.failed);
    assert_int_equal(s.len, 4000);
    assert_int_equal(strlen(s.data), 4000);
    assert_memory_equal(s.data + 3996, "999,", 4);
    strbuf_clear(&s);
    assert_string_equal(strbuf_text(&s), "");
    strbuf_add(&s, "a\0b", 3);
    assert_int_equal(s.len, 3);
    strbuf_fini(&s);
    assert_null(s.data);
}

static void test_json_strings(void **unused)
{
    static const struct {
        const char *text;
        size_t len;
        const char *json;
    } cases[] = {
        {"", 0, "\"\""},
        {"plain", 5, "\"plain\""},
        {"a\"b\\c/", 6, "\"a\\\"b\\\\c/\""},
        {"\b\f\n\r\t\x01\x1f", 7, "\"\\b\\f\\n\\r\\t\\u0001\\u001f\""},
        {"x\0y", 3, "\"x\\u0000y\""},
        {"\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80", 9, "\"\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80\""},
        {"\xff", 1, "\"\xef\xbf\xbd\""},
        {"a\xc3", 2, "\"a\xef\xbf\xbd\""},                 /* cut */
        {"\xe2\x82" "A", 3, "\"\xef\xbf\xbd" "A\""},         /* one maximal subpart */
        {"\xc0\x80", 2, "\"\xef\xbf\xbd\xef\xbf\xbd\""},   /* over-long NUL */
        {"\xed\xa0\x80", 3, "\"\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\""}, /* surrogate */
        {"\xf4\x90\x80\x80", 4, "\"\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\""}, /* above U+10FFFF */
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct strbuf s = {0};
        strbuf_json_string(&s, cases[i].text, cases[i].len);
        assert_string_equal(strbuf_text(&s), cases[i].json);
        strbuf_fini(&s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_grows_and_stays_terminated),
        cmocka_unit_test(test_json_strings),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

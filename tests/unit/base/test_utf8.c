#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "core/base/utf8.h"

/* The example of Unicode 15, section 3.9, tables 3-8 to 3-11: where maximal subparts end. */
static void test_maximal_subparts(void **unused)
{
    static const struct {
        const char *text;
        size_t pieces[9]; /* lengths, broken ones only; ended by 0 */
    } cases[] = {
        {"\xc0\xaf\xe0\x80\xbf\xf0\x81\x82", {1, 1, 1, 1, 1, 1, 1, 1}},
        {"\xed\xa0\x80\xed\xbf\xbf\xed\xaf", {1, 1, 1, 1, 1, 1, 1, 1}},
        {"\xf4\x91\x92\x93\xff\x80\xbf", {1, 1, 1, 1, 1, 1, 1}},
        {"\xe1\x80\xe2\xf0\x91\x92\xf1\xbf", {2, 1, 3, 2}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *p = cases[i].text;
        size_t left = strlen(p);
        for (size_t k = 0; cases[i].pieces[k]; k++) {
            bool valid = true;
            size_t n = utf8_next(p, left, &valid);
            assert_int_equal(n, cases[i].pieces[k]);
            assert_false(valid);
            p += n;
            left -= n;
        }
        assert_int_equal(left, 0);
        assert_false(utf8_is_clean(cases[i].text, strlen(cases[i].text)));
    }
}

static void test_whole_characters(void **unused)
{
    static const char *const characters[] = {"a", "\xc3\xa9", "\xe2\x82\xac", "\xf0\x9f\x98\x80", "\xf4\x8f\xbf\xbf"};
    for (size_t i = 0; i < sizeof characters / sizeof *characters; i++) {
        size_t len = strlen(characters[i]);
        bool valid = false;
        assert_int_equal(utf8_next(characters[i], len, &valid), len);
        assert_true(valid);
        for (size_t cut = 0; cut <= len; cut++)
            assert_int_equal(utf8_incomplete_tail(characters[i], cut), cut < len ? cut : 0);
    }
    assert_true(utf8_is_clean("", 0));
}

static void test_a_tail_that_cannot_be_completed_is_not_incomplete(void **unused)
{
    assert_int_equal(utf8_incomplete_tail("\xff", 1), 0);
    assert_int_equal(utf8_incomplete_tail("\xed\xa0", 2), 0);
    assert_int_equal(utf8_incomplete_tail("\x80\x80\x80\x80", 4), 0);
    assert_int_equal(utf8_incomplete_tail("a\xe2\x82", 3), 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_maximal_subparts),
        cmocka_unit_test(test_whole_characters),
        cmocka_unit_test(test_a_tail_that_cannot_be_completed_is_not_incomplete),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

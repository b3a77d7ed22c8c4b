#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/base/error.h"
#include "core/base/strbuf.h"
#include "core/model/special_tokens.h"

static struct special_tokens set;

static void add(uint32_t id, const char *text, unsigned flags)
{
    assert_int_equal(special_tokens_add(&set, id, text, (uint32_t)strlen(text), flags), 0);
}

static int setup(void **state)
{
    (void)state;
    set = (struct special_tokens){0};
    add(1, "<s>", SPECIAL_CONTROL);
    add(2, "<ss>", 0);
    add(3, "<", 0);
    add(4, "<s>x", 0);
    add(5, "<left>", SPECIAL_STRIP_LEFT);
    add(6, "<right>", SPECIAL_STRIP_RIGHT);
    add(7, "word", SPECIAL_WHOLE_WORD);
    add(9, "<ss>", 0); /* the same text under a higher id is dropped */
    special_tokens_sort(&set);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    special_tokens_fini(&set);
    return 0;
}

/* "id(match)" for each match, and the text between, e.g. "a|1(<s>)|b". */
static void check(const char *text, const struct special_range *control, size_t n_control, const char *expected)
{
    struct special_search search = {.set = &set, .text = text, .len = strlen(text), .control = control, .n_control = n_control};
    struct special_match match;
    struct strbuf out = {0};
    size_t from = 0;
    while (special_search_next(&search, &match)) {
        strbuf_printf(&out, "%.*s|%u(%.*s)|", (int)(match.start - from), text + from, match.token->id, (int)match.len,
                      text + match.start);
        from = match.start + match.len;
    }
    strbuf_puts(&out, text + from);
    assert_string_equal(strbuf_text(&out), expected);
    strbuf_fini(&out);
}

static void test_leftmost_longest(void **state)
{
    (void)state;
    const struct special_range all = {0, 100};
    check("", &all, 1, "");
    check("no match", &all, 1, "no match");
    check("a<s>b", &all, 1, "a|1(<s>)|b");
    check("a<s>xb", &all, 1, "a|4(<s>x)|b");
    check("<<ss><s", &all, 1, "|3(<)||2(<ss>)||3(<)|s");
    check("<s><s>", &all, 1, "|1(<s>)||1(<s>)|");
}

static void test_control_tokens_count_inside_ranges(void **state)
{
    (void)state;
    const struct special_range ranges[] = {{0, 3}, {6, 10}};
    check("<s><s><s><s>", NULL, 0, "|3(<)|s>|3(<)|s>|3(<)|s>|3(<)|s>");
    check("<s><s><s><s>", ranges, 2, "|1(<s>)||3(<)|s>|1(<s>)||3(<)|s>");
    const struct special_range inside = {1, 4};
    check("<s>x<s>", &inside, 1, "|4(<s>x)||3(<)|s>");
}

static void test_flags(void **state)
{
    (void)state;
    check("a \xC2\xA0<left> b", NULL, 0, "a|5( \xC2\xA0<left>)| b");
    check("a <right> \n\xE3\x80\x80"
          "b",
          NULL, 0, "a |6(<right> \n\xE3\x80\x80)|b");
    check("<right> <left>", NULL, 0, "|6(<right> )||5(<left>)|");
    check("word words sword word", NULL, 0, "|7(word)| words sword |7(word)|");
    check("\xC3\xA9word word\xC3\xA9 -word-", NULL, 0, "\xC3\xA9word word\xC3\xA9 -|7(word)|-");
}

static void test_get(void **state)
{
    (void)state;
    assert_int_equal(special_tokens_get(&set, "<ss>", 4)->id, 2);
    assert_int_equal(special_tokens_get(&set, "<s>x", 4)->id, 4);
    assert_null(special_tokens_get(&set, "<s", 2));
    assert_null(special_tokens_get(&set, "", 0));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_leftmost_longest, setup, teardown),
        cmocka_unit_test_setup_teardown(test_control_tokens_count_inside_ranges, setup, teardown),
        cmocka_unit_test_setup_teardown(test_flags, setup, teardown),
        cmocka_unit_test_setup_teardown(test_get, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

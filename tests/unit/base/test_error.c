#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "core/base/error.h"

static void test_names(void **unused)
{
    assert_string_equal(error_name(0), "success");
    assert_string_equal(error_name(HS_ERR_NO_PAGES), "out of KV pages");
    assert_string_equal(error_name(-1000), "unknown error");
}

static void test_texts_travel_outward(void **unused)
{
    struct error err = {0};
    assert_int_equal(error_set(&err, HS_ERR_PARSE, "bad \"%s\"", "x\ny"), HS_ERR_PARSE);
    assert_string_equal(err.text, "bad \"x?y\"");
    assert_int_equal(error_wrap(&err, HS_ERR_IO, "file %d", 3), HS_ERR_PARSE);
    assert_string_equal(err.text, "file 3: bad \"x?y\"");
    struct error none = {0};
    assert_int_equal(error_wrap(&none, HS_ERR_IO, "disk"), HS_ERR_IO);
    assert_string_equal(none.text, "disk: input/output failed");
    assert_int_equal(error_set(NULL, HS_ERR_BUSY, "x"), HS_ERR_BUSY);
    assert_int_equal(error_wrap(NULL, HS_ERR_BUSY, "x"), HS_ERR_BUSY);
}

static void test_long_texts_are_cut(void **unused)
{
    struct error err = {0};
    char text[2000];
    memset(text, 'a', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    error_set(&err, HS_ERR_PARSE, "%s", text);
    assert_int_equal(strlen(err.text), sizeof err.text - 1);
    error_wrap(&err, HS_ERR_PARSE, "prefix");
    assert_int_equal(strlen(err.text), sizeof err.text - 1);
    assert_memory_equal(err.text, "prefix: aaa", 11);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_texts_travel_outward),
        cmocka_unit_test(test_long_texts_are_cut),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

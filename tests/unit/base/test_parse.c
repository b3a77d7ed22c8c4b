#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "core/base/parse.h"
#include "core/base/strbuf.h"

#define LENGTH(array) (sizeof(array) / sizeof *(array))

struct quantity_case {
    const char *text;
    int64_t value; /* -1: refused */
};

static void check(int rc, uint64_t value, const struct error *err, const struct quantity_case *c)
{
    if (c->value >= 0) {
        assert_int_equal(rc, 0);
        assert_int_equal(value, c->value);
    } else {
        assert_int_equal(rc, HS_ERR_PARSE);
        assert_int_equal(value, 777); /* untouched */
        assert_non_null(strstr(err->text, c->text));
    }
}

static void test_u64(void **unused)
{
    static const struct quantity_case cases[] = {
        {"1", 1}, {"10", 10}, {"007", 7}, {"0", -1}, {"11", -1}, {"", -1}, {"-1", -1}, {"+1", -1}, {" 1", -1}, {"1 ", -1},
        {"0x1", -1}, {"1e1", -1}, {"18446744073709551617", -1},
    };
    for (size_t i = 0; i < LENGTH(cases); i++) {
        struct error err = {0};
        uint64_t value = 777;
        int rc = parse_u64(cases[i].text, 1, 10, &value, &err);
        check(rc, value, &err, &cases[i]);
    }
    uint64_t most;
    assert_int_equal(parse_u64("18446744073709551615", 0, UINT64_MAX, &most, NULL), 0);
    assert_int_equal(most, UINT64_MAX);
}

static void test_size(void **unused)
{
    static const struct quantity_case cases[] = {
        {"0", 0}, {"4096", 4096}, {"512K", 524288}, {"1.5G", 1610612736}, {"2GiB", 2147483648}, {"10MB", 10000000},
        {"1k", 1024}, {"3T", 3298534883328}, {"7B", 7}, {"", -1}, {"K", -1}, {"-1K", -1}, {"1.K", -1}, {".5K", -1},
        {"1 K", -1}, {"1KK", -1}, {"99999999999T", -1}, {"1e3", -1},
    };
    for (size_t i = 0; i < LENGTH(cases); i++) {
        struct error err = {0};
        uint64_t value = 777;
        int rc = parse_size(cases[i].text, &value, &err);
        check(rc, value, &err, &cases[i]);
    }
}

static void test_duration(void **unused)
{
    static const struct quantity_case cases[] = {
        {"0", 0}, {"200us", 200000}, {"10ms", 10000000}, {"1.5s", 1500000000}, {"2m", 120000000000}, {"1h", 3600000000000},
        {"5ns", 5}, {"10", -1}, {"", -1}, {"s", -1}, {"-1s", -1}, {"1.5", -1}, {"1d", -1}, {"99999999999999h", -1},
    };
    for (size_t i = 0; i < LENGTH(cases); i++) {
        struct error err = {0};
        uint64_t value = 777;
        int rc = parse_duration(cases[i].text, &value, &err);
        check(rc, value, &err, &cases[i]);
    }
}

static void test_double_and_bool(void **unused)
{
    double value = 7;
    assert_int_equal(parse_double("0.25", 0, 1, &value, NULL), 0);
    assert_true(value == 0.25);
    static const char *const bad[] = {"", "nan", "inf", "1.5", "-0.1", "0.5x", " 0.5"};
    for (size_t i = 0; i < LENGTH(bad); i++)
        assert_int_equal(parse_double(bad[i], 0, 1, &value, NULL), HS_ERR_PARSE);
    assert_true(value == 0.25);
    bool on = false;
    assert_true(parse_bool("Yes", &on) && on);
    assert_true(parse_bool("0", &on) && !on);
    assert_true(parse_bool("on", &on) && on);
    assert_false(parse_bool("", &on));
    assert_false(parse_bool("2", &on));
}

static void test_cpu_list(void **unused)
{
    uint32_t cpus[8], n = 0;
    assert_int_equal(parse_cpu_list("8,2-5,0,3", cpus, 8, &n, NULL), 0);
    static const uint32_t expected[] = {0, 2, 3, 4, 5, 8};
    assert_int_equal(n, LENGTH(expected));
    assert_memory_equal(cpus, expected, sizeof expected);
    struct error err = {0};
    assert_int_equal(parse_cpu_list("0-8", cpus, 8, &n, &err), HS_ERR_LIMIT);
    assert_non_null(strstr(err.text, "9 CPUs"));
    static const char *const bad[] = {"", ",", "1,", "3-2", "a", "1-", "1--2", "0-4294967296", "0-99999", "1;2"};
    for (size_t i = 0; i < LENGTH(bad); i++)
        assert_int_equal(parse_cpu_list(bad[i], cpus, 8, &n, NULL), HS_ERR_PARSE);
    assert_int_equal(n, LENGTH(expected));
}

static int collect(void *arg, const char *host)
{
    strbuf_printf(arg, "%s ", host);
    return 0;
}

static int stop_at_once(void *arg, const char *host)
{
    return 5;
}

static void test_host_list(void **unused)
{
    static const struct {
        const char *text, *hosts; /* hosts NULL: refused */
    } cases[] = {
        {"a", "a:7070 "},
        {"a:1,b", "a:1 b:7070 "},
        {"node[01-04,7]:7070,gpu3,[::1]:7070", "node01:7070 node02:7070 node03:7070 node04:7070 node7:7070 gpu3:7070 [::1]:7070 "},
        {"n[9-11]", "n9:7070 n10:7070 n11:7070 "},
        {"n[098-101]", "n098:7070 n099:7070 n100:7070 n101:7070 "},
        {"r[1-2]n[1-2]", "r1n1:7070 r1n2:7070 r2n1:7070 r2n2:7070 "},
        {"[fe80::1%eth0]", "[fe80::1%eth0]:7070 "},
        {"10.0.0.[1-2]:80", "10.0.0.1:80 10.0.0.2:80 "},
        {"", NULL}, {"a,", NULL}, {",a", NULL}, {"a:", NULL}, {"a:0", NULL}, {"a:65536", NULL}, {"a:1:2", NULL}, {"::1", NULL},
        {"n[1-", NULL}, {"n[]", NULL}, {"n[2-1]", NULL}, {"n[a]", NULL}, {"n[1,]", NULL}, {"a b", NULL}, {"[::1]x", NULL},
        {"[::1", NULL}, {"a/b", NULL},
    };
    for (size_t i = 0; i < LENGTH(cases); i++) {
        struct strbuf got = {0};
        struct error err = {0};
        int rc = parse_host_list(cases[i].text, 7070, 100, collect, &got, &err);
        if (cases[i].hosts) {
            assert_int_equal(rc, 0);
            assert_string_equal(strbuf_text(&got), cases[i].hosts);
        } else {
            assert_int_equal(rc, HS_ERR_PARSE);
            assert_non_null(strstr(err.text, "write for example"));
        }
        strbuf_fini(&got);
    }
}

static void test_host_list_limits(void **unused)
{
    struct strbuf got = {0};
    assert_int_equal(parse_host_list("n[0-4294967295]", 0, 3, collect, &got, NULL), HS_ERR_LIMIT);
    assert_string_equal(strbuf_text(&got), "n0 n1 n2 ");
    assert_int_equal(parse_host_list("a,b", 0, 3, stop_at_once, NULL, NULL), 5);
    strbuf_fini(&got);
    char text[600];
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    assert_int_equal(parse_host_list(text, 0, 3, collect, &got, NULL), HS_ERR_PARSE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_u64),      cmocka_unit_test(test_size),      cmocka_unit_test(test_duration),
        cmocka_unit_test(test_double_and_bool), cmocka_unit_test(test_cpu_list), cmocka_unit_test(test_host_list),
        cmocka_unit_test(test_host_list_limits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

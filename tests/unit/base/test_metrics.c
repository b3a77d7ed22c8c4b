#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "core/base/metrics.h"

/* The expected text follows https://prometheus.io/docs/instrumenting/exposition_formats/ by hand. */
static void test_text_format(void **unused)
{
    static const double bounds[] = {0.001, 0.5, 2};
    struct metrics *m = metrics_create();
    struct counter *a = metrics_counter(m, "a_total", "peer=\"x\"", "Things.");
    struct gauge *g = metrics_gauge(m, "share", "", "A share.", 1000000);
    struct counter *b = metrics_counter(m, "a_total", "peer=\"y\"", "Things.");
    struct histogram *h = metrics_histogram(m, "t_seconds", "model_name=\"m\"", "Time.", bounds, 3);
    struct gauge *depth = metrics_gauge(m, "depth", "", "Depth.", 1);
    counter_add(a, 2);
    counter_add(b, 1);
    gauge_set(g, 250000);
    gauge_add(depth, -3);
    histogram_observe(h, 0.001);
    histogram_observe(h, 0.25);
    histogram_observe(h, 0.25);
    histogram_observe(h, 8);
    struct strbuf out = {0};
    metrics_write(m, &out);
    assert_string_equal(strbuf_text(&out), "# HELP a_total Things.\n"
                                           "# TYPE a_total counter\n"
                                           "a_total{peer=\"x\"} 2\n"
                                           "a_total{peer=\"y\"} 1\n"
                                           "# HELP share A share.\n"
                                           "# TYPE share gauge\n"
                                           "share 0.25\n"
                                           "# HELP t_seconds Time.\n"
                                           "# TYPE t_seconds histogram\n"
                                           "t_seconds_bucket{model_name=\"m\",le=\"0.001\"} 1\n"
                                           "t_seconds_bucket{model_name=\"m\",le=\"0.5\"} 3\n"
                                           "t_seconds_bucket{model_name=\"m\",le=\"2\"} 3\n"
                                           "t_seconds_bucket{model_name=\"m\",le=\"+Inf\"} 4\n"
                                           "t_seconds_sum{model_name=\"m\"} 8.501\n"
                                           "t_seconds_count{model_name=\"m\"} 4\n"
                                           "# HELP depth Depth.\n"
                                           "# TYPE depth gauge\n"
                                           "depth -3\n");
    strbuf_fini(&out);
    metrics_destroy(m);
}

static void test_same_name_and_labels_is_the_same_metric(void **unused)
{
    struct metrics *m = metrics_create();
    struct counter *a = metrics_counter(m, "a_total", "", "Things.");
    assert_ptr_equal(metrics_counter(m, "a_total", "", "Things."), a);
    assert_ptr_not_equal(metrics_counter(m, "a_total", "x=\"1\"", "Things."), a);
    counter_add(a, 5);
    assert_int_equal(counter_get(metrics_counter(m, "a_total", "", "Things.")), 5);
    metrics_destroy(m);
}

static void test_labels_cannot_break_the_format(void **unused)
{
    static const struct {
        const char *value, *label;
    } cases[] = {
        {"plain name", "k=\"plain name\""},
        {"", "k=\"\""},
        {"a\"b\\c\nd\x7f", "k=\"a_b_c_d_\""},
        {"\xc3\xa9\xe2\x82\xac", "k=\"\xc3\xa9\xe2\x82\xac\""},
        {"\xff\xe2\x82", "k=\"__\""},
    };
    char label[METRICS_LABEL_BYTES], value[400];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_equal(metrics_label(label, "k", cases[i].value), strlen(cases[i].label));
        assert_string_equal(label, cases[i].label);
    }
    for (size_t i = 0; i + 1 < sizeof value; i += 3)
        memcpy(value + i, "\xe2\x82\xac", 3);
    value[sizeof value - 1] = 0;
    size_t n = metrics_label(label, "k", value);
    assert_true(n > METRICS_LABEL_BYTES - 5 && n < METRICS_LABEL_BYTES); /* whole characters only */
    assert_int_equal((n - strlen("k=\"\"")) % 3, 0);
    assert_int_equal(label[n - 1], '"');
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_text_format),
        cmocka_unit_test(test_same_name_and_labels_is_the_same_metric),
        cmocka_unit_test(test_labels_cannot_break_the_format),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

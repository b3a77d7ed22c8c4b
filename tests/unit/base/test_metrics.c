#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

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

static void test_a_gauge_given_back_is_gone(void **unused)
{
    struct metrics *m = metrics_create();
    struct gauge *a = metrics_gauge(m, "blocks", "peer=\"a\"", "Blocks.", 1);
    struct gauge *b = metrics_gauge(m, "blocks", "peer=\"b\"", "Blocks.", 1);
    assert_ptr_equal(metrics_gauge(m, "blocks", "peer=\"a\"", "Blocks.", 1), a); /* two of one name */
    gauge_set(a, 5);
    metrics_release_gauge(m, a);
    gauge_set(a, 6);
    struct strbuf out = {0};
    metrics_write(m, &out);
    assert_non_null(strstr(strbuf_text(&out), "blocks{peer=\"a\"} 6\nblocks{peer=\"b\"} 0\n"));
    metrics_release_gauge(m, a);
    metrics_release_gauge(m, NULL);
    strbuf_clear(&out);
    metrics_write(m, &out);
    assert_string_equal(strbuf_text(&out), "# HELP blocks Blocks.\n# TYPE blocks gauge\nblocks{peer=\"b\"} 0\n");
    metrics_release_gauge(m, b);
    for (int i = 0; i < 100000; i++) { /* a stream of peers leaves nothing behind */
        char label[METRICS_LABEL_BYTES], name[16];
        snprintf(name, sizeof name, "p%d", i);
        metrics_label(label, "peer", name);
        metrics_release_gauge(m, metrics_gauge(m, "blocks", label, "Blocks.", 1));
    }
    strbuf_clear(&out);
    metrics_write(m, &out);
    assert_string_equal(strbuf_text(&out), "# HELP blocks Blocks.\n# TYPE blocks gauge\n");
    strbuf_fini(&out);
    metrics_destroy(m);
}

/* What tell writes at that moment. */
static const char *told(struct metrics *m, uint64_t now_s)
{
    static char text[4096];
    int ends[2], saved = dup(STDERR_FILENO);
    assert_int_equal(pipe(ends), 0);
    dup2(ends[1], STDERR_FILENO);
    metrics_tell_limits(m, now_s * 1000000000);
    dup2(saved, STDERR_FILENO);
    close(ends[1]);
    close(saved);
    ssize_t n = read(ends[0], text, sizeof text - 1);
    close(ends[0]);
    text[n > 0 ? n : 0] = '\0';
    return text;
}

static void test_limits(void **unused)
{
    static const struct limit_spec queue = {"queue", "serve", "more are answered 429; raise --max-waiting", true};
    static const struct limit_spec depth = {"depth", "http", NULL, false};
    struct metrics *m = metrics_create();
    struct limit *q = metrics_limit(m, &queue, 1024), *d = metrics_limit(m, &depth, 64);
    assert_string_equal(told(m, 0), "");
    limit_use(q, 17);
    limit_set_hits(q, 3);
    limit_hit(d, 2);
    struct strbuf out = {0};
    metrics_write(m, &out);
    assert_non_null(strstr(strbuf_text(&out), "hearsay_limit{limit=\"queue\"} 1024\nhearsay_limit{limit=\"depth\"} 64\n"));
    assert_non_null(strstr(strbuf_text(&out), "hearsay_limit_used{limit=\"queue\"} 17\n"));
    assert_null(strstr(strbuf_text(&out), "hearsay_limit_used{limit=\"depth\"}"));
    assert_non_null(strstr(strbuf_text(&out), "hearsay_limit_hits_total{limit=\"queue\"} 3\nhearsay_limit_hits_total{limit=\"depth\"} 2\n"));
    strbuf_fini(&out);
    assert_non_null(strstr(told(m, 0), "serve limit queue (1024) was hit, times: 3: more are answered 429; raise --max-waiting\n"));
    limit_hit(q, 5);
    assert_string_equal(told(m, METRICS_TELL_S - 1), ""); /* one line a minute */
    limit_hit(q, 1);
    assert_non_null(strstr(told(m, METRICS_TELL_S), "times: 6:"));
    assert_string_equal(told(m, 10 * METRICS_TELL_S), ""); /* no news */
    metrics_destroy(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_text_format),
        cmocka_unit_test(test_same_name_and_labels_is_the_same_metric),
        cmocka_unit_test(test_labels_cannot_break_the_format),
        cmocka_unit_test(test_a_gauge_given_back_is_gone),
        cmocka_unit_test(test_limits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

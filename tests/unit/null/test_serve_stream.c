/* hearsay-perf's reader of completion streams: pieces of any size, errors, usage. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "perf/serve_stream.h"

static const char good[] = "data: {\"choices\":[{\"text\":\"a\"}],\"usage\":null}\n\n"
                           "data: {\"choices\":[{\"text\":\"b\"}]}\r\n\r\n"
                           "data: {\"choices\":[{\"text\":\"\",\"finish_reason\":\"stop\"}]}\n\n"
                           "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":7,\"completion_tokens\":2,"
                           "\"prompt_tokens_details\":{\"cached_tokens\":4}}}\n\n"
                           "data: [DONE]\n\n";

static void test_any_cut_reads_the_same(void **state)
{
    struct stream stream = {0};
    for (size_t piece = 1; piece <= sizeof good; piece++) {
        struct samples gaps = {0};
        uint64_t now_ns = 1000000;
        stream_begin(&stream, &gaps, now_ns);
        for (size_t at = 0; at < sizeof good - 1; at += piece) {
            size_t left = sizeof good - 1 - at;
            now_ns += 1000000;
            assert_true(stream_feed(&stream, good + at, left < piece ? left : piece, now_ns));
        }
        assert_true(stream.done && !stream.failed && stream.has_usage);
        assert_int_equal(stream.prompt_tokens, 7);
        assert_int_equal(stream.completion_tokens, 2);
        assert_int_equal(stream.cached_tokens, 4);
        assert_int_equal(gaps.n, 1); /* two events carry text */
        size_t end_of_first = (size_t)(strchr(good, '\n') - good), end_of_second = (size_t)(strchr(good, '\r') - good) + 1;
        assert_int_equal(stream.first_ns, 1000000 * (2 + end_of_first / piece));
        assert_true(gaps.values[0] == (double)(end_of_second / piece - end_of_first / piece));
        samples_fini(&gaps);
    }
    stream_fini(&stream);
}

static void test_an_error_in_the_stream_is_no_success(void **state)
{
    static const char broken[] = "data: {\"choices\":[{\"text\":\"a\"}]}\n\ndata: {\"error\":{\"message\":\"node lost\"}}\n\n";
    static const char garbled[] = "data: {\"choices\":\n\ndata: [DONE]\n\n";
    static const char refused[] = "{\"error\":{\"message\":\"all full\"}}";
    struct stream stream = {0};
    struct samples gaps = {0};
    stream_begin(&stream, &gaps, 1);
    stream_feed(&stream, broken, sizeof broken - 1, 2);
    assert_true(stream.failed && !stream.done);
    assert_string_equal(stream.problem, "node lost");
    stream_begin(&stream, &gaps, 1);
    stream_feed(&stream, garbled, sizeof garbled - 1, 2);
    assert_true(stream.failed && stream.done);
    stream_begin(&stream, &gaps, 1);
    stream_feed(&stream, refused, sizeof refused - 1, 2);
    assert_true(!stream.done && stream.first_ns == 0);
    assert_string_equal(strbuf_text(&stream.line), refused);
    stream_fini(&stream);
    samples_fini(&gaps);
}

static void test_percentiles_are_nearest_rank(void **state)
{
    struct samples samples = {0};
    for (int i = 200; i > 0; i--)
        samples_add(&samples, i);
    samples_sort(&samples);
    assert_true(samples_percentile(&samples, 0.99) == 198);
    assert_true(samples_percentile(&samples, 0.5) == 100);
    assert_true(samples_median(&samples) == 100.5);
    samples_fini(&samples);
    samples_add(&samples, 3);
    assert_true(samples_percentile(&samples, 0.99) == 3 && samples_median(&samples) == 3);
    samples_fini(&samples);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_any_cut_reads_the_same),
        cmocka_unit_test(test_an_error_in_the_stream_is_no_success),
        cmocka_unit_test(test_percentiles_are_nearest_rank),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

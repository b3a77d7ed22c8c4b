/* The null backend: its answers hang on the pages alone, its time is the model's, and wrong pages show. */
#include <math.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "core/base/error.h"
#include "core/null/null_backend.h"

enum { N_VOCAB = 1000, PAGE_TOKENS = 4, N_TOKENS = 23 };

static uint64_t clock_ns;

static uint64_t fake_now(void *self)
{
    return clock_ns;
}

static const struct env env = {.now_ns = fake_now};
static const struct null_backend_config config = {.n_pages = 32,
                                                  .page_tokens = PAGE_TOKENS,
                                                  .n_vocab = N_VOCAB,
                                                  .max_rows = 64,
                                                  .fixed_ns = 1000,
                                                  .row_ns = 100,
                                                  .context_ns = 2048,
                                                  .check_chains = true};
static uint32_t tokens[N_TOKENS];
static const uint32_t pages[] = {9, 3, 30, 0, 17, 8};

static int set_up(void **state)
{
    clock_ns = 5000;
    for (uint32_t i = 0; i < N_TOKENS; i++)
        tokens[i] = (i * 37 + 5) % N_VOCAB;
    *state = null_backend_create(&config, &env);
    return *state ? 0 : -1;
}

static int tear_down(void **state)
{
    struct backend *backend = *state;
    backend->ops->destroy(backend);
    return 0;
}

static struct sampling_params plain(float temperature)
{
    return (struct sampling_params){.temperature = temperature, .top_p = 1, .repetition_penalty = 1, .seed = 12345};
}

static void run(struct backend *backend, const struct step_span *spans, uint32_t n_spans)
{
    struct step step = {.id = 77, .spans = spans, .n_spans = n_spans};
    struct step_completion done;
    assert_int_equal(backend->ops->submit(backend, &step), 0);
    clock_ns = backend->ops->next_deadline_ns(backend);
    assert_int_equal(backend->ops->poll(backend, &done), 1);
    assert_true(done.id == 77 && done.status == 0);
    assert_true(backend->ops->next_deadline_ns(backend) == UINT64_MAX);
}

static struct step_span span_at(uint32_t position, uint32_t n, const struct sampling_params *sampling, struct row_result *results)
{
    return (struct step_span){.history = tokens,
                              .position = position,
                              .n_tokens = n,
                              .n_prompt = N_TOKENS,
                              .pages = pages,
                              .n_pages = 6,
                              .n_outputs = results ? 1 : 0,
                              .sampling = sampling,
                              .results = results};
}

static void test_any_cut_gives_the_same_token(void **state)
{
    struct backend *backend = *state;
    for (float temperature = 0; temperature < 2; temperature++) {
        struct sampling_params sampling = plain(temperature);
        uint32_t expected = null_backend_next_token(&config, tokens, N_TOKENS, N_TOKENS, &sampling);
        for (uint32_t cut = 1; cut <= N_TOKENS; cut++) {
            struct row_result result;
            for (uint32_t at = 0; at < N_TOKENS; at += cut) {
                bool last = at + cut >= N_TOKENS;
                struct step_span span = span_at(at, last ? N_TOKENS - at : cut, &sampling, last ? &result : NULL);
                run(backend, &span, 1);
            }
            assert_int_equal(result.token, expected);
        }
    }
}

static void test_draws_follow_seed_choice_and_token(void **state)
{
    struct sampling_params sampling = plain(1.0f);
    uint32_t counts[3] = {0}, n_draws = 4000;
    struct sampling_params greedy = plain(0.0f);
    uint32_t likeliest = null_backend_next_token(&config, tokens, N_TOKENS, N_TOKENS, &greedy);
    for (sampling.seed = 0; sampling.seed < n_draws; sampling.seed++) {
        uint32_t token = null_backend_next_token(&config, tokens, N_TOKENS, N_TOKENS, &sampling);
        uint32_t rank = (token + N_VOCAB - likeliest) % N_VOCAB;
        if (rank < 3)
            counts[rank]++;
    }
    for (uint32_t rank = 0; rank < 3; rank++) { /* binomial, within five standard deviations */
        double p = ldexp(1, -(int)rank - 1);
        assert_true(fabs(counts[rank] - n_draws * p) < 5 * sqrt(n_draws * p * (1 - p)));
    }
    tokens[0]++;
    assert_int_not_equal(null_backend_next_token(&config, tokens, N_TOKENS, N_TOKENS, &greedy), likeliest);
}

static void test_scores_are_a_distribution(void **state)
{
    struct backend *backend = *state;
    struct sampling_params sampling = plain(0.0f);
    static float logits[N_VOCAB];
    struct row_result result;
    sampling.logprobs = true;
    sampling.n_top_logprobs = 5;
    struct step_span span = span_at(0, N_TOKENS, &sampling, &result);
    span.logits = logits;
    run(backend, &span, 1);
    double sum = 0;
    for (uint32_t i = 0; i < N_VOCAB; i++)
        sum += exp((double)logits[i]);
    assert_true(fabs(sum - 1) < 1e-5);
    assert_int_equal(result.n_top, 5);
    assert_int_equal(result.top[0].token, result.token);
    for (uint32_t i = 0; i < 5; i++)
        assert_true(result.top[i].logprob == logits[result.top[i].token]);
    uint32_t target = result.top[3].token;
    span.targets = &target;
    float expected = result.top[3].logprob;
    run(backend, &span, 1);
    assert_int_equal(result.token, target);
    assert_true(result.logprob == expected);
}

static void test_stops_as_often_as_told(void **state)
{
    struct null_backend_config stopping = config;
    struct sampling_params sampling = plain(0.0f);
    const uint32_t stop_ids[] = {600, 601};
    uint32_t n_stops = 0, history[1] = {0};
    stopping.stop_every = 10;
    stopping.stop_id = 600;
    sampling.stop_ids = stop_ids;
    sampling.n_stop_ids = 2;
    for (history[0] = 0; history[0] < N_VOCAB; history[0]++) {
        uint32_t token = null_backend_next_token(&stopping, history, 1, 1, &sampling);
        n_stops += token == 600;
        assert_int_not_equal(token, 601); /* never by accident */
    }
    assert_true(n_stops > 60 && n_stops < 145);
    sampling.min_tokens = 1;
    for (history[0] = 0; history[0] < N_VOCAB; history[0]++)
        assert_int_not_equal(null_backend_next_token(&stopping, history, 1, 1, &sampling), 600);
}

static void test_time_is_modelled_and_in_order(void **state)
{
    struct backend *backend = *state;
    struct step_span prefill = span_at(0, 20, NULL, NULL), more = span_at(20, 3, NULL, NULL);
    struct step first = {.id = 1, .spans = &prefill, .n_spans = 1}, second = {.id = 2, .spans = &more, .n_spans = 1};
    struct step_completion done;
    assert_int_equal(backend->ops->submit(backend, &first), 0);
    assert_int_equal(backend->ops->submit(backend, &second), 0);
    uint64_t first_ns = 1000 + 20 * 100 + 20 * 2, second_ns = 1000 + 3 * 100 + 23 * 2;
    assert_true(backend->ops->next_deadline_ns(backend) == 5000 + first_ns);
    clock_ns = 5000 + first_ns - 1;
    assert_int_equal(backend->ops->poll(backend, &done), 0);
    clock_ns++;
    assert_int_equal(backend->ops->poll(backend, &done), 1);
    assert_true(done.id == 1 && done.duration_ns == first_ns);
    assert_int_equal(backend->ops->poll(backend, &done), 0);
    clock_ns += second_ns;
    assert_int_equal(backend->ops->poll(backend, &done), 1);
    assert_true(done.id == 2 && done.duration_ns == second_ns);
    assert_int_equal(backend->ops->poll(backend, &done), 0);
}

static void test_bad_steps_are_refused(void **state)
{
    struct backend *backend = *state;
    struct backend_info info;
    backend->ops->info(backend, &info);
    assert_int_equal(info.page_tokens, PAGE_TOKENS);
    struct step_span span = span_at(0, N_TOKENS, NULL, NULL);
    struct step step = {.spans = &span, .n_spans = 1};
    span.n_pages = 5;
    assert_int_equal(backend->ops->submit(backend, &step), HS_ERR_RANGE);
    const uint32_t beyond[] = {0, 1, 2, 3, 4, 32};
    span.n_pages = 6;
    span.pages = beyond;
    assert_int_equal(backend->ops->submit(backend, &step), HS_ERR_RANGE);
    span.pages = pages;
    tokens[3] = N_VOCAB;
    assert_int_equal(backend->ops->submit(backend, &step), HS_ERR_RANGE);
    tokens[3] = 0;
    struct step_span many[3] = {span, span, span};
    struct step large = {.spans = many, .n_spans = 3};
    assert_int_equal(backend->ops->submit(backend, &large), HS_ERR_LIMIT); /* 69 rows of 64 */
    for (uint32_t i = 0; i < info.max_inflight; i++)
        assert_int_equal(backend->ops->submit(backend, &step), 0);
    assert_int_equal(backend->ops->submit(backend, &step), HS_ERR_BUSY);
    assert_int_equal(backend->ops->copy_page(backend, 32, 0), HS_ERR_RANGE);
}

static void test_a_copied_page_serves_as_well(void **state)
{
    struct backend *backend = *state;
    struct sampling_params sampling = plain(0.0f);
    struct row_result result;
    struct step_span span = span_at(0, 22, NULL, NULL);
    run(backend, &span, 1);
    const uint32_t copied[] = {9, 3, 30, 0, 17, 31};
    assert_int_equal(backend->ops->copy_page(backend, 31, 8), 0);
    span = span_at(22, 1, &sampling, &result);
    span.pages = copied;
    run(backend, &span, 1);
    assert_int_equal(result.token, null_backend_next_token(&config, tokens, N_TOKENS, N_TOKENS, &sampling));
}

/* Continues from pages in which the past is not what history says; returns what became of the process. */
static int continue_from_wrong_pages(struct backend *backend)
{
    const uint32_t wrong[] = {9, 3, 30, 1, 17, 8};
    struct step_span span = span_at(0, 22, NULL, NULL);
    run(backend, &span, 1);
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        struct rlimit none = {0, 0};
        setrlimit(RLIMIT_CORE, &none);
        signal(SIGABRT, SIG_DFL); /* not cmocka's */
        fclose(stderr);
        span = span_at(22, 1, NULL, NULL);
        span.pages = wrong;
        struct step step = {.spans = &span, .n_spans = 1};
        backend->ops->submit(backend, &step);
        _exit(0);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    return status;
}

static void test_a_wrong_page_is_found_out(void **state)
{
    int status = continue_from_wrong_pages(*state);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
    struct null_backend_config lenient = config;
    lenient.check_chains = false;
    struct backend *backend = null_backend_create(&lenient, &env);
    status = continue_from_wrong_pages(backend);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    backend->ops->destroy(backend);
}

#define WITH_BACKEND(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_BACKEND(test_any_cut_gives_the_same_token),  WITH_BACKEND(test_draws_follow_seed_choice_and_token),
        WITH_BACKEND(test_scores_are_a_distribution),     WITH_BACKEND(test_stops_as_often_as_told),
        WITH_BACKEND(test_time_is_modelled_and_in_order), WITH_BACKEND(test_bad_steps_are_refused),
        WITH_BACKEND(test_a_copied_page_serves_as_well),  WITH_BACKEND(test_a_wrong_page_is_found_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

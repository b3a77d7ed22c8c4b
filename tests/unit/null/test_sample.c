/* Sampling by its laws: the softmax's distribution, position-keyed noise, ties, the same bits from every variant of the kernels. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/base/rng.h"
#include "core/cpu/sample.h"
#include "core/cpu/sample_kernels.h"
#include "core/cpu/sample_math.h"

enum { SMALL = 12, LARGE = 50000, N_DRAWS = 20000 };

static struct sampling_params plain(float temperature)
{
    return (struct sampling_params){.temperature = temperature, .top_p = 1.0f, .repetition_penalty = 1.0f, .seed = 99};
}

static struct step_span span_of(const uint32_t *history, uint32_t n_tokens, uint32_t n_outputs,
                                const struct sampling_params *sampling)
{
    return (struct step_span){
        .history = history, .n_tokens = n_tokens, .n_prompt = n_tokens, .n_outputs = n_outputs, .sampling = sampling};
}

static uint32_t sample(const float *logits, uint32_t n_vocab, const struct step_span *span, uint32_t output,
                       struct sample_scratch *s)
{
    struct row_result result;
    sample_row(logits, n_vocab, span, output, &result, s);
    return result.token;
}

static void random_logits(float *logits, uint32_t n, uint64_t seed)
{
    struct rng rng;
    rng_seed(&rng, seed);
    for (uint32_t i = 0; i < n; i++)
        logits[i] = (float)(8.0 * (rng_unit(&rng) + rng_unit(&rng) + rng_unit(&rng)) - 12.0);
}

static void test_own_log_and_exp(void **state)
{
    struct rng rng;
    rng_seed(&rng, 1);
    for (uint32_t i = 0; i < 200000; i++) {
        double x = ldexp(1.0 + rng_unit(&rng), (int)rng_below(&rng, 80) - 40);
        long double exact = logl((long double)x);
        assert_true(fabsl((long double)sample_log(x) - exact) <= 4e-16L * fabsl(exact) + 1e-17L);
        x = 700.0 * (2.0 * rng_unit(&rng) - 1.0);
        exact = expl((long double)x);
        assert_true(fabsl((long double)sample_exp(x) - exact) <= 6e-16L * exact);
    }
    assert_true(sample_log(1.0) == 0.0);
    assert_true(sample_exp(0.0) == 1.0);
    assert_true(sample_exp(-INFINITY) < 1e-300);
}

/* Every variant draws the plain Philox's bits, and its bounds hold. */
static void check_bounds(void)
{
    static float logits[SAMPLE_BLOCK], upper[SAMPLE_BLOCK];
    static uint32_t bits[SAMPLE_BLOCK], expected[SAMPLE_BLOCK];
    for (uint32_t round = 0; round < 400; round++) {
        const struct sample_noise_key key = {.seed = round * UINT64_C(0x123456789abcdef), .choice = round % 5, .position = round};
        const uint32_t philox_key[2] = {(uint32_t)key.seed, (uint32_t)(key.seed >> 32)};
        uint32_t first = round * 7 * SAMPLE_BLOCK;
        for (uint32_t i = 0; i < SAMPLE_BLOCK; i += SAMPLE_TOKENS_PER_CALL) {
            const uint32_t counter[4] = {(first + i) / SAMPLE_TOKENS_PER_CALL, key.position, key.choice, 0};
            philox4x32(philox_key, counter, expected + i);
        }
        random_logits(logits, SAMPLE_BLOCK, round);
        float temperature = 0.1f * (float)(1 + round % 20);
        for (uint32_t v = 0; sample_kernels_variant(v); v++) {
            float largest = sample_kernels_variant(v)->bound_block(logits, temperature, &key, first, bits, upper), max = -INFINITY;
            assert_memory_equal(bits, expected, sizeof bits);
            for (uint32_t i = 0; i < SAMPLE_BLOCK; i++) {
                float noise = sample_noise(key.seed, key.choice, key.position, first + i);
                assert_true(logits[i] + temperature * noise <= upper[i]);
                max = upper[i] > max ? upper[i] : max;
            }
            assert_true(largest == max);
            assert_int_equal(
                sample_kernels_variant(v)->max_block(logits) == logits[sample_kernels_variant(v)->argmax(logits, SAMPLE_BLOCK)], 1);
        }
    }
}

static void test_kernels_agree(void **state)
{
    static float logits[LARGE];
    const struct sample_kernels *generic = sample_kernels_variant(0);
    for (uint32_t round = 0; round < 40; round++) {
        uint32_t n = round < 20 ? 1 + round * 61 : LARGE - round;
        random_logits(logits, n, round);
        if (round % 3 == 0)
            logits[n / 2] = logits[n - 1] = 13.0f; /* equal maxima: the first */
        if (round % 5 == 0)
            logits[0] = NAN;
        uint32_t expected = 0;
        for (uint32_t i = 1; i < n; i++)
            if (logits[i] > logits[expected] || isnan(logits[expected]))
                expected = i;
        double sum = generic->sum_exp(logits + 1, n - 1, logits[expected], 0.7), exact = 0;
        for (uint32_t i = 1; i < n; i++)
            exact += exp(((double)logits[i] - logits[expected]) * 0.7);
        assert_true(fabs(sum - exact) <= 1e-12 * exact);
        for (uint32_t i = 0; sample_kernels_variant(i); i++) {
            assert_int_equal(sample_kernels_variant(i)->argmax(logits, n), expected);
            assert_true(sample_kernels_variant(i)->sum_exp(logits + 1, n - 1, logits[expected], 0.7) == sum);
        }
    }
    check_bounds();
    float none[3] = {-INFINITY, -INFINITY, -INFINITY};
    assert_int_equal(generic->argmax(none, 3), 0);
}

/* Pearson's chi-square over the draws of all positions; 31.26 is the 0.999 quantile for 11 degrees of freedom. */
static double chi_square(const float *logits, const struct sampling_params *sampling, struct sample_scratch *scratch)
{
    double p[SMALL], sum = 0, statistic = 0;
    uint32_t counts[SMALL] = {0};
    for (uint32_t i = 0; i < SMALL; i++)
        sum += p[i] = exp((double)logits[i] / sampling->temperature);
    struct step_span span = span_of(NULL, 1, 1, sampling);
    for (span.position = 0; span.position < N_DRAWS; span.position++)
        counts[sample(logits, SMALL, &span, 0, scratch)]++;
    for (uint32_t i = 0; i < SMALL; i++) {
        double expected = N_DRAWS * p[i] / sum;
        assert_true(expected > 5);
        statistic += (counts[i] - expected) * (counts[i] - expected) / expected;
    }
    return statistic;
}

static void test_draws_follow_the_softmax(void **state)
{
    const float logits[SMALL] = {1.5f, 0.2f, -0.7f, 2.0f, 0.0f, 1.0f, 1.0f, -1.0f, 0.5f, 1.8f, -0.3f, 0.9f};
    struct sample_scratch *scratch = sample_scratch_create(SMALL);
    for (float temperature = 0.7f; temperature < 2; temperature += 0.4f) {
        struct sampling_params sampling = plain(temperature);
        assert_true(chi_square(logits, &sampling, scratch) < 31.26);
        sampling.top_k = SMALL; /* the other path, everything kept */
        sampling.seed = 7;
        assert_true(chi_square(logits, &sampling, scratch) < 31.26);
    }
    sample_scratch_destroy(scratch);
}

/* The short cuts for large vocabularies change nothing. */
static void test_equals_scoring_every_token(void **state)
{
    static float logits[LARGE];
    struct sample_scratch *scratch = sample_scratch_create(LARGE);
    for (uint32_t round = 0; round < 12; round++) {
        struct sampling_params sampling = plain(0.25f * (float)(1 + round));
        sampling.choice = round % 3;
        struct step_span span = span_of(NULL, 1, 1, &sampling);
        span.position = round * 100;
        random_logits(logits, LARGE, 100 + round);
        uint32_t expected = 0;
        double best = -INFINITY;
        for (uint32_t token = 0; token < LARGE; token++) {
            double noise = sample_noise(sampling.seed, sampling.choice, span.position + 1, token);
            double score = (double)logits[token] + (double)sampling.temperature * noise;
            if (score > best) {
                best = score;
                expected = token;
            }
        }
        assert_int_equal(sample(logits, LARGE, &span, 0, scratch), expected);
        sampling.top_k = LARGE - 1;
        assert_int_equal(sample(logits, LARGE, &span, 0, scratch), expected);
    }
    sample_scratch_destroy(scratch);
}

static void test_noise_is_keyed_by_position(void **state)
{
    static float logits[LARGE];
    uint32_t history[40] = {0}, whole[8];
    struct sample_scratch *scratch = sample_scratch_create(LARGE);
    struct sampling_params sampling = plain(1.0f);
    random_logits(logits, LARGE, 5);
    struct step_span span = span_of(history, 40, 8, &sampling);
    for (uint32_t i = 0; i < 8; i++)
        whole[i] = sample(logits, LARGE, &span, i, scratch);
    uint32_t n_other = 0;
    for (uint32_t i = 0; i < 8; i++) { /* the same rows, one step each */
        struct step_span one = span_of(history, 1, 1, &sampling);
        one.position = 32 + i;
        assert_int_equal(sample(logits, LARGE, &one, 0, scratch), whole[i]);
        sampling.choice = 1;
        n_other += sample(logits, LARGE, &one, 0, scratch) != whole[i];
        sampling.choice = 0;
        sampling.seed++;
        n_other += sample(logits, LARGE, &one, 0, scratch) != whole[i];
        sampling.seed--;
        n_other += i > 0 && whole[i] != whole[i - 1];
    }
    assert_true(n_other >= 20); /* of 23: another choice, seed or position draws anew */
    sample_scratch_destroy(scratch);
}

static void test_ties_go_to_the_lowest_id(void **state)
{
    static float logits[LARGE];
    struct sample_scratch *scratch = sample_scratch_create(LARGE);
    struct sampling_params sampling = plain(0.0f);
    struct step_span span = span_of(NULL, 1, 1, &sampling);
    logits[777] = logits[778] = logits[40000] = 3.0f;
    assert_int_equal(sample(logits, LARGE, &span, 0, scratch), 777);
    logits[5] = -0.0f; /* zeros of both signs are equal */
    logits[777] = logits[778] = logits[40000] = -1.0f;
    assert_int_equal(sample(logits, LARGE, &span, 0, scratch), 0);
    sampling.temperature = 1.0f;
    sampling.top_k = 1;
    assert_int_equal(sample(logits, LARGE, &span, 0, scratch), 0);
    sampling.top_k = 0;
    sampling.top_p = 0.00001f; /* one of 50,000 equals reaches that */
    assert_int_equal(sample(logits, LARGE, &span, 0, scratch), 0);
    sample_scratch_destroy(scratch);
}

static void test_bias_forces_and_bars(void **state)
{
    static float logits[LARGE];
    struct sample_scratch *scratch = sample_scratch_create(LARGE);
    random_logits(logits, LARGE, 11);
    for (float temperature = 0; temperature < 2; temperature += 0.8f) {
        struct sampling_params sampling = plain(temperature);
        struct step_span span = span_of(NULL, 1, 1, &sampling);
        uint32_t usual = sample(logits, LARGE, &span, 0, scratch);
        struct logit_bias bias[] = {{.token = 4321, .bias = 100.0f}, {.token = LARGE + 5, .bias = 100.0f}};
        sampling.bias = bias;
        sampling.n_bias = 2;
        assert_int_equal(sample(logits, LARGE, &span, 0, scratch), 4321);
        bias[0] = (struct logit_bias){.token = usual, .bias = -100.0f};
        assert_int_not_equal(sample(logits, LARGE, &span, 0, scratch), usual);
    }
    sample_scratch_destroy(scratch);
}

static void test_stop_ids_wait_for_min_tokens(void **state)
{
    float logits[SMALL] = {0};
    const uint32_t history[6] = {0}, stop_ids[] = {3, 4};
    struct sample_scratch *scratch = sample_scratch_create(SMALL);
    struct sampling_params sampling = plain(0.0f);
    logits[3] = 9;
    logits[4] = 8;
    logits[5] = 1;
    sampling.stop_ids = stop_ids;
    sampling.n_stop_ids = 2;
    sampling.min_tokens = 2;
    struct step_span span = span_of(history, 6, 4, &sampling);
    span.n_prompt = 4; /* row 3 ends the prompt: the answer has 0, 1, 2 tokens after rows 3, 4, 5 */
    assert_int_equal(sample(logits, SMALL, &span, 1, scratch), 5);
    assert_int_equal(sample(logits, SMALL, &span, 2, scratch), 5);
    assert_int_equal(sample(logits, SMALL, &span, 3, scratch), 3);
    sample_scratch_destroy(scratch);
}

static void test_penalties_see_just_the_past_of_their_row(void **state)
{
    float logits[SMALL] = {[1] = 5, [2] = 4, [3] = 3};
    const uint32_t history[] = {7, 1, 2, 1};
    struct sample_scratch *scratch = sample_scratch_create(SMALL);
    struct sampling_params sampling = plain(0.0f);
    sampling.frequency_penalty = 1.5f;
    struct step_span span = span_of(history, 4, 4, &sampling);
    span.n_prompt = 1;
    assert_int_equal(sample(logits, SMALL, &span, 0, scratch), 1);
    assert_int_equal(sample(logits, SMALL, &span, 1, scratch), 2); /* 3.5 4 3 */
    assert_int_equal(sample(logits, SMALL, &span, 2, scratch), 1); /* 3.5 2.5 3 */
    assert_int_equal(sample(logits, SMALL, &span, 3, scratch), 3); /* 2 2.5 3 */
    span.n_prompt = 4; /* all of it is the prompt: frequency and presence do not count it, repetition does */
    assert_int_equal(sample(logits, SMALL, &span, 3, scratch), 1);
    sampling.repetition_penalty = 2.0f;
    assert_int_equal(sample(logits, SMALL, &span, 3, scratch), 3); /* 2.5 2 3 */
    assert_int_equal(sample(logits, SMALL, &span, 3, scratch), 3); /* nothing stays behind in the scratch */
    sample_scratch_destroy(scratch);
}

static void test_logprobs_only_when_wanted(void **state)
{
    float logits[SMALL] = {[4] = 2};
    struct sample_scratch *scratch = sample_scratch_create(SMALL);
    struct sampling_params sampling = plain(0.0f);
    struct step_span span = span_of(NULL, 1, 1, &sampling);
    struct row_result result;
    sample_row(logits, SMALL, &span, 0, &result, scratch);
    assert_true(result.logprob == 0 && result.n_top == 0);
    sampling.logprobs = true;
    sampling.n_top_logprobs = 20; /* more than there are tokens */
    sample_row(logits, SMALL, &span, 0, &result, scratch);
    assert_true(fabs((double)result.logprob - (2 - log(exp(2) + 11))) < 1e-6);
    assert_int_equal(result.n_top, SMALL);
    assert_int_equal(result.top[0].token, 4);
    assert_int_equal(result.top[1].token, 0);
    assert_int_equal(result.top[SMALL - 1].token, SMALL - 1);
    sample_scratch_destroy(scratch);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_own_log_and_exp),
        cmocka_unit_test(test_kernels_agree),
        cmocka_unit_test(test_draws_follow_the_softmax),
        cmocka_unit_test(test_equals_scoring_every_token),
        cmocka_unit_test(test_noise_is_keyed_by_position),
        cmocka_unit_test(test_ties_go_to_the_lowest_id),
        cmocka_unit_test(test_bias_forces_and_bars),
        cmocka_unit_test(test_stop_ids_wait_for_min_tokens),
        cmocka_unit_test(test_penalties_see_just_the_past_of_their_row),
        cmocka_unit_test(test_logprobs_only_when_wanted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Sampling against tests/vectors/sampling.json, made by make_sampling_vectors.py beside it: numpy, the slow and obvious way. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <jansson.h>

#include "core/cpu/sample.h"

enum { MAX_VOCAB = 64, MAX_HISTORY = 64, MAX_BIAS = 8 };

static json_t *vectors;

static int set_up(void **state)
{
    json_error_t error;
    vectors = json_load_file("tests/vectors/sampling.json", 0, &error);
    if (!vectors)
        print_error("sampling.json: %s (line %d)\n", error.text, error.line);
    return vectors ? 0 : -1;
}

static int tear_down(void **state)
{
    json_decref(vectors);
    return 0;
}

static double number(const json_t *object, const char *key)
{
    json_t *value = json_object_get(object, key);
    assert_true(json_is_number(value));
    return json_number_value(value);
}

static uint32_t fill_u32(const json_t *array, uint32_t *out, uint32_t cap)
{
    uint32_t n = (uint32_t)json_array_size(array);
    assert_true(n <= cap);
    for (uint32_t i = 0; i < n; i++)
        out[i] = (uint32_t)json_integer_value(json_array_get(array, i));
    return n;
}

/* A case of the file in the backend's own terms. */
struct row {
    float logits[MAX_VOCAB];
    uint32_t n_vocab, history[MAX_HISTORY], stop_ids[2];
    struct logit_bias bias[MAX_BIAS];
    struct sampling_params sampling;
    struct step_span span;
};

static void load(const json_t *test_case, struct row *row)
{
    json_t *logits = json_object_get(test_case, "logits"), *bias = json_object_get(test_case, "bias");
    row->n_vocab = (uint32_t)json_array_size(logits);
    assert_true(row->n_vocab <= MAX_VOCAB && json_array_size(bias) <= MAX_BIAS);
    for (uint32_t i = 0; i < row->n_vocab; i++)
        row->logits[i] = (float)json_number_value(json_array_get(logits, i));
    for (uint32_t i = 0; i < json_array_size(bias); i++) {
        json_t *pair = json_array_get(bias, i);
        row->bias[i].token = (uint32_t)json_integer_value(json_array_get(pair, 0));
        row->bias[i].bias = (float)json_number_value(json_array_get(pair, 1));
    }
    row->sampling = (struct sampling_params){
        .temperature = (float)number(test_case, "temperature"),
        .top_p = (float)number(test_case, "top_p"),
        .min_p = (float)number(test_case, "min_p"),
        .repetition_penalty = (float)number(test_case, "repetition_penalty"),
        .presence_penalty = (float)number(test_case, "presence_penalty"),
        .frequency_penalty = (float)number(test_case, "frequency_penalty"),
        .top_k = (uint32_t)number(test_case, "top_k"),
        .choice = (uint32_t)number(test_case, "choice"),
        .seed = (uint64_t)json_integer_value(json_object_get(test_case, "seed")),
        .min_tokens = (uint32_t)number(test_case, "min_tokens"),
        .stop_ids = row->stop_ids,
        .n_stop_ids = fill_u32(json_object_get(test_case, "stop_ids"), row->stop_ids, 2),
        .bias = row->bias,
        .n_bias = (uint32_t)json_array_size(bias),
        .logprobs = true,
        .n_top_logprobs = 20,
    };
    uint32_t n_history = fill_u32(json_object_get(test_case, "history"), row->history, MAX_HISTORY);
    row->span = (struct step_span){.history = row->history,
                                   .n_tokens = n_history,
                                   .n_prompt = (uint32_t)number(test_case, "n_prompt"),
                                   .n_outputs = 1,
                                   .sampling = &row->sampling};
}

static void test_noise(void **state)
{
    size_t i;
    json_t *entry;
    json_array_foreach(json_object_get(vectors, "noise"), i, entry)
    {
        uint64_t seed = (uint64_t)json_integer_value(json_array_get(entry, 0));
        float noise = sample_noise(seed, (uint32_t)json_integer_value(json_array_get(entry, 1)),
                                   (uint32_t)json_integer_value(json_array_get(entry, 2)),
                                   (uint32_t)json_integer_value(json_array_get(entry, 3)));
        assert_true(fabs((double)noise - json_number_value(json_array_get(entry, 4))) < 1e-6);
    }
    assert_true(i >= 5);
}

static void test_choices(void **state)
{
    size_t i, draw;
    json_t *test_case, *expected;
    json_array_foreach(json_object_get(vectors, "cases"), i, test_case)
    {
        struct row row;
        struct row_result result;
        load(test_case, &row);
        struct sample_scratch *scratch = sample_scratch_create(row.n_vocab);
        uint64_t seed = row.sampling.seed;
        json_array_foreach(json_object_get(test_case, "draws"), draw, expected)
        {
            row.sampling.seed = seed + draw;
            sample_row(row.logits, row.n_vocab, &row.span, 0, &result, scratch);
            if (result.token != (uint32_t)json_integer_value(expected))
                fail_msg("case %zu draw %zu: token %u, expected %u", i, draw, result.token, (uint32_t)json_integer_value(expected));
        }
        sample_scratch_destroy(scratch);
    }
    assert_true(i >= 50);
}

static void test_logprobs_and_their_order(void **state)
{
    size_t i;
    json_t *test_case;
    json_array_foreach(json_object_get(vectors, "cases"), i, test_case)
    {
        struct row row;
        struct row_result result;
        load(test_case, &row);
        struct sample_scratch *scratch = sample_scratch_create(row.n_vocab);
        json_t *top = json_object_get(test_case, "top"), *logprobs = json_object_get(test_case, "top_logprobs");
        uint32_t target = (uint32_t)json_integer_value(json_array_get(top, 13));
        row.span.targets = &target; /* scoring: no choice, this token */
        sample_row(row.logits, row.n_vocab, &row.span, 0, &result, scratch);
        assert_int_equal(result.token, target);
        assert_true(fabs((double)result.logprob - json_number_value(json_array_get(logprobs, 13))) < 2e-6);
        assert_int_equal(result.n_top, 20);
        for (uint32_t k = 0; k < 20; k++) {
            assert_int_equal(result.top[k].token, json_integer_value(json_array_get(top, k)));
            assert_true(fabs((double)result.top[k].logprob - json_number_value(json_array_get(logprobs, k))) < 2e-6);
        }
        sample_scratch_destroy(scratch);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_noise),
        cmocka_unit_test(test_choices),
        cmocka_unit_test(test_logprobs_and_their_order),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}

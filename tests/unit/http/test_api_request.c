#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "core/base/rng.h"
#include "core/serve/http/api_request.h"

static const struct api_limits limits = {"tiny", 264, 128};

static int parse(struct api_request *request, enum api_endpoint endpoint, const char *body, struct api_error *error)
{
    return api_request_parse(request, endpoint, body, strlen(body), &limits, error);
}

/* What must be taken; api_request_fini frees it. */
static struct api_request take(enum api_endpoint endpoint, const char *body)
{
    struct api_request request;
    struct api_error error = {0};
    if (parse(&request, endpoint, body, &error) != 0)
        fail_msg("%s: %s", body, error.message);
    return request;
}

#define CHAT "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}]"
#define TEXT "{\"prompt\":\"x\""

static const struct {
    enum api_endpoint endpoint;
    const char *body, *param;
    int status;
} refusals[] = {
    {API_CHAT, "", "", 400},
    {API_CHAT, "[]", "", 400},
    {API_CHAT, "{\"messages\":", "", 400},
    {API_CHAT, "{}", "messages", 400},
    {API_CHAT, "{\"messages\":{}}", "messages", 400},
    {API_CHAT, "{\"messages\":[]}", "messages", 400},
    {API_CHAT, "{\"messages\":[1]}", "messages", 400},
    {API_CHAT, "{\"messages\":[{\"role\":\"king\",\"content\":\"x\"}]}", "messages", 400},
    {API_CHAT, "{\"messages\":[{\"role\":\"user\"}]}", "messages", 400},
    {API_CHAT, "{\"messages\":[{\"role\":\"user\",\"content\":3}]}", "messages", 400},
    {API_CHAT, "{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"image_url\",\"image_url\":{\"url\":\"x\"}}]}]}", "messages", 400},
    {API_CHAT, "{\"messages\":[{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[{}]}]}", "messages", 400},
    {API_CHAT, CHAT ",\"model\":\"other\"}", "model", 404},
    {API_CHAT, CHAT ",\"model\":3}", "model", 400},
    {API_CHAT, CHAT ",\"temperature\":\"hot\"}", "temperature", 400},
    {API_CHAT, CHAT ",\"temperature\":2.1}", "temperature", 400},
    {API_CHAT, CHAT ",\"temperature\":true}", "temperature", 400},
    {API_CHAT, CHAT ",\"top_p\":1.01}", "top_p", 400},
    {API_CHAT, CHAT ",\"top_k\":-2}", "top_k", 400},
    {API_CHAT, CHAT ",\"top_k\":1.5}", "top_k", 400},
    {API_CHAT, CHAT ",\"min_p\":-0.1}", "min_p", 400},
    {API_CHAT, CHAT ",\"presence_penalty\":3}", "presence_penalty", 400},
    {API_CHAT, CHAT ",\"frequency_penalty\":-3}", "frequency_penalty", 400},
    {API_CHAT, CHAT ",\"repetition_penalty\":0}", "repetition_penalty", 400},
    {API_CHAT, CHAT ",\"n\":0}", "n", 400},
    {API_CHAT, CHAT ",\"n\":129}", "n", 400},
    {API_CHAT, CHAT ",\"max_tokens\":0}", "max_tokens", 400},
    {API_CHAT, CHAT ",\"max_tokens\":-1}", "max_tokens", 400},
    {API_CHAT, CHAT ",\"max_completion_tokens\":\"8\"}", "max_completion_tokens", 400},
    {API_CHAT, CHAT ",\"min_tokens\":9,\"max_tokens\":8}", "min_tokens", 400},
    {API_CHAT, CHAT ",\"seed\":\"1\"}", "seed", 400},
    {API_CHAT, CHAT ",\"seed\":1.5}", "seed", 400},
    {API_CHAT, CHAT ",\"seed\" : 18446744073709551616}", "seed", 400},
    {API_CHAT, CHAT ",\"temperature\":1e999}", "temperature", 400},
    {API_CHAT, "{\"max_tokens\":-99999999999999999999", "max_tokens", 400},
    {API_CHAT, "{\"x\":[1,99999999999999999999]}", "", 400},
    {API_CHAT, "[99999999999999999999]", "", 400},
    {API_CHAT, CHAT ",\"stop\":3}", "stop", 400},
    {API_CHAT, CHAT ",\"stop\":\"\"}", "stop", 400},
    {API_CHAT, CHAT ",\"stop\":[\"a\",\"b\",\"c\",\"d\",\"e\"]}", "stop", 400},
    {API_CHAT, CHAT ",\"stop\":[\"a\",null]}", "stop", 400},
    {API_CHAT, CHAT ",\"stream\":\"yes\"}", "stream", 400},
    {API_CHAT, CHAT ",\"stream_options\":{\"include_usage\":true}}", "stream_options", 400},
    {API_CHAT, CHAT ",\"stream\":true,\"stream_options\":3}", "stream_options", 400},
    {API_CHAT, CHAT ",\"stream\":true,\"stream_options\":{\"include_usage\":1}}", "include_usage", 400},
    {API_CHAT, CHAT ",\"logprobs\":3}", "logprobs", 400},
    {API_CHAT, CHAT ",\"top_logprobs\":3}", "top_logprobs", 400},
    {API_CHAT, CHAT ",\"logprobs\":true,\"top_logprobs\":21}", "top_logprobs", 400},
    {API_CHAT, CHAT ",\"logit_bias\":[]}", "logit_bias", 400},
    {API_CHAT, CHAT ",\"logit_bias\":{\"264\":1}}", "logit_bias", 400},
    {API_CHAT, CHAT ",\"logit_bias\":{\"a\":1}}", "logit_bias", 400},
    {API_CHAT, CHAT ",\"logit_bias\":{\"1\":101}}", "logit_bias", 400},
    {API_CHAT, CHAT ",\"priority\":\"high\"}", "priority", 400},
    {API_CHAT, CHAT ",\"user\":3}", "user", 400},
    {API_CHAT, CHAT ",\"cache_salt\":3}", "cache_salt", 400},
    {API_CHAT, CHAT ",\"ignore_eos\":1}", "ignore_eos", 400},
    {API_CHAT, CHAT ",\"best_of\":2}", "best_of", 400},
    {API_CHAT, CHAT ",\"tools\":[{\"type\":\"function\"}]}", "tools", 400},
    {API_CHAT, CHAT ",\"tool_choice\":\"required\"}", "tool_choice", 400},
    {API_CHAT, CHAT ",\"functions\":[{}]}", "functions", 400},
    {API_CHAT, CHAT ",\"response_format\":{\"type\":\"json_schema\"}}", "response_format", 400},
    {API_CHAT, CHAT ",\"response_format\":\"text\"}", "response_format", 400},
    {API_CHAT, CHAT ",\"modalities\":[\"audio\"]}", "modalities", 400},
    {API_CHAT, CHAT ",\"guided_regex\":\"a*\"}", "guided_regex", 400},
    {API_CHAT, CHAT ",\"echo\":true}", "echo", 400},
    {API_COMPLETIONS, "{}", "prompt", 400},
    {API_COMPLETIONS, "{\"prompt\":3}", "prompt", 400},
    {API_COMPLETIONS, "{\"prompt\":[]}", "prompt", 400},
    {API_COMPLETIONS, "{\"prompt\":[[]]}", "prompt", 400},
    {API_COMPLETIONS, "{\"prompt\":[1,\"a\"]}", "prompt", 400},
    {API_COMPLETIONS, "{\"prompt\":[264]}", "prompt", 400},
    {API_COMPLETIONS, "{\"prompt\":[-1]}", "prompt", 400},
    {API_COMPLETIONS, "{\"prompt\":[1.5]}", "prompt", 400},
    {API_COMPLETIONS, TEXT ",\"logprobs\":true}", "logprobs", 400},
    {API_COMPLETIONS, TEXT ",\"logprobs\":21}", "logprobs", 400},
    {API_COMPLETIONS, TEXT ",\"echo\":\"x\"}", "echo", 400},
    {API_COMPLETIONS, TEXT ",\"suffix\":\"x\"}", "suffix", 400},
    {API_COMPLETIONS, "{\"prompt\":[\"a\",\"b\"],\"n\":65}", "n", 400},
    {API_TOKENIZE, "{}", "prompt", 400},
    {API_TOKENIZE, "{\"prompt\":[1]}", "prompt", 400},
    {API_DETOKENIZE, "{}", "tokens", 400},
    {API_DETOKENIZE, "{\"tokens\":[999]}", "tokens", 400},
};

/* Every body is refused with the status and names the field. */
static void test_refusals(void **unused)
{
    for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i++) {
        struct api_request request;
        struct api_error error = {0};
        if (parse(&request, refusals[i].endpoint, refusals[i].body, &error) == 0)
            fail_msg("taken: %s", refusals[i].body);
        if (error.status != refusals[i].status || strcmp(error.param, refusals[i].param) != 0)
            fail_msg("%s: status %d, param \"%s\", %s", refusals[i].body, error.status, error.param, error.message);
        if (*refusals[i].param)
            assert_non_null(strstr(error.message, strcmp(refusals[i].param, "model") ? refusals[i].param : "model"));
    }
}

static void test_defaults_and_nulls(void **unused)
{
    static const char *const bodies[] = {
        CHAT "}",
        CHAT ",\"temperature\":null,\"stop\":null,\"n\":null,\"max_tokens\":null,\"tools\":null,\"tools\":[],\"seed\":null,"
             "\"logprobs\":false,\"top_logprobs\":null,\"response_format\":{\"type\":\"text\"},\"unknown\":{\"a\":[]},\"user\":\"u\","
             "\"tool_choice\":\"none\",\"best_of\":1,\"stream\":false,\"stream_options\":null,\"logit_bias\":{},\"metadata\":{}}",
    };
    for (size_t i = 0; i < 2; i++) {
        struct api_request request = take(API_CHAT, bodies[i]);
        assert_int_equal(request.n, 1);
        assert_false(request.has_max_tokens || request.has_seed || request.stream || request.logprobs);
        assert_true(request.sampling.temperature == 1 && request.sampling.top_p == 1 && request.sampling.repetition_penalty == 1);
        assert_int_equal(request.sampling.n_bias, 0);
        assert_int_equal(request.stops.n, 0);
        api_request_fini(&request);
    }
    struct api_request request = take(API_COMPLETIONS, TEXT "}");
    assert_true(request.has_max_tokens);
    assert_int_equal(request.max_tokens, 16); /* https://platform.openai.com/docs/api-reference/completions */
    api_request_fini(&request);
}

/* What the answer does not need of a body is freed before it is computed; texts stay. */
static void test_only_what_is_used_is_kept(void **unused)
{
    const char *body = "{\"prompt\":[\"some\",\"text\"],\"stop\":[\"end\"],\"cache_salt\":\"salt\",\"x\":[1,2],\"y\":{\"z\":[3]},"
                       "\"logit_bias\":{\"7\":1}}";
    struct api_request request = take(API_COMPLETIONS, body);
    assert_int_equal(json_object_size(request.root), 3);
    assert_string_equal(request.prompts[1].text, "text");
    assert_memory_equal(request.stops.strings[0].text, "end", 3);
    assert_string_equal(request.cache_salt, "salt");
    assert_int_equal(request.sampling.n_bias, 1);
    api_request_fini(&request);
    request = take(API_COMPLETIONS, "{\"prompt\":[5,6]}");
    assert_int_equal(json_object_size(request.root), 0);
    assert_int_equal(request.prompts[0].ids[1], 6);
    api_request_fini(&request);
}

static void test_every_field_arrives(void **unused)
{
    const char *body = CHAT ",\"model\":\"tiny\",\"temperature\":0.5,\"top_p\":0.9,\"top_k\":40,\"min_p\":0.05,\"n\":3,\"seed\":-1,"
                            "\"stop\":[\"a\",\"bc\"],\"stream\":true,\"stream_options\":{\"include_usage\":true,"
                            "\"continuous_usage_stats\":true},\"logprobs\":true,\"top_logprobs\":5,\"presence_penalty\":0.5,"
                            "\"frequency_penalty\":-0.5,\"repetition_penalty\":1.1,\"logit_bias\":{\"7\":-100,\"3\":2.5},"
                            "\"ignore_eos\":true,\"min_tokens\":2,\"max_tokens\":4,\"max_completion_tokens\":8,"
                            "\"cache_salt\":\"salt\",\"priority\":-4}";
    struct api_request request = take(API_CHAT, body);
    const struct sampling_params *s = &request.sampling;
    assert_true(s->temperature == 0.5f && s->top_p == 0.9f && s->min_p == 0.05f && s->repetition_penalty == 1.1f);
    assert_true(s->presence_penalty == 0.5f && s->frequency_penalty == -0.5f && s->top_k == 40);
    assert_true(s->logprobs && s->n_top_logprobs == 5 && s->min_tokens == 2);
    assert_true(request.has_seed && s->seed == UINT64_MAX);
    assert_int_equal(s->n_bias, 2);
    assert_int_equal(s->bias[0].token, 3);
    assert_true(s->bias[0].bias == 2.5f && s->bias[1].bias == -100);
    assert_int_equal(request.n, 3);
    assert_int_equal(request.max_tokens, 8);
    assert_int_equal(request.priority, -4);
    assert_true(request.stream && request.include_usage && request.continuous_usage && request.ignore_eos);
    assert_int_equal(request.stops.n, 2);
    assert_int_equal(request.cache_salt_len, 4);
    api_request_fini(&request);
}

static void test_messages(void **unused)
{
    const char *body = "{\"messages\":[{\"role\":\"system\",\"content\":[{\"type\":\"text\",\"text\":\"a\"},{\"type\":\"text\",\"text\":\"b\"}]},"
                       "{\"role\":\"user\",\"content\":\"nul \\u0000 inside\",\"name\":\"x\"},{\"role\":\"assistant\",\"content\":null},"
                       "{\"role\":\"tool\",\"content\":\"42\",\"tool_call_id\":\"1\"},{\"role\":\"developer\",\"content\":\"d\"}]}";
    struct api_request request = take(API_CHAT, body);
    assert_int_equal(request.n_messages, 5);
    assert_string_equal(request.messages[0].role, "system");
    assert_int_equal(request.messages[0].len, 3);
    assert_memory_equal(request.messages[0].content, "a\nb", 3);
    assert_int_equal(request.messages[1].len, 12);
    assert_memory_equal(request.messages[1].content, "nul \0 inside", 12);
    assert_int_equal(request.messages[2].len, 0);
    assert_string_equal(request.messages[3].role, "tool");
    api_request_fini(&request);
}

static void test_prompts(void **unused)
{
    static const struct {
        const char *body;
        size_t n_prompts, n_ids; /* of the last prompt; 0: text */
    } cases[] = {
        {"{\"prompt\":\"\"}", 1, 0},
        {"{\"prompt\":[1,2,3]}", 1, 3},
        {"{\"prompt\":[\"a\",\"b\"]}", 2, 0},
        {"{\"prompt\":[[1],[2,3]]}", 2, 2},
        {"{\"prompt\":[\"a\",[263]]}", 2, 1},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct api_request request = take(API_COMPLETIONS, cases[i].body);
        assert_int_equal(request.n_prompts, cases[i].n_prompts);
        assert_int_equal(request.prompts[request.n_prompts - 1].n_ids, cases[i].n_ids);
        api_request_fini(&request);
    }
}

static void test_the_last_of_equal_keys_counts(void **unused)
{
    struct api_request request = take(API_COMPLETIONS, TEXT ",\"n\":2,\"n\":3}");
    assert_int_equal(request.n, 3);
    api_request_fini(&request);
}

static void test_nesting_is_bounded(void **unused)
{
    char body[4096] = TEXT ",\"x\":";
    size_t len = strlen(body);
    memset(body + len, '[', 2000);
    struct api_request request;
    struct api_error error = {0};
    assert_int_equal(parse(&request, API_COMPLETIONS, body, &error), -1);
    assert_non_null(strstr(error.message, "levels deep; at most 64"));
    const char *brackets_in_text = TEXT ",\"x\":\"[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[\\\"[\"}";
    request = take(API_COMPLETIONS, brackets_in_text);
    api_request_fini(&request);
}

/* Broken bodies end in a 4xx and free everything (sanitizers watch). */
static void test_mutations(void **unused)
{
    static const char body[] = CHAT ",\"model\":\"tiny\",\"stop\":[\"a\",\"b\"],\"n\":2,\"logit_bias\":{\"1\":2},\"stream\":true}";
    static const char alphabet[] = "{}[]\",:0-1ex\\u";
    struct rng rng;
    rng_seed(&rng, 9);
    for (int round = 0; round < 5000; round++) {
        char mutated[sizeof body];
        memcpy(mutated, body, sizeof body);
        for (uint64_t k = rng_below(&rng, 3) + 1; k; k--)
            mutated[rng_below(&rng, sizeof body - 1)] = alphabet[rng_below(&rng, sizeof alphabet - 1)];
        struct api_request request;
        struct api_error error = {0};
        if (parse(&request, (enum api_endpoint)rng_below(&rng, 4), mutated, &error) == 0)
            api_request_fini(&request);
        else
            assert_true(error.status >= 400 && error.status < 500 && error.message[0]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_only_what_is_used_is_kept), cmocka_unit_test(test_refusals), cmocka_unit_test(test_defaults_and_nulls), cmocka_unit_test(test_every_field_arrives),
        cmocka_unit_test(test_messages), cmocka_unit_test(test_prompts), cmocka_unit_test(test_the_last_of_equal_keys_counts),
        cmocka_unit_test(test_nesting_is_bounded), cmocka_unit_test(test_mutations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

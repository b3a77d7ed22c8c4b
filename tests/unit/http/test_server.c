/* Answers over real sockets, from a scripted node. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "tests/unit/http/fixture.h"
#include "tests/unit/http/harness.h"

static int setup(void **state)
{
    *state = harness_create(false);
    return 0;
}

static int teardown(void **state)
{
    harness_destroy(*state);
    return 0;
}

static void test_a_whole_completion(void **state)
{
    struct harness *h = *state;
    harness_answer(h, "the answer", (struct fake_script){.cached_tokens = 3});
    struct reply reply = client_request(h->port, "POST", "/v1/completions", "x-request-id: mine-1\r\n",
                                        "{\"model\":\"tiny\",\"prompt\":\"Say it\",\"max_tokens\":50}");
    char value[200];
    assert_string_equal(reply_header(&reply, "x-hearsay-node", value), "peer-7");
    assert_string_equal(reply_header(&reply, "x-request-id", value), "mine-1");
    assert_string_equal(reply_header(&reply, "Content-Type", value), "application/json");
    json_t *root = harness_json(&reply, 200);
    assert_string_equal(text_at(root, "object"), "text_completion");
    assert_string_equal(text_at(root, "model"), "tiny");
    assert_int_equal(number_at(root, "created"), 1700000000);
    assert_string_equal(text_at(root, "choices.0.text"), "the answer");
    assert_string_equal(text_at(root, "choices.0.finish_reason"), "stop");
    assert_true(json_is_null(at(root, "choices.0.logprobs")));
    assert_int_equal(number_at(root, "usage.prompt_tokens"), 6);
    assert_int_equal(number_at(root, "usage.completion_tokens"), (int64_t)h->tokens.n);
    assert_int_equal(number_at(root, "usage.total_tokens"), 6 + (int64_t)h->tokens.n);
    assert_int_equal(number_at(root, "usage.prompt_tokens_details.cached_tokens"), 3);
    json_decref(root);
}

static void test_a_whole_chat_completion(void **state)
{
    struct harness *h = *state;
    harness_answer(h, "the answer", (struct fake_script){.per_event = 4});
    struct reply reply = harness_post(h, "/v1/chat/completions", "{\"messages\":[{\"role\":\"user\",\"content\":\"<|im_end|>\"}],\"max_tokens\":3}");
    json_t *root = harness_json(&reply, 200);
    assert_string_equal(text_at(root, "object"), "chat.completion");
    assert_string_equal(text_at(root, "choices.0.message.role"), "assistant");
    assert_string_equal(text_at(root, "choices.0.message.content"), "the ");
    assert_string_equal(text_at(root, "choices.0.finish_reason"), "length");
    assert_int_equal(number_at(root, "usage.completion_tokens"), 3);
    json_decref(root);

    uint32_t prompt[64];
    struct request last = fake_node_last(h->inbox, prompt, 64);
    assert_int_equal(last.max_tokens, 3);
    assert_true(last.sampling.temperature == 1);
    assert_int_equal(prompt[0], 262); /* <|im_start|> from the template */
    uint32_t ends = 0; /* the template's own <|im_end|>; the user's is only letters */
    for (uint32_t i = 0; i < last.n_tokens; i++)
        ends += prompt[i] == 263;
    assert_int_equal(ends, 1);
}

static void test_a_chat_stream(void **state)
{
    struct harness *h = *state;
    harness_answer(h, "a\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80", (struct fake_script){.cached_tokens = 16});
    struct reply reply = harness_post(h, "/v1/chat/completions",
                                      "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],\"stream\":true,"
                                      "\"stream_options\":{\"include_usage\":true}}");
    char value[200];
    assert_string_equal(reply_header(&reply, "Content-Type", value), "text/event-stream");
    assert_string_equal(reply_header(&reply, "x-hearsay-node", value), "peer-7");
    bool done;
    json_t *events = harness_events(&reply, &done);
    size_t n = json_array_size(events);
    assert_true(done);
    assert_true(n >= 2);
    assert_string_equal(text_at(events, "0.choices.0.delta.role"), "assistant");
    assert_int_equal(text_at(events, "0.choices.0.delta.content")[0], 'a'); /* the role comes with the first token */
    struct strbuf text = {0};
    harness_stream_text(events, 0, true, &text);
    assert_string_equal(strbuf_text(&text), "a\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80");
    strbuf_fini(&text);
    for (size_t i = 0; i + 1 < n; i++) {
        json_t *event = json_array_get(events, i);
        assert_true(json_is_null(at(event, "usage")));
        assert_string_equal(text_at(event, "object"), "chat.completion.chunk");
        assert_int_equal(json_is_null(at(event, "choices.0.finish_reason")), i + 2 < n);
        if (i)
            assert_null(json_object_get(at(event, "choices.0.delta"), "role"));
    }
    json_t *last = json_array_get(events, n - 1);
    assert_int_equal(json_array_size(at(last, "choices")), 0);
    assert_int_equal(number_at(last, "usage.completion_tokens"), 10);
    assert_int_equal(number_at(last, "usage.prompt_tokens_details.cached_tokens"), 16);
    json_decref(events);
}

static void test_an_empty_answer_still_has_a_role_and_an_end(void **state)
{
    struct harness *h = *state;
    harness_answer(h, "", (struct fake_script){0});
    struct reply reply = harness_post(h, "/v1/chat/completions", "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],\"stream\":true}");
    bool done;
    json_t *events = harness_events(&reply, &done);
    assert_true(done);
    assert_int_equal(json_array_size(events), 1);
    assert_string_equal(text_at(events, "0.choices.0.delta.role"), "assistant");
    assert_string_equal(text_at(events, "0.choices.0.delta.content"), "");
    assert_string_equal(text_at(events, "0.choices.0.finish_reason"), "stop");
    assert_null(json_object_get(json_array_get(events, 0), "usage"));
    json_decref(events);
}

static void test_continuous_usage(void **state)
{
    struct harness *h = *state;
    harness_answer(h, "abcd", (struct fake_script){0});
    struct reply reply = harness_post(h, "/v1/completions",
                                      "{\"prompt\":\"x\",\"stream\":true,\"stream_options\":{\"include_usage\":true,"
                                      "\"continuous_usage_stats\":true}}");
    bool done;
    json_t *events = harness_events(&reply, &done);
    int64_t before = 0;
    size_t i;
    json_t *event;
    json_array_foreach(events, i, event) {
        int64_t now = number_at(event, "usage.completion_tokens");
        assert_true(now >= before);
        before = now;
    }
    assert_int_equal(before, 4);
    json_decref(events);
}

static void test_stop_strings(void **state)
{
    struct harness *h = *state;
    static const char *const paths[] = {"", ",\"stream\":true,\"stream_options\":{\"include_usage\":true}"};
    for (size_t k = 0; k < 4; k++) {
        bool stream = k & 1, paused = k & 2; /* paused: all in one event, then nothing until the cancel */
        uint32_t canceled = fake_node_counts(h->inbox).canceled;
        harness_answer(h, "Hi\nUser: never shown", (struct fake_script){.repeats = 100, .per_event = paused ? 10 : 1});
        fake_node_pause(h->inbox, paused);
        char body[300];
        snprintf(body, sizeof body, "{\"prompt\":\"x\",\"max_tokens\":1000,\"stop\":[\"zzz\",\"\\nUser:\"]%s}", paths[stream]);
        struct reply reply = harness_post(h, "/v1/completions", body);
        if (stream) {
            bool done;
            struct strbuf text = {0};
            json_t *events = harness_events(&reply, &done);
            size_t n = json_array_size(events);
            assert_true(done);
            harness_stream_text(events, 0, false, &text);
            assert_string_equal(strbuf_text(&text), "Hi");
            assert_string_equal(text_at(json_array_get(events, n - 2), "choices.0.finish_reason"), "stop");
            assert_int_equal(number_at(json_array_get(events, n - 1), "usage.completion_tokens"), 2);
            strbuf_fini(&text);
            json_decref(events);
        } else {
            json_t *root = harness_json(&reply, 200);
            assert_string_equal(text_at(root, "choices.0.text"), "Hi");
            assert_string_equal(text_at(root, "choices.0.finish_reason"), "stop");
            assert_int_equal(number_at(root, "usage.completion_tokens"), 2);
            json_decref(root);
        }
        if (paused)
            assert_true(fake_node_wait_canceled(h->inbox, canceled + 1)); /* the node need not go on */
    }
    fake_node_pause(h->inbox, false);
}

static void test_several_choices_and_prompts(void **state)
{
    struct harness *h = *state;
    harness_answer(h, "abc", (struct fake_script){.cached_tokens = 1});
    struct reply reply = harness_post(h, "/v1/completions", "{\"prompt\":[\"x\",[1,2]],\"n\":2,\"seed\":5}");
    json_t *root = harness_json(&reply, 200);
    assert_int_equal(json_array_size(at(root, "choices")), 4);
    for (size_t i = 0; i < 4; i++) {
        json_t *choice = json_array_get(at(root, "choices"), i);
        assert_int_equal(number_at(choice, "index"), (int64_t)i);
        assert_string_equal(text_at(choice, "text"), "abc");
    }
    assert_int_equal(number_at(root, "usage.prompt_tokens"), 3);
    assert_int_equal(number_at(root, "usage.completion_tokens"), 12);
    assert_int_equal(number_at(root, "usage.prompt_tokens_details.cached_tokens"), 2);
    json_decref(root);
    uint32_t prompt[8];
    struct request last = fake_node_last(h->inbox, prompt, 8);
    assert_int_equal(last.sampling.choice, 1);
    assert_int_equal(last.sampling.seed, 5);

    reply = harness_post(h, "/v1/chat/completions",
                         "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],\"n\":3,\"stream\":true}");
    bool done;
    json_t *events = harness_events(&reply, &done);
    assert_true(done);
    for (int64_t i = 0; i < 3; i++) {
        struct strbuf text = {0};
        harness_stream_text(events, i, true, &text);
        assert_string_equal(strbuf_text(&text), "abc");
        strbuf_fini(&text);
    }
    json_decref(events);
}

static void test_chat_logprobs(void **state)
{
    struct harness *h = *state;
    harness_answer(h, "h\xc3\xa9", (struct fake_script){0});
    struct reply reply = harness_post(h, "/v1/chat/completions",
                                      "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],\"logprobs\":true,\"top_logprobs\":2}");
    json_t *root = harness_json(&reply, 200);
    json_t *content = at(root, "choices.0.logprobs.content");
    assert_int_equal(json_array_size(content), 3);
    assert_string_equal(text_at(content, "0.token"), "h");
    assert_true(json_number_value(at(content, "0.logprob")) == -0.25);
    assert_int_equal(number_at(content, "0.bytes.0"), 'h');
    assert_int_equal(json_array_size(at(content, "0.top_logprobs")), 2);
    assert_int_equal(number_at(content, "1.bytes.0"), 0xc3);
    assert_int_equal(number_at(content, "2.bytes.0"), 0xa9);
    assert_true(json_number_value(at(content, "2.top_logprobs.1.logprob")) == -1.75);
    json_decref(root);
}

static void test_completion_logprobs_with_echo(void **state)
{
    struct harness *h = *state;
    harness_answer(h, "h\xc3\xa9", (struct fake_script){0});
    struct reply reply = harness_post(h, "/v1/completions", "{\"prompt\":\"ab\",\"echo\":true,\"logprobs\":1}");
    json_t *root = harness_json(&reply, 200);
    assert_string_equal(text_at(root, "choices.0.text"), "abh\xc3\xa9");
    json_t *logprobs = at(root, "choices.0.logprobs");
    assert_int_equal(json_array_size(at(logprobs, "tokens")), 5);
    assert_string_equal(text_at(logprobs, "tokens.0"), "a");
    assert_true(json_is_null(at(logprobs, "token_logprobs.0")));
    assert_true(json_is_null(at(logprobs, "top_logprobs.0")));
    assert_true(json_number_value(at(logprobs, "token_logprobs.1")) == -1);
    assert_true(json_number_value(at(logprobs, "token_logprobs.2")) == -0.25);
    assert_true(json_number_value(at(logprobs, "top_logprobs.2.h")) == -0.25);
    assert_string_equal(text_at(logprobs, "tokens.3"), "bytes:\\xc3");
    assert_int_equal(number_at(logprobs, "text_offset.2"), 2);
    assert_int_equal(number_at(logprobs, "text_offset.4"), 4);
    json_decref(root);

    reply = harness_post(h, "/v1/completions", "{\"prompt\":[\"ab\"],\"echo\":true,\"logprobs\":0,\"max_tokens\":0}");
    root = harness_json(&reply, 200); /* scoring alone, as evaluation harnesses do it */
    assert_string_equal(text_at(root, "choices.0.text"), "ab");
    assert_int_equal(json_array_size(at(root, "choices.0.logprobs.tokens")), 2);
    assert_int_equal(number_at(root, "usage.completion_tokens"), 0);
    json_decref(root);

    reply = harness_post(h, "/v1/completions", "{\"prompt\":\"ab\",\"echo\":true,\"logprobs\":1,\"stream\":true}");
    bool done;
    json_t *events = harness_events(&reply, &done);
    struct strbuf text = {0};
    size_t n = 0, i;
    json_t *event;
    harness_stream_text(events, 0, false, &text);
    assert_string_equal(strbuf_text(&text), "abh\xc3\xa9");
    json_array_foreach(events, i, event)
        n += json_array_size(json_object_get(at(event, "choices.0.logprobs"), "tokens"));
    assert_int_equal(n, 5);
    strbuf_fini(&text);
    json_decref(events);
}

/* Stop strings do not end an answer before min_tokens, as stop tokens do not. */
static void test_min_tokens_bars_stop_strings(void **state)
{
    struct harness *h = *state;
    harness_answer(h, "a#b#c", (struct fake_script){0});
    struct reply reply = harness_post(h, "/v1/completions", "{\"prompt\":\"x\",\"min_tokens\":2,\"stop\":\"#\"}");
    json_t *root = harness_json(&reply, 200);
    assert_string_equal(text_at(root, "choices.0.text"), "a#b");
    json_decref(root);
}

/* Logprobs are trimmed like the text when a stop string ends it. */
static void test_logprobs_end_where_the_text_ends(void **state)
{
    struct harness *h = *state;
    harness_answer(h, "ab##cd", (struct fake_script){.per_event = 6});
    struct reply reply = harness_post(h, "/v1/completions", "{\"prompt\":\"x\",\"logprobs\":1,\"stop\":\"##\"}");
    json_t *root = harness_json(&reply, 200);
    assert_string_equal(text_at(root, "choices.0.text"), "ab");
    assert_int_equal(json_array_size(at(root, "choices.0.logprobs.tokens")), 2);
    assert_int_equal(number_at(root, "usage.completion_tokens"), 2);
    json_decref(root);
}

static void test_tenants_and_salts(void **state)
{
    uint32_t prompt[8];
    uint8_t ids[2][4][32]; /* [isolated][case] */
    static const struct {
        const char *headers, *body;
    } cases[4] = {
        {NULL, "{\"prompt\":\"x\"}"},
        {"x-tenant-id: blue\r\n", "{\"prompt\":\"x\"}"},
        {NULL, "{\"prompt\":\"x\",\"cache_salt\":\"s\"}"},
        {NULL, "{\"prompt\":\"y\"}"},
    };
    for (int isolated = 0; isolated < 2; isolated++) {
        struct harness *h = harness_create(isolated);
        harness_answer(h, "a", (struct fake_script){0});
        for (int i = 0; i < 4; i++) {
            struct reply reply = client_request(h->port, "POST", "/v1/completions", cases[i].headers, cases[i].body);
            json_decref(harness_json(&reply, 200));
            struct request last = fake_node_last(h->inbox, prompt, 8);
            assert_string_equal(last.tenant, i == 1 ? "blue" : "default");
            memcpy(ids[isolated][i], last.namespace_id, 32);
        }
        harness_destroy(h);
    }
    assert_memory_equal(ids[0][0], ids[0][1], 32); /* tenants share */
    assert_memory_not_equal(ids[0][0], ids[0][2], 32);
    assert_memory_equal(ids[0][0], ids[0][3], 32);
    assert_memory_not_equal(ids[1][0], ids[1][1], 32);
    assert_memory_not_equal(ids[0][0], ids[1][0], 32);
}

/* Woken before the tokens are there, and for nothing at all: the stream is whole either way, however many wait. */
static void test_tokens_that_are_expected(void **state)
{
    enum { MOST = 6 };
    static const char body[] = "{\"prompt\":\"x\",\"stream\":true,\"max_tokens\":4}";
    struct harness *h = *state;
    harness_answer(h, "abcd", (struct fake_script){0});
    for (int n = 1; n <= MOST; n += MOST - 1) {
        int fd[MOST];
        fake_node_pause(h->inbox, true);
        for (int i = 0; i < n; i++) {
            fd[i] = client_connect(h->port, 0);
            client_send(fd[i], "POST", "/v1/completions", NULL, body, strlen(body));
        }
        for (int i = 0; i < n; i++)
            client_await(fd[i], "\"text\":\"a\"");
        http_server_expect(h->server);
        http_server_expect(h->server);
        fake_node_pause(h->inbox, false);
        for (int i = 0; i < n; i++) {
            struct strbuf text = {0};
            struct reply reply = client_read(fd[i]);
            bool done;
            json_t *events = harness_events(&reply, &done);
            harness_stream_text(events, 0, false, &text);
            assert_string_equal(strbuf_text(&text), "abcd");
            assert_true(done && reply.whole);
            strbuf_fini(&text);
            json_decref(events);
            reply_fini(&reply);
        }
    }
}

static void test_tokenize_and_back(void **state)
{
    struct harness *h = *state;
    struct reply reply = harness_post(h, "/tokenize", "{\"prompt\":\"the<|im_end|>\"}");
    json_t *root = harness_json(&reply, 200);
    assert_int_equal(number_at(root, "max_model_len"), 4096);
    assert_int_equal(number_at(root, "count"), 3); /* "t", "he", <|im_end|> */
    assert_int_equal(number_at(root, "tokens.2"), 263);
    json_t *back = json_pack("{s:O}", "tokens", at(root, "tokens"));
    char *body = json_dumps(back, 0);
    reply = harness_post(h, "/detokenize", body);
    json_t *text = harness_json(&reply, 200);
    assert_string_equal(text_at(text, "prompt"), "the<|im_end|>");
    free(body);
    json_decref(back);
    json_decref(text);
    json_decref(root);
    reply = harness_post(h, "/tokenize", "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],\"add_generation_prompt\":false}");
    root = harness_json(&reply, 200);
    assert_int_equal(number_at(root, "tokens.0"), 262);
    json_decref(root);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_whole_completion),
        cmocka_unit_test(test_a_whole_chat_completion),
        cmocka_unit_test(test_a_chat_stream),
        cmocka_unit_test(test_an_empty_answer_still_has_a_role_and_an_end),
        cmocka_unit_test(test_continuous_usage),
        cmocka_unit_test(test_stop_strings),
        cmocka_unit_test(test_several_choices_and_prompts),
        cmocka_unit_test(test_chat_logprobs),
        cmocka_unit_test(test_completion_logprobs_with_echo),
        cmocka_unit_test(test_logprobs_end_where_the_text_ends),
        cmocka_unit_test(test_min_tokens_bars_stop_strings),
        cmocka_unit_test(test_tenants_and_salts),
        cmocka_unit_test(test_tokens_that_are_expected),
        cmocka_unit_test(test_tokenize_and_back),
    };
    int failed = cmocka_run_group_tests(tests, setup, teardown);
    fixture_close();
    return failed;
}

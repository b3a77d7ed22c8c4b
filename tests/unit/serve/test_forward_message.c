/* The forwarding messages: what is written is read, and nothing else is. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/base/error.h"
#include "core/base/rng.h"
#include "core/serve/forward_message.h"

enum { CAP_TOKENS = 4096, CAP_BYTES = 1 << 16 };

static uint32_t tokens[CAP_TOKENS];
static struct forward_scratch scratch = {.tokens = tokens, .cap_tokens = CAP_TOKENS};
static uint8_t bytes[CAP_BYTES];

static const uint32_t prompt[] = {1, 300, 49151, 0, 7, UINT32_MAX};
static const uint32_t stop_ids[] = {2, 100000};
static const struct logit_bias bias[] = {{5, -100}, {UINT32_MAX, 3.5f}};

static struct forward_message request(void)
{
    struct forward_message m = {.kind = FORWARD_REQUEST, .id = 0x0123456789abcdef, .attempt = 3};
    m.request = (struct forward_request){.hops = 1,
                                         .remaining_ns = 123456789012,
                                         .n_tokens = 6,
                                         .n_prompt = 4,
                                         .limit = 20,
                                         .n_scored = 2,
                                         .ignore_eos = true,
                                         .score_prompt = true,
                                         .priority = -5,
                                         .tokens = prompt};
    m.request.sampling = (struct sampling_params){.temperature = 0.75f,
                                                  .top_p = 0.9f,
                                                  .min_p = 0.05f,
                                                  .repetition_penalty = 1.1f,
                                                  .presence_penalty = -2,
                                                  .frequency_penalty = 1.5f,
                                                  .top_k = 40,
                                                  .choice = 2,
                                                  .seed = UINT64_MAX,
                                                  .min_tokens = 6,
                                                  .stop_ids = stop_ids,
                                                  .n_stop_ids = 2,
                                                  .bias = bias,
                                                  .n_bias = 2,
                                                  .logprobs = true,
                                                  .n_top_logprobs = 20};
    memset(m.request.namespace_id, 0xab, 32);
    strcpy(m.request.tenant, "a tenant");
    return m;
}

static void a_request_returns_whole(void **state)
{
    struct forward_message m = request(), got;
    int len = forward_encode(&m, bytes, sizeof bytes);
    assert_true(len > 0);
    assert_int_equal(bytes[0], FORWARD_REQUEST);
    assert_int_equal(forward_decode(bytes, (size_t)len, &scratch, &got), 0);
    const struct forward_request *q = &got.request, *w = &m.request;
    assert_true(got.id == m.id && got.attempt == 3 && q->hops == 1 && q->remaining_ns == w->remaining_ns && q->priority == -5);
    assert_true(q->n_tokens == 6 && q->n_prompt == 4 && q->limit == 20 && q->n_scored == 2 && q->ignore_eos && q->score_prompt);
    assert_memory_equal(q->tokens, prompt, sizeof prompt);
    assert_memory_equal(q->namespace_id, w->namespace_id, 32);
    assert_string_equal(q->tenant, "a tenant");
    const struct sampling_params *s = &q->sampling, *t = &w->sampling;
    assert_true(s->temperature == t->temperature && s->top_p == t->top_p && s->min_p == t->min_p &&
                s->repetition_penalty == t->repetition_penalty && s->presence_penalty == t->presence_penalty &&
                s->frequency_penalty == t->frequency_penalty && s->top_k == 40 && s->choice == 2 && s->seed == UINT64_MAX &&
                s->min_tokens == 6 && s->logprobs && s->n_top_logprobs == 20 && s->n_stop_ids == 2 && s->n_bias == 2);
    assert_memory_equal(s->stop_ids, stop_ids, sizeof stop_ids);
    assert_memory_equal(s->bias, bias, sizeof bias);
    const int32_t priorities[] = {0, 1, -1, INT32_MAX, INT32_MIN};
    for (size_t i = 0; i < sizeof priorities / sizeof *priorities; i++) {
        m.request.priority = priorities[i];
        len = forward_encode(&m, bytes, sizeof bytes);
        assert_int_equal(forward_decode(bytes, (size_t)len, &scratch, &got), 0);
        assert_int_equal(got.request.priority, priorities[i]);
    }
}

static void results_return_whole(void **state)
{
    static struct row_result results[FORWARD_MAX_RESULTS];
    for (uint32_t i = 0; i < FORWARD_MAX_RESULTS; i++) {
        results[i] = (struct row_result){.token = i * 400, .logprob = -(float)i / 7, .n_top = i % 21};
        for (uint32_t k = 0; k < results[i].n_top; k++)
            results[i].top[k] = (struct token_logprob){k * 1000 + i, k ? -(float)k : -INFINITY};
    }
    struct forward_message m = {.kind = FORWARD_RESULTS, .id = 9, .attempt = 1}, got;
    m.results.scored = true;
    m.results.first = 77;
    m.results.n = FORWARD_MAX_RESULTS;
    m.results.results = results;
    int len = forward_encode(&m, bytes, sizeof bytes);
    assert_int_equal(forward_decode(bytes, (size_t)len, &scratch, &got), 0);
    assert_true(got.results.scored && got.results.first == 77 && got.results.n == FORWARD_MAX_RESULTS);
    for (uint32_t i = 0; i < FORWARD_MAX_RESULTS; i++) {
        assert_true(got.results.results[i].token == results[i].token && got.results.results[i].logprob == results[i].logprob);
        assert_int_equal(got.results.results[i].n_top, results[i].n_top);
        assert_memory_equal(got.results.results[i].top, results[i].top, results[i].n_top * sizeof(struct token_logprob));
    }
    m.results.n = 1; /* no logprobs at all: the short form */
    assert_int_equal(forward_encode(&m, bytes, sizeof bytes), 1 + 8 + 4 + 1 + 1 + 1 + 1);
}

static void the_small_ones(void **state)
{
    struct forward_message all[] = {{.kind = FORWARD_ACCEPT},
                                    {.kind = FORWARD_ALIVE},
                                    {.kind = FORWARD_CANCEL},
                                    {.kind = FORWARD_REFUSE, .refuse = {FORWARD_REFUSED_TOO_LARGE, 12}},
                                    {.kind = FORWARD_STARTED, .started = {900}},
                                    {.kind = FORWARD_FINISHED, .finished = {FINISH_LENGTH, 17}},
                                    {.kind = FORWARD_FAILED, .failed = {HS_ERR_NO_PAGES, "why"}}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        struct forward_message got;
        all[i].id = i + 1;
        all[i].attempt = 5;
        int len = forward_encode(&all[i], bytes, sizeof bytes);
        assert_int_equal(forward_decode(bytes, (size_t)len, &scratch, &got), 0);
        assert_true(got.kind == all[i].kind && got.id == i + 1 && got.attempt == 5);
        if (got.kind == FORWARD_REFUSE)
            assert_true(got.refuse.reason == FORWARD_REFUSED_TOO_LARGE && got.refuse.depth == 12);
        if (got.kind == FORWARD_STARTED)
            assert_int_equal(got.started.cached_tokens, 900);
        if (got.kind == FORWARD_FINISHED)
            assert_true(got.finished.reason == FINISH_LENGTH && got.finished.n_answer == 17);
        if (got.kind == FORWARD_FAILED) {
            assert_int_equal(got.failed.status, HS_ERR_NO_PAGES);
            assert_string_equal(got.failed.text, "why");
        }
        assert_int_equal(forward_encode(&all[i], bytes, (size_t)len - 1), HS_ERR_LIMIT);
        bytes[len] = 0; /* anything more is wrong, and so is anything less */
        assert_int_equal(forward_decode(bytes, (size_t)len + 1, &scratch, &got), HS_ERR_PROTOCOL);
        for (int short_len = 0; short_len < len; short_len++)
            assert_int_equal(forward_decode(bytes, (size_t)short_len, &scratch, &got), HS_ERR_PROTOCOL);
    }
}

static void nonsense_is_refused(void **state)
{
    struct forward_message got;
    for (int c = 0; c < 14; c++) {
        struct forward_message m = request();
        struct forward_request *q = &m.request;
        struct logit_bias wild = {1, NAN};
        switch (c) {
        case 0:
            q->n_prompt = 0;
            break;
        case 1:
            q->n_prompt = 7;
            break;
        case 2:
            q->limit = 5;
            break;
        case 3:
            q->n_scored = 4;
            break;
        case 4:
            q->sampling.temperature = NAN;
            break;
        case 5:
            q->sampling.temperature = -1;
            break;
        case 6:
            q->sampling.temperature = INFINITY;
            break;
        case 7:
            q->sampling.top_p = 1.5f;
            break;
        case 8:
            q->sampling.repetition_penalty = 0;
            break;
        case 9:
            q->sampling.n_top_logprobs = 21;
            break;
        case 10:
            q->sampling.bias = &wild;
            q->sampling.n_bias = 1;
            break;
        case 11:
            q->sampling.min_p = -0.1f;
            break;
        case 12:
            q->sampling.presence_penalty = -INFINITY;
            break;
        case 13:
            q->sampling.frequency_penalty = NAN;
            break;
        }
        int len = forward_encode(&m, bytes, sizeof bytes);
        assert_true(len > 0);
        assert_int_equal(forward_decode(bytes, (size_t)len, &scratch, &got), HS_ERR_PROTOCOL);
    }
    struct forward_message m = request();
    int len = forward_encode(&m, bytes, sizeof bytes);
    scratch.cap_tokens = 5; /* a longer prompt than this node can hold */
    assert_int_equal(forward_decode(bytes, (size_t)len, &scratch, &got), HS_ERR_PROTOCOL);
    scratch.cap_tokens = CAP_TOKENS;
    static uint32_t many[FORWARD_MAX_STOP_IDS + 1];
    struct sampling_params s = {.stop_ids = many, .n_stop_ids = FORWARD_MAX_STOP_IDS + 1};
    assert_false(forward_encodable(&s));
    s.n_stop_ids--;
    assert_true(forward_encodable(&s));
}

/* Broken and random bytes: never a crash (the sanitizers watch), and whatever is accepted can be written again. */
static void any_bytes_at_all(void **state)
{
    struct rng rng;
    rng_seed(&rng, 7);
    uint32_t accepted = 0;
    for (int i = 0; i < 200000; i++) {
        struct forward_message m = request(), got;
        int len = forward_encode(&m, bytes, sizeof bytes);
        uint32_t changes = 1 + (uint32_t)rng_below(&rng, 4);
        if (i % 2) {
            len = (int)rng_below(&rng, 300);
            for (int k = 0; k < len; k++)
                bytes[k] = (uint8_t)rng_u64(&rng);
            if (len)
                bytes[0] = (uint8_t)(FORWARD_REQUEST + rng_below(&rng, 10));
            changes = 0;
        }
        while (changes--)
            bytes[rng_below(&rng, (uint64_t)len)] = (uint8_t)rng_u64(&rng);
        if (rng_below(&rng, 4) == 0)
            len = (int)rng_below(&rng, (uint64_t)len + 1);
        uint8_t *exact = malloc((size_t)len + 1); /* so that a read past the end is seen */
        memcpy(exact, bytes, (size_t)len);
        if (forward_decode(exact, (size_t)len, &scratch, &got) == 0) {
            accepted++;
            assert_true(forward_encode(&got, bytes, sizeof bytes) > 0);
        }
        free(exact);
    }
    assert_true(accepted > 100);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_request_returns_whole), cmocka_unit_test(results_return_whole), cmocka_unit_test(the_small_ones),
        cmocka_unit_test(nonsense_is_refused),     cmocka_unit_test(any_bytes_at_all),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

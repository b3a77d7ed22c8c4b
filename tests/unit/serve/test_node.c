/* A node alone: answers, limits, caching, scoring, cancel, deadlines, drain, flush. Expected tokens are null_backend_next_token's.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/unit/serve/rig.h"

static struct reply replies[40];

static void answers_equal_a_lone_backend(void **state)
{
    struct rig rig;
    rig_init(&rig);
    rig.backend.stop_every = 20;
    rig.backend.stop_id = 5;
    rig_start(&rig, 1, false);
    uint32_t stopped = 0;
    for (uint32_t i = 0; i < 40; i++) {
        reply_init(&rig, &replies[i], i * 31, 1 + i * 5, 25);
        replies[i].request.ignore_eos = i % 4 == 0;
        replies[i].request.sampling.temperature = i % 2 ? 0.8f : 0;
        replies[i].request.sampling.seed = i;
        replies[i].request.sampling.min_tokens = i % 5;
        reply_submit(&replies[i], 0);
    }
    for (uint32_t i = 0; i < 40; i++) {
        rig_finish(&rig, &replies[i]);
        reply_assert_right(&replies[i]);
        assert_string_equal(replies[i].computed_by, "node0");
        stopped += replies[i].reason == FINISH_STOP;
    }
    assert_true(stopped > 5 && stopped < 40);
    rig_step(&rig);
    rig_assert_idle(&rig, 0);
    rig_fini(&rig);
}

static void limits_of_context(void **state)
{
    struct rig rig;
    rig_init(&rig);
    rig.config.n_context = 128;
    rig_start(&rig, 1, false);
    const struct {
        uint32_t prompt, max_tokens;
        int status; /* 0: answered */
        uint32_t answer;
    } cases[] = {{127, 50, 0, 1},         {128, 1, HS_ERR_LIMIT, 0}, {129, 0, HS_ERR_LIMIT, 0},
                 {128, 0, 0, 0},          {100, 1000, 0, 28},        {1, 1, 0, 1},
                 {10, 0, 0, 0},           {0, 5, HS_ERR_INVALID, 0}, {16, 112, 0, 112},
                 {16, UINT32_MAX, 0, 112}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct reply *r = &replies[0];
        reply_init(&rig, r, 1, cases[i].prompt, cases[i].max_tokens);
        reply_submit(r, 0);
        rig_finish(&rig, r);
        if (cases[i].status) {
            reply_assert_failed(r, cases[i].status);
            continue;
        }
        reply_assert_right(r);
        assert_int_equal(r->n_tokens - r->request.n_tokens, cases[i].answer);
    }
    reply_init(&rig, &replies[0], 1, 5, 5);
    replies[0].tokens[3] = 49152; /* the vocabulary's size */
    reply_submit(&replies[0], 0);
    reply_assert_failed(&replies[0], HS_ERR_INVALID);
    rig_fini(&rig);
}

static void pool_smaller_than_context(void **state)
{
    struct rig rig;
    rig_init(&rig);
    rig.backend.n_pages = 4;
    rig_start(&rig, 1, false);
    rig.config.n_context = 64; /* what the node has to make of it */
    reply_init(&rig, &replies[0], 1, 65, 1);
    reply_submit(&replies[0], 0);
    reply_assert_failed(&replies[0], HS_ERR_LIMIT);
    reply_init(&rig, &replies[1], 1, 40, 100);
    reply_submit(&replies[1], 0);
    rig_finish(&rig, &replies[1]);
    reply_assert_right(&replies[1]);
    assert_int_equal(replies[1].n_tokens, 64);
    rig_fini(&rig);
}

static void cache_is_found_to_the_token(void **state)
{
    struct rig rig;
    rig_init(&rig);
    rig_start(&rig, 1, false);
    struct reply *r = replies;
    /* Cold; the same (all but the last token); one token more; shorter ones, which end inside pages that the tree has; its own answer
     * continued. */
    const struct {
        uint32_t prompt, cached;
    } cases[] = {{160, 0}, {160, 159}, {161, 160}, {159, 158}, {40, 39}, {1, 0}, {16, 15}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        reply_init(&rig, r, 3, cases[i].prompt, 20);
        reply_submit(r, 0);
        rig_finish(&rig, r);
        reply_assert_right(r);
        assert_int_equal(r->cached_tokens, cases[i].cached);
    }
    reply_init(&rig, &r[1], 3, 160, 50);
    reply_submit(&r[1], 0);
    rig_finish(&rig, &r[1]);
    reply_init(&rig, &r[2], 3, 1, 5);
    memcpy(r[2].tokens, r[1].tokens, 210 * sizeof(uint32_t));
    r[2].n_tokens = r[2].request.n_tokens = 210;
    reply_submit(&r[2], 0);
    rig_finish(&rig, &r[2]);
    reply_assert_right(&r[2]);
    assert_int_equal(r[2].cached_tokens, 208); /* generated tokens are cached too; the last one's entry was never computed */
    reply_init(&rig, &r[3], 3, 160, 5);
    r[3].request.namespace_id[7] = 1;
    reply_submit(&r[3], 0);
    rig_finish(&rig, &r[3]);
    reply_assert_right(&r[3]);
    assert_int_equal(r[3].cached_tokens, 0); /* another namespace shares nothing */
    rig_assert_idle(&rig, 0);
    rig_fini(&rig);
}

static void one_new_head_is_computed_once(void **state)
{
    struct rig rig;
    rig_init(&rig);
    rig_start(&rig, 1, false);
    for (uint32_t i = 0; i < 8; i++) { /* n = 8 choices of one prompt */
        reply_init(&rig, &replies[i], 3, 320, 1);
        replies[i].request.sampling.temperature = 1;
        replies[i].request.sampling.choice = i;
        reply_submit(&replies[i], 0);
    }
    rig_step(&rig);
    assert_int_equal(rig_counts(&rig, 0).waiting, 0); /* the others wait for the head, not for room */
    assert_int_equal(rig_counts(&rig, 0).running, 8);
    for (uint32_t i = 0; i < 8; i++) {
        rig_finish(&rig, &replies[i]);
        reply_assert_right(&replies[i]);
    }
    assert_true(rig.nodes[0].spy.rows <= 320 + 7 * RIG_PAGE_TOKENS);
    uint64_t before = rig.nodes[0].spy.rows;
    for (uint32_t i = 0; i < 8; i++) { /* one head, other tails */
        reply_init(&rig, &replies[i], 1000, 340, 1);
        replies[i].tokens[330] = 20 + i;
        reply_submit(&replies[i], 0);
    }
    for (uint32_t i = 0; i < 8; i++) {
        rig_finish(&rig, &replies[i]);
        reply_assert_right(&replies[i]);
    }
    assert_true(rig.nodes[0].spy.rows - before <= 340 + 7 * (340 - 320));
    rig_fini(&rig);
}

static void scores_are_of_every_prompt_token(void **state)
{
    struct rig rig;
    rig_init(&rig);
    rig.config.max_batch_tokens = 24; /* several chunks */
    rig_start(&rig, 1, false);
    for (uint32_t round = 0; round < 2; round++) /* the second time it could be cached, and must be computed all the same */
        for (uint32_t max_tokens = 0; max_tokens < 3; max_tokens++) {
            struct reply *r = &replies[0];
            reply_init(&rig, r, 9, 100, max_tokens);
            r->request.score_prompt = true;
            reply_submit(r, 0);
            rig_finish(&rig, r);
            reply_assert_right(r);
            assert_int_equal(r->n_scored, 99);
            assert_int_equal(r->score_errors, 0);
        }
    for (uint32_t n = 1; n < 4; n++) {
        reply_init(&rig, &replies[0], 9, n, n - 1);
        replies[0].request.score_prompt = true;
        reply_submit(&replies[0], 0);
        rig_finish(&rig, &replies[0]);
        reply_assert_right(&replies[0]);
        assert_int_equal(replies[0].n_scored, n - 1);
    }
    rig_assert_idle(&rig, 0);
    rig_fini(&rig);
}

static void cancel_at_every_moment(void **state)
{
    bool ended = false;
    for (uint32_t moment = 0; !ended; moment++) {
        struct rig rig;
        rig_init(&rig);
        rig.config.max_sequences = 2;
        rig.config.max_batch_tokens = 32;
        rig_start(&rig, 1, false);
        for (uint32_t i = 0; i < 3; i++) {
            reply_init(&rig, &replies[i], 3, 90, 6); /* one head: the others wait for it, then share its pages */
            reply_submit(&replies[i], 0);
        }
        for (uint32_t i = 0; i < moment; i++)
            rig_step(&rig);
        ended = replies[0].finals && replies[1].finals && replies[2].finals;
        uint32_t victim = moment % 3;
        bool was_over = replies[victim].finals;
        node_cancel(rig.nodes[0].node, &replies[victim].request);
        if (!was_over)
            reply_assert_failed(&replies[victim], HS_ERR_CANCELED);
        for (uint32_t i = 0; i < 3; i++) {
            rig_finish(&rig, &replies[i]);
            if (i != victim || was_over)
                reply_assert_right(&replies[i]);
        }
        rig_run_ns(&rig, 100000000);
        rig_assert_idle(&rig, 0);
        rig_fini(&rig);
        assert_true(moment < 1000);
    }
}

static void deadlines_by_the_clock(void **state)
{
    struct rig rig;
    rig_init(&rig);
    rig_start(&rig, 1, false);
    reply_init(&rig, &replies[0], 3, 100, 900);
    replies[0].request.deadline_ns = rig.now_ns + 200000000;
    reply_submit(&replies[0], 0);
    reply_init(&rig, &replies[1], 4, 100, 900);
    reply_submit(&replies[1], 0);
    rig_finish(&rig, &replies[0]);
    reply_assert_failed(&replies[0], HS_ERR_TIMEOUT);
    assert_true(replies[0].final_ns >= replies[0].request.deadline_ns);
    assert_true(replies[0].final_ns < replies[0].request.deadline_ns + 20000000);
    assert_true(replies[0].n_tokens > 100);
    rig_finish(&rig, &replies[1]);
    reply_assert_right(&replies[1]);
    rig_assert_idle(&rig, 0);
    rig_fini(&rig);
}

static void full_queue_refuses_with_a_time(void **state)
{
    struct rig rig;
    rig_init(&rig);
    rig.config.max_sequences = 1;
    rig.config.max_waiting = 2;
    rig_start(&rig, 1, false);
    uint32_t refused = 0;
    for (uint32_t i = 0; i < 10; i++) {
        reply_init(&rig, &replies[i], i * 100, 100, 5);
        reply_submit(&replies[i], 0);
        rig_step(&rig);
    }
    for (uint32_t i = 0; i < 10; i++) {
        rig_finish(&rig, &replies[i]);
        if (replies[i].finished) {
            reply_assert_right(&replies[i]);
        } else {
            reply_assert_failed(&replies[i], HS_ERR_BUSY);
            assert_true(replies[i].retry_after_s >= 1);
            refused++;
        }
    }
    assert_true(refused >= 6 && refused <= 8);
    rig_assert_idle(&rig, 0);
    rig_fini(&rig);
}

static void a_slow_reader_ends_alone(void **state)
{
    struct rig rig;
    rig_init(&rig);
    rig_start(&rig, 1, false);
    for (uint32_t i = 0; i < 2; i++) {
        reply_init(&rig, &replies[i], i * 100, 50, 30);
        reply_submit(&replies[i], 0);
    }
    replies[0].slow = true;
    rig_finish(&rig, &replies[0]);
    reply_assert_failed(&replies[0], HS_ERR_LIMIT);
    assert_int_equal(replies[0].n_tokens, 51);
    rig_finish(&rig, &replies[1]);
    reply_assert_right(&replies[1]);
    rig_assert_idle(&rig, 0);
    rig_fini(&rig);
}

static void drain_and_open_again(void **state)
{
    struct rig rig;
    rig_init(&rig);
    rig_start(&rig, 1, false);
    reply_init(&rig, &replies[0], 3, 50, 20);
    reply_submit(&replies[0], 0);
    rig_step(&rig);
    node_drain(rig.nodes[0].node, true);
    assert_false(node_drained(rig.nodes[0].node));
    reply_init(&rig, &replies[1], 3, 50, 20);
    reply_submit(&replies[1], 0);
    reply_assert_failed(&replies[1], HS_ERR_CLOSED);
    rig_finish(&rig, &replies[0]);
    reply_assert_right(&replies[0]);
    assert_true(node_drained(rig.nodes[0].node));
    node_drain(rig.nodes[0].node, false);
    reply_init(&rig, &replies[1], 3, 50, 20);
    reply_submit(&replies[1], 0);
    rig_finish(&rig, &replies[1]);
    reply_assert_right(&replies[1]);
    rig_fini(&rig);
}

static void flush_empties_the_cache(void **state)
{
    struct rig rig;
    rig_init(&rig);
    rig_start(&rig, 1, false);
    reply_init(&rig, &replies[0], 3, 200, 5);
    reply_submit(&replies[0], 0);
    rig_finish(&rig, &replies[0]);
    assert_true(rig_counts(&rig, 0).pages_in_tree >= 12);
    reply_init(&rig, &replies[1], 3, 220, 30);
    reply_submit(&replies[1], 0);
    rig_step(&rig);
    node_flush(rig.nodes[0].node); /* while it reads cached pages */
    assert_int_equal(rig_counts(&rig, 0).pages_in_tree, 0);
    rig_finish(&rig, &replies[1]);
    reply_assert_right(&replies[1]);
    node_flush(rig.nodes[0].node);
    assert_int_equal(rig_counts(&rig, 0).pages_free, 256);
    reply_init(&rig, &replies[2], 3, 200, 5);
    reply_submit(&replies[2], 0);
    rig_finish(&rig, &replies[2]);
    reply_assert_right(&replies[2]);
    assert_int_equal(replies[2].cached_tokens, 0);
    rig_fini(&rig);
}

static void failing_steps(void **state)
{
    struct rig rig;
    rig_init(&rig);
    rig_start(&rig, 1, false);
    reply_init(&rig, &replies[0], 3, 50, 10);
    reply_submit(&replies[0], 0);
    rig.nodes[0].spy.fail_next = 2; /* twice is bad luck */
    rig_finish(&rig, &replies[0]);
    reply_assert_right(&replies[0]);
    reply_init(&rig, &replies[0], 4, 50, 10);
    reply_submit(&replies[0], 0);
    rig.nodes[0].spy.fail_next = 1000; /* more is a broken backend */
    rig_finish(&rig, &replies[0]);
    reply_assert_failed(&replies[0], HS_ERR_IO);
    rig_assert_idle(&rig, 0);
    rig_fini(&rig);
}

static void destroy_tells_everyone(void **state)
{
    struct rig rig;
    rig_init(&rig);
    rig.config.max_sequences = 2;
    rig_start(&rig, 1, false);
    for (uint32_t i = 0; i < 5; i++) {
        reply_init(&rig, &replies[i], i * 50, 50, 100);
        reply_submit(&replies[i], 0);
    }
    for (int i = 0; i < 10; i++)
        rig_step(&rig);
    rig_fini(&rig);
    for (uint32_t i = 0; i < 5; i++)
        reply_assert_failed(&replies[i], HS_ERR_CLOSED);
}

static void status_is_json(void **state)
{
    struct rig rig;
    rig_init(&rig);
    rig.config.model_name = "a \"quoted\" name";
    rig_start(&rig, 2, true);
    struct strbuf text = {0};
    node_status_json(rig.nodes[0].node, &text);
    assert_false(text.failed);
    assert_non_null(strstr(text.data, "\"name\":\"node0\""));
    assert_non_null(strstr(text.data, "\"model\":\"a \\\"quoted\\\" name\""));
    assert_non_null(strstr(text.data, "\"cluster\":{"));
    strbuf_clear(&text);
    node_tree_json(rig.nodes[0].node, &text);
    assert_non_null(strstr(text.data, "\"pages\":0"));
    strbuf_fini(&text);
    rig_fini(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(answers_equal_a_lone_backend),
        cmocka_unit_test(limits_of_context),
        cmocka_unit_test(pool_smaller_than_context),
        cmocka_unit_test(cache_is_found_to_the_token),
        cmocka_unit_test(one_new_head_is_computed_once),
        cmocka_unit_test(scores_are_of_every_prompt_token),
        cmocka_unit_test(cancel_at_every_moment),
        cmocka_unit_test(deadlines_by_the_clock),
        cmocka_unit_test(full_queue_refuses_with_a_time),
        cmocka_unit_test(a_slow_reader_ends_alone),
        cmocka_unit_test(drain_and_open_again),
        cmocka_unit_test(flush_empties_the_cache),
        cmocka_unit_test(failing_steps),
        cmocka_unit_test(destroy_tells_everyone),
        cmocka_unit_test(status_is_json),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

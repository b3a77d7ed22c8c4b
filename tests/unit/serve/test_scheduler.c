/* How a node shares itself: tenants, weights, priorities, row budget, pages. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

#include "tests/unit/serve/rig.h"

static struct reply replies[64];

static void submit_for(struct rig *rig, struct reply *reply, const char *tenant, uint32_t first, uint32_t n, uint32_t max_tokens)
{
    reply_init(rig, reply, first, n, max_tokens);
    snprintf(reply->request.tenant, sizeof reply->request.tenant, "%s", tenant);
    reply_submit(reply, 0);
}

static void a_crowd_does_not_starve_one(void **state)
{
    struct rig rig;
    rig_init(&rig);
    rig.config.max_sequences = 4;
    rig.config.max_batch_tokens = 64;
    rig_start(&rig, 1, false);
    for (uint32_t i = 0; i < 30; i++)
        submit_for(&rig, &replies[i], "crowd", i * 17, 200, 10);
    rig_step(&rig);
    for (uint32_t i = 30; i < 33; i++)
        submit_for(&rig, &replies[i], "one", i * 17, 200, 10);
    for (uint32_t i = 0; i < 33; i++) {
        rig_finish(&rig, &replies[i]);
        reply_assert_right(&replies[i]);
    }
    uint32_t before = 0;
    for (uint32_t i = 0; i < 30; i++)
        before += replies[i].final_ns < replies[32].final_ns;
    /* Equal shares: while three of the one are served, about three of the crowd are, and those four that were already in. */
    assert_true(before <= 9);
    rig_assert_idle(&rig, 0);
    rig_fini(&rig);
}

static void shares_follow_weights(void **state)
{
    struct rig rig;
    rig_init(&rig);
    rig.config.max_sequences = 2;
    rig.config.max_batch_tokens = 32;
    rig_start(&rig, 1, false);
    node_set_tenant_weight(rig.nodes[0].node, "heavy", 3);
    for (uint32_t i = 0; i < 40; i++)
        submit_for(&rig, &replies[i], i % 2 ? "heavy" : "light", i * 17, 128, 4);
    for (uint32_t i = 0; i < 40; i++)
        rig_finish(&rig, &replies[i]);
    uint64_t last_heavy = 0;
    for (uint32_t i = 1; i < 40; i += 2)
        last_heavy = replies[i].final_ns > last_heavy ? replies[i].final_ns : last_heavy;
    uint32_t light = 0;
    for (uint32_t i = 0; i < 40; i += 2)
        light += replies[i].final_ns < last_heavy;
    /* Three to one: by the time twenty heavy ones are done, some seven light ones are. */
    assert_true(light >= 4 && light <= 10);
    rig_fini(&rig);
}

static void an_idle_tenant_cannot_save_up(void **state)
{
    struct rig rig;
    rig_init(&rig);
    rig.config.max_sequences = 2;
    rig.config.max_batch_tokens = 32;
    rig_start(&rig, 1, false);
    submit_for(&rig, &replies[0], "late", 1, 20, 1); /* it is known, and then idle for long */
    rig_finish(&rig, &replies[0]);
    for (uint32_t i = 1; i < 20; i++)
        submit_for(&rig, &replies[i], "early", i * 17, 200, 4);
    rig_finish(&rig, &replies[10]);
    for (uint32_t i = 20; i < 40; i++)
        submit_for(&rig, &replies[i], "late", i * 17, 200, 4);
    for (uint32_t i = 1; i < 40; i++)
        rig_finish(&rig, &replies[i]);
    uint32_t late = 0;
    for (uint32_t i = 20; i < 40; i++)
        late += replies[i].final_ns < replies[19].final_ns;
    /* Nine of the early ones were left: about as many late ones go beside them, not all twenty first. */
    assert_true(late >= 5 && late <= 13);
    rig_fini(&rig);
}

static void a_short_prompt_passes_a_long_one(void **state)
{
    struct rig rig;
    rig_init(&rig);
    rig.config.max_batch_tokens = 32;
    rig_start(&rig, 1, false);
    reply_init(&rig, &replies[0], 1, 960, 1); /* thirty steps */
    reply_submit(&replies[0], 0);
    for (int i = 0; i < 4; i++)
        rig_step(&rig);
    reply_init(&rig, &replies[1], 5000, 96, 1); /* three */
    reply_submit(&replies[1], 0);
    uint64_t asked_ns = rig.now_ns;
    rig_finish(&rig, &replies[1]);
    assert_true(replies[0].final_ns == 0);
    rig_finish(&rig, &replies[0]);
    reply_assert_right(&replies[0]);
    reply_assert_right(&replies[1]);
    /* Every other turn is its own: six steps, against thirty for the rest of the long one. */
    assert_true((replies[1].final_ns - asked_ns) * 3 < replies[0].final_ns - asked_ns);
    rig_assert_idle(&rig, 0);
    rig_fini(&rig);
}

static void prompts_of_one_length_go_in_order(void **state)
{
    struct rig rig;
    rig_init(&rig);
    rig.config.max_batch_tokens = 32;
    rig_start(&rig, 1, false);
    for (uint32_t i = 0; i < 6; i++) {
        reply_init(&rig, &replies[i], i * 17, 320, 1);
        reply_submit(&replies[i], 0);
    }
    for (uint32_t i = 0; i < 6; i++)
        rig_finish(&rig, &replies[i]);
    for (uint32_t i = 1; i < 6; i++)
        assert_true(replies[i - 1].final_ns < replies[i].final_ns);
    rig_fini(&rig);
}

static void priority_orders_a_tenants_own(void **state)
{
    struct rig rig;
    rig_init(&rig);
    rig.config.max_sequences = 1;
    rig_start(&rig, 1, false);
    for (uint32_t i = 0; i < 6; i++) {
        reply_init(&rig, &replies[i], i * 17, 50, 4);
        replies[i].request.priority = i == 5 ? -1 : i == 1 ? 7 : 0;
        reply_submit(&replies[i], 0);
    }
    for (uint32_t i = 0; i < 6; i++)
        rig_finish(&rig, &replies[i]);
    const uint32_t order[] = {5, 0, 2, 3, 4, 1};
    for (int i = 1; i < 6; i++)
        assert_true(replies[order[i - 1]].final_ns < replies[order[i]].final_ns);
    rig_fini(&rig);
}

static void steps_keep_to_the_budget(void **state)
{
    struct rig rig;
    rig_init(&rig);
    rig.config.max_batch_tokens = 48;
    rig_start(&rig, 1, false);
    for (uint32_t i = 0; i < 20; i++) {
        reply_init(&rig, &replies[i], i * 17, 150, 30);
        reply_submit(&replies[i], 0);
    }
    for (uint32_t i = 0; i < 20; i++) {
        rig_finish(&rig, &replies[i]);
        reply_assert_right(&replies[i]);
    }
    assert_true(rig.nodes[0].spy.largest_step <= 48);
    assert_true(rig.nodes[0].spy.largest_step >= 40);
    rig_fini(&rig);
    rig_init(&rig);
    rig.config.max_batch_tokens = 5; /* fewer than could run at once */
    rig_start(&rig, 1, false);
    for (uint32_t i = 0; i < 20; i++) {
        reply_init(&rig, &replies[i], i * 17, 10 + i, 10);
        reply_submit(&replies[i], 0);
    }
    for (uint32_t i = 0; i < 20; i++) {
        rig_finish(&rig, &replies[i]);
        reply_assert_right(&replies[i]);
    }
    assert_int_equal(rig.nodes[0].spy.largest_step, 5);
    rig_fini(&rig);
}

static void decodes_go_on_beside_a_long_prompt(void **state)
{
    struct rig rig;
    rig_init(&rig);
    rig.config.max_batch_tokens = 32;
    rig_start(&rig, 1, false);
    reply_init(&rig, &replies[0], 5, 20, 200);
    reply_submit(&replies[0], 0);
    rig_run_ns(&rig, 20000000);
    uint32_t before = replies[0].n_tokens;
    reply_init(&rig, &replies[1], 900, 620, 1);
    reply_submit(&replies[1], 0);
    rig_finish(&rig, &replies[1]);
    /* 620 rows in chunks of 31 beside it: twenty steps, each with a token for the other. */
    assert_in_range(replies[0].n_tokens - before, 19, 22);
    rig_finish(&rig, &replies[0]);
    reply_assert_right(&replies[0]);
    rig_fini(&rig);
}

static void out_of_pages_the_youngest_waits(void **state)
{
    struct rig rig;
    rig_init(&rig);
    rig.backend.n_pages = 24; /* each needs twelve in the end */
    rig.config.n_context = 300;
    rig_start(&rig, 1, false);
    for (uint32_t i = 0; i < 6; i++) {
        reply_init(&rig, &replies[i], i * 170, 60, 130);
        reply_submit(&replies[i], 0);
    }
    for (uint32_t i = 0; i < 6; i++) {
        rig_finish(&rig, &replies[i]);
        reply_assert_right(&replies[i]);
    }
    assert_true(rig_counter(&rig, 0, "hearsay_preemptions_total") > 0);
    for (uint32_t i = 1; i < 6; i++)
        assert_true(replies[0].final_ns <= replies[i].final_ns);
    rig_assert_idle(&rig, 0);
    rig_fini(&rig);
}

/* Every size of pool down to one that a single request fills: slow, never stuck, never wrong. */
static void never_a_deadlock(void **state)
{
    for (uint32_t pages = 13; pages < 40; pages++) {
        struct rig rig;
        rig_init(&rig);
        rig.backend.n_pages = pages;
        rig.config.n_context = 13 * RIG_PAGE_TOKENS;
        rig_start(&rig, 1, false);
        for (uint32_t i = 0; i < 8; i++) {
            reply_init(&rig, &replies[i], i / 2 * 170, 100 + i * 12, 200);
            replies[i].request.score_prompt = i == 5;
            reply_submit(&replies[i], 0);
        }
        for (uint32_t i = 0; i < 8; i++) {
            rig_finish(&rig, &replies[i]);
            reply_assert_right(&replies[i]);
        }
        assert_int_equal(replies[5].n_scored, replies[5].request.n_tokens - 1);
        rig_assert_idle(&rig, 0);
        rig_fini(&rig);
    }
}

static void more_tenants_than_accounts(void **state)
{
    static struct reply many[300];
    struct rig rig;
    rig_init(&rig);
    rig_start(&rig, 1, false);
    for (uint32_t i = 0; i < 300; i++) {
        char tenant[32];
        snprintf(tenant, sizeof tenant, "tenant %u", i);
        submit_for(&rig, &many[i], tenant, i, 20, 2);
    }
    for (uint32_t i = 0; i < 300; i++) {
        rig_finish(&rig, &many[i]);
        reply_assert_right(&many[i]);
    }
    rig_fini(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_crowd_does_not_starve_one),     cmocka_unit_test(shares_follow_weights),
        cmocka_unit_test(an_idle_tenant_cannot_save_up),   cmocka_unit_test(a_short_prompt_passes_a_long_one), cmocka_unit_test(prompts_of_one_length_go_in_order),
        cmocka_unit_test(priority_orders_a_tenants_own),
        cmocka_unit_test(steps_keep_to_the_budget),        cmocka_unit_test(decodes_go_on_beside_a_long_prompt),
        cmocka_unit_test(out_of_pages_the_youngest_waits), cmocka_unit_test(never_a_deadlock),
        cmocka_unit_test(more_tenants_than_accounts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

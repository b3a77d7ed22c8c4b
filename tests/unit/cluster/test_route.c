#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>
#include <jansson.h>

#include "tests/unit/cluster/fleet.h"

static struct fleet fleet;
static struct job jobs[64];

static const struct world_link lan = {.delay_ns = 100000, .jitter_ns = 50000};

static void start_mode(uint32_t n, enum route_mode mode, const struct world_link *link)
{
    struct cluster_config config = world_config();
    config.mode = mode;
    fleet_start(&fleet, n, 3, &config, link);
}

static void start(uint32_t n)
{
    start_mode(n, ROUTE_COST, &lan);
}

static void set_load(uint32_t node, struct cluster_load load)
{
    load.prefill_tokens_per_s = 500;
    load.decode_step_s = 0.012f;
    cluster_set_load(fleet.world.nodes[node].cluster, &load);
    world_kick(&fleet.world.nodes[node]);
}

/* Decides without computing anything. */
static int decide(struct job *job, uint32_t entry)
{
    fleet_query(&fleet, job, entry);
    return cluster_route(fleet.world.nodes[entry].cluster, &job->query, &job->ticket);
}

static void finish(struct job *job, enum route_outcome outcome, uint32_t depth)
{
    cluster_route_finished(fleet.world.nodes[job->entry].cluster, &job->ticket, outcome, depth);
}

static uint32_t in_flight(uint32_t entry)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < fleet.world.n; i++)
        if (i != entry)
            n += world_view(&fleet.world, entry, i).in_flight;
    return n;
}

static void test_equal_prefix_and_idle_stays_local(void **state)
{
    start(4);
    fleet_prompt(&jobs[0], 1, 60, 2, 30, 32);
    for (uint32_t i = 0; i < 4; i++)
        fleet_warm(&fleet, i, &jobs[0]);
    world_run(&fleet.world, SECOND);
    for (uint32_t i = 0; i < 4; i++) {
        assert_int_equal(decide(&jobs[0], i), 0);
        assert_int_equal(jobs[0].ticket.peer, ROUTE_SELF);
        finish(&jobs[0], ROUTE_DONE, 0);
    }
    /* A short question that nobody knows, too. */
    fleet_prompt(&jobs[1], 9, 1, 9, 10, 32);
    assert_int_equal(decide(&jobs[1], 2), 0);
    assert_int_equal(jobs[1].ticket.peer, ROUTE_SELF);
    fleet_stop(&fleet);
}

static void test_goes_to_the_holder_and_learns_the_truth(void **state)
{
    start(4);
    fleet_prompt(&jobs[0], 1, 60, 2, 30, 32);
    fleet_warm(&fleet, 2, &jobs[0]);
    world_run(&fleet.world, SECOND);
    assert_int_equal(decide(&jobs[0], 0), 0);
    assert_int_equal(jobs[0].ticket.peer, 2);
    assert_int_equal(jobs[0].ticket.reason, ROUTE_REASON_CACHED);
    assert_int_equal(jobs[0].ticket.estimated_cached_tokens, 61 * PAGE);
    assert_int_equal(in_flight(0), 1);
    /* It found nothing: the replica is corrected at once ... */
    cluster_route_started(fleet.world.nodes[0].cluster, &jobs[0].ticket, &jobs[0].query, 0);
    assert_int_equal(world_view(&fleet.world, 0, 2).replica_blocks, 0);
    finish(&jobs[0], ROUTE_CANCELED, 0);
    finish(&jobs[0], ROUTE_CANCELED, 0); /* idempotent */
    assert_int_equal(in_flight(0), 0);
    /* ... and what the origin goes on to advertise comes back by its checksum. */
    world_run(&fleet.world, SECOND);
    assert_int_equal(world_view(&fleet.world, 0, 2).replica_blocks, 61);
    /* A reply can also tell of more than we knew. */
    fleet_prompt(&jobs[1], 1, 60, 3, 320, 32);
    assert_int_equal(decide(&jobs[1], 0), 0);
    assert_int_equal(jobs[1].ticket.peer, 2);
    cluster_route_started(fleet.world.nodes[0].cluster, &jobs[1].ticket, &jobs[1].query, 70 * PAGE);
    assert_int_equal(world_view(&fleet.world, 0, 2).replica_blocks, 71);
    fleet_stop(&fleet);
}

static void test_push_back_has_hysteresis(void **state)
{
    start(2);
    fleet_prompt(&jobs[0], 1, 60, 2, 30, 32);
    fleet_warm(&fleet, 1, &jobs[0]);
    const struct {
        uint32_t waiting;
        bool is_pushed_back;
    } steps[] = {{0, false}, {7, false}, {8, true}, {5, true}, {4, false}, {7, false}};
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
        set_load(1, (struct cluster_load){.waiting = steps[i].waiting});
        world_run(&fleet.world, SECOND);
        assert_int_equal(world_view(&fleet.world, 0, 1).load.push_back, steps[i].is_pushed_back);
        assert_int_equal(cluster_all_full(fleet.world.nodes[0].cluster), steps[i].is_pushed_back);
        assert_int_equal(decide(&jobs[0], 0), 0);
        if (steps[i].is_pushed_back)
            assert_int_equal(jobs[0].ticket.peer, ROUTE_SELF);
        finish(&jobs[0], ROUTE_DONE, 0);
    }
    set_load(1, (struct cluster_load){.draining = true});
    world_run(&fleet.world, SECOND);
    assert_int_equal(decide(&jobs[0], 0), 0);
    assert_int_equal(jobs[0].ticket.peer, ROUTE_SELF);
    fleet_stop(&fleet);
}

static void test_refusal_holds_until_the_next_header(void **state)
{
    start(3);
    fleet_prompt(&jobs[0], 1, 60, 2, 30, 32);
    fleet_warm(&fleet, 1, &jobs[0]);
    world_run(&fleet.world, SECOND);
    assert_int_equal(decide(&jobs[0], 0), 0);
    assert_int_equal(jobs[0].ticket.peer, 1);
    finish(&jobs[0], ROUTE_REFUSED, 30);
    assert_int_equal(world_view(&fleet.world, 0, 1).load.waiting, 30);
    assert_int_equal(decide(&jobs[0], 0), 0);
    assert_int_not_equal(jobs[0].ticket.peer, 1);
    finish(&jobs[0], ROUTE_CANCELED, 0);
    world_run(&fleet.world, SECOND);
    assert_int_equal(decide(&jobs[0], 0), 0);
    assert_int_equal(jobs[0].ticket.peer, 1);
    fleet_stop(&fleet);
}

static void test_failures_are_remembered_client_errors_are_not(void **state)
{
    start(3);
    fleet_prompt(&jobs[0], 1, 60, 2, 30, 32);
    fleet_warm(&fleet, 1, &jobs[0]);
    world_run(&fleet.world, SECOND);
    for (int i = 0; i < 5; i++) {
        assert_int_equal(decide(&jobs[0], 0), 0);
        assert_int_equal(jobs[0].ticket.peer, 1);
        finish(&jobs[0], ROUTE_CLIENT_ERROR, 0);
    }
    assert_int_equal(decide(&jobs[0], 0), 0);
    finish(&jobs[0], ROUTE_FAILED, 0);
    world_run(&fleet.world, SECOND); /* its headers still come, and it still has the prefix */
    assert_int_equal(decide(&jobs[0], 0), 0);
    assert_int_not_equal(jobs[0].ticket.peer, 1);
    finish(&jobs[0], ROUTE_CANCELED, 0);
    world_run(&fleet.world, 30 * SECOND);
    assert_int_equal(decide(&jobs[0], 0), 0);
    assert_int_equal(jobs[0].ticket.peer, 1);
    fleet_stop(&fleet);
}

static void test_exclusion(void **state)
{
    start(3);
    fleet_prompt(&jobs[0], 1, 60, 2, 30, 32);
    fleet_query(&fleet, &jobs[0], 0);
    const uint32_t all[] = {1, ROUTE_SELF, 2};
    jobs[0].query.exclude = all;
    struct cluster *c = fleet.world.nodes[0].cluster;
    jobs[0].query.n_exclude = 2;
    assert_int_equal(cluster_route(c, &jobs[0].query, &jobs[0].ticket), 0);
    assert_int_equal(jobs[0].ticket.peer, 2);
    assert_int_equal(jobs[0].ticket.reason, ROUTE_REASON_FALLBACK);
    jobs[0].query.n_exclude = 3;
    assert_int_equal(cluster_route(c, &jobs[0].query, &jobs[1].ticket), HS_ERR_BUSY);
    fleet_stop(&fleet);
}

static void test_mode_none(void **state)
{
    start_mode(3, ROUTE_NONE, &lan);
    fleet_prompt(&jobs[0], 1, 60, 2, 30, 32);
    fleet_warm(&fleet, 1, &jobs[0]);
    set_load(0, (struct cluster_load){.waiting = 7, .prefill_tokens = 100000});
    world_run(&fleet.world, SECOND);
    assert_int_equal(decide(&jobs[0], 0), 0);
    assert_int_equal(jobs[0].ticket.peer, ROUTE_SELF);
    fleet_stop(&fleet);
}

static void test_mode_longest(void **state)
{
    const struct world_link slow = {.delay_ns = 500 * MS};
    start_mode(3, ROUTE_LONGEST, &slow);
    fleet_prompt(&jobs[0], 1, 30, 2, 30, 32);
    fleet_prompt(&jobs[1], 1, 30, 3, 160, 32);
    fleet_warm(&fleet, 1, &jobs[0]);
    fleet_warm(&fleet, 2, &jobs[1]);
    world_run(&fleet.world, 5 * SECOND);
    assert_int_equal(decide(&jobs[1], 0), 0);
    assert_int_equal(jobs[1].ticket.peer, 2); /* the longest match, whatever the link costs */
    set_load(2, (struct cluster_load){.waiting = 9});
    world_run(&fleet.world, 5 * SECOND);
    assert_int_equal(decide(&jobs[1], 0), 0);
    assert_int_equal(jobs[1].ticket.peer, 1); /* pushed back: the next longest */
    fleet_prompt(&jobs[2], 77, 30, 3, 160, 32);
    assert_int_equal(decide(&jobs[2], 0), 0);
    assert_int_equal(jobs[2].ticket.peer, ROUTE_SELF); /* nobody knows it */
    fleet_stop(&fleet);
}

/* Everyone looks idle in the last headers; within one millisecond only our own books know better. */
static void test_stale_zero_attracts_no_herd(void **state)
{
    start(4);
    set_load(0, (struct cluster_load){.waiting = 3, .prefill_tokens = 60000});
    world_run(&fleet.world, SECOND);
    uint32_t to[4] = {0};
    for (uint32_t i = 0; i < 30; i++) {
        fleet_prompt(&jobs[i], 100 + i, 7, i, 0, 32); /* too short for the rendezvous of heads */
        assert_int_equal(decide(&jobs[i], 0), 0);
        assert_int_not_equal(jobs[i].ticket.peer, ROUTE_SELF);
        to[jobs[i].ticket.peer]++;
    }
    for (int i = 1; i < 4; i++)
        assert_in_range(to[i], 9, 11);
    assert_int_equal(in_flight(0), 30);
    for (uint32_t i = 0; i < 30; i++)
        finish(&jobs[i], ROUTE_CANCELED, 0);
    assert_int_equal(in_flight(0), 0);
    fleet_stop(&fleet);
}

static void test_ties_fall_differently(void **state)
{
    start(6);
    uint32_t seen = 0;
    for (uint32_t entry = 0; entry < 6; entry++)
        set_load(entry, (struct cluster_load){.waiting = 0, .prefill_tokens = entry < 3 ? 60000 : 0});
    world_run(&fleet.world, SECOND);
    for (uint32_t round = 0; round < 5; round++)
        for (uint32_t entry = 0; entry < 3; entry++) {
            fleet_prompt(&jobs[0], 100, 7, round * 3 + entry, 0, 32);
            assert_int_equal(decide(&jobs[0], entry), 0);
            assert_in_range(jobs[0].ticket.peer, 3, 5);
            seen |= 1u << jobs[0].ticket.peer;
            finish(&jobs[0], ROUTE_CANCELED, 0);
            world_run(&fleet.world, 100 * MS);
        }
    assert_int_equal(seen, 1u << 3 | 1u << 4 | 1u << 5);
    fleet_stop(&fleet);
}

static void test_joiner_is_ramped_up(void **state)
{
    start(3);
    world_crash(&fleet.world, 2);
    world_run(&fleet.world, 20 * SECOND);
    for (uint32_t i = 0; i < 2; i++)
        set_load(i, (struct cluster_load){.waiting = 2, .prefill_tokens = 3000});
    struct cluster_config config = world_config();
    world_boot(&fleet.world, 2, &config);
    set_load(2, (struct cluster_load){0});
    assert_true(world_run_until(&fleet.world, world_all_routable, 5 * SECOND));
    world_run(&fleet.world, 500 * MS);
    uint32_t to_joiner = 0;
    for (uint32_t i = 0; i < 20; i++) {
        fleet_prompt(&jobs[i], 100 + i, 7, i, 0, 32);
        assert_int_equal(decide(&jobs[i], 0), 0);
        to_joiner += jobs[i].ticket.peer == 2;
    }
    assert_in_range(to_joiner, 1, 2);
    /* Ten seconds later it is like the others. */
    for (uint32_t i = 0; i < 20; i++)
        finish(&jobs[i], ROUTE_CANCELED, 0);
    world_run(&fleet.world, 11 * SECOND);
    to_joiner = 0;
    for (uint32_t i = 0; i < 20; i++) {
        assert_int_equal(decide(&jobs[i], 0), 0);
        to_joiner += jobs[i].ticket.peer == 2;
    }
    assert_true(to_joiner > 10);
    fleet_stop(&fleet);
}

static void test_intents_are_heard_and_revoked(void **state)
{
    start(4);
    fleet_prompt(&jobs[0], 1, 62, 2, 20, 32);
    fleet_prompt(&jobs[1], 1, 62, 3, 20, 32);
    assert_int_equal(decide(&jobs[0], 0), 0);
    assert_int_equal(jobs[0].ticket.estimated_cached_tokens, 0);
    uint32_t chosen = jobs[0].ticket.peer == ROUTE_SELF ? 0 : jobs[0].ticket.peer;
    world_run(&fleet.world, MS); /* far from any round of gossip's effect: nothing is computed yet */
    uint32_t entry = chosen == 1 ? 2 : 1;
    assert_int_equal(decide(&jobs[1], entry), 0);
    assert_int_equal(jobs[1].ticket.peer, chosen);
    assert_int_equal(jobs[1].ticket.estimated_cached_tokens, 62 * PAGE);
    /* The wait for the first prefill is in the prediction, a second prefill is not. */
    double predicted_s = (double)jobs[1].ticket.predicted_ns / 1e9;
    assert_true(predicted_s > 2.0 && predicted_s < 3.5);
    finish(&jobs[1], ROUTE_CANCELED, 0);
    finish(&jobs[0], ROUTE_CANCELED, 0);
    world_run(&fleet.world, MS);
    assert_int_equal(decide(&jobs[1], entry), 0);
    assert_int_equal(jobs[1].ticket.estimated_cached_tokens, 0);
    fleet_stop(&fleet);
}

static void test_intent_expires(void **state)
{
    start(2);
    fleet_prompt(&jobs[0], 1, 62, 2, 20, 32);
    assert_int_equal(decide(&jobs[0], 0), 0);
    world_run(&fleet.world, 30 * SECOND);
    fleet_prompt(&jobs[1], 1, 62, 3, 20, 32);
    assert_int_equal(decide(&jobs[1], 1), 0);
    assert_int_equal(jobs[1].ticket.estimated_cached_tokens, 0);
    fleet_stop(&fleet);
}

static void test_slow_link_is_not_worth_a_small_prefix(void **state)
{
    const struct world_link slow = {.delay_ns = 500 * MS};
    start_mode(2, ROUTE_COST, &slow);
    fleet_prompt(&jobs[0], 1, 20, 2, 30, 32); /* 320 tokens: 0.64 s of prefill, less than one round trip */
    fleet_warm(&fleet, 1, &jobs[0]);
    world_run(&fleet.world, 5 * SECOND);
    assert_int_equal(decide(&jobs[0], 0), 0);
    assert_int_equal(jobs[0].ticket.peer, ROUTE_SELF);
    fleet_stop(&fleet);
}

/* The holder has measured itself under load; we have measured nothing. That must not make us look fast. */
static void test_unmeasured_is_taken_for_average(void **state)
{
    start(3);
    fleet_prompt(&jobs[0], 1, 60, 2, 30, 60);
    fleet_warm(&fleet, 1, &jobs[0]);
    for (uint32_t i = 0; i < 3; i++) {
        struct cluster_load load = {.prefill_tokens_per_s = i == 1 ? 80 : 0, .decode_step_s = i == 1 ? 0.07f : 0};
        cluster_set_load(fleet.world.nodes[i].cluster, &load);
    }
    world_run(&fleet.world, SECOND);
    assert_int_equal(decide(&jobs[0], 0), 0);
    assert_int_equal(jobs[0].ticket.peer, 1);
    fleet_stop(&fleet);
}

/* A peer may state what it likes: sums stay finite, and a request that has nowhere else to go goes there. */
static void test_absurd_load(void **state)
{
    start(2);
    struct cluster_load load = {.running = 1,
                                .prefill_tokens = UINT64_MAX,
                                .decode_tokens = UINT64_MAX,
                                .prefill_tokens_per_s = 1e-30f,
                                .decode_step_s = 3e38f,
                                .total_pages = 1};
    cluster_set_load(fleet.world.nodes[1].cluster, &load);
    world_run(&fleet.world, SECOND);
    fleet_prompt(&jobs[0], 1, 60, 2, 30, 32);
    assert_int_equal(decide(&jobs[0], 0), 0);
    assert_int_equal(jobs[0].ticket.peer, ROUTE_SELF);
    jobs[1] = jobs[0];
    jobs[1].exclude = ROUTE_SELF;
    assert_int_equal(decide(&jobs[1], 0), 0);
    assert_int_equal(jobs[1].ticket.peer, 1);
    cluster_route_started(fleet.world.nodes[0].cluster, &jobs[1].ticket, &jobs[1].query, 0);
    finish(&jobs[1], ROUTE_DONE, 0);
    fleet_stop(&fleet);
}

static void test_json_and_metrics(void **state)
{
    start(3);
    fleet_prompt(&jobs[0], 1, 60, 2, 30, 32);
    fleet_warm(&fleet, 2, &jobs[0]);
    world_run(&fleet.world, 2 * SECOND);
    assert_int_equal(decide(&jobs[0], 0), 0);
    world_run(&fleet.world, 2 * SECOND);
    finish(&jobs[0], ROUTE_DONE, 0);
    struct strbuf text = {0};
    cluster_json(fleet.world.nodes[0].cluster, &text);
    json_t *root = json_loads(strbuf_text(&text), 0, NULL);
    assert_non_null(root);
    json_t *peers = json_object_get(root, "peers");
    assert_int_equal(json_array_size(peers), 2);
    bool found = false;
    for (size_t i = 0; i < 2; i++) {
        json_t *peer = json_array_get(peers, i);
        if (strcmp(json_string_value(json_object_get(peer, "name")), "node2") != 0)
            continue;
        found = true;
        assert_string_equal(json_string_value(json_object_get(peer, "state")), "alive");
        assert_int_equal(json_integer_value(json_object_get(json_object_get(peer, "replica"), "blocks")), 61);
        assert_true(json_is_true(json_object_get(peer, "routable")));
    }
    assert_true(found);
    assert_string_equal(json_string_value(json_object_get(json_object_get(root, "self"), "name")), "node0");
    json_decref(root);
    strbuf_fini(&text);
    struct world_node *node = &fleet.world.nodes[0];
    assert_true(world_metric(node, "hearsay_replica_blocks{peer=\"node2\"} ") == 61);
    assert_true(world_metric(node, "hearsay_members{state=\"alive\"} ") == 2);
    assert_true(world_metric(node, "hearsay_route_decisions_total{target=\"peer\",reason=\"cached\"} ") == 1);
    assert_true(world_metric(node, "hearsay_route_outcomes_total{outcome=\"done\"} ") == 1);
    assert_true(world_metric(node, "hearsay_route_actual_seconds_sum ") == 2.0);
    fleet_stop(&fleet);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_equal_prefix_and_idle_stays_local),
        cmocka_unit_test(test_goes_to_the_holder_and_learns_the_truth),
        cmocka_unit_test(test_push_back_has_hysteresis),
        cmocka_unit_test(test_refusal_holds_until_the_next_header),
        cmocka_unit_test(test_failures_are_remembered_client_errors_are_not),
        cmocka_unit_test(test_exclusion),
        cmocka_unit_test(test_mode_none),
        cmocka_unit_test(test_mode_longest),
        cmocka_unit_test(test_stale_zero_attracts_no_herd),
        cmocka_unit_test(test_ties_fall_differently),
        cmocka_unit_test(test_joiner_is_ramped_up),
        cmocka_unit_test(test_intents_are_heard_and_revoked),
        cmocka_unit_test(test_intent_expires),
        cmocka_unit_test(test_slow_link_is_not_worth_a_small_prefix),
        cmocka_unit_test(test_unmeasured_is_taken_for_average),
        cmocka_unit_test(test_absurd_load),
        cmocka_unit_test(test_json_and_metrics),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "tests/unit/cluster/fleet.h"

static struct fleet fleet;
static struct job jobs[2000];

static const struct world_link lan = {.delay_ns = 100000, .jitter_ns = 50000};

/* 32 cold requests with one 1,000-token head within 10 ms over four entries. */
static uint32_t nodes_that_prefilled_the_head(uint64_t seed, const struct world_link *link, uint32_t known_blocks)
{
    struct cluster_config config = world_config();
    fleet_start(&fleet, 4, seed, &config, link);
    fleet_prompt(&jobs[0], seed, known_blocks, 0, 0, 32);
    for (uint32_t i = 0; i < 4; i++)
        fleet_warm(&fleet, i, &jobs[0]);
    world_run(&fleet.world, SECOND);
    uint64_t from_ns = fleet.world.now_ns;
    for (uint32_t i = 0; i < 32; i++) {
        fleet_prompt(&jobs[i], seed, 62, 1000 + i, 40, 32);
        fleet_submit(&fleet, &jobs[i], i % 4, from_ns + i * 300000u);
    }
    assert_true(fleet_finish(&fleet, 32, 200 * SECOND));
    uint32_t n = 0;
    for (uint32_t i = 0; i < 4; i++)
        n += fleet.nodes[i].prefilled_tokens >= (62 - known_blocks) * PAGE;
    printf("    seed %llu link %.1f ms: head prefilled on %u, requests %u %u %u %u, mean %.2f s\n", (unsigned long long)seed,
           (double)link->delay_ns / 1e6, n, fleet.nodes[0].computed, fleet.nodes[1].computed, fleet.nodes[2].computed,
           fleet.nodes[3].computed, fleet.total_latency_s / 32);
    fleet_stop(&fleet);
    return n;
}

static void test_cold_head_is_prefilled_at_most_twice(void **state)
{
    const struct world_link slower = {.delay_ns = 4 * MS, .jitter_ns = MS}; /* intents come after most decisions */
    for (uint64_t seed = 1; seed <= 6; seed++) {
        assert_in_range(nodes_that_prefilled_the_head(seed, &lan, 0), 1, 2);
        assert_in_range(nodes_that_prefilled_the_head(seed, &slower, 0), 1, 2);
        assert_in_range(nodes_that_prefilled_the_head(seed, &lan, 12), 1, 2); /* all know how it begins */
    }
}

/* One head, different tails, more than one node can do: it must be copied, and then the load be even. */
static double spread_of_hot_head(uint64_t seed, uint32_t entries)
{
    struct cluster_config config = world_config();
    fleet_start(&fleet, 4, seed, &config, &lan);
    uint32_t n = 1200, before[4];
    uint64_t at_ns = fleet.world.now_ns;
    for (uint32_t i = 0; i < n; i++) {
        fleet_prompt(&jobs[i], seed, 62, 5000 + i, 100, 16);
        at_ns += 1 + rng_below(&fleet.world.rng, 2 * SECOND / 14); /* 14 requests/s of 100 tokens each: 70 % of four nodes */
        fleet_submit(&fleet, &jobs[i], (uint32_t)rng_below(&fleet.world.rng, entries), at_ns);
    }
    assert_true(fleet_finish(&fleet, n / 3, 3000 * SECOND));
    for (int i = 0; i < 4; i++)
        before[i] = fleet.nodes[i].computed;
    assert_true(fleet_finish(&fleet, n, 3000 * SECOND));
    uint32_t most = 0, total = 0;
    for (int i = 0; i < 4; i++) {
        uint32_t done = fleet.nodes[i].computed - before[i];
        printf(" %u", done);
        most = done > most ? done : most;
        total += done;
    }
    double ratio = most * 4.0 / total;
    printf(": max/mean %.2f, mean %.2f s\n", ratio, fleet.total_latency_s / n);
    fleet_stop(&fleet);
    return ratio;
}

static void test_hot_head_is_spread(void **state)
{
    for (uint64_t seed = 1; seed <= 3; seed++) {
        assert_true(spread_of_hot_head(seed, 4) <= 1.25);
        assert_true(spread_of_hot_head(seed, 1) <= 1.25);
    }
}

/* The next request of each client begins when its last one is done: so many are in flight, in turn at every entry. */
static uint32_t n_started, n_to_start;

static void start_next(struct fleet *f, struct job *done)
{
    (void)done;
    if (n_started == n_to_start)
        return;
    struct job *job = &jobs[n_started];
    fleet_prompt(job, 77, 62, 20000 + n_started, 48, 16);
    fleet_submit(f, job, n_started % 4, f->world.now_ns + 1);
    n_started++;
}

static void run_clients(uint64_t seed, uint32_t clients, uint32_t n, uint32_t computed[4])
{
    struct cluster_config config = world_config();
    fleet_start(&fleet, 4, seed, &config, &lan);
    fleet_prompt(&jobs[0], 77, 62, 0, 0, 16);
    fleet_warm(&fleet, 2, &jobs[0]);
    world_run(&fleet.world, SECOND);
    fleet.on_done = start_next;
    n_started = 0;
    n_to_start = n;
    for (uint32_t i = 0; i < clients; i++)
        start_next(&fleet, NULL);
    assert_true(fleet_finish(&fleet, n, 3000 * SECOND));
    printf("    seed %llu, %u in flight: requests", (unsigned long long)seed, clients);
    for (int i = 0; i < 4; i++) {
        computed[i] = fleet.nodes[i].computed;
        printf(" %u", computed[i]);
    }
    printf(", mean %.2f s\n", fleet.total_latency_s / n);
    fleet_stop(&fleet);
}

/* With 24 in flight no queue is ever worth another prefill of the head, but all that wait together pay for it. */
static void test_moderate_load_is_spread(void **state)
{
    for (uint64_t seed = 1; seed <= 3; seed++) {
        uint32_t computed[4], n = 720;
        run_clients(seed, 24, n, computed);
        for (int i = 0; i < 4; i++)
            assert_in_range(computed[i], n / 8, n * 5 / 16);
    }
}

/* Whoever waits for nothing regrets nothing: node 2, which has the head, does it all. */
static void test_single_client_makes_no_copies(void **state)
{
    uint32_t computed[4];
    run_clients(4, 1, 480, computed);
    assert_int_equal(computed[2], 480);
}

struct outcome {
    double mean_s, p99_s, hit_share;
};

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* 20 heads of 800 tokens, drawn unevenly, at four entries with 40 % of the traffic at the first. */
static struct outcome run_mix(enum route_mode mode, const struct world_link *link, double requests_per_s, uint32_t n, uint64_t seed)
{
    struct cluster_config config = world_config();
    config.mode = mode;
    fleet_start(&fleet, 4, seed, &config, link);
    struct rng rng;
    rng_seed(&rng, 4242 + seed);
    uint64_t at_ns = fleet.world.now_ns, tokens = 0;
    for (uint32_t i = 0; i < n; i++) {
        uint64_t head = rng_below(&rng, 1 + rng_below(&rng, 20));
        fleet_prompt(&jobs[i], 700 + head, 50, 9000 + i, 20 + (uint32_t)rng_below(&rng, 200), 20);
        tokens += jobs[i].n_tokens;
        at_ns += rng_below(&rng, (uint64_t)(2e9 / requests_per_s));
        uint64_t draw = rng_below(&rng, 10);
        fleet_submit(&fleet, &jobs[i], draw < 4 ? 0 : (uint32_t)(draw % 4), at_ns);
    }
    assert_true(fleet_finish(&fleet, n, 5000 * SECOND));
    double latency[2000];
    for (uint32_t i = 0; i < n; i++)
        latency[i] = (double)(jobs[i].done_ns - jobs[i].sent_ns) / 1e9;
    qsort(latency, n, sizeof *latency, by_value);
    struct outcome out = {fleet.total_latency_s / n, latency[n * 99 / 100], (double)fleet.total_cached_tokens / (double)tokens};
    fleet_stop(&fleet);
    return out;
}

static void test_never_worse_than_local_over_slow_links(void **state)
{
    const uint64_t one_way_ms[] = {100, 250, 500};
    for (int i = 0; i < 3; i++) {
        struct world_link link = {.delay_ns = one_way_ms[i] * MS, .jitter_ns = one_way_ms[i] * MS / 20};
        for (double rate = 1; rate <= 4; rate *= 2) {
            uint64_t seed = 10 * (uint64_t)i + (uint64_t)rate;
            struct outcome local = run_mix(ROUTE_NONE, &link, rate, 500, seed), cost = run_mix(ROUTE_COST, &link, rate, 500, seed);
            printf("    seed %llu, RTT %llu ms, %.0f/s: local mean %.3f p99 %.2f hits %.2f, cost mean %.3f p99 %.2f hits %.2f\n",
                   (unsigned long long)seed, (unsigned long long)one_way_ms[i] * 2, rate, local.mean_s, local.p99_s,
                   local.hit_share, cost.mean_s, cost.p99_s, cost.hit_share);
            assert_true(cost.mean_s <= local.mean_s * 1.01);
        }
    }
}

static void test_better_than_local_and_longest_on_a_lan(void **state)
{
    struct outcome local = run_mix(ROUTE_NONE, &lan, 4, 800, 99), cost = run_mix(ROUTE_COST, &lan, 4, 800, 99),
                   longest = run_mix(ROUTE_LONGEST, &lan, 4, 800, 99);
    printf("    local mean %.3f p99 %.2f hits %.2f, longest %.3f %.2f %.2f, cost %.3f %.2f %.2f\n", local.mean_s, local.p99_s,
           local.hit_share, longest.mean_s, longest.p99_s, longest.hit_share, cost.mean_s, cost.p99_s, cost.hit_share);
    assert_true(cost.mean_s < local.mean_s * 0.8);
    assert_true(cost.mean_s <= longest.mean_s * 1.02);
    assert_true(cost.hit_share > local.hit_share);
}

/* A conversation whose turns arrive at changing entries finds its history. */
static void test_turns_find_their_history(void **state)
{
    struct cluster_config config = world_config();
    fleet_start(&fleet, 4, 5, &config, &lan);
    for (uint32_t turn = 0; turn < 6; turn++) {
        uint32_t history = 40 + 10 * turn;
        fleet_prompt(&jobs[turn], 31, history, 31, 160, 8); /* the tail of one turn is part of the next one's head */
        fleet_submit(&fleet, &jobs[turn], turn % 4, fleet.world.now_ns);
        assert_true(fleet_finish(&fleet, turn + 1, 60 * SECOND));
        if (turn)
            assert_true(jobs[turn].cached_tokens >= history * PAGE * 9 / 10);
        world_run(&fleet.world, 50 * MS);
    }
    fleet_stop(&fleet);
}

/* Cold prompts that share nothing, all at one entry: everybody works. */
static void test_cold_prompts_are_spread(void **state)
{
    struct cluster_config config = world_config();
    fleet_start(&fleet, 4, 6, &config, &lan);
    for (uint32_t i = 0; i < 40; i++) {
        fleet_prompt(&jobs[i], 100 + i, 40, i, 20, 8);
        fleet_submit(&fleet, &jobs[i], 0, fleet.world.now_ns + i * 50 * MS);
    }
    assert_true(fleet_finish(&fleet, 40, 300 * SECOND));
    for (int i = 0; i < 4; i++)
        assert_in_range(fleet.nodes[i].computed, 8, 13);
    fleet_stop(&fleet);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cold_head_is_prefilled_at_most_twice),
        cmocka_unit_test(test_hot_head_is_spread),
        cmocka_unit_test(test_moderate_load_is_spread),
        cmocka_unit_test(test_single_client_makes_no_copies),
        cmocka_unit_test(test_cold_prompts_are_spread),
        cmocka_unit_test(test_turns_find_their_history),
        cmocka_unit_test(test_better_than_local_and_longest_on_a_lan),
        cmocka_unit_test(test_never_worse_than_local_over_slow_links),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

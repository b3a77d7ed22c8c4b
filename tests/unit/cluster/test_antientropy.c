#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "core/base/log.h"
#include "tests/unit/cluster/digests.h"

static const struct world_link lan = {.delay_ns = 200000, .jitter_ns = 100000};
static const struct world_link bad = {.delay_ns = 3 * MS, .jitter_ns = 10 * MS, .loss = 0.15, .duplication = 0.15};

static void test_change_is_known_quickly(void **state)
{
    digests_start(4, 1, &lan);
    world_run(&digests.world, SECOND);
    digests_add(2, 62); /* a thousand tokens */
    uint64_t took_ns = digests_until_equal(SECOND);
    printf("    known after %.1f ms\n", (double)took_ns / 1e6);
    assert_true(took_ns <= 25 * MS);
    digests_drop(2, 30);
    assert_true(digests_until_equal(SECOND) <= 25 * MS);
    digests_stop();
}

static void test_equal_after_quiet_on_a_bad_link(void **state)
{
    for (uint64_t seed = 20; seed < 23; seed++) {
        digests_start(5, seed, &bad);
        for (int round = 0; round < 150; round++) {
            uint32_t node = (uint32_t)rng_below(&digests.rng, 5);
            if (rng_below(&digests.rng, 3))
                digests_add(node, 1 + (uint32_t)rng_below(&digests.rng, 200));
            else
                digests_drop(node, (uint32_t)rng_below(&digests.rng, 200));
            world_run(&digests.world, rng_below(&digests.rng, 60) * MS);
        }
        uint64_t took_ns = digests_until_equal(10 * SECOND);
        printf("    equal %.0f ms after quiet\n", (double)took_ns / 1e6);
        digests_stop();
    }
}

/* A newcomer fetches what is older than the log by pages. */
static void test_snapshot_for_a_late_joiner(void **state)
{
    digests_start(3, 30, &lan);
    for (int i = 0; i < 150; i++) { /* past the log's 16,384 changes */
        digests_add(0, 200);
        digests_drop(0, 160);
        world_run(&digests.world, 20 * MS);
    }
    assert_int_equal(digests.held[0].len, 6000);
    struct cluster_config config = world_config();
    world_crash(&digests.world, 2);
    digests.held[2] = (struct u64_map){0};
    world_boot(&digests.world, 2, &config);
    digests_until_equal(10 * SECOND);
    assert_true(world_metric(&digests.world.nodes[0], "hearsay_gossip_manifests_total ") >= 1);
    assert_true(world_metric(&digests.world.nodes[0], "hearsay_gossip_pages_total ") >= 200);
    digests_stop();
}

static bool drop_pages(struct world *world, uint32_t from, uint32_t to, const uint8_t *data, size_t len)
{
    return data[0] == 8 && to == 1 && rng_below(&digests.rng, 2) == 0;
}

static void test_gap_is_pulled(void **state)
{
    digests_start(3, 31, &lan);
    digests.world.is_dropped = drop_pages; /* half of all digests towards node 1 */
    for (int i = 0; i < 60; i++) {
        digests_add(0, 20);
        world_run(&digests.world, 15 * MS);
    }
    uint64_t took_ns = digests_until_equal(3 * SECOND);
    printf("    equal after %.0f ms\n", (double)took_ns / 1e6);
    assert_true(world_metric(&digests.world.nodes[1], "hearsay_gossip_pulls_total ") > 5);
    digests_stop();
}

static void test_flush_starts_a_new_epoch(void **state)
{
    digests_start(3, 32, &lan);
    digests_add(0, 200);
    digests_until_equal(SECOND);
    cluster_new_epoch(digests.world.nodes[0].cluster);
    u64_map_fini(&digests.held[0]);
    digests.held[0] = (struct u64_map){0};
    digests_add(0, 3);
    digests_until_equal(SECOND);
    /* A restart, too: nothing of the old process is believed. */
    struct cluster_config config = world_config();
    world_crash(&digests.world, 0);
    u64_map_fini(&digests.held[0]);
    digests.held[0] = (struct u64_map){0};
    world_boot(&digests.world, 0, &config);
    assert_true(world_run_until(&digests.world, world_all_routable, 10 * SECOND));
    assert_int_equal(world_view(&digests.world, 1, 0).replica_blocks, 0);
    digests_add(0, 10);
    digests_until_equal(2 * SECOND);
    digests_stop();
}

static void test_byte_rate_is_capped(void **state)
{
    struct cluster_config config = world_config();
    config.gossip_bytes_per_s = 20000;
    digests_start_with(3, 33, &lan, &config);
    memset(digests.world.gossip_bytes, 0, sizeof digests.world.gossip_bytes);
    uint64_t from_ns = digests.world.now_ns;
    for (int i = 0; i < 100; i++) {
        digests_add(0, 250);
        world_run(&digests.world, 20 * MS);
    }
    double seconds = (double)(digests.world.now_ns - from_ns) / 1e9;
    uint64_t most = (uint64_t)(seconds * 20000) + 5000 + 2200; /* the burst, and one message that goes into debt */
    for (uint32_t to = 1; to < 3; to++)
        assert_true(digests.world.gossip_bytes[0][to] <= most);
    assert_true(digests.world.gossip_bytes[0][1] > most / 2);
    /* 25,000 names are 225 KB: it takes long, but it comes to an end, and equal. */
    digests_until_equal(60 * SECOND);
    seconds = (double)(digests.world.now_ns - from_ns) / 1e9;
    for (uint32_t to = 1; to < 3; to++)
        assert_true(digests.world.gossip_bytes[0][to] <= (uint64_t)(seconds * 20000) + 7200);
    digests_stop();
}

static void test_idle_costs_little(void **state)
{
    digests_start(4, 34, &lan);
    digests_add(0, 200);
    world_run(&digests.world, 2 * SECOND);
    memset(digests.world.gossip_bytes, 0, sizeof digests.world.gossip_bytes);
    world_run(&digests.world, 10 * SECOND);
    uint64_t per_s = digests.world.gossip_bytes[0][1] / 10;
    printf("    %llu bytes/s to each peer at rest\n", (unsigned long long)per_s);
    assert_true(per_s < 2500);
    digests_stop();
}

/* Peers say hello every half minute; what is known of them stays known, in the metrics too. */
static void test_replica_gauge_is_steady(void **state)
{
    digests_start(2, 37, &lan);
    digests_add(1, 200);
    world_run(&digests.world, 2 * SECOND);
    for (uint32_t i = 0; i < 14000; i++) {
        assert_true(world_metric(&digests.world.nodes[0], "hearsay_replica_blocks{peer=\"node1\"} ") == 200);
        world_run(&digests.world, 5 * MS);
    }
    digests_stop();
}

static void test_slow_link_keeps_the_interval(void **state)
{
    const struct world_link slow = {.delay_ns = 100 * MS};
    digests_start(3, 35, &slow);
    world_run(&digests.world, 3 * SECOND);
    uint64_t before = digests.world.kind_messages[8];
    for (int i = 0; i < 100; i++) {
        digests_add(0, 1);
        world_run(&digests.world, 10 * MS);
    }
    /* One second: ten rounds of each node to each peer, and what was pulled. */
    assert_true(digests.world.kind_messages[8] - before <= 80);
    digests_until_equal(3 * SECOND);
    digests_stop();
}

/* Standard error into a file while f runs; returns how many of its lines contain the text. */
static uint32_t count_lines(void (*f)(void), const char *text)
{
    FILE *file = tmpfile();
    assert_non_null(file);
    fflush(stderr);
    int saved = dup(2);
    dup2(fileno(file), 2);
    f();
    fflush(stderr);
    dup2(saved, 2);
    close(saved);
    rewind(file);
    char line[1024];
    uint32_t n = 0;
    while (fgets(line, sizeof line, file))
        n += strstr(line, text) != NULL;
    fclose(file);
    return n;
}

static struct cluster_config odd_config;

static void run_with_an_odd_node(void)
{
    struct cluster_config config = world_config();
    world_start(&digests.world, 3, 36, &config, &lan);
    world_crash(&digests.world, 2);
    world_boot(&digests.world, 2, &odd_config);
    rng_seed(&digests.rng, 36);
    world_run(&digests.world, 2 * SECOND);
    digests_add(2, 100);
    world_run(&digests.world, 3 * SECOND);
}

static void test_other_model_is_left_out(void **state)
{
    odd_config = world_config();
    odd_config.fingerprint[0] ^= 1;
    /* Nodes 0 and 1 say it of node 2, and node 2 of both: four lines, once each. */
    assert_int_equal(count_lines(run_with_an_odd_node, "serves another model"), 4);
    assert_int_equal(world_view(&digests.world, 0, 2).state, CLUSTER_PEER_ALIVE);
    assert_false(world_view(&digests.world, 0, 2).routable);
    assert_true(world_view(&digests.world, 0, 1).routable);
    assert_int_equal(world_view(&digests.world, 0, 2).replica_blocks, 0);
    digests_stop();
}

static void test_other_page_size_is_left_out(void **state)
{
    odd_config = world_config();
    odd_config.page_tokens = 32;
    assert_int_equal(count_lines(run_with_an_odd_node, "another page size"), 4);
    assert_false(world_view(&digests.world, 1, 2).routable);
    digests_stop();
}

static bool is_odd_weight;

/* Node 0 and node 2 know another weight of "gold" each, node 1 none; and node 2 another of "silver". */
static void run_with_weights(void)
{
    struct cluster_config config = world_config();
    world_start(&digests.world, 3, 37, &config, &lan);
    for (uint32_t i = 0; i < 3; i++) {
        struct cluster *c = digests.world.nodes[i].cluster;
        assert_int_equal(cluster_set_weight(c, "silver", is_odd_weight && i == 2 ? 2 : 1), 0); /* 1: as if nothing was said */
        if (i != 1 || !is_odd_weight)
            assert_int_equal(cluster_set_weight(c, "gold", is_odd_weight && i == 2 ? 8 : 0.5f), 0);
    }
    world_run(&digests.world, 3 * SECOND);
}

static void test_other_weights_are_said_once(void **state)
{
    is_odd_weight = true;
    assert_int_equal(count_lines(run_with_weights, "peer node1 gives tenant \"gold\" the weight 1, we 0.5 (1 such tenants)"), 1);
    digests_stop();
    assert_int_equal(count_lines(run_with_weights, "peer node2 gives tenant \"silver\" the weight 2, we 1 (2 such tenants)"), 2);
    digests_stop();
    assert_int_equal(count_lines(run_with_weights, "such tenants"), 6); /* each of each of two */
    digests_stop();
    is_odd_weight = false;
    assert_int_equal(count_lines(run_with_weights, "such tenants"), 0);
    char name[2] = "a";
    struct cluster *c = digests.world.nodes[0].cluster;
    for (uint32_t i = 2; i < CLUSTER_WEIGHTS_MAX; i++, name[0]++)
        assert_int_equal(cluster_set_weight(c, name, 3), 0);
    assert_int_equal(cluster_set_weight(c, "one more", 3), HS_ERR_LIMIT);
    assert_int_equal(cluster_set_weight(c, "gold", 3), 0);
    digests_stop();
}

static uint64_t late_seed;

static void run_with_late_hellos(void)
{
    static const struct world_link slow = {.delay_ns = MS, .jitter_ns = 400 * MS};
    struct cluster_config config = world_config();
    world_start(&digests.world, 2, late_seed, &config, &slow);
    world_crash(&digests.world, 1);
    world_boot(&digests.world, 1, &odd_config);
    world_run(&digests.world, 5 * SECOND);
}

/* Headers may overtake the hello: the peer is told of by its name all the same. */
static void test_odd_peers_are_told_by_name(void **state)
{
    odd_config = world_config();
    odd_config.page_tokens = 32;
    for (late_seed = 40; late_seed < 56; late_seed++) {
        assert_int_equal(count_lines(run_with_late_hellos, "node1 has another page size"), 1);
        digests_stop();
    }
}

static void test_other_class_only_matters_with_same_bits(void **state)
{
    odd_config = world_config();
    strcpy(odd_config.arithmetic, "bf16-test");
    odd_config.same_bits = true;
    assert_int_equal(count_lines(run_with_an_odd_node, "arithmetic class"), 2); /* only node 2 asks for it */
    assert_true(world_view(&digests.world, 0, 2).routable);
    assert_false(world_view(&digests.world, 2, 0).routable);
    assert_string_equal(world_view(&digests.world, 0, 2).arithmetic, "bf16-test");
    digests_stop();
}

/* 40 nodes: one change costs every node at most its fan-out, 4 + log2(39) = 9 datagrams, and everyone has it. */
static void test_large_group(void **state)
{
    digests_start(40, 37, &lan);
    world_run(&digests.world, 5 * SECOND);
    uint64_t before[WORLD_NODES_MAX];
    for (uint32_t i = 0; i < 40; i++)
        before[i] = (uint64_t)world_metric(&digests.world.nodes[i], "hearsay_gossip_relays_total ");
    digests_add(7, 50);
    uint64_t took_ns = digests_until_equal(2 * SECOND);
    printf("    40 nodes know it after %.1f ms\n", (double)took_ns / 1e6);
    for (uint32_t i = 0; i < 40; i++)
        assert_true(world_metric(&digests.world.nodes[i], "hearsay_gossip_relays_total ") - (double)before[i] <= 9);
    for (int i = 0; i < 20; i++) {
        digests_add((uint32_t)rng_below(&digests.rng, 40), 20);
        digests_drop((uint32_t)rng_below(&digests.rng, 40), 10);
        world_run(&digests.world, 10 * MS);
    }
    digests_until_equal(3 * SECOND);
    digests_stop();
}

int main(void)
{
    log_setup(LOG_LEVEL_WARN, LOG_FORMAT_TEXT); /* lines are counted here, and of many in one second some are left out */
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_change_is_known_quickly),
        cmocka_unit_test(test_equal_after_quiet_on_a_bad_link),
        cmocka_unit_test(test_snapshot_for_a_late_joiner),
        cmocka_unit_test(test_gap_is_pulled),
        cmocka_unit_test(test_flush_starts_a_new_epoch),
        cmocka_unit_test(test_byte_rate_is_capped),
        cmocka_unit_test(test_idle_costs_little),
        cmocka_unit_test(test_replica_gauge_is_steady),
        cmocka_unit_test(test_slow_link_keeps_the_interval),
        cmocka_unit_test(test_other_model_is_left_out),
        cmocka_unit_test(test_other_page_size_is_left_out),
        cmocka_unit_test(test_other_weights_are_said_once),
        cmocka_unit_test(test_odd_peers_are_told_by_name),
        cmocka_unit_test(test_other_class_only_matters_with_same_bits),
        cmocka_unit_test(test_large_group),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "core/cluster/wire.h"
#include "tests/unit/cluster/world.h"

static const struct world_link lan = {.delay_ns = 200000, .jitter_ns = 100000};
static const struct world_link lossy = {.delay_ns = 2 * MS, .jitter_ns = 4 * MS, .loss = 0.1, .duplication = 0.1};

static struct world w;

static void start(uint32_t n, uint64_t seed, const struct world_link *link)
{
    struct cluster_config config = world_config();
    printf("    seed %llu\n", (unsigned long long)seed);
    world_start(&w, n, seed, &config, link);
}

static uint32_t count_gone(void)
{
    uint32_t gone = 0;
    for (uint32_t i = 0; i < w.n; i++)
        gone += w.nodes[i].gone_calls;
    return gone;
}

/* Everyone joins through node 0 alone and yet knows all. */
static void test_converges(void **state)
{
    start(8, 1, &lan);
    assert_true(world_run_until(&w, world_all_routable, 3 * SECOND));
    struct cluster_peer_info info = world_view(&w, 3, 5);
    assert_string_equal(info.name, "node5");
    assert_string_equal(info.http_address, "http5:80");
    assert_string_equal(info.address, "n5:1");
    assert_int_equal(w.nodes[3].alive_calls, 7);
    assert_true(info.rtt_ns >= 2 * lan.delay_ns && info.rtt_ns < 3 * MS);
    world_stop(&w);
}

static void test_converges_with_loss(void **state)
{
    for (uint64_t seed = 10; seed < 13; seed++) {
        start(12, seed, &lossy);
        assert_true(world_run_until(&w, world_all_routable, 10 * SECOND));
        /* 10 % loss for 60 s kills nobody. */
        world_run(&w, 60 * SECOND);
        assert_int_equal(count_gone(), 0);
        assert_true(world_run_until(&w, world_all_routable, 2 * SECOND)); /* one may be under suspicion just now */
        world_stop(&w);
    }
}

static bool is_one_dead_everywhere(struct world *world)
{
    for (uint32_t i = 0; i < world->n; i++)
        if (i != 1 && world_view(world, i, 1).state != CLUSTER_PEER_DEAD)
            return false;
    return true;
}

static void test_crash_is_found(void **state)
{
    start(6, 2, &lan);
    assert_true(world_run_until(&w, world_all_routable, 3 * SECOND));
    w.down_after_ns = 3600 * SECOND; /* SWIM alone must do it */
    world_crash(&w, 1);
    uint64_t from_ns = w.now_ns;
    assert_true(world_run_until(&w, is_one_dead_everywhere, 15 * SECOND));
    printf("    found after %.2f s\n", (double)(w.now_ns - from_ns) / 1e9);
    assert_true(w.now_ns - from_ns < 6 * SECOND);
    assert_int_equal(count_gone(), 5);
    world_run(&w, 5 * SECOND);
    assert_int_equal(count_gone(), 5);
    world_stop(&w);
}

/* A node that looks at its network only every 400 ms answers every probe late. It may be suspected, but it refutes. */
static void test_slow_node_is_not_killed(void **state)
{
    start(6, 3, &lan);
    assert_true(world_run_until(&w, world_all_routable, 3 * SECOND));
    w.nodes[4].is_slow = true;
    w.nodes[4].slow_ns = 400 * MS;
    world_run(&w, 60 * SECOND);
    for (uint32_t i = 0; i < w.n; i++)
        assert_true(world_metric(&w.nodes[i], "hearsay_deaths_total ") == 0);
    assert_int_equal(count_gone(), 0);
    /* Its own verdicts are worth little, and its local health makes it patient. */
    w.nodes[4].is_slow = false;
    assert_true(world_run_until(&w, world_all_routable, 10 * SECOND));
    world_stop(&w);
}

/* A broken link between two nodes only: others can reach both, so nobody dies. */
static void test_indirect_probe_saves(void **state)
{
    start(5, 4, &lan);
    assert_true(world_run_until(&w, world_all_routable, 3 * SECOND));
    w.down_after_ns = 3600 * SECOND;
    w.cut[1][2] = w.cut[2][1] = true;
    world_run(&w, 60 * SECOND);
    for (uint32_t i = 0; i < w.n; i++)
        assert_true(world_metric(&w.nodes[i], "hearsay_deaths_total ") == 0);
    world_stop(&w);
}

static bool is_dead(uint32_t node, uint32_t other)
{
    return world_view(&w, node, other).state == CLUSTER_PEER_DEAD;
}

static bool is_split(struct world *world)
{
    for (uint32_t a = 0; a < world->n; a++)
        for (uint32_t b = 0; b < world->n; b++)
            if ((a < 2) != (b < 2) && world_view(world, a, b).state != CLUSTER_PEER_DEAD)
                return false;
    return true;
}

static bool halves_go_on(struct world *world)
{
    return world_view(world, 0, 1).routable && world_view(world, 2, 3).routable && world_view(world, 4, 2).routable;
}

static void test_partition_heals(void **state)
{
    start(5, 5, &lossy);
    assert_true(world_run_until(&w, world_all_routable, 5 * SECOND));
    world_partition(&w, 2, true);
    assert_true(world_run_until(&w, is_split, 30 * SECOND));
    assert_true(world_run_until(&w, halves_go_on, 5 * SECOND));
    world_partition(&w, 2, false);
    assert_true(world_run_until(&w, world_all_routable, 30 * SECOND));
    world_stop(&w);
}

/* Connections survive (none of them carries anything reliable), so only SWIM sees the partition and only its probes of the dead see
 * the end of it. */
static void test_partition_heals_without_redial(void **state)
{
    start(5, 6, &lan);
    assert_true(world_run_until(&w, world_all_routable, 5 * SECOND));
    w.down_after_ns = 3600 * SECOND;
    world_partition(&w, 2, true);
    assert_true(world_run_until(&w, is_split, 30 * SECOND));
    uint32_t gone = count_gone();
    world_partition(&w, 2, false);
    assert_true(world_run_until(&w, world_all_routable, 300 * MS));
    world_run(&w, 10 * SECOND);
    assert_int_equal(count_gone(), gone); /* what the other side believed of ours kills nobody */
    world_stop(&w);
}

/* A member that is dead, for most of the group a connection that leads nowhere, costs each a ping in its turn, and is forgotten. */
static void test_the_dead_cost_little_and_end(void **state)
{
    start(6, 11, &lan);
    assert_true(world_run_until(&w, world_all_routable, 3 * SECOND));
    w.down_after_ns = 30 * SECOND;
    world_run(&w, 10 * SECOND);
    uint64_t before = w.kind_messages[WIRE_PING];
    world_run(&w, 10 * SECOND);
    uint64_t usual = w.kind_messages[WIRE_PING] - before;
    for (uint32_t i = 2; i < 5; i++)
        world_crash(&w, i);
    world_run(&w, 10 * SECOND);
    assert_true(is_dead(0, 2) && is_dead(1, 4) && is_dead(5, 3));
    before = w.kind_messages[WIRE_PING];
    world_run(&w, 10 * SECOND);
    assert_in_range(w.kind_messages[WIRE_PING] - before, 3 * 95, usual + 3 * 101); /* of three nodes, one each 100 ms */
    assert_int_equal(cluster_peers(w.nodes[0].cluster), 5);
    world_run(&w, 3700 * SECOND);
    assert_int_equal(cluster_peers(w.nodes[0].cluster), 2);
    world_stop(&w);
}

/* The transport gets back what it holds for members that are forgotten: a minute after they left, an hour after they fell silent. */
static void test_the_forgotten_are_closed(void **state)
{
    start(3, 77, &lan);
    assert_true(world_run_until(&w, world_all_routable, 3 * SECOND));
    struct world_node *node = &w.nodes[1];
    const uint32_t silent = 40, unwelcome = 41;
    struct transport_event event = {.kind = TRANSPORT_PEER_UP, .peer = silent, .boot_id = 4040};
    node->peers[silent].wanted = node->peers[unwelcome].wanted = true;
    cluster_on_event(node->cluster, &event, w.now_ns); /* comes and goes without a word */
    event.kind = TRANSPORT_PEER_DOWN;
    cluster_on_event(node->cluster, &event, w.now_ns);
    assert_true(node->peers[silent].wanted);
    event.peer = unwelcome; /* never was a member */
    cluster_on_event(node->cluster, &event, w.now_ns);
    assert_false(node->peers[unwelcome].wanted);
    cluster_leave(w.nodes[2].cluster);
    world_run(&w, 100 * MS);
    world_crash(&w, 2);
    node->peers[2].wanted = true;
    world_run(&w, 50 * SECOND);
    assert_true(node->peers[2].wanted);
    world_run(&w, 30 * SECOND);
    assert_false(node->peers[2].wanted);
    assert_int_equal(cluster_peers(node->cluster), 2);
    world_crash(&w, 0); /* it is the seed, which is never given up */
    world_run(&w, 3500 * SECOND);
    assert_true(node->peers[silent].wanted);
    world_run(&w, 120 * SECOND);
    assert_false(node->peers[silent].wanted);
    assert_int_equal(cluster_peers(node->cluster), 1);
    assert_true(node->peers[0].wanted);
    world_stop(&w);
}

static void test_leave_is_announced(void **state)
{
    start(4, 7, &lan);
    assert_true(world_run_until(&w, world_all_routable, 3 * SECOND));
    cluster_leave(w.nodes[2].cluster);
    world_run(&w, 100 * MS);
    for (uint32_t i = 0; i < 4; i++)
        if (i != 2)
            assert_int_equal(world_view(&w, i, 2).state, CLUSTER_PEER_LEFT);
    world_crash(&w, 2);
    world_run(&w, 20 * SECOND);
    for (uint32_t i = 0; i < 4; i++)
        if (i != 2)
            assert_true(world_view(&w, i, 2).state == CLUSTER_PEER_LEFT && world_metric(&w.nodes[i], "hearsay_deaths_total ") == 0);
    assert_int_equal(count_gone(), 3);
    world_stop(&w);
}

static void test_restart_is_a_new_member(void **state)
{
    start(4, 8, &lan);
    assert_true(world_run_until(&w, world_all_routable, 3 * SECOND));
    uint32_t gone = w.nodes[3].gone_calls;
    struct cluster_config config = world_config();
    world_crash(&w, 1);
    world_run(&w, 100 * MS);
    world_boot(&w, 1, &config);
    assert_true(world_run_until(&w, world_all_routable, 10 * SECOND));
    assert_int_equal(w.nodes[3].gone_calls, gone + 1);
    assert_int_equal(w.nodes[3].alive_calls, 4);
    assert_int_equal(cluster_peers(w.nodes[3].cluster), 3);
    world_stop(&w);
}

static void test_seed_that_comes_later(void **state)
{
    start(3, 9, &lan);
    world_crash(&w, 0); /* the others know nobody but it */
    world_run(&w, 5 * SECOND);
    assert_false(world_view(&w, 1, 2).routable);
    struct cluster_config config = world_config();
    world_boot(&w, 0, &config);
    assert_true(world_run_until(&w, world_all_routable, 10 * SECOND));
    world_stop(&w);
}

static struct rng dice;

/* Breaks bytes behind kind and version of every fifth message; world.c sends from a buffer of its own, so they may be changed in
 * place. */
static bool break_bytes(struct world *world, uint32_t from, uint32_t to, const uint8_t *data, size_t len)
{
    if (rng_below(&dice, 5) || len < 3)
        return false;
    for (uint64_t n = 1 + rng_below(&dice, 4); n; n--)
        ((uint8_t *)data)[2 + rng_below(&dice, len - 2)] = (uint8_t)rng_u64(&dice);
    return false;
}

static bool all_alive(struct world *world)
{
    for (uint32_t a = 0; a < world->n; a++)
        for (uint32_t b = 0; b < world->n; b++)
            if (a != b && world_view(world, a, b).state != CLUSTER_PEER_ALIVE)
                return false;
    return true;
}

/* Sealing keeps such messages out; if one came in all the same it must not harm memory (run under the sanitizers), and membership
 * heals. What a forged header says is believed: members of a group trust each other. */
static void test_broken_messages(void **state)
{
    start(5, 12, &lan);
    assert_true(world_run_until(&w, world_all_routable, 3 * SECOND));
    rng_seed(&dice, 12);
    w.is_dropped = break_bytes;
    uint64_t names[100];
    for (int round = 0; round < 200; round++) {
        for (int i = 0; i < 100; i++)
            names[i] = rng_u64(&dice);
        struct radix_listener *digest = &w.nodes[round % 5].digest;
        digest->added(digest->self, 1, names, 100);
        world_kick(&w.nodes[round % 5]);
        world_run(&w, 100 * MS);
    }
    for (uint32_t i = 0; i < 5; i++)
        assert_true(world_metric(&w.nodes[i], "hearsay_gossip_rejected_total ") > 0);
    w.is_dropped = NULL;
    assert_true(world_run_until(&w, all_alive, 60 * SECOND));
    world_stop(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_converges),
        cmocka_unit_test(test_converges_with_loss),
        cmocka_unit_test(test_crash_is_found),
        cmocka_unit_test(test_slow_node_is_not_killed),
        cmocka_unit_test(test_indirect_probe_saves),
        cmocka_unit_test(test_partition_heals),
        cmocka_unit_test(test_partition_heals_without_redial),
        cmocka_unit_test(test_the_dead_cost_little_and_end),
        cmocka_unit_test(test_the_forgotten_are_closed),
        cmocka_unit_test(test_leave_is_announced),
        cmocka_unit_test(test_restart_is_a_new_member),
        cmocka_unit_test(test_seed_that_comes_later),
        cmocka_unit_test(test_broken_messages),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/*
 * Situations with a promised outcome, on modelled nodes in virtual time: many cold requests with one head, one head with different
 * tails, two nodes that compute for each other with full pools, partitions with heavy change behind them, clients that hang up
 * midway, and a peer that comes back from behind a cut.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

#include "core/base/log.h"
#include "core/cluster/internal.h"
#include "core/serve/node_internal.h"
#include "tests/sim/check.h"

static const uint64_t MS_NS = 1000000, S_NS = 1000000000;
enum { HEAD = 1000, LONGEST = 4096 };

/* A world on a clean wire without requests of its own but one, whose clients the scenario adds. */
static struct world_config calm(uint32_t nodes)
{
    struct world_config config;
    world_defaults(&config);
    config.nodes = nodes;
    config.requests = 1;
    config.loss = config.duplicate = config.reorder = 0;
    config.cancel = config.score = 0;
    config.context = 2048;
    config.pages = 4000;
    config.sequences = 32;
    config.step_ns = 10 * MS_NS; /* about a small model on two CPU cores */
    config.row_ns = 1 * MS_NS;
    return config;
}

static struct world *open_world(const struct world_config *config, struct world_result *result)
{
    struct world *world;
    assert_int_equal(world_create(config, result, &world), 0);
    world->head_end = HEAD;
    assert_true(world_run_until(world, world_answered, 60 * S_NS));
    assert_true(world_run_until(world, world_settled, 120 * S_NS));
    for (uint32_t i = 0; i < world->n_nodes; i++)
        world->nodes[i].rows[0] = world->nodes[i].rows[1] = 0;
    return world;
}

static void finish(struct world *world, struct world_result *result)
{
    assert_true(world_run_until(world, world_answered, world->now_ns + 600 * S_NS));
    world_destroy(world);
    assert_int_equal(result->failures, 0);
}

/* Tokens first, first + 1, ... below the null model's vocabulary. */
static void fill(uint32_t *tokens, uint32_t n, uint32_t first)
{
    for (uint32_t i = 0; i < n; i++)
        tokens[i] = 3 + (first + i * 7) % 40000;
}

/* One head and a tail of its own. */
static struct client *ask(struct world *world, uint64_t at_ns, uint32_t head, uint32_t n_head, uint32_t tail, uint32_t n_tail, uint32_t max_tokens)
{
    uint32_t tokens[LONGEST];
    fill(tokens, n_head, head);
    fill(tokens + n_head, n_tail, tail);
    struct client *client = clients_add(world, at_ns, tokens, n_head + n_tail, max_tokens);
    assert_non_null(client);
    client->request.ignore_eos = true;
    return client;
}

static void cold_requests_with_one_head(void **state)
{
    for (uint64_t seed = 1; seed <= 10; seed++) {
        struct world_config config = calm(4);
        struct world_result result;
        config.seed = seed;
        struct world *world = open_world(&config, &result);
        for (uint32_t i = 0; i < 32; i++) {
            struct client *client = ask(world, world->now_ns + i * 10 * MS_NS / 32, 1, HEAD, 9000 + 100 * i, 20, 8);
            client->entry = i % 4;
        }
        assert_true(world_run_until(world, world_answered, world->now_ns + 60 * S_NS));
        uint32_t computed = 0;
        uint64_t rows = 0;
        for (uint32_t i = 0; i < 4; i++) {
            computed += world->nodes[i].rows[0] >= HEAD / 2;
            rows += world->nodes[i].rows[0];
        }
        print_message("seed %u: the head was computed on %u nodes, %.1f times\n", (unsigned)seed, computed, (double)rows / HEAD);
        assert_in_range(computed, 1, 2);
        assert_true(rows <= 2 * HEAD + 32 * 16); /* and on each of them once */
        finish(world, &result);
    }
}

/* As many requests as four nodes can do. With half of that three nodes do it without a queue that would pay for a fourth prefill. */
static void one_head_with_different_tails(void **state)
{
    for (uint64_t seed = 1; seed <= 4; seed++) {
        enum { N = 480 };
        struct world_config config = calm(4);
        struct world_result result;
        config.seed = seed;
        struct world *world = open_world(&config, &result);
        for (uint32_t i = 0; i < N; i++)
            ask(world, world->now_ns + i * 33 * MS_NS, 1, HEAD, 9000 + 50 * i, 50, 40);
        assert_true(world_run_until(world, world_answered, world->now_ns + 120 * S_NS));
        uint64_t busiest = 0, sum = 0;
        for (uint32_t i = 0; i < 4; i++) {
            uint64_t rows = world->nodes[i].rows[0] + world->nodes[i].rows[1];
            busiest = rows > busiest ? rows : busiest;
            sum += rows;
        }
        print_message("seed %u: the busiest of 4 nodes computed %.2f times the mean\n", (unsigned)seed, (double)busiest * 4 / (double)sum);
        assert_true((double)busiest * 4 <= 1.25 * (double)sum);
        finish(world, &result);
    }
}

/* Each holds the head that the other's clients ask for, and hardly more than one sequence has room. */
static void computing_for_each_other_with_full_pools(void **state)
{
    uint64_t preemptions = 0;
    for (uint64_t seed = 1; seed <= 5; seed++) {
        struct world_config config = calm(2);
        struct world_result result;
        config.seed = seed;
        config.pages = 40; /* 640 tokens; each request takes 300 + 10 + 80 */
        struct world *world = open_world(&config, &result);
        for (uint32_t side = 0; side < 2; side++)
            ask(world, world->now_ns, 20000 * side, 300, 9000, 10, 2)->entry = side;
        assert_true(world_run_until(world, world_answered, world->now_ns + 60 * S_NS));
        assert_true(world_run_until(world, world_settled, world->now_ns + 60 * S_NS));
        uint32_t forwarded = result.forwarded;
        for (uint32_t i = 0; i < 24; i++) {
            uint32_t head = 20000 * (i / 2 % 2); /* each node is asked for both */
            ask(world, world->now_ns + i * 2 * MS_NS, head, 300, 10000 + 100 * i, 10, 80)->entry = i % 2;
        }
        assert_true(world_run_until(world, world_answered, world->now_ns + 300 * S_NS));
        assert_true(result.forwarded > forwarded);
        finish(world, &result);
        preemptions += result.preemptions;
    }
    assert_true(preemptions > 0);
}

static void block_all(struct world *world, uint32_t alone, bool on)
{
    for (uint32_t i = 0; i < world->n_nodes; i++)
        if (i != alone)
            assert_int_equal(sim_net_set_cut(world->net, world->nodes[alone].address, world->nodes[i].address, on), 0);
}

static bool all_alive(struct world *world)
{
    for (uint32_t i = 0; i < world->n_nodes; i++)
        for (uint32_t j = 0; j < world->n_nodes; j++) {
            const struct cluster *c = world->nodes[i].node->cluster;
            const struct member *m = member_by_boot(c, world->nodes[j].node->cluster->info.boot_id);
            if (i != j && (!m || !member_is_routable(c, m)))
                return false;
        }
    return true;
}

static bool settled_now(struct world *world)
{
    world->settled_at_ns = 0;
    return world_settled(world);
}

struct partition {
    uint64_t seed;
    uint32_t nodes, first; /* first: so many are on one side */
    bool one_way;          /* what they send is lost, what they are sent arrives */
    uint32_t seconds;
};

static void set_partition(struct world *world, const struct partition *p, bool on)
{
    for (uint32_t i = 0; i < world->n_nodes; i++)
        for (uint32_t j = 0; j < world->n_nodes; j++) {
            struct sim_link link;
            const char *from = world->nodes[i].address, *to = world->nodes[j].address;
            bool crosses = i < p->first ? j >= p->first : j < p->first && !p->one_way;
            if (!crosses)
                continue;
            assert_int_equal(sim_net_get_link(world->net, from, to, &link), 0);
            link.cut = on;
            assert_int_equal(sim_net_set_link(world->net, from, to, &link), 0);
        }
}

static uint32_t most_blocks(const struct world *world)
{
    uint32_t most = 0;
    for (uint32_t i = 0; i < world->n_nodes; i++) {
        uint32_t n = block_set_len(advert_set(world->nodes[i].node->cluster->advert));
        most = n > most ? n : most;
    }
    return most;
}

static uint64_t count_deaths(const struct world *world)
{
    uint64_t deaths = 0;
    for (uint32_t i = 0; i < world->n_nodes; i++)
        deaths += counter_get(world->nodes[i].node->cluster->count.deaths);
    return deaths;
}

/* Two requests per node and four seconds. Behind a long cut both sides change nearly all they hold. */
static void ask_behind_the_cut(struct world *world, const struct partition *p)
{
    uint32_t n = p->nodes * p->seconds / 2;
    uint64_t cut_ns = world->now_ns, apart_ns = p->seconds * S_NS / n * 24 / 25;
    for (uint32_t i = 0; i < n; i++)
        ask(world, cut_ns + i * apart_ns, 331 * i, 900, 77 * i, 9, 4)->entry = i % p->nodes;
    world_run_until(world, NULL, cut_ns + p->seconds * S_NS);
}

/*
 * From the mending of the cut on: all know each other within three rounds, and believe what is true after that and the transfer at the cap.
 * Nobody is buried for what the other side believed of its own.
 */
static void heals(const struct partition *p)
{
    static const double rounds_s = 3 * 0.1;
    struct world_config config = calm(p->nodes);
    struct world_result result;
    config.seed = p->seed;
    config.pages = 1500;
    config.gossip_ns = 100 * MS_NS;
    config.gossip_bytes = 20000;
    struct world *world = open_world(&config, &result);
    set_partition(world, p, true);
    ask_behind_the_cut(world, p);
    set_partition(world, p, false);
    uint64_t mended_ns = world->now_ns, deaths = count_deaths(world);
    uint32_t most = most_blocks(world);
    assert_true(p->seconds < 60 || (most > 1000 && world_answered(world)));
    assert_true(world_run_until(world, all_alive, mended_ns + 20 * S_NS));
    double alive_s = (double)(world->now_ns - mended_ns) / 1e9;
    assert_true(world_run_until(world, settled_now, mended_ns + 60 * S_NS));
    double equal_s = (double)(world->now_ns - mended_ns) / 1e9;
    double transfer_s = (most * 8.0 + BLOCK_SET_PAGES * 32.0) / config.gossip_bytes; /* names; checksums and heads of pages */
    print_message("seed %u, %u|%u%s for %u s: alive after %.2f s, equal after %.2f s; %u blocks at the cap take %.2f s\n", (unsigned)p->seed,
                  p->first, p->nodes - p->first, p->one_way ? " one-way" : "", p->seconds, alive_s, equal_s, most, transfer_s);
    assert_true(alive_s <= rounds_s);
    assert_true(equal_s <= rounds_s + transfer_s);
    if (p->seconds >= 60) /* behind a short one somebody may be dying still */
        assert_int_equal(count_deaths(world), deaths);
    finish(world, &result);
}

static void partition_with_heavy_change(void **state)
{
    for (uint64_t seed = 1; seed <= 3; seed++) {
        heals(&(struct partition){.seed = seed, .nodes = 4, .first = 3, .seconds = 60});
        heals(&(struct partition){.seed = seed, .nodes = 4, .first = 1 + seed % 3, .one_way = true, .seconds = 60});
    }
    heals(&(struct partition){.seed = 4, .nodes = 16, .first = 8, .seconds = 60});
    heals(&(struct partition){.seed = 5, .nodes = 18, .first = 6, .one_way = true, .seconds = 60});
}

/* Sessions outlive it, or have ended on one side only. */
static void short_partition(void **state)
{
    static const uint32_t SECONDS[] = {2, 4, 7, 12, 20};
    for (uint32_t i = 0; i < 2 * sizeof SECONDS / sizeof *SECONDS; i++)
        heals(&(struct partition){.seed = 1 + i, .nodes = 4 + i, .first = 1 + i / 2, .one_way = i & 1, .seconds = SECONDS[i / 2]});
}

/* Waiting, in prefill, in decode, here and at peers: all leave within 2 ms, and 2 s later nothing is left of them anywhere. */
static void clients_that_hang_up(void **state)
{
    enum { N = 400 };
    for (uint64_t seed = 1; seed <= 2; seed++) {
        struct world_config config = calm(4);
        struct world_result result;
        config.seed = seed;
        struct world *world = open_world(&config, &result);
        uint64_t start_ns = world->now_ns, leave_ns = start_ns + 3 * S_NS;
        for (uint32_t i = 0; i < N; i++) {
            struct client *client = ask(world, start_ns + i * 7 * MS_NS, 5000 * (i % 6), 200, 9000 + 50 * i, 20, 600);
            client->entry = i % 4;
            client->cancel_ns = leave_ns + i % 3 * MS_NS;
        }
        world_run_until(world, NULL, leave_ns - 1);
        uint32_t waiting = 0, running = 0, for_peers = 0;
        for (uint32_t i = 0; i < 4; i++) {
            struct node_counts counts;
            node_counts(world->nodes[i].node, &counts);
            waiting += counts.waiting;
            running += counts.running;
            for_peers += counts.computing_for_peers;
        }
        print_message("seed %u: %u waited, %u ran, %u of them for peers\n", (unsigned)seed, waiting, running, for_peers);
        assert_true(waiting > 10 && running > 10 && for_peers > 10);
        assert_true(world_run_until(world, world_answered, leave_ns + 2 * S_NS));
        for (uint32_t i = 0; i < 4; i++)
            check_idle(&world->nodes[i]);
        finish(world, &result);
    }
}

static uint32_t computing_for_peers(const struct world *world, uint32_t node)
{
    struct node_counts counts;
    node_counts(world->nodes[node].node, &counts);
    return counts.computing_for_peers;
}

/* Held to be dead but alive, its connection too: its work goes elsewhere, and it hears of that when it is seen again. */
static void a_peer_that_was_cut_off(void **state)
{
    struct world_config config = calm(4);
    struct world_result result;
    struct world *world = open_world(&config, &result);
    ask(world, world->now_ns, 1, HEAD, 9000, 20, 1)->entry = 0;
    assert_true(world_run_until(world, world_answered, world->now_ns + 60 * S_NS));
    assert_true(world_run_until(world, world_settled, world->now_ns + 60 * S_NS));
    uint32_t holder = 0;
    while (!world->nodes[holder].rows[0])
        holder++;
    ask(world, world->now_ns, 1, HEAD, 9500, 20, 1000)->entry = (holder + 1) % 4;
    world_run_until(world, NULL, world->now_ns + 500 * MS_NS);
    assert_int_equal(computing_for_peers(world, holder), 1);
    block_all(world, holder, true);
    const struct cluster *entry = world->nodes[(holder + 1) % 4].node->cluster;
    const struct member *m = member_by_boot(entry, world->nodes[holder].node->cluster->info.boot_id);
    for (uint64_t end_ns = world->now_ns + 4 * S_NS; m->state != CLUSTER_PEER_DEAD && world->now_ns < end_ns;)
        world_run_until(world, NULL, world->now_ns + 50 * MS_NS);
    assert_int_equal(m->state, CLUSTER_PEER_DEAD); /* the others agree sooner than it does alone */
    assert_true(m->up);
    assert_int_equal(computing_for_peers(world, holder), 1);
    block_all(world, holder, false);
    world_run_until(world, NULL, world->now_ns + 3 * S_NS);
    assert_int_equal(computing_for_peers(world, holder), 0);
    finish(world, &result);
    assert_true(result.takeovers > 0);
}

int main(void)
{
    log_setup(LOG_LEVEL_ERROR, LOG_FORMAT_TEXT);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cold_requests_with_one_head),
        cmocka_unit_test(one_head_with_different_tails),
        cmocka_unit_test(computing_for_each_other_with_full_pools),
        cmocka_unit_test(partition_with_heavy_change),
        cmocka_unit_test(short_partition),
        cmocka_unit_test(clients_that_hang_up),
        cmocka_unit_test(a_peer_that_was_cut_off),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

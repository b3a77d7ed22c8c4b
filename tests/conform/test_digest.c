/*
 * A digest of 65,536 blocks over every fabric whose pages can be read: two clusters on real transports, where one has the blocks and the
 * other comes later. It must know all of them, and have asked for none.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "core/base/rng.h"
#include "core/cluster/cluster.h"
#include "core/cluster/wire.h"
#include "tests/conform/fabric.h"

enum { LISTENER, ORIGIN, BLOCKS = 65536, BATCH = 256, PATIENCE_S = 60 };

static enum fabric fabric;

struct party {
    struct transport *transport;
    struct env env;
    struct rng rng;
    struct cluster *cluster;
    struct radix_listener tree;
    uint64_t received[256]; /* messages by kind */
};

static struct party parties[2];
static uint64_t names[BLOCKS];

static uint64_t now(void *self)
{
    (void)self;
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

static uint64_t random_number(void *self)
{
    return rng_u64(&((struct party *)self)->rng);
}

static void open_party(struct world *world, uint32_t which)
{
    struct party *party = &parties[which];
    struct cluster_config config = {.page_tokens = 16, .arithmetic = "f32", .gossip_bytes_per_s = UINT64_C(1) << 30};
    *party = (struct party){.env = {.now_ns = now, .random_u64 = random_number, .self = party}};
    snprintf(config.name, sizeof config.name, "node%u", which);
    rng_seed(&party->rng, which + 1);
    world_start(world, which, false);
    party->transport = world_node(world, which)->transport;
    assert_int_equal(cluster_create(&config, &party->env, party->transport, NULL, NULL, &party->cluster), 0);
    party->tree = cluster_radix_listener(party->cluster);
}

static void step(struct party *party)
{
    struct transport_event events[32];
    uint64_t now_ns = now(NULL);
    int n = party->transport->ops->poll(party->transport, now_ns, events, 32);
    for (int i = 0; i < n; i++) {
        if (events[i].kind == TRANSPORT_MESSAGE && events[i].len > 0)
            party->received[events[i].data[0]]++;
        cluster_on_event(party->cluster, &events[i], now_ns);
    }
    cluster_step(party->cluster, now_ns);
}

static uint32_t known_blocks(void)
{
    struct cluster_peer_info info = {.replica_blocks = 0};
    return cluster_peers(parties[LISTENER].cluster) && cluster_peer(parties[LISTENER].cluster, 0, &info) == 0 ? info.replica_blocks : 0;
}

static void fill_origin(void)
{
    struct party *origin = &parties[ORIGIN];
    struct rng rng;
    rng_seed(&rng, 20261130);
    for (uint32_t i = 0; i < BLOCKS; i++)
        names[i] = rng_u64(&rng);
    for (uint32_t i = 0; i < BLOCKS; i += BATCH)
        origin->tree.added(origin->tree.self, 1, names + i, BATCH);
    for (uint64_t end_ns = now(NULL) + 1500000000; now(NULL) < end_ns;) /* the pages are written */
        step(origin);
}

static void test_digest(void **state)
{
    struct world *world = *state;
    struct transport_info info;
    struct transport_stats stats;
    struct error err = {0};
    open_party(world, ORIGIN);
    parties[ORIGIN].transport->ops->info(parties[ORIGIN].transport, &info);
    if (!info.reads_pages) {
        cluster_destroy(parties[ORIGIN].cluster);
        print_message("          this transport reads no pages of peers\n");
        skip();
    }
    fill_origin();
    open_party(world, LISTENER);
    assert_int_equal(cluster_join(parties[LISTENER].cluster, info.local, &err), 0);
    uint64_t from_ns = now(NULL);
    while (known_blocks() < BLOCKS && now(NULL) - from_ns < PATIENCE_S * UINT64_C(1000000000)) {
        step(&parties[LISTENER]);
        step(&parties[ORIGIN]);
    }
    uint64_t took_ns = now(NULL) - from_ns;
    assert_int_equal(known_blocks(), BLOCKS);
    for (uint32_t i = 0; i < BLOCKS; i++)
        assert_true(parties[LISTENER].tree.held_elsewhere(parties[LISTENER].tree.self, names[i]));
    const uint64_t *asked = parties[ORIGIN].received, *told = parties[LISTENER].received;
    assert_int_equal(asked[WIRE_PULL] + asked[WIRE_PAGE_REQUEST], 0);
    assert_int_equal(told[WIRE_MANIFEST] + told[WIRE_PAGE], 0);
    parties[LISTENER].transport->ops->stats(parties[LISTENER].transport, &stats);
    assert_true(stats.reads >= BLOCK_SET_PAGES + 2); /* all pages, their checksums, a header */
    print_message("          %u blocks after %.1f ms from the first call on: %llu reads, %llu repeated, no question\n", BLOCKS, (double)took_ns / 1e6,
                  (unsigned long long)stats.reads, (unsigned long long)stats.torn_reads);
    cluster_destroy(parties[LISTENER].cluster);
    cluster_destroy(parties[ORIGIN].cluster);
}

static int setup(void **state)
{
    *state = world_create(fabric, 7);
    return 0;
}

static int teardown(void **state)
{
    world_destroy(*state);
    return 0;
}

/* test_digest [FABRIC]: one that is named must be there. */
int main(int argc, char **argv)
{
    static const enum fabric fabrics[] = {FABRIC_INPROC, FABRIC_SOCKETS, FABRIC_VERBS};
    const struct CMUnitTest tests[] = {cmocka_unit_test_setup_teardown(test_digest, setup, teardown)};
    int failed = 0;
    for (size_t i = 0; i < sizeof fabrics / sizeof *fabrics; i++) {
        fabric = fabrics[i];
        if (argc > 1 && strcmp(argv[1], fabric_names[fabric]) != 0)
            continue;
        const char *missing = fabric_missing(fabric);
        if (missing) {
            print_message("          not here: %s\n", missing);
            failed += argc > 1;
            continue;
        }
        failed += cmocka_run_group_tests_name(fabric_names[fabric], tests, NULL, NULL);
    }
    return failed ? 1 : 0;
}

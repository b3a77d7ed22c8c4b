/* How often nodes at rest wake, and how soon they know news: over verbs, on a device that is memory (fake_device.h), and over sockets. Time is
 * counted, not read; what wakes a sleeping node is what wakes its loop: a time that was named, or the descriptor. */
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "core/base/rng.h"
#include "core/cluster/cluster.h"
#include "net/verbs/verbs.h"

enum { NODES = 4, EVENTS = 32, INSERTIONS = 300 };
#define SECOND UINT64_C(1000000000)
static const uint64_t TURN_NS = 20000, SHORT_NS = 200000, APART_NS = 23000000, SETTLE_NS = 2 * SECOND, REST_NS = 10 * SECOND;
static const uint8_t key[NET_GROUP_KEY_BYTES] = "a group's key";

struct node {
    struct env env;
    struct rng rng;
    struct transport *transport;
    struct cluster *cluster;
    uint64_t next_ns; /* to be called again */
    bool is_asleep;
    uint32_t wakes, turns;
};

static uint64_t now_ns;
static struct node nodes[NODES];
static uint32_t n_nodes;

static uint64_t counted_now(void *self)
{
    (void)self;
    return now_ns;
}

static uint64_t drawn(void *self)
{
    return rng_u64(&((struct node *)self)->rng);
}

static void open_node(uint32_t i, bool over_verbs, uint64_t interval_ns)
{
    struct node *node = &nodes[i];
    struct cluster_config config = {.page_tokens = 16, .arithmetic = "f32", .gossip_interval_ns = interval_ns};
    struct transport_verbs_config verbs = {.bind = "127.0.0.1:0", .group_key = key};
    struct transport_sockets_config sockets = {.bind = "127.0.0.1:0", .group_key = key};
    *node = (struct node){.env = {.now_ns = counted_now, .random_u64 = drawn, .self = node}};
    rng_seed(&node->rng, i + 1);
    int rc = over_verbs ? transport_verbs_create(&verbs, &node->env, &node->transport, NULL)
                        : transport_sockets_create(&sockets, &node->env, &node->transport, NULL);
    assert_int_equal(rc, 0);
    snprintf(config.name, sizeof config.name, "node%u", i);
    assert_int_equal(cluster_create(&config, &node->env, node->transport, NULL, NULL, &node->cluster), 0);
}

/* One turn of the node's loop. */
static void turn(struct node *node)
{
    struct transport_event events[EVENTS];
    int n = node->transport->ops->poll(node->transport, now_ns, events, EVENTS);
    for (int i = 0; i < n; i++)
        cluster_on_event(node->cluster, &events[i], now_ns);
    uint64_t cluster_ns = cluster_step(node->cluster, now_ns), transport_ns = node->transport->ops->next_deadline_ns(node->transport);
    node->next_ns = cluster_ns < transport_ns ? cluster_ns : transport_ns;
    node->is_asleep = node->next_ns > now_ns;
    node->turns++;
}

static bool is_woken(const struct node *node)
{
    struct pollfd fd = {.fd = node->transport->ops->wait_fd(node->transport), .events = POLLIN};
    return !node->is_asleep || now_ns >= node->next_ns || poll(&fd, 1, 0) > 0;
}

static void run_until(uint64_t end_ns)
{
    while (now_ns < end_ns) {
        uint64_t next_ns = end_ns;
        bool any = false;
        for (uint32_t i = 0; i < n_nodes; i++) {
            struct node *node = &nodes[i];
            if (is_woken(node)) {
                node->wakes += node->is_asleep;
                turn(node);
                any = true;
            }
            next_ns = node->next_ns < next_ns ? node->next_ns : next_ns;
        }
        now_ns = any || next_ns <= now_ns ? now_ns + TURN_NS : next_ns;
    }
}

/* That many nodes know each other; interval_ns 0: as by default. */
static void open_group(uint32_t n, bool over_verbs, uint64_t interval_ns)
{
    struct transport_info info;
    now_ns = SECOND;
    for (n_nodes = 0; n_nodes < n; run_until(now_ns + APART_NS)) { /* so that their rounds do not fall together */
        open_node(n_nodes, over_verbs, interval_ns);
        if (n_nodes > 0)
            assert_int_equal(cluster_join(nodes[n_nodes].cluster, info.local, NULL), 0);
        else
            nodes[0].transport->ops->info(nodes[0].transport, &info);
        n_nodes++;
    }
    run_until(now_ns + SETTLE_NS);
    for (uint32_t i = 0; i < n; i++)
        assert_int_equal(cluster_peers(nodes[i].cluster), n - 1);
}

static void close_group(void)
{
    for (uint32_t i = 0; i < n_nodes; i++) {
        cluster_destroy(nodes[i].cluster);
        nodes[i].transport->ops->destroy(nodes[i].transport);
    }
}

/* ---- at rest ---- */

/* Wake-ups a second of one node, on average. */
static double measure_rest(bool over_verbs)
{
    uint32_t wakes = 0, turns = 0;
    open_group(NODES, over_verbs, 0);
    for (uint32_t i = 0; i < NODES; i++)
        nodes[i].wakes = nodes[i].turns = 0;
    run_until(now_ns + REST_NS);
    for (uint32_t i = 0; i < NODES; i++) {
        wakes += nodes[i].wakes;
        turns += nodes[i].turns;
    }
    close_group();
    double seconds = (double)REST_NS / 1e9 * NODES;
    printf("    %s: %.1f wake-ups and %.1f turns a second\n", over_verbs ? "verbs" : "sockets", wakes / seconds, turns / seconds);
    return wakes / seconds;
}

static void test_nodes_at_rest(void **state)
{
    (void)state;
    double verbs = measure_rest(true), sockets = measure_rest(false);
    assert_true(verbs <= 1.2 * sockets);
}

/* ---- news ---- */

static int in_order(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

/* From the moment at which a block enters one node's tree, anywhere between two rounds, until its peer knows it. */
static void test_news_at_a_short_interval(void **state)
{
    (void)state;
    static uint64_t delays_ns[INSERTIONS];
    struct rng rng;
    rng_seed(&rng, 7);
    open_group(2, true, SHORT_NS);
    struct radix_listener origin = cluster_radix_listener(nodes[0].cluster), peer = cluster_radix_listener(nodes[1].cluster);
    for (int i = 0; i < INSERTIONS; i++) {
        run_until(now_ns + rng_below(&rng, 2 * SHORT_NS));
        uint64_t name = rng_u64(&rng), from_ns = now_ns;
        origin.added(origin.self, 1, &name, 1);
        nodes[0].is_asleep = false; /* what brought the block woke it */
        while (!peer.held_elsewhere(peer.self, name) && now_ns < from_ns + SECOND)
            run_until(now_ns + 1);
        delays_ns[i] = now_ns - from_ns;
    }
    close_group();
    qsort(delays_ns, INSERTIONS, sizeof delays_ns[0], in_order);
    double median_us = (double)delays_ns[INSERTIONS / 2] / 1e3, p99_us = (double)delays_ns[INSERTIONS - INSERTIONS / 100] / 1e3;
    printf("    insertion to visibility %.0f us, p99 %.0f us\n", median_us, p99_us);
    assert_true(delays_ns[INSERTIONS / 2] <= 3 * TURN_NS);
    assert_true(delays_ns[INSERTIONS - INSERTIONS / 100] <= SHORT_NS + 3 * TURN_NS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_nodes_at_rest), cmocka_unit_test(test_news_at_a_short_interval)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* The cluster over the real reliability layer and sealing, on the simulated wire: what the made-up network of world.h might get
 * wrong. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "core/base/rng.h"
#include "core/cluster/cluster.h"
#include "net/net.h"
#include "net/sim_carrier.h"

enum { N = 4 };

struct node {
    char address[32];
    struct env env;
    struct rng rng;
    struct transport *transport;
    struct cluster *cluster;
    struct radix_listener digest;
    uint64_t wake_ns;
    uint32_t gone_calls;
    bool is_up;
};

static struct sim_net *net;
static struct node nodes[N];
static uint64_t now_ns;
static const uint64_t ms = 1000000;

static uint64_t env_now(void *self)
{
    return now_ns;
}

static uint64_t env_random(void *self)
{
    return rng_u64(&((struct node *)self)->rng);
}

static void on_gone(void *self, uint32_t peer)
{
    ((struct node *)self)->gone_calls++;
}

static void boot(int i, uint64_t seed)
{
    struct node *node = &nodes[i];
    static const uint8_t key[NET_GROUP_KEY_BYTES] = {1, 2, 3};
    snprintf(node->address, sizeof node->address, "node%d:1", i);
    rng_seed(&node->rng, seed);
    node->env = (struct env){env_now, env_random, node};
    struct carrier *carrier;
    struct error err = {0};
    assert_int_equal(sim_carrier_create(net, node->address, &carrier, &err), 0);
    assert_int_equal(transport_reliable_create(carrier, "simulated", key, NULL, &node->env, &node->transport, &err), 0);
    struct cluster_config config = {.page_tokens = 16, .arithmetic = "f32"};
    snprintf(config.name, sizeof config.name, "node%d", i);
    struct cluster_listener listener = {.peer_gone = on_gone, .self = node};
    assert_int_equal(cluster_create(&config, &node->env, node->transport, NULL, &listener, &node->cluster), 0);
    assert_int_equal(cluster_join(node->cluster, i ? "node0:1" : "node1:1", &err), 0);
    node->digest = cluster_radix_listener(node->cluster);
    node->wake_ns = now_ns;
    node->is_up = true;
}

static void stop(int i)
{
    cluster_destroy(nodes[i].cluster);
    nodes[i].transport->ops->destroy(nodes[i].transport);
    nodes[i].is_up = false;
}

static void step(struct node *node)
{
    struct transport_event events[32];
    int n;
    do {
        n = node->transport->ops->poll(node->transport, now_ns, events, 32);
        for (int i = 0; i < n; i++)
            assert_true(cluster_on_event(node->cluster, &events[i], now_ns));
    } while (n == 32);
    uint64_t next = cluster_step(node->cluster, now_ns);
    uint64_t deadline = node->transport->ops->next_deadline_ns(node->transport);
    node->wake_ns = next < deadline ? next : deadline;
}

static void run(uint64_t for_ns)
{
    uint64_t end_ns = now_ns + for_ns;
    while (now_ns < end_ns) {
        uint64_t next = sim_net_next_event_ns(net);
        for (int i = 0; i < N; i++)
            if (nodes[i].is_up && nodes[i].wake_ns < next)
                next = nodes[i].wake_ns;
        now_ns = next <= now_ns ? now_ns + 10000 : next < end_ns ? next : end_ns;
        sim_net_advance(net, now_ns);
        for (int i = 0; i < N; i++)
            if (nodes[i].is_up)
                step(&nodes[i]);
    }
}

static uint32_t count_routable(int at)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < cluster_peers(nodes[at].cluster); i++) {
        struct cluster_peer_info info;
        assert_int_equal(cluster_peer(nodes[at].cluster, i, &info), 0);
        n += info.routable;
    }
    return n;
}

static void expect_all_routable(uint32_t peers, uint64_t within_ns)
{
    bool all = false;
    for (uint64_t waited = 0; waited < within_ns && !all; waited += 20 * ms) {
        run(20 * ms);
        all = true;
        for (int i = 0; i < N; i++)
            all &= !nodes[i].is_up || count_routable(i) == peers;
    }
    assert_true(all);
}

static void expect_known(int origin, const uint64_t *names, uint32_t n, uint64_t within_ns)
{
    bool all = false;
    for (uint64_t waited = 0; waited < within_ns && !all; waited += 10 * ms) {
        run(10 * ms);
        all = true;
        for (int i = 0; i < N; i++)
            for (uint32_t k = 0; i != origin && nodes[i].is_up && k < n; k++)
                all &= nodes[i].digest.held_elsewhere(nodes[i].digest.self, names[k]);
    }
    assert_true(all);
}

static void test_over_the_real_transport(void **state)
{
    struct sim_net_config config = {.seed = 11,
                                    .link = {.delay_ns = ms, .jitter_ns = ms, .loss = 0.05, .duplicate = 0.02, .reorder = 0.05}};
    net = sim_net_create(&config);
    now_ns = 1000 * ms;
    sim_net_advance(net, now_ns);
    for (int i = 0; i < N; i++)
        boot(i, 100 + (uint64_t)i);
    expect_all_routable(N - 1, 10000 * ms);

    static uint64_t names[20000];
    struct rng rng;
    rng_seed(&rng, 5);
    for (int i = 0; i < 20000; i++)
        names[i] = rng_u64(&rng);
    nodes[1].digest.added(nodes[1].digest.self, 1, names, 200);
    expect_known(1, names, 200, 1000 * ms);

    /* A crash is noticed by all, once each; the restart is a new member that fetches all that it missed: pages, by reliable
     * messages. */
    uint32_t gone[N];
    for (int i = 0; i < N; i++)
        gone[i] = nodes[i].gone_calls;
    assert_int_equal(sim_net_kill(net, nodes[2].address), 0);
    stop(2);
    nodes[1].digest.added(nodes[1].digest.self, 1, names + 200, 19800);
    run(8000 * ms);
    for (int i = 0; i < N; i++)
        assert_true(i == 2 || nodes[i].gone_calls == gone[i] + 1);
    boot(2, 777);
    expect_all_routable(N - 1, 10000 * ms);
    expect_known(1, names, 20000, 10000 * ms);
    for (int i = 0; i < N; i++)
        stop(i);
    sim_net_destroy(net);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_over_the_real_transport)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

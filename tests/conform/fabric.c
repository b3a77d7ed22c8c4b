#include "tests/conform/fabric.h"

#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

#include <cmocka.h>

#include "core/base/error.h"
#include "net/dpdk/dpdk.h"
#include "net/net.h"
#include "net/sim_carrier.h"
#include "net/verbs/ud.h"
#include "tests/conform/dpdk_hub.h"

const char *const fabric_names[FABRICS] = {"inproc", "sockets", "simulated, clean",
                                           "simulated, 5 % loss, duplication and reordering", "verbs", "RDMA datagrams", "dpdk",
                                           "dpdk, 5 % loss, duplication and reordering"};

#define MS UINT64_C(1000000)
enum { NAP_NS = 20000 };

struct world {
    enum fabric fabric;
    struct inproc_hub *hub;
    struct sim_net *net;
    struct env env[WORLD_NODES];
    uint64_t now_ns; /* of inproc and simulated worlds */
    struct node nodes[WORLD_NODES];
};

static const uint8_t right_key[NET_GROUP_KEY_BYTES] = "the group key of all these tests";
static const uint8_t other_key[NET_GROUP_KEY_BYTES] = "the group key of somebody else..";

/* ---- time and randomness ---- */

static uint64_t real_now(void *self)
{
    (void)self;
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000 * MS + (uint64_t)t.tv_nsec;
}

static uint64_t real_random(void *self)
{
    (void)self;
    uint64_t value;
    assert_int_equal(getrandom(&value, sizeof value, 0), sizeof value);
    return value;
}

static bool is_dpdk(enum fabric fabric)
{
    return fabric == FABRIC_DPDK || fabric == FABRIC_DPDK_LOSSY;
}

static bool is_verbs(enum fabric fabric)
{
    return fabric == FABRIC_VERBS || fabric == FABRIC_VERBS_UD;
}

/* Descriptors and the kernel's clock, not a hub or a simulated net. */
static bool is_real(enum fabric fabric)
{
    return fabric == FABRIC_SOCKETS || is_verbs(fabric) || is_dpdk(fabric);
}

static uint64_t world_now(const struct world *world)
{
    return is_real(world->fabric) ? real_now(NULL) : world->now_ns;
}

/* ---- making ---- */

/* Where a node is to be found. In the virtual machine of tests/lab each RDMA host has an address of its own. */
static void choose_address(enum fabric fabric, uint32_t i, char *text, size_t size)
{
    const char *hosts = getenv("LAB_HOSTS");
    if (is_verbs(fabric) && hosts != NULL)
        snprintf(text, size, "10.77.0.%u:0", i % (uint32_t)strtoul(hosts, NULL, 10) + 1);
    else if (is_dpdk(fabric))
        snprintf(text, size, "10.77.0.%u:7070", i + 1);
    else
        snprintf(text, size, is_real(fabric) ? "127.0.0.1:0" : "node%u:7070", i);
}

static int create_verbs(enum fabric fabric, const struct transport_verbs_config *config, const struct env *env, struct transport **out,
                        struct error *err)
{
    return fabric == FABRIC_VERBS ? transport_verbs_create(config, env, out, err) : transport_verbs_ud_create(config, env, out, err);
}

const char *fabric_missing(enum fabric fabric)
{
    static struct error err;
    struct transport_verbs_config config = {.bind = "127.0.0.1:0", .group_key = right_key};
    struct env env = {.now_ns = real_now, .random_u64 = real_random};
    struct transport *transport;
    if (is_dpdk(fabric))
        return dpdk_hub_start(0, 0, &err) == HS_ERR_UNSUPPORTED ? err.text : NULL;
    if (!is_verbs(fabric))
        return NULL;
    int status = create_verbs(fabric, &config, &env, &transport, &err);
    if (status == 0)
        transport->ops->destroy(transport);
    return status == HS_ERR_UNSUPPORTED ? err.text : NULL; /* anything else is for the tests to find */
}

struct world *world_create(enum fabric fabric, uint64_t seed)
{
    struct world *world = calloc(1, sizeof *world);
    assert_non_null(world);
    world->fabric = fabric;
    world->now_ns = 1000 * MS;
    struct sim_net_config config = {.seed = seed, .link = {.delay_ns = 200000, .jitter_ns = 50000}};
    if (fabric == FABRIC_SIM_LOSSY) {
        config.link.loss = config.link.duplicate = config.link.reorder = 0.05;
        config.link.reorder_ns = 2 * MS;
    }
    if (is_dpdk(fabric))
        assert_int_equal(dpdk_hub_start(fabric == FABRIC_DPDK_LOSSY ? 0.05 : 0, seed, NULL), 0);
    if (fabric == FABRIC_INPROC) {
        world->hub = inproc_hub_create();
        assert_non_null(world->hub);
    } else if (!is_real(fabric)) {
        world->net = sim_net_create(&config);
        assert_non_null(world->net);
        sim_net_advance(world->net, world->now_ns);
    }
    for (uint32_t i = 0; i < WORLD_NODES; i++) {
        world->env[i] = (struct env){.now_ns = real_now, .random_u64 = real_random};
        if (world->net != NULL)
            assert_int_equal(sim_net_env(world->net, i, &world->env[i]), 0);
        choose_address(fabric, i, world->nodes[i].address, sizeof world->nodes[i].address);
    }
    return world;
}

struct node *world_node(struct world *world, uint32_t i)
{
    return &world->nodes[i];
}

void world_start(struct world *world, uint32_t i, bool wrong_key)
{
    struct node *node = &world->nodes[i];
    /* Over what loses a tenth, the repetitions that a stalled receiver spreads out may be lost three times in a row: that is not its death. */
    uint64_t silence_ns = (getenv("LAB_LOSSY") != NULL ? 10000 : 1000) * MS;
    struct net_tuning tuning = {.peer_timeout_ns = silence_ns, .connect_retry_min_ns = 20 * MS, .connect_retry_max_ns = 200 * MS};
    const uint8_t *key = wrong_key ? other_key : right_key;
    struct error err = {0};
    struct carrier *carrier;
    int status;
    if (world->fabric == FABRIC_INPROC) {
        status = transport_inproc_create(world->hub, node->address, &world->env[i], &node->transport, &err);
    } else if (world->fabric == FABRIC_SOCKETS) {
        struct transport_sockets_config config = {.bind = node->address, .group_key = key, .tuning = tuning};
        status = transport_sockets_create(&config, &world->env[i], &node->transport, &err);
    } else if (is_verbs(world->fabric)) {
        struct transport_verbs_config config = {.bind = node->address, .group_key = key, .tuning = tuning, .ask_paths = i % 2 == 1, .receive_datagrams = 256};
        status = create_verbs(world->fabric, &config, &world->env[i], &node->transport, &err);
    } else if (is_dpdk(world->fabric)) {
        char device[32];
        snprintf(device, sizeof device, "net_memif%u", i);
        struct transport_dpdk_config config = {.carrier = {.bind = node->address, .eal = dpdk_hub_eal(), .device = device}, .group_key = key,
                                               .tuning = tuning};
        status = transport_dpdk_create(&config, &world->env[i], &node->transport, &err);
    } else {
        status = sim_carrier_create(world->net, node->address, &carrier, &err);
        if (status == 0)
            status = transport_reliable_create(carrier, "simulated", key, &tuning, &world->env[i], &node->transport, &err);
    }
    if (status != 0)
        fail_msg("node %u: %s", i, err.text);
    struct transport_info info;
    node->transport->ops->info(node->transport, &info);
    memcpy(node->address, info.local, sizeof node->address); /* the port that was free */
    node->messages_tail = &node->messages;
}

void world_stop(struct world *world, uint32_t i)
{
    struct node *node = &world->nodes[i];
    if (world->net != NULL)
        sim_net_kill(world->net, node->address);
    node->transport->ops->destroy(node->transport);
    struct message *message;
    while ((message = world_take(world, i)) != NULL)
        free(message);
    struct node fresh = {0};
    memcpy(fresh.address, node->address, sizeof fresh.address);
    *node = fresh;
}

void world_destroy(struct world *world)
{
    for (uint32_t i = 0; i < WORLD_NODES; i++)
        if (world->nodes[i].transport != NULL)
            world_stop(world, i);
    sim_net_destroy(world->net);
    inproc_hub_destroy(world->hub);
    free(world);
}

/* ---- running ---- */

static void keep_message(struct node *node, const struct transport_event *event)
{
    struct message *message = malloc(sizeof *message + event->len);
    assert_non_null(message);
    *message = (struct message){.peer = event->peer, .len = event->len};
    if (event->len)
        memcpy(message->data, event->data, event->len);
    *node->messages_tail = message;
    node->messages_tail = &message->next;
    node->n_messages++;
}

static void on_event(struct node *node, const struct transport_event *event)
{
    assert_true(event->peer < WORLD_PEERS);
    switch (event->kind) {
    case TRANSPORT_PEER_UP:
        assert_false(node->up[event->peer]);
        node->up[event->peer] = true;
        node->ups[event->peer]++;
        node->n_up++;
        node->peer_boot_id[event->peer] = event->boot_id;
        break;
    case TRANSPORT_PEER_DOWN:
        assert_true(node->up[event->peer]);
        assert_int_not_equal(event->status, 0);
        node->up[event->peer] = false;
        node->downs[event->peer]++;
        node->n_up--;
        node->down_status[event->peer] = event->status;
        break;
    case TRANSPORT_MESSAGE:
        assert_true(node->up[event->peer]);
        keep_message(node, event);
        break;
    case TRANSPORT_READ_DONE:
        node->reads_done++;
        node->read_status = event->status;
        node->read_cookie = event->cookie;
        if (node->on_read != NULL)
            node->on_read(node->on_read_arg, event);
        break;
    }
}

/* Waits for a datagram or the next deadline, at most 5 ms, or a nap where there is nothing to sleep on. */
static void wait_real(struct world *world, uint64_t deadline)
{
    struct pollfd fds[WORLD_NODES];
    nfds_t n = 0;
    for (uint32_t i = 0; i < WORLD_NODES; i++)
        if (world->nodes[i].transport != NULL && !world->nodes[i].stalled)
            fds[n++] = (struct pollfd){.fd = world->nodes[i].transport->ops->wait_fd(world->nodes[i].transport), .events = POLLIN};
    uint64_t now = real_now(NULL), limit = now + (is_dpdk(world->fabric) ? NAP_NS : 5 * MS);
    deadline = deadline < limit ? deadline : limit;
    struct timespec timeout = {.tv_nsec = deadline > now ? (long)(deadline - now) : 0};
    ppoll(fds, n, &timeout, NULL);
}

void world_step(struct world *world)
{
    uint64_t now = world_now(world), deadline = UINT64_MAX;
    if (is_dpdk(world->fabric))
        dpdk_hub_step();
    for (uint32_t i = 0; i < WORLD_NODES; i++) {
        struct node *node = &world->nodes[i];
        if (node->transport == NULL || node->stalled)
            continue;
        struct transport_event events[16];
        int n = node->transport->ops->poll(node->transport, now, events, 16);
        assert_in_range(n, 0, 16);
        for (int e = 0; e < n; e++)
            on_event(node, &events[e]);
        uint64_t own = node->transport->ops->next_deadline_ns(node->transport);
        deadline = own < deadline ? own : deadline;
    }
    if (is_real(world->fabric)) {
        wait_real(world, deadline);
        return;
    }
    uint64_t wire = world->net ? sim_net_next_event_ns(world->net) : UINT64_MAX;
    deadline = wire < deadline ? wire : deadline;
    uint64_t limit = world->now_ns + 5 * MS;
    deadline = deadline < limit ? deadline : limit;
    world->now_ns = deadline > world->now_ns ? deadline : world->now_ns + 1000; /* work that is due takes time, too */
    if (world->net != NULL)
        sim_net_advance(world->net, world->now_ns);
}

void world_run_ms(struct world *world, uint64_t ms)
{
    for (uint64_t end = world_now(world) + ms * MS; world_now(world) < end;)
        world_step(world);
}

bool world_run_until(struct world *world, bool (*condition)(struct world *world, void *arg), void *arg, uint64_t timeout_ms)
{
    uint64_t end = world_now(world) + timeout_ms * MS;
    while (!condition(world, arg)) {
        if (world_now(world) >= end)
            return false;
        world_step(world);
    }
    return true;
}

uint32_t world_resolve(struct world *world, uint32_t a, uint32_t b)
{
    struct transport *transport = world->nodes[a].transport;
    uint32_t peer;
    assert_int_equal(transport->ops->resolve(transport, world->nodes[b].address, &peer), 0);
    assert_true(peer < WORLD_PEERS);
    return peer;
}

static bool both_up(struct world *world, void *arg)
{
    (void)arg;
    return world->nodes[0].n_up == 1 && world->nodes[1].n_up == 1;
}

void world_pair(struct world *world, uint32_t *a_to_b, uint32_t *b_to_a)
{
    world_start(world, 0, false);
    world_start(world, 1, false);
    *a_to_b = world_resolve(world, 0, 1);
    assert_true(world_run_until(world, both_up, NULL, 10000));
    *b_to_a = 0; /* the first peer that b ever saw */
}

void world_send(struct world *world, uint32_t from, uint32_t peer, const void *data, size_t len)
{
    struct transport *transport = world->nodes[from].transport;
    struct iovec iov = {.iov_base = (void *)(uintptr_t)data, .iov_len = len};
    int status;
    while ((status = transport->ops->send(transport, peer, &iov, 1, 0)) == HS_ERR_BUSY)
        world_step(world);
    assert_int_equal(status, 0);
}

struct message *world_take(struct world *world, uint32_t i)
{
    struct node *node = &world->nodes[i];
    struct message *message = node->messages;
    if (message == NULL)
        return NULL;
    node->messages = message->next;
    if (node->messages == NULL)
        node->messages_tail = &node->messages;
    return message;
}

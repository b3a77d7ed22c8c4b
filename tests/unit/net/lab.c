#include "tests/unit/net/lab.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define MS UINT64_C(1000000)

const uint8_t lab_key[NET_GROUP_KEY_BYTES] = "a key that all nodes here hold..";

/* ---- the tap ---- */

static struct tap *tap_of(const struct carrier *carrier)
{
    return (struct tap *)(uintptr_t)carrier;
}

static uint32_t tap_mtu(const struct carrier *carrier)
{
    return tap_of(carrier)->inner->ops->mtu(tap_of(carrier)->inner);
}

static int tap_resolve(struct carrier *carrier, const char *text, struct carrier_address *out)
{
    return tap_of(carrier)->inner->ops->resolve(tap_of(carrier)->inner, text, out);
}

static void tap_format(const struct carrier *carrier, const struct carrier_address *address, char *text, size_t size)
{
    tap_of(carrier)->inner->ops->format(tap_of(carrier)->inner, address, text, size);
}

static int tap_send(struct carrier *carrier, const struct carrier_datagram *datagrams, uint32_t n)
{
    struct tap *tap = tap_of(carrier);
    for (uint32_t i = 0; i < n; i++) {
        tap->sent_by_type[datagrams[i].data[2] & 15]++;
        if ((datagrams[i].data[2] & 15) == 4)
            tap->newest_generation = datagrams[i].data[3];
    }
    return tap->inner->ops->send(tap->inner, datagrams, n);
}

static int tap_receive(struct carrier *carrier, struct carrier_datagram *datagrams, uint32_t n)
{
    struct tap *tap = tap_of(carrier);
    if (tap->injected.data != NULL) { /* in front of whatever has come by itself */
        datagrams[0] =
            (struct carrier_datagram){.address = tap->injected.from, .data = tap->injected.data, .len = tap->injected.len};
        tap->injected.data = NULL;
        return 1 + tap_receive(carrier, datagrams + 1, n - 1);
    }
    int count = tap->inner->ops->receive(tap->inner, datagrams, n);
    for (int i = 0; i < count && tap->recording && tap->n_records < LAB_RECORDS; i++) {
        struct record *record = &tap->records[tap->n_records++];
        *record = (struct record){.from = datagrams[i].address, .data = malloc(datagrams[i].len), .len = datagrams[i].len};
        assert_non_null(record->data);
        memcpy(record->data, datagrams[i].data, datagrams[i].len);
    }
    return count;
}

static void tap_local(const struct carrier *carrier, char *text, size_t size)
{
    tap_of(carrier)->inner->ops->local(tap_of(carrier)->inner, text, size);
}

static int tap_wait_fd(const struct carrier *carrier)
{
    (void)carrier;
    return -1;
}

static void tap_stats(const struct carrier *carrier, struct carrier_stats *out)
{
    tap_of(carrier)->inner->ops->stats(tap_of(carrier)->inner, out);
}

/* The lab frees the tap itself: its records outlive the node. */
static void tap_destroy(struct carrier *carrier)
{
    tap_of(carrier)->inner->ops->destroy(tap_of(carrier)->inner);
    tap_of(carrier)->inner = NULL;
}

static const struct carrier_ops tap_ops = {
    .mtu = tap_mtu,
    .resolve = tap_resolve,
    .format = tap_format,
    .send = tap_send,
    .receive = tap_receive,
    .local = tap_local,
    .wait_fd = tap_wait_fd,
    .stats = tap_stats,
    .destroy = tap_destroy,
};

/* ---- the lab ---- */

struct lab *lab_create(uint64_t seed, const struct sim_link *link, const struct net_tuning *tuning)
{
    const struct sim_net_config config = {.seed = seed, .link = *link};
    return lab_create_on(&config, tuning);
}

struct lab *lab_create_on(const struct sim_net_config *config, const struct net_tuning *tuning)
{
    struct lab *lab = calloc(1, sizeof *lab);
    assert_non_null(lab);
    lab->net = sim_net_create(config);
    assert_non_null(lab->net);
    lab->tuning = *tuning;
    lab->now_ns = 1000 * MS;
    sim_net_advance(lab->net, lab->now_ns);
    for (uint32_t i = 0; i < LAB_NODES; i++) {
        assert_int_equal(sim_net_env(lab->net, i, &lab->env[i]), 0);
        snprintf(lab->nodes[i].name, sizeof lab->nodes[i].name, "node%u:1", i);
    }
    return lab;
}

void lab_start(struct lab *lab, uint32_t i)
{
    struct lab_node *node = &lab->nodes[i];
    struct error err = {0};
    if (node->tap == NULL)
        node->tap = calloc(1, sizeof *node->tap);
    assert_non_null(node->tap);
    node->tap->carrier.ops = &tap_ops;
    assert_int_equal(sim_carrier_create(lab->net, node->name, &node->tap->inner, &err), 0);
    assert_int_equal(transport_reliable_create(&node->tap->carrier, "simulated", node->key ? node->key : lab_key, &lab->tuning,
                                               &lab->env[i], &node->transport, &err),
                     0);
}

void lab_crash(struct lab *lab, uint32_t i)
{
    struct lab_node *node = &lab->nodes[i];
    assert_int_equal(sim_net_kill(lab->net, node->name), 0);
    node->transport->ops->destroy(node->transport);
    node->transport = NULL;
    memset(node->ups, 0, sizeof node->ups);
    memset(node->downs, 0, sizeof node->downs);
    memset(node->up, 0, sizeof node->up);
    memset(node->last, 0, sizeof node->last);
    node->next_number = node->n_messages = 0;
}

void lab_destroy(struct lab *lab)
{
    for (uint32_t i = 0; i < LAB_NODES; i++) {
        struct lab_node *node = &lab->nodes[i];
        if (node->transport != NULL)
            node->transport->ops->destroy(node->transport);
        for (uint32_t r = 0; node->tap != NULL && r < node->tap->n_records; r++)
            free(node->tap->records[r].data);
        free(node->tap);
    }
    sim_net_destroy(lab->net);
    free(lab);
}

static void check_number(struct lab_node *node, const struct transport_event *event)
{
    uint32_t number;
    assert_true(event->len >= sizeof number);
    memcpy(&number, event->data, sizeof number);
    if (node->checking) {
        assert_int_equal(number, node->next_number);
        node->next_number++;
        return;
    }
    assert_true(node->up[event->peer]);
    assert_true(node->session_new[event->peer] ? number > node->last[event->peer] : number == node->last[event->peer] + 1);
    node->session_new[event->peer] = false;
    node->last[event->peer] = number;
}

static void on_event(struct lab *lab, struct lab_node *node, const struct transport_event *event)
{
    assert_true(event->peer < LAB_PEERS);
    node->trace =
        (node->trace ^ ((uint64_t)event->kind << 32 | event->peer << 24 | event->len) ^ lab->now_ns) * UINT64_C(0x100000001b3);
    if (event->kind == TRANSPORT_PEER_UP) {
        assert_false(node->up[event->peer]);
        node->up[event->peer] = node->session_new[event->peer] = true;
        node->ups[event->peer]++;
        node->boot_id[event->peer] = event->boot_id;
    } else if (event->kind == TRANSPORT_PEER_DOWN) {
        assert_true(node->up[event->peer]);
        node->up[event->peer] = false;
        node->downs[event->peer]++;
        node->down_status[event->peer] = event->status;
        node->down_ns[event->peer] = lab->now_ns;
    } else if (event->kind == TRANSPORT_MESSAGE) {
        if (node->checking || node->in_sequence)
            check_number(node, event);
        node->n_messages++;
        node->bytes += event->len;
    }
}

static void poll_node(struct lab *lab, uint32_t i)
{
    struct lab_node *node = &lab->nodes[i];
    struct transport_event events[32];
    int n = node->transport->ops->poll(node->transport, lab->now_ns, events, 32);
    for (int e = 0; e < n; e++)
        on_event(lab, node, &events[e]);
}

void lab_step(struct lab *lab)
{
    uint64_t deadline = lab->now_ns + 5 * MS;
    for (uint32_t i = 0; i < LAB_NODES; i++) {
        struct lab_node *node = &lab->nodes[i];
        if (node->transport == NULL)
            continue;
        poll_node(lab, i);
        uint64_t own = node->transport->ops->next_deadline_ns(node->transport);
        deadline = own < deadline ? own : deadline;
    }
    uint64_t wire = sim_net_next_event_ns(lab->net);
    deadline = wire < deadline ? wire : deadline;
    lab->now_ns = deadline > lab->now_ns ? deadline : lab->now_ns + 1000;
    sim_net_advance(lab->net, lab->now_ns);
}

void lab_run_ms(struct lab *lab, uint64_t ms)
{
    for (uint64_t end = lab->now_ns + ms * MS; lab->now_ns < end;)
        lab_step(lab);
}

void lab_wait(struct lab *lab, const uint32_t *count, uint32_t wanted, uint64_t timeout_ms)
{
    uint64_t end = lab->now_ns + timeout_ms * MS;
    while (*count < wanted) {
        assert_true(lab->now_ns < end);
        lab_step(lab);
    }
}

uint32_t lab_resolve(struct lab *lab, uint32_t a, uint32_t b)
{
    uint32_t peer;
    assert_int_equal(lab->nodes[a].transport->ops->resolve(lab->nodes[a].transport, lab->nodes[b].name, &peer), 0);
    return peer;
}

void lab_pair(struct lab *lab)
{
    lab_start(lab, 0);
    lab_start(lab, 1);
    assert_int_equal(lab_resolve(lab, 0, 1), 0);
    lab_wait(lab, &lab->nodes[0].ups[0], 1, 20000);
    lab_wait(lab, &lab->nodes[1].ups[0], 1, 20000);
}

int lab_send(struct lab *lab, uint32_t from, uint32_t peer, const void *data, size_t len, uint32_t flags)
{
    struct iovec iov = {.iov_base = (void *)(uintptr_t)data, .iov_len = len};
    return lab->nodes[from].transport->ops->send(lab->nodes[from].transport, peer, &iov, 1, flags);
}

void lab_send_numbers(struct lab *lab, uint32_t from, uint32_t peer, uint32_t first, uint32_t n, uint32_t len)
{
    uint8_t *data = calloc(1, len);
    assert_non_null(data);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t number = first + i;
        int status;
        memcpy(data, &number, sizeof number);
        while ((status = lab_send(lab, from, peer, data, len, 0)) == HS_ERR_BUSY)
            lab_step(lab);
        assert_int_equal(status, 0);
    }
    free(data);
}

void lab_inject(struct lab *lab, uint32_t i, const struct carrier_address *from, const uint8_t *data, uint32_t len)
{
    /* Exactly as long as the datagram, so that a sanitizer sees reads beyond it. */
    uint8_t *exact = malloc(len ? len : 1);
    assert_non_null(exact);
    memcpy(exact, data, len);
    lab->nodes[i].tap->injected = (struct record){.from = *from, .data = exact, .len = len};
    poll_node(lab, i);
    assert_null(lab->nodes[i].tap->injected.data);
    free(exact);
}

uint64_t lab_rejected(struct lab *lab, uint32_t i)
{
    struct transport_stats stats;
    lab->nodes[i].transport->ops->stats(lab->nodes[i].transport, &stats);
    return stats.rejected;
}

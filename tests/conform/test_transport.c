/* One suite for every transport. What a fabric does not have is skipped, with the reason. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/base/error.h"
#include "core/base/rng.h"
#include "tests/conform/fabric.h"
#include "tests/conform/page_tests.h"

static enum fabric fabric; /* the one under test */

static int setup(void **state)
{
    *state = world_create(fabric, 20260131 + (uint64_t)fabric);
    return 0;
}

static int teardown(void **state)
{
    world_destroy(*state);
    return 0;
}

struct count_wanted {
    uint32_t node, messages;
};

static bool have_messages(struct world *world, void *arg)
{
    const struct count_wanted *wanted = arg;
    return world_node(world, wanted->node)->n_messages >= wanted->messages;
}

static void wait_messages(struct world *world, uint32_t node, uint32_t messages)
{
    struct count_wanted wanted = {.node = node, .messages = messages};
    assert_true(world_run_until(world, have_messages, &wanted, 60000));
}

/* Bytes that depend on their place and on the message, so that a mix-up shows. */
static void fill(uint8_t *data, size_t len, uint32_t number)
{
    struct rng rng;
    rng_seed(&rng, number);
    for (size_t i = 0; i < len; i += 8) {
        uint64_t word = rng_u64(&rng);
        memcpy(data + i, &word, len - i < 8 ? len - i : 8);
    }
}

static void check_next(struct world *world, uint32_t node, uint32_t peer, uint32_t number, uint32_t len)
{
    struct message *message = world_take(world, node);
    assert_non_null(message);
    assert_int_equal(message->peer, peer);
    assert_int_equal(message->len, len);
    uint8_t *expected = malloc(len + 1);
    assert_non_null(expected);
    fill(expected, len, number);
    assert_memory_equal(message->data, expected, len);
    free(expected);
    free(message);
}

static void send_numbered(struct world *world, uint32_t from, uint32_t peer, uint32_t number, uint32_t len)
{
    uint8_t *data = malloc(len + 1);
    assert_non_null(data);
    fill(data, len, number);
    world_send(world, from, peer, data, len);
    free(data);
}

static void test_order_and_exactly_once(void **state)
{
    struct world *world = *state;
    uint32_t to_b, to_a;
    world_pair(world, &to_b, &to_a);
    enum { N = 2000 };
    struct rng rng;
    rng_seed(&rng, 7);
    static uint32_t lens[N];
    for (uint32_t i = 0; i < N; i++) {
        lens[i] = (uint32_t)(rng_below(&rng, 20) == 0 ? rng_below(&rng, 20000) : rng_below(&rng, 300));
        send_numbered(world, 0, to_b, i, lens[i]);
        send_numbered(world, 1, to_a, i + N, lens[i]);
        if (i % 64 == 0)
            world_step(world);
    }
    wait_messages(world, 0, N);
    wait_messages(world, 1, N);
    world_run_ms(world, 50); /* a copy that is still on its way would come now */
    assert_int_equal(world_node(world, 0)->n_messages, N);
    assert_int_equal(world_node(world, 1)->n_messages, N);
    for (uint32_t i = 0; i < N; i++) {
        check_next(world, 1, to_a, i, lens[i]);
        check_next(world, 0, to_b, i + N, lens[i]);
    }
    struct transport_stats stats;
    struct transport *transport = world_node(world, 1)->transport;
    transport->ops->stats(transport, &stats);
    assert_int_equal(stats.received_messages, N);
    assert_int_equal(stats.sent_messages, N);
    assert_int_equal(world_node(world, 0)->downs[to_b], 0);
}

static void test_fragmentation(void **state)
{
    struct world *world = *state;
    uint32_t to_b, to_a;
    world_pair(world, &to_b, &to_a);
    struct transport_info info;
    struct transport *transport = world_node(world, 0)->transport;
    transport->ops->info(transport, &info);
    assert_true(info.max_message_bytes >= 1 << 20);
    assert_true(info.max_unreliable_bytes >= 1000);
    uint32_t lens[] = {0, 1, 1000, 1399, 1400, 1401, 1452, 2800, 8192, 65535, 65536, 1 << 20, info.max_message_bytes};
    uint32_t n = sizeof lens / sizeof lens[0];
    for (uint32_t i = 0; i < n; i++)
        send_numbered(world, 0, to_b, i, lens[i]);
    wait_messages(world, 1, n);
    for (uint32_t i = 0; i < n; i++)
        check_next(world, 1, to_a, i, lens[i]);
    char *big = calloc(1, info.max_message_bytes);
    assert_non_null(big);
    struct iovec pieces[2] = {{.iov_base = big, .iov_len = info.max_message_bytes}, {.iov_base = big, .iov_len = 1}};
    assert_int_equal(transport->ops->send(transport, to_b, pieces, 2, 0), HS_ERR_LIMIT);
    free(big);
}

static void test_busy_then_recovery(void **state)
{
    struct world *world = *state;
    uint32_t to_b, to_a;
    world_pair(world, &to_b, &to_a);
    struct transport *transport = world_node(world, 0)->transport;
    enum { LEN = 50000 };
    static uint8_t data[LEN];
    struct iovec iov = {.iov_base = data, .iov_len = LEN};
    uint32_t sent = 0;
    int status = 0;
    while (sent < 100000) {
        fill(data, LEN, sent);
        status = transport->ops->send(transport, to_b, &iov, 1, 0);
        if (status != 0)
            break;
        sent++;
    }
    assert_int_equal(status, HS_ERR_BUSY);
    assert_true(sent >= 20); /* at least 1 MB is taken */
    wait_messages(world, 1, sent);
    for (uint32_t i = 0; i < sent; i++)
        check_next(world, 1, to_a, i, LEN);
    send_numbered(world, 0, to_b, sent, LEN);
    wait_messages(world, 1, sent + 1);
    check_next(world, 1, to_a, sent, LEN);
    assert_int_equal(world_node(world, 0)->downs[to_b], 0);
}

struct peer_state {
    uint32_t node, peer, ups, downs;
};

static bool peer_reached(struct world *world, void *arg)
{
    const struct peer_state *wanted = arg;
    const struct node *node = world_node(world, wanted->node);
    return node->ups[wanted->peer] >= wanted->ups && node->downs[wanted->peer] >= wanted->downs;
}

static void wait_peer(struct world *world, uint32_t node, uint32_t peer, uint32_t ups, uint32_t downs)
{
    struct peer_state wanted = {.node = node, .peer = peer, .ups = ups, .downs = downs};
    assert_true(world_run_until(world, peer_reached, &wanted, 30000));
}

static void test_death_and_return(void **state)
{
    struct world *world = *state;
    uint32_t to_b, to_a;
    world_pair(world, &to_b, &to_a);
    struct node *a = world_node(world, 0);
    struct transport *transport = a->transport;
    uint64_t first_boot_id = a->peer_boot_id[to_b];
    world_stop(world, 1);
    struct iovec iov = {.iov_base = "x", .iov_len = 1};
    int status = transport->ops->send(transport, to_b, &iov, 1, 0); /* nobody acknowledges it, unless the end is known already */
    assert_true(status == 0 || status == HS_ERR_CLOSED);
    wait_peer(world, 0, to_b, 1, 1);
    assert_int_equal(transport->ops->send(transport, to_b, &iov, 1, 0), HS_ERR_CLOSED);
    world_run_ms(world, 300);
    world_start(world, 1, false);
    wait_peer(world, 0, to_b, 2, 1);
    assert_int_not_equal(a->peer_boot_id[to_b], first_boot_id);
    send_numbered(world, 0, to_b, 77, 5000);
    wait_messages(world, 1, 1);
    check_next(world, 1, 0, 77, 5000); /* and nothing of before */
}

static void test_close_with_work_in_flight(void **state)
{
    struct world *world = *state;
    uint32_t to_b, to_a;
    world_pair(world, &to_b, &to_a);
    struct transport *a = world_node(world, 0)->transport, *b = world_node(world, 1)->transport;
    for (uint32_t i = 0; i < 200; i++) {
        send_numbered(world, 0, to_b, i, 3000);
        send_numbered(world, 1, to_a, i, 3000);
        if (i == 100)
            world_step(world);
    }
    a->ops->close_peer(a, to_b);
    uint32_t received = world_node(world, 0)->n_messages;
    struct iovec iov = {.iov_base = "x", .iov_len = 1};
    assert_int_equal(a->ops->send(a, to_b, &iov, 1, 0), HS_ERR_CLOSED);
    wait_peer(world, 1, to_a, 1, 1);
    assert_int_equal(b->ops->send(b, to_a, &iov, 1, 0), HS_ERR_CLOSED);
    world_run_ms(world, 1500);
    assert_int_equal(world_node(world, 0)->n_messages, received); /* nothing of a closed peer is handed out */
    assert_int_equal(world_node(world, 0)->ups[to_b], 1);         /* and nobody called again */
    world_node(world, 0)->up[to_b] = false;                       /* closing brings no event */
    world_node(world, 0)->n_up = 0;
    assert_int_equal(world_resolve(world, 0, 1), to_b);
    wait_peer(world, 0, to_b, 2, 0);
    wait_peer(world, 1, to_a, 2, 1);
    uint32_t before = world_node(world, 1)->n_messages;
    struct message *message;
    while ((message = world_take(world, 1)) != NULL)
        free(message);
    send_numbered(world, 0, to_b, 5, 10);
    wait_messages(world, 1, before + 1);
    check_next(world, 1, to_a, 5, 10);
}

static void test_unreliable(void **state)
{
    struct world *world = *state;
    uint32_t to_b, to_a;
    world_pair(world, &to_b, &to_a);
    struct transport *transport = world_node(world, 0)->transport;
    struct transport_info info;
    transport->ops->info(transport, &info);
    enum { N = 300 };
    uint8_t data[4096];
    uint32_t len = info.max_unreliable_bytes;
    assert_true(len <= sizeof data);
    for (uint32_t i = 0; i < N; i++) {
        fill(data, len, i);
        memcpy(data, &i, sizeof i);
        struct iovec iov[2] = {{.iov_base = data, .iov_len = 100}, {.iov_base = data + 100, .iov_len = len - 100}};
        assert_int_equal(transport->ops->send(transport, to_b, iov, 2, TRANSPORT_UNRELIABLE), 0);
        world_step(world);
    }
    world_run_until(world, have_messages, &(struct count_wanted){.node = 1, .messages = N}, 2000);
    world_run_ms(world, 100); /* a copy that is still on its way would come now */
    bool seen[N] = {false};
    uint32_t count = 0;
    struct message *message;
    while ((message = world_take(world, 1)) != NULL) {
        uint32_t number;
        assert_int_equal(message->len, len);
        memcpy(&number, message->data, sizeof number);
        assert_true(number < N);
        assert_false(seen[number]); /* may be lost, never doubled */
        seen[number] = true;
        fill(data, len, number);
        assert_memory_equal(message->data + 4, data + 4, len - 4);
        count++;
        free(message);
    }
    bool loses = fabric == FABRIC_SIM_LOSSY || fabric == FABRIC_DPDK_LOSSY || getenv("LAB_LOSSY") != NULL; /* tests/lab/lossy */
    assert_true(count >= (loses ? N * 8 / 10 : fabric == FABRIC_SOCKETS || fabric == FABRIC_VERBS_UD ? N * 9 / 10 : N));
    static uint8_t big[100000];
    struct iovec iov = {.iov_base = big, .iov_len = sizeof big};
    assert_int_equal(transport->ops->send(transport, to_b, &iov, 1, TRANSPORT_UNRELIABLE), HS_ERR_LIMIT);
}

static void test_simultaneous_connect(void **state)
{
    struct world *world = *state;
    world_start(world, 0, false);
    world_start(world, 1, false);
    uint32_t to_b = world_resolve(world, 0, 1), to_a = world_resolve(world, 1, 0);
    wait_peer(world, 0, to_b, 1, 0);
    wait_peer(world, 1, to_a, 1, 0);
    send_numbered(world, 0, to_b, 1, 20000);
    send_numbered(world, 1, to_a, 2, 20000);
    wait_messages(world, 0, 1);
    wait_messages(world, 1, 1);
    check_next(world, 1, to_a, 1, 20000);
    check_next(world, 0, to_b, 2, 20000);
    world_run_ms(world, 1000);
    assert_int_equal(world_node(world, 0)->ups[to_b], 1);
    assert_int_equal(world_node(world, 1)->ups[to_a], 1);
    assert_int_equal(world_node(world, 0)->downs[to_b] + world_node(world, 1)->downs[to_a], 0);
}

static bool mesh_up(struct world *world, void *arg)
{
    (void)arg;
    for (uint32_t i = 0; i < WORLD_NODES; i++)
        if (world_node(world, i)->n_up != WORLD_NODES - 1)
            return false;
    return true;
}

static void test_eight_peers(void **state)
{
    struct world *world = *state;
    uint32_t peer[WORLD_NODES][WORLD_NODES] = {{0}};
    enum { N = 40 };
    for (uint32_t i = 0; i < WORLD_NODES; i++)
        world_start(world, i, false);
    for (uint32_t i = 0; i < WORLD_NODES; i++)
        for (uint32_t j = 0; j < WORLD_NODES; j++)
            if (i != j)
                peer[i][j] = world_resolve(world, i, j);
    assert_true(world_run_until(world, mesh_up, NULL, 10000));
    for (uint32_t k = 0; k < N; k++)
        for (uint32_t i = 0; i < WORLD_NODES; i++)
            for (uint32_t j = 0; j < WORLD_NODES; j++)
                if (i != j)
                    send_numbered(world, i, peer[i][j], k * 64 + i * 8 + j, 50 + 100 * k);
    for (uint32_t j = 0; j < WORLD_NODES; j++)
        wait_messages(world, j, N * (WORLD_NODES - 1));
    for (uint32_t j = 0; j < WORLD_NODES; j++) {
        uint32_t next[WORLD_NODES] = {0};
        struct message *message;
        while ((message = world_take(world, j)) != NULL) {
            uint32_t i = 0;
            while (i == j || peer[j][i] != message->peer)
                i++;
            uint8_t expected[50 + 100 * N];
            uint32_t k = next[i]++;
            assert_int_equal(message->len, 50 + 100 * k);
            fill(expected, message->len, k * 64 + i * 8 + j);
            assert_memory_equal(message->data, expected, message->len);
            free(message);
        }
    }
}

/* Everybody sends to a node that does not look for a while: its receive ring runs empty. When it looks again all goes on, nothing lost. */
static void test_stalled_receiver(void **state)
{
    struct world *world = *state;
    enum { LEN = 4000, WARM = 40, MOST = 200 };
    uint32_t peer[WORLD_NODES], sent[WORLD_NODES] = {0}, next[WORLD_NODES] = {0}, all = 0;
    static uint8_t data[LEN], expected[LEN];
    struct iovec iov = {.iov_base = data, .iov_len = LEN};
    for (uint32_t i = 0; i < WORLD_NODES; i++)
        world_start(world, i, false);
    for (uint32_t i = 1; i < WORLD_NODES; i++) {
        peer[i] = world_resolve(world, i, 0);
        wait_peer(world, i, peer[i], 1, 0);
        for (; sent[i] < WARM; sent[i]++, all++)
            send_numbered(world, i, peer[i], i * 1000 + sent[i], LEN);
    }
    wait_messages(world, 0, all);
    world_node(world, 0)->stalled = true;
    for (uint32_t i = 1; i < WORLD_NODES; i++) {
        struct transport *transport = world_node(world, i)->transport;
        for (; sent[i] < MOST; sent[i]++, all++) {
            fill(data, LEN, i * 1000 + sent[i]);
            if (transport->ops->send(transport, peer[i], &iov, 1, 0) != 0)
                break;
        }
    }
    world_run_ms(world, 300);
    world_node(world, 0)->stalled = false;
    wait_messages(world, 0, all);
    world_run_ms(world, 50);
    assert_int_equal(world_node(world, 0)->n_messages, all);
    for (struct message *message; (message = world_take(world, 0)) != NULL; free(message)) {
        uint32_t i = message->peer + 1; /* they called in that order */
        fill(expected, LEN, i * 1000 + next[i]++);
        assert_int_equal(message->len, LEN);
        assert_memory_equal(message->data, expected, LEN);
    }
    uint64_t repeated = 0;
    for (uint32_t i = 1; i < WORLD_NODES; i++) {
        struct transport *transport = world_node(world, i)->transport;
        struct transport_stats stats;
        assert_int_equal(next[i], sent[i]);
        assert_int_equal(world_node(world, i)->downs[peer[i]], 0);
        transport->ops->stats(transport, &stats);
        repeated += stats.retransmits;
    }
    if (fabric == FABRIC_VERBS_UD) /* whose ring is smaller than what was sent: elsewhere there are credits, or much room */
        assert_true(repeated > 0);
}

static void test_wrong_key(void **state)
{
    struct world *world = *state;
    if (fabric == FABRIC_INPROC) {
        print_message("          the in-process transport has no keys\n");
        skip();
    }
    world_start(world, 0, false);
    world_start(world, 1, true);
    world_resolve(world, 0, 1);
    world_resolve(world, 1, 0);
    world_run_ms(world, 1500);
    assert_int_equal(world_node(world, 0)->n_up, 0);
    assert_int_equal(world_node(world, 1)->n_up, 0);
    struct transport_stats stats;
    struct transport *transport = world_node(world, 0)->transport;
    transport->ops->stats(transport, &stats);
    assert_true(stats.rejected > 0);
    world_start(world, 2, false); /* which does not keep others out */
    uint32_t peer = world_resolve(world, 0, 2);
    wait_peer(world, 0, peer, 1, 0);
}

static void test_addresses(void **state)
{
    struct world *world = *state;
    world_start(world, 0, false);
    world_start(world, 1, false);
    struct transport *a = world_node(world, 0)->transport;
    uint32_t peer = world_resolve(world, 0, 1), again;
    assert_int_equal(world_resolve(world, 0, 1), peer);
    char text[TRANSPORT_ADDRESS_TEXT];
    assert_int_equal(a->ops->address(a, peer, text, sizeof text), 0);
    assert_int_equal(a->ops->resolve(a, text, &again), 0);
    assert_int_equal(again, peer);
    assert_int_equal(a->ops->address(a, peer + 1, text, sizeof text), HS_ERR_NOT_FOUND);
    assert_int_equal(a->ops->resolve(a, "", &again), HS_ERR_PARSE);
    struct iovec iov = {.iov_base = "x", .iov_len = 1};
    assert_int_equal(a->ops->send(a, peer, &iov, 1, 0), HS_ERR_CLOSED); /* not up yet */
    assert_int_equal(a->ops->send(a, 1000, &iov, 1, 0), HS_ERR_CLOSED);
    struct node *b = world_node(world, 1);
    wait_peer(world, 0, peer, 1, 0);
    wait_peer(world, 1, 0, 1, 0); /* b did not ask, it was called */
    assert_int_equal(b->transport->ops->address(b->transport, 0, text, sizeof text), 0);
    assert_string_equal(text, world_node(world, 0)->address);
    struct transport_info info;
    a->ops->info(a, &info);
    assert_true(info.boot_id == b->peer_boot_id[0]);
    struct transport_stats stats;
    a->ops->stats(a, &stats);
    if (stats.peers.max > 0) { /* whoever has bounds tells all of them */
        assert_int_equal(stats.peers.used, 1);
        assert_true(stats.half_open.max > 0 && stats.send_bytes.max > 0 && stats.unreliable_bytes.max > 0 && stats.strangers.max > 0);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_addresses, setup, teardown),
        cmocka_unit_test_setup_teardown(test_order_and_exactly_once, setup, teardown),
        cmocka_unit_test_setup_teardown(test_fragmentation, setup, teardown),
        cmocka_unit_test_setup_teardown(test_busy_then_recovery, setup, teardown),
        cmocka_unit_test_setup_teardown(test_death_and_return, setup, teardown),
        cmocka_unit_test_setup_teardown(test_close_with_work_in_flight, setup, teardown),
        cmocka_unit_test_setup_teardown(test_unreliable, setup, teardown),
        cmocka_unit_test_setup_teardown(test_simultaneous_connect, setup, teardown),
        cmocka_unit_test_setup_teardown(test_eight_peers, setup, teardown),
        cmocka_unit_test_setup_teardown(test_stalled_receiver, setup, teardown),
        cmocka_unit_test_setup_teardown(test_wrong_key, setup, teardown),
        cmocka_unit_test_setup_teardown(test_pages, setup, teardown),
        cmocka_unit_test_setup_teardown(test_pages_published_again, setup, teardown),
        cmocka_unit_test_setup_teardown(test_pages_of_a_restarted_peer, setup, teardown),
        cmocka_unit_test_setup_teardown(test_reads_of_a_closed_peer, setup, teardown),
        cmocka_unit_test_setup_teardown(test_pages_under_a_writer, setup, teardown),
    };
    int failed = 0;
    if (argc > 1)
        cmocka_set_test_filter(argv[1]); /* run a part by hand: test_conform '*busy*' sockets; '!dpdk' is all others */
    const char *named = argc > 2 ? argv[2] : "";
    const bool others = named[0] == '!';
    for (int i = 0; i < FABRICS; i++) {
        fabric = (enum fabric)i;
        if ((strstr(fabric_names[i], named + others) == NULL) != others)
            continue;
        print_message("---------- %s\n", fabric_names[i]);
        const char *missing = fabric_missing(fabric);
        if (missing != NULL) {
            print_message("          not here: %s\n", missing);
            failed += argc > 2 && !others; /* it was asked for by name */
            continue;
        }
        failed += cmocka_run_group_tests_name(fabric_names[i], tests, NULL, NULL);
    }
    return failed ? 1 : 0;
}

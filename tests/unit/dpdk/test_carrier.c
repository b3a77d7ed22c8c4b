/* Two carriers in one process, joined by a memif link: datagrams, ARP, full rings, empty pools, foreign frames. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>
#include <rte_ethdev.h>
#include <rte_mbuf.h>
#include <rte_mempool.h>

#include "net/dpdk/dpdk.h"
#include "net/dpdk/frame.h"

enum { BATCH = 64, MANY = 6000, PATIENCE_MS = 60000 };

static struct carrier *a, *b;
static struct carrier_address to_a, to_b;
static struct metrics *metrics;

static uint64_t now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

static struct carrier *open_end(const char *bind, const char *device)
{
    static char eal[640];
    struct error err = {0};
    struct carrier *carrier;
    if (!eal[0])
        snprintf(eal, sizeof eal, "--no-huge --no-pci -m 128 --single-file-segments --vdev=net_memif0,role=server,socket=hearsay-test-%d "
                 "--vdev=net_memif1,role=client,socket=hearsay-test-%d --vdev=net_memif2,role=client,zero-copy=yes,socket=hearsay-nobody-%d",
                 (int)getpid(), (int)getpid(), (int)getpid());
    const struct dpdk_carrier_config config = {.bind = bind, .eal = eal, .device = device, .metrics = metrics};
    if (dpdk_carrier_create(&config, &carrier, &err) != 0)
        fail_msg("%s", err.text);
    return carrier;
}

static uint64_t sum_of_received(struct carrier *carrier, uint64_t *n)
{
    struct carrier_datagram in[BATCH];
    uint64_t sum = 0;
    int got = carrier->ops->receive(carrier, in, BATCH);
    assert_in_range(got, 0, BATCH);
    for (int i = 0; i < got; i++) {
        uint32_t number;
        assert_int_equal(in[i].len, 100);
        memcpy(&number, in[i].data, sizeof number);
        sum += number;
    }
    *n += (uint64_t)got;
    return sum;
}

/* Fills and sends one, in the carrier's own memory. 1: taken. */
static int send_one(struct carrier *from, const struct carrier_address *to, uint32_t number)
{
    uint8_t *data = from->ops->lend(from);
    if (data == NULL)
        return 0;
    memset(data, 0x5a, 100);
    memcpy(data, &number, sizeof number);
    const struct carrier_datagram datagram = {.address = *to, .data = data, .len = 100};
    for (uint64_t end = now_ms() + PATIENCE_MS; now_ms() < end;)
        if (from->ops->send(from, &datagram, 1) == 1)
            return 1;
    fail_msg("a datagram is neither sent nor dropped");
    return 0;
}

static void work_until(uint64_t *a_got, uint64_t *b_got, uint64_t want_a, uint64_t want_b)
{
    for (uint64_t end = now_ms() + PATIENCE_MS; *a_got < want_a || *b_got < want_b;) {
        sum_of_received(a, a_got);
        sum_of_received(b, b_got);
        assert_true(now_ms() < end);
    }
}

/* Sends until something gets through. */
static void meet(void)
{
    uint64_t a_got = 0, b_got = 0;
    for (uint64_t end = now_ms() + PATIENCE_MS; a_got == 0 || b_got == 0;) {
        send_one(a, &to_b, 1);
        send_one(b, &to_a, 1);
        for (int i = 0; i < 100; i++) {
            sum_of_received(a, &a_got);
            sum_of_received(b, &b_got);
        }
        assert_true(now_ms() < end);
    }
    for (uint64_t quiet = now_ms() + 50; now_ms() < quiet;) {
        sum_of_received(a, &a_got);
        sum_of_received(b, &b_got);
    }
}

static int setup(void **state)
{
    (void)state;
    metrics = metrics_create();
    a = open_end("10.79.0.1:7070", "net_memif0");
    b = open_end("10.79.0.2:7071", "net_memif1");
    assert_int_equal(a->ops->resolve(a, "10.79.0.2:7071", &to_b), 0);
    assert_int_equal(b->ops->resolve(b, "10.79.0.1:7070", &to_a), 0);
    meet();
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    a->ops->destroy(a);
    b->ops->destroy(b);
    metrics_destroy(metrics);
    return 0;
}

static void test_addresses(void **state)
{
    (void)state;
    char text[64];
    struct carrier_address out;
    a->ops->local(a, text, sizeof text);
    assert_string_equal(text, "10.79.0.1:7070");
    a->ops->format(a, &to_b, text, sizeof text);
    assert_string_equal(text, "10.79.0.2:7071");
    for (const char *const *wrong = (const char *const[]){"10.79.0.2", "127.0.0.1:7070", "0.0.0.0:7070", "224.0.0.1:1", "10.79.0.2:0", NULL}; *wrong; wrong++)
        assert_int_not_equal(a->ops->resolve(a, *wrong, &out), 0);
    assert_int_equal(a->ops->wait_fd(a), -1);
    assert_int_equal(a->ops->mtu(a), 2048 - FRAME_HEADER_BYTES);
}

static void test_lent_and_copied(void **state)
{
    (void)state;
    uint64_t a_got = 0, b_got = 0;
    static uint8_t own[100];
    const uint32_t number = 7;
    memcpy(own, &number, sizeof number);
    const struct carrier_datagram copied = {.address = to_b, .data = own, .len = sizeof own};
    uint8_t *kept = a->ops->lend(a); /* kept while others are sent */
    assert_non_null(kept);
    assert_int_equal(a->ops->send(a, &copied, 1), 1);
    work_until(&a_got, &b_got, 0, 1);
    memcpy(kept, &number, sizeof number);
    const struct carrier_datagram lent = {.address = to_b, .data = kept, .len = 100};
    assert_int_equal(a->ops->send(a, &lent, 1), 1);
    work_until(&a_got, &b_got, 0, 2);
}

/* What is kept stays as it came, whatever comes after it, and only so much can be. */
static void test_kept(void **state)
{
    (void)state;
    enum { MOST = 1000, ROUNDS = 4 };
    static struct { void *kept; uint8_t *data; uint32_t number; } all[MOST];
    uint64_t a_got = 0, b_got = 0;
    for (int round = 0; round < ROUNDS; round++) {
        uint32_t n = 0, sent = 0;
        bool full = false;
        for (uint64_t end = now_ms() + PATIENCE_MS; !full && now_ms() < end;) {
            struct carrier_datagram in[BATCH];
            sent += (uint32_t)send_one(a, &to_b, sent);
            int got = b->ops->receive(b, in, BATCH);
            for (int i = 0; i < got && !full; i++) {
                void *kept = b->ops->keep(b, in[i].held);
                full = kept == NULL;
                if (full)
                    break;
                assert_true(n < MOST);
                all[n].kept = kept;
                all[n].data = in[i].data;
                memcpy(&all[n++].number, in[i].data, sizeof all[0].number);
            }
        }
        assert_true(full);
        assert_in_range(n, 64, MOST - 1); /* a batch at least */
        for (uint32_t i = 0; i < MOST; i++) {
            send_one(a, &to_b, 0xffffffff);
            sum_of_received(b, &b_got);
        }
        for (uint32_t i = 0; i < n; i++) {
            uint32_t number;
            memcpy(&number, all[i].data, sizeof number);
            assert_int_equal(number, all[i].number);
            assert_int_equal(number, i);
            assert_int_equal(all[i].data[99], 0x5a);
            memset(all[i].data, 0xee, 100); /* it is ours */
            b->ops->release(b, all[i].kept);
        }
        for (uint64_t quiet = now_ms() + 20; now_ms() < quiet;)
            sum_of_received(b, &b_got);
    }
    uint64_t before = b_got;
    assert_int_equal(send_one(a, &to_b, 1), 1);
    work_until(&a_got, &b_got, 0, before + 1);
}

/* The receiver looks away until its ring is full and the sender gives up datagrams; then everything flows again. */
static void test_full_ring(void **state)
{
    (void)state;
    uint64_t a_got = 0, b_got = 0, sum = 0, expected = 0;
    struct carrier_stats before, after;
    a->ops->stats(a, &before);
    for (uint32_t i = 0; i < MANY; i++)
        assert_int_equal(send_one(a, &to_b, i), 1);
    a->ops->stats(a, &after);
    uint64_t sent = after.sent_datagrams - before.sent_datagrams, dropped = after.dropped_datagrams - before.dropped_datagrams;
    assert_int_equal(sent + dropped, MANY);
    assert_true(dropped > 0);
    for (uint64_t end = now_ms() + PATIENCE_MS; b_got < sent && now_ms() < end;)
        sum += sum_of_received(b, &b_got);
    assert_int_equal(b_got, sent);
    for (uint32_t i = 0; i < sent; i++) /* the first ones, as later ones found no room */
        expected += i;
    assert_int_equal(sum, expected);
    b_got = 0;
    for (uint32_t i = 0; i < 300; i++) {
        assert_int_equal(send_one(a, &to_b, i), 1);
        sum_of_received(b, &b_got);
    }
    work_until(&a_got, &b_got, 0, 300);
}

static struct rte_mempool *pool_of_b;

static void find_pool(struct rte_mempool *pool, void *arg)
{
    (void)arg;
    if (strncmp(pool->name, "hs1_", 4) == 0)
        pool_of_b = pool;
}

static void test_empty_pool(void **state)
{
    (void)state;
    uint64_t a_got = 0, b_got = 0;
    struct dpdk_carrier_stats before, after;
    rte_mempool_walk(find_pool, NULL);
    assert_non_null(pool_of_b);
    struct rte_mbuf **taken = calloc(pool_of_b->size, sizeof *taken);
    assert_non_null(taken);
    uint32_t n = 0;
    sum_of_received(b, &b_got); /* gives back what it had handed out */
    while (n < pool_of_b->size && (taken[n] = rte_pktmbuf_alloc(pool_of_b)) != NULL)
        n++;
    dpdk_carrier_stats(b, &before);
    assert_null(b->ops->lend(b));
    for (uint32_t i = 0; i < 50; i++)
        assert_int_equal(send_one(a, &to_b, i), 1);
    for (int i = 0; i < 100; i++)
        sum_of_received(b, &b_got);
    assert_int_equal(b_got, 0);
    dpdk_carrier_stats(b, &after);
    assert_true(after.no_mbuf > before.no_mbuf);
    rte_pktmbuf_free_bulk(taken, n);
    free(taken);
    work_until(&a_got, &b_got, 0, 50); /* they waited in the ring */
    assert_int_equal(send_one(b, &to_a, 1), 1);
    work_until(&a_got, &b_got, 1, 50);
}

static void send_raw(const uint8_t *frame, uint16_t len)
{
    rte_mempool_walk(find_pool, NULL);
    struct rte_mbuf *mbuf = rte_pktmbuf_alloc(pool_of_b);
    uint16_t id;
    assert_non_null(mbuf);
    memcpy(rte_pktmbuf_append(mbuf, len), frame, len);
    assert_int_equal(rte_eth_dev_get_port_by_name("net_memif1", &id), 0);
    assert_int_equal(rte_eth_tx_burst(id, 0, &mbuf, 1), 1);
}

static void test_foreign_frames(void **state)
{
    (void)state;
    uint64_t a_got = 0;
    struct dpdk_carrier_stats before, after;
    struct rte_ether_addr mac_of_a;
    uint16_t id;
    uint8_t frame[FRAME_HEADER_BYTES + 100] = {0};
    assert_int_equal(rte_eth_dev_get_port_by_name("net_memif0", &id), 0);
    rte_eth_macaddr_get(id, &mac_of_a);
    struct frame_end from = {.mac = {2, 9}, .ip = 0x0a4f0009, .port = 1}, us = {.ip = 0x0a4f0001, .port = 7070};
    memcpy(us.mac, mac_of_a.addr_bytes, FRAME_MAC_BYTES);
    struct frame_end other_port = us, other_ip = us, other_mac = us;
    other_port.port = 7;
    other_ip.ip++;
    other_mac.mac[5] ^= 1;
    dpdk_carrier_stats(a, &before);
    const struct frame_end *const wrong[] = {&other_port, &other_ip, &other_mac};
    for (int i = 0; i < 3; i++) {
        frame_write_udp(frame, &from, wrong[i], 100);
        send_raw(frame, sizeof frame);
    }
    frame_write_udp(frame, &from, &us, 100);
    frame[FRAME_ETHERNET_BYTES + 10] ^= 1; /* the checksum */
    send_raw(frame, sizeof frame);
    send_raw(frame, 10);
    for (int i = 0; i < 1000; i++)
        sum_of_received(a, &a_got);
    dpdk_carrier_stats(a, &after);
    assert_int_equal(a_got, 0);
    assert_int_equal(after.foreign_frames - before.foreign_frames, 3);
    assert_int_equal(after.bad_frames - before.bad_frames, 2);
    frame[FRAME_ETHERNET_BYTES + 10] ^= 1;
    send_raw(frame, sizeof frame);
    for (uint64_t end = now_ms() + PATIENCE_MS; a_got == 0 && now_ms() < end;)
        sum_of_received(a, &a_got);
    assert_int_equal(a_got, 1);
}

/* Nobody has that address: datagrams to it are dropped and counted, others pass. */
static void test_nobody_there(void **state)
{
    (void)state;
    uint64_t a_got = 0, b_got = 0;
    struct carrier_address nobody;
    struct dpdk_carrier_stats before, after;
    assert_int_equal(a->ops->resolve(a, "10.79.0.77:7070", &nobody), 0);
    dpdk_carrier_stats(a, &before);
    for (uint32_t i = 0; i < 200; i++)
        assert_int_equal(send_one(a, &nobody, i), 1);
    assert_int_equal(send_one(a, &to_b, 1), 1);
    work_until(&a_got, &b_got, 0, 1);
    uint64_t end = now_ms() + PATIENCE_MS;
    do {
        sum_of_received(a, &a_got);
        dpdk_carrier_stats(a, &after);
    } while (after.unresolved - before.unresolved < 200 && now_ms() < end);
    assert_int_equal(after.unresolved - before.unresolved, 200);
    assert_true(after.arp_requests > before.arp_requests);
}

/* The first datagram of a carrier waits for its neighbour as long as any later one: a second, not the looks until a clock is read. */
static void test_the_first_waits(void **state)
{
    enum { LOOKS = 40, WELL_BELOW_MS = 500 };
    (void)state;
    for (uint64_t end = now_ms() + PATIENCE_MS;;) {
        struct dpdk_carrier_stats stats;
        uint64_t got = 0;
        b->ops->destroy(b);
        b = open_end("10.79.0.2:7071", "net_memif1");
        uint64_t began = now_ms();
        assert_int_equal(send_one(b, &to_a, 1), 1); /* before it has looked at all */
        for (int i = 0; i < LOOKS; i++)
            sum_of_received(b, &got);
        dpdk_carrier_stats(b, &stats);
        if (now_ms() - began < WELL_BELOW_MS) {
            assert_int_equal(stats.unresolved, 0);
            break;
        }
        assert_true(now_ms() < end); /* a machine that stood still meanwhile: once more */
    }
    meet();
}

/* Whoever sits at the other end could read what is written there before it is sealed, and change what has been opened. */
static void test_shared_memory(void **state)
{
    (void)state;
    struct carrier *c = open_end("10.79.0.3:7072", "net_memif2");
    assert_null(c->ops->lend);
    assert_null(c->ops->keep);
    assert_non_null(a->ops->lend);
    c->ops->destroy(c);
}

static void test_peer_begins_anew(void **state)
{
    (void)state;
    for (int i = 0; i < 3; i++) {
        b->ops->destroy(b);
        b = open_end("10.79.0.2:7071", "net_memif1");
        meet();
    }
    a->ops->destroy(a);
    a = open_end("10.79.0.1:7070", "net_memif0");
    meet();
}

static void test_metrics(void **state)
{
    (void)state;
    struct strbuf text = {0};
    struct dpdk_carrier_stats stats;
    uint64_t got = 0;
    dpdk_carrier_stats(a, &stats);
    sum_of_received(a, &got);
    metrics_write(metrics, &text);
    assert_non_null(strstr(strbuf_text(&text), "hearsay_dpdk_received_frames_total"));
    assert_non_null(strstr(strbuf_text(&text), "hearsay_dpdk_no_mbuf_total"));
    strbuf_fini(&text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_addresses),     cmocka_unit_test(test_lent_and_copied), cmocka_unit_test(test_full_ring),
        cmocka_unit_test(test_kept),          cmocka_unit_test(test_empty_pool),      cmocka_unit_test(test_foreign_frames),
        cmocka_unit_test(test_nobody_there),  cmocka_unit_test(test_the_first_waits), cmocka_unit_test(test_peer_begins_anew),
        cmocka_unit_test(test_shared_memory), cmocka_unit_test(test_metrics),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}

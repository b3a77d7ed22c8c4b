/* Numbers of peers are given back: thousands of addresses, one after the other, through a table of four. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/base/error.h"
#include "net/net.h"
#include "net/sim_carrier.h"

enum { PLACES = 4, ADDRESSES = 5000, HOST = ADDRESSES };

#define MS UINT64_C(1000000)

struct bench {
    struct sim_net *net;
    uint64_t now_ns;
    struct transport *host, *guest;
    uint32_t host_sees, guest_sees; /* each other's numbers, as of the last PEER_UP */
    bool host_up, guest_up;
    uint32_t host_messages, last_from; /* to the host, and the number that the last one came from */
};

static struct transport *start(struct bench *bench, const char *name, uint32_t stream)
{
    const struct net_tuning tuning = {.max_peers = PLACES};
    struct carrier *carrier;
    struct transport *transport;
    struct env env;
    struct error err = {0};
    assert_int_equal(sim_net_env(bench->net, stream, &env), 0);
    assert_int_equal(sim_carrier_create(bench->net, name, &carrier, &err), 0);
    assert_int_equal(transport_reliable_create(carrier, "simulated", NULL, &tuning, &env, &transport, &err), 0);
    return transport;
}

static void bench_init(struct bench *bench)
{
    const struct sim_net_config config = {.seed = 7, .link = {.delay_ns = MS / 10}};
    *bench = (struct bench){.net = sim_net_create(&config), .now_ns = 1000 * MS};
    assert_non_null(bench->net);
    sim_net_advance(bench->net, bench->now_ns);
    bench->host = start(bench, "host:1", HOST);
}

static void bench_fini(struct bench *bench)
{
    bench->host->ops->destroy(bench->host);
    sim_net_destroy(bench->net);
}

static void poll_one(struct bench *bench, struct transport *transport, uint32_t *sees, bool *up)
{
    struct transport_event events[8];
    int n = transport->ops->poll(transport, bench->now_ns, events, 8);
    for (int i = 0; i < n; i++) {
        if (events[i].kind == TRANSPORT_PEER_UP) {
            *sees = events[i].peer;
            *up = true;
        } else if (events[i].kind == TRANSPORT_PEER_DOWN) {
            assert_int_equal(events[i].peer, *sees);
            *up = false;
        } else if (transport == bench->host) {
            bench->host_messages++;
            bench->last_from = events[i].peer;
        }
    }
}

static void step(struct bench *bench)
{
    poll_one(bench, bench->host, &bench->host_sees, &bench->host_up);
    if (bench->guest != NULL)
        poll_one(bench, bench->guest, &bench->guest_sees, &bench->guest_up);
    bench->now_ns += MS / 10;
    sim_net_advance(bench->net, bench->now_ns);
}

static void wait_until(struct bench *bench, const bool *flag, bool wanted)
{
    for (int i = 0; *flag != wanted; i++) {
        assert_true(i < 100000);
        step(bench);
    }
}

static int send_byte(struct transport *transport, uint32_t peer)
{
    struct iovec iov = {.iov_base = "x", .iov_len = 1};
    return transport->ops->send(transport, peer, &iov, 1, 0);
}

/* A guest of that name comes, says one message and leaves. Returns the host's number for it, not closed. */
static uint32_t visit(struct bench *bench, const char *name, uint32_t stream)
{
    uint32_t before = bench->host_messages, peer;
    bench->guest = start(bench, name, stream);
    bench->guest_up = bench->host_up = false;
    assert_int_equal(bench->guest->ops->resolve(bench->guest, "host:1", &peer), 0);
    wait_until(bench, &bench->guest_up, true);
    wait_until(bench, &bench->host_up, true);
    assert_int_equal(send_byte(bench->guest, peer), 0);
    for (int i = 0; bench->host_messages == before; i++) {
        assert_true(i < 1000);
        step(bench);
    }
    assert_int_equal(bench->last_from, bench->host_sees);
    char text[TRANSPORT_ADDRESS_TEXT];
    assert_int_equal(bench->host->ops->address(bench->host, bench->host_sees, text, sizeof text), 0);
    assert_string_equal(text, name);
    bench->guest->ops->destroy(bench->guest); /* says goodbye */
    bench->guest = NULL;
    wait_until(bench, &bench->host_up, false);
    return bench->host_sees;
}

static void check_void(struct transport *transport, uint32_t peer)
{
    char text[TRANSPORT_ADDRESS_TEXT];
    struct transport_peer_stats stats;
    assert_int_equal(send_byte(transport, peer), HS_ERR_CLOSED);
    assert_int_equal(transport->ops->address(transport, peer, text, sizeof text), HS_ERR_NOT_FOUND);
    assert_int_equal(transport->ops->peer_stats(transport, peer, &stats), HS_ERR_NOT_FOUND);
}

static struct transport_bound places(const struct transport *transport)
{
    struct transport_stats stats;
    transport->ops->stats(transport, &stats);
    return stats.peers;
}

static int compare(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

static void check_all_different(uint32_t *numbers, uint32_t n)
{
    qsort(numbers, n, sizeof *numbers, compare);
    for (uint32_t i = 0; i < n; i++)
        assert_true(numbers[i] <= INT32_MAX && (i == 0 || numbers[i] != numbers[i - 1]));
}

static void test_callers_one_after_the_other(void **state)
{
    (void)state;
    static uint32_t numbers[ADDRESSES];
    struct bench bench;
    bench_init(&bench);
    for (uint32_t i = 0; i < ADDRESSES; i++) {
        char name[32];
        snprintf(name, sizeof name, "guest%u:1", i);
        numbers[i] = visit(&bench, name, i);
        bench.host->ops->close_peer(bench.host, numbers[i]);
        assert_int_equal(places(bench.host).used, 0);
        if (i >= PLACES)
            check_void(bench.host, numbers[i - PLACES]); /* its place is this one's */
    }
    assert_int_equal(places(bench.host).hits, 0);
    assert_int_equal(places(bench.host).max, PLACES);
    check_all_different(numbers, ADDRESSES);
    bench_fini(&bench);
}

static void test_called_one_after_the_other(void **state)
{
    (void)state;
    static uint32_t numbers[ADDRESSES];
    struct bench bench;
    bench_init(&bench);
    for (uint32_t i = 0; i < ADDRESSES; i++) { /* nobody is there */
        char name[32];
        uint32_t again;
        snprintf(name, sizeof name, "nobody%u:1", i);
        assert_int_equal(bench.host->ops->resolve(bench.host, name, &numbers[i]), 0);
        assert_int_equal(bench.host->ops->resolve(bench.host, name, &again), 0);
        assert_int_equal(again, numbers[i]);
        assert_int_equal(places(bench.host).used, 1);
        step(&bench);
        bench.host->ops->close_peer(bench.host, numbers[i]);
    }
    check_all_different(numbers, ADDRESSES);
    bench_fini(&bench);
}

/* Only closed peers make room, and what closed numbers are told does not reach those who took their places. */
static void test_a_stale_number_reaches_nobody(void **state)
{
    (void)state;
    struct bench bench;
    uint32_t peer[PLACES], newcomer, other;
    bench_init(&bench);
    struct transport *host = bench.host;
    for (uint32_t i = 0; i < PLACES; i++)
        assert_int_equal(host->ops->resolve(host, (const char *[]){"a:1", "b:1", "c:1", "d:1"}[i], &peer[i]), 0);
    assert_int_equal(host->ops->resolve(host, "guest:1", &newcomer), HS_ERR_LIMIT);
    assert_int_equal(places(host).hits, 1);
    assert_int_equal(places(host).used, PLACES);
    host->ops->close_peer(host, peer[2]);
    assert_int_equal(host->ops->resolve(host, "c:1", &other), 0); /* before anybody needed its place: as it was */
    assert_int_equal(other, peer[2]);
    assert_int_equal(host->ops->resolve(host, "guest:1", &newcomer), HS_ERR_LIMIT);
    host->ops->close_peer(host, peer[2]);
    bench.guest = start(&bench, "guest:1", 1);
    assert_int_equal(host->ops->resolve(host, "guest:1", &newcomer), 0);
    assert_int_not_equal(newcomer, peer[2]);
    wait_until(&bench, &bench.host_up, true);
    wait_until(&bench, &bench.guest_up, true);
    assert_int_equal(bench.host_sees, newcomer);
    check_void(host, peer[2]);
    host->ops->close_peer(host, peer[2]); /* does nothing to the newcomer */
    for (int i = 0; i < 1000; i++)
        step(&bench);
    assert_true(bench.host_up && bench.guest_up);
    assert_int_equal(send_byte(host, newcomer), 0);
    assert_int_equal(send_byte(bench.guest, bench.guest_sees), 0);
    assert_int_equal(host->ops->resolve(host, "c:1", &other), HS_ERR_LIMIT);
    bench.guest->ops->destroy(bench.guest);
    bench_fini(&bench);
}

/* Down is not closed: the number stays its own, until those above let it go. Forgotten and back: another number, and all works. */
static void test_back_after_it_was_forgotten(void **state)
{
    (void)state;
    struct bench bench;
    bench_init(&bench);
    struct transport *host = bench.host;
    uint32_t first = visit(&bench, "guest:1", 1), others[PLACES], refused;
    for (uint32_t i = 1; i < PLACES; i++)
        assert_int_equal(host->ops->resolve(host, (const char *[]){"", "b:1", "c:1", "d:1"}[i], &others[i]), 0);
    assert_int_equal(host->ops->resolve(host, "e:1", &refused), HS_ERR_LIMIT);
    assert_int_equal(visit(&bench, "guest:1", 2), first);
    host->ops->close_peer(host, first);
    assert_int_equal(visit(&bench, "guest:1", 3), first); /* called us before its place was needed ... */
    assert_int_equal(host->ops->resolve(host, "e:1", &refused), HS_ERR_LIMIT); /* ... and is somebody's again */
    host->ops->close_peer(host, first);
    assert_int_equal(host->ops->resolve(host, "e:1", &others[0]), 0);
    check_void(host, first);
    host->ops->close_peer(host, others[1]);
    uint32_t second = visit(&bench, "guest:1", 4);
    assert_int_not_equal(second, first);
    check_void(host, first);
    check_void(host, others[1]);
    bench_fini(&bench);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_callers_one_after_the_other),
        cmocka_unit_test(test_called_one_after_the_other),
        cmocka_unit_test(test_a_stale_number_reaches_nobody),
        cmocka_unit_test(test_back_after_it_was_forgotten),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

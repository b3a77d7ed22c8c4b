/*
 * Two endpoints on loopback in one thread: everything arrives, and the figures are printed for whoever looks. No figure is
 * asserted, as the machine may be busy. docs/protocol-fabric.md quotes a run.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

#include <cmocka.h>

#include "net/net.h"

static uint64_t real_now(void *self)
{
    (void)self;
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

static uint64_t real_random(void *self)
{
    (void)self;
    uint64_t value;
    assert_int_equal(getrandom(&value, sizeof value, 0), sizeof value);
    return value;
}

struct ends {
    struct transport *transport[2];
    uint32_t ups, messages[2];
    uint64_t bytes;
};

static void poll_both(struct ends *ends)
{
    for (int i = 0; i < 2; i++) {
        struct transport_event events[64];
        int n = ends->transport[i]->ops->poll(ends->transport[i], real_now(NULL), events, 64);
        for (int e = 0; e < n; e++) {
            assert_int_not_equal(events[e].kind, TRANSPORT_PEER_DOWN);
            ends->ups += events[e].kind == TRANSPORT_PEER_UP;
            ends->messages[i] += events[e].kind == TRANSPORT_MESSAGE;
            ends->bytes += events[e].kind == TRANSPORT_MESSAGE ? events[e].len : 0;
        }
    }
}

static void open_ends(struct ends *ends, uint32_t datagram_bytes)
{
    static const struct env env = {.now_ns = real_now, .random_u64 = real_random};
    *ends = (struct ends){0};
    for (int i = 0; i < 2; i++) {
        struct transport_sockets_config config = {.bind = "127.0.0.1:0", .datagram_bytes = datagram_bytes};
        struct error err;
        assert_int_equal(transport_sockets_create(&config, &env, &ends->transport[i], &err), 0);
    }
    struct transport_info info;
    uint32_t peer;
    ends->transport[1]->ops->info(ends->transport[1], &info);
    assert_int_equal(ends->transport[0]->ops->resolve(ends->transport[0], info.local, &peer), 0);
    while (ends->ups < 2)
        poll_both(ends);
}

static void close_ends(struct ends *ends)
{
    for (int i = 0; i < 2; i++)
        ends->transport[i]->ops->destroy(ends->transport[i]);
}

static void stream(struct ends *ends, uint32_t len, uint32_t n)
{
    static uint8_t data[1 << 18];
    struct iovec iov = {.iov_base = data, .iov_len = len};
    uint32_t sent = 0, before = ends->messages[1];
    uint64_t bytes = ends->bytes, start = real_now(NULL);
    while (ends->messages[1] - before < n) {
        while (sent < n && ends->transport[0]->ops->send(ends->transport[0], 0, &iov, 1, 0) == 0)
            sent++;
        poll_both(ends);
    }
    assert_int_equal(ends->bytes - bytes, (uint64_t)len * n);
    double seconds = (double)(real_now(NULL) - start) / 1e9;
    print_message("          messages of %6u bytes: %8.0f /s, %6.1f MB/s\n", len, n / seconds, (double)len * n / seconds / 1e6);
}

static void measure(uint32_t datagram_bytes)
{
    struct ends ends;
    open_ends(&ends, datagram_bytes);
    stream(&ends, 64, 100000);
    stream(&ends, 1024, 30000);
    stream(&ends, 1 << 18, 200);
    enum { ROUNDS = 2000 };
    struct iovec iov = {.iov_base = "ping", .iov_len = 4};
    uint64_t start = real_now(NULL);
    for (uint32_t i = 0; i < 2 * ROUNDS; i++) {
        uint32_t from = i % 2, before = ends.messages[1 - from];
        assert_int_equal(ends.transport[from]->ops->send(ends.transport[from], 0, &iov, 1, 0), 0);
        while (ends.messages[1 - from] == before)
            poll_both(&ends);
    }
    print_message("          round trip: %.1f us\n", (double)(real_now(NULL) - start) / 1e3 / ROUNDS);
    close_ends(&ends);
}

static void test_loopback_datagrams(void **state)
{
    (void)state;
    measure(0);
}

static void test_ethernet_datagrams(void **state)
{
    (void)state;
    measure(1452);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_loopback_datagrams),
        cmocka_unit_test(test_ethernet_datagrams),
    };
    return cmocka_run_group_tests_name("throughput", tests, NULL, NULL);
}

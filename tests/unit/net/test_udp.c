#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "core/base/error.h"
#include "net/net.h"
#include "net/udp.h"

static uint64_t no_random(void *self)
{
    return ++*(uint64_t *)self;
}

static uint64_t no_time(void *self)
{
    (void)self;
    return 1;
}

static struct carrier *open_carrier(const char *bind, uint32_t datagram_bytes)
{
    struct carrier *carrier;
    struct error err = {0};
    if (udp_carrier_create(bind, datagram_bytes, &carrier, &err) != 0)
        return NULL;
    return carrier;
}

/* Batches of mixed lengths in both directions come out as they went in, whatever the kernel joins on the way. */
static void exchange(const char *bind)
{
    struct carrier *a = open_carrier(bind, 1452), *b = open_carrier(bind, 1452);
    if (a == NULL || b == NULL) {
        print_message("          %s cannot be bound here\n", bind);
        skip();
    }
    char text[128], from[128], own[128];
    struct carrier_datagram out[100], in[7];
    static uint8_t data[100][1452];
    b->ops->local(b, text, sizeof text);
    a->ops->local(a, own, sizeof own);
    for (uint32_t i = 0; i < 100; i++) {
        uint32_t len = i % 10 == 9 ? 100 + i : i < 50 ? 1452 : 700;
        memset(data[i], (int)i + 1, len);
        out[i] = (struct carrier_datagram){.data = data[i], .len = len};
        assert_int_equal(a->ops->resolve(a, text, &out[i].address), 0);
    }
    assert_int_equal(a->ops->send(a, out, 100), 100);
    uint32_t received = 0;
    while (received < 100) {
        struct pollfd fd = {.fd = b->ops->wait_fd(b), .events = POLLIN};
        int n = b->ops->receive(b, in, 7);
        assert_true(n >= 0);
        if (n == 0)
            assert_int_equal(poll(&fd, 1, 5000), 1);
        for (int i = 0; i < n; i++, received++) {
            assert_int_equal(in[i].len, out[received].len);
            assert_memory_equal(in[i].data, data[received], in[i].len);
            b->ops->format(b, &in[i].address, from, sizeof from);
            assert_string_equal(from, own);
        }
    }
    struct carrier_stats stats;
    b->ops->stats(b, &stats);
    assert_int_equal(stats.received_datagrams, 100);
    a->ops->stats(a, &stats);
    assert_int_equal(stats.sent_datagrams, 100);
    a->ops->destroy(a);
    b->ops->destroy(b);
}

static void test_exchange_v4(void **state)
{
    (void)state;
    exchange("127.0.0.1:0");
}

static void test_exchange_v6(void **state)
{
    (void)state;
    exchange("[::1]:0");
}

/* Receives until `wanted` datagrams have come or nothing has for 300 ms; each must hold its length in its first bytes. */
static uint32_t receive_all(struct carrier *carrier, uint32_t wanted)
{
    struct carrier_datagram in[64];
    uint32_t received = 0;
    while (received < wanted) {
        int n = carrier->ops->receive(carrier, in, 64);
        assert_true(n >= 0);
        for (int i = 0; i < n; i++, received++) {
            uint32_t len;
            memcpy(&len, in[i].data, sizeof len);
            assert_int_equal(in[i].len, len);
        }
        struct pollfd fd = {.fd = carrier->ops->wait_fd(carrier), .events = POLLIN};
        if (n == 0 && poll(&fd, 1, 300) == 0)
            break;
    }
    return received;
}

static uint32_t send_some(struct carrier *carrier, const struct carrier_address *to, uint32_t n, uint32_t len)
{
    static uint8_t data[65000];
    struct carrier_datagram out[64];
    assert_true(n <= 64 && len <= sizeof data);
    memcpy(data, &len, sizeof len);
    for (uint32_t i = 0; i < n; i++)
        out[i] = (struct carrier_datagram){.address = *to, .data = data, .len = len};
    int sent = carrier->ops->send(carrier, out, n);
    assert_true(sent >= 0);
    return (uint32_t)sent;
}

/* Datagrams one by one and in streams are asked for in different ways; nothing is lost or joined where one turns into the other. */
static void test_streams_and_single_datagrams(void **state)
{
    (void)state;
    struct carrier *a = open_carrier("127.0.0.1:0", 1452), *b = open_carrier("127.0.0.1:0", 1452);
    struct carrier_address to;
    char text[128];
    b->ops->local(b, text, sizeof text);
    assert_int_equal(a->ops->resolve(a, text, &to), 0);
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < 300; i++) {
            assert_int_equal(send_some(a, &to, 1, 64), 1);
            assert_int_equal(receive_all(b, 1), 1);
            assert_int_equal(b->ops->receive(b, &(struct carrier_datagram){0}, 1), 0);
        }
        for (int i = 0; i < 10; i++)
            assert_int_equal(send_some(a, &to, 64, 1000), 64);
        assert_int_equal(receive_all(b, 640), 640);
    }
    a->ops->destroy(a);
    b->ops->destroy(b);
}

/* What overflows the socket's buffer is counted. */
static void test_missed_datagrams_are_counted(void **state)
{
    (void)state;
    struct carrier *a = open_carrier("127.0.0.1:0", 60000), *b = open_carrier("127.0.0.1:0", 60000);
    struct carrier_address to;
    char text[128];
    b->ops->local(b, text, sizeof text);
    assert_int_equal(a->ops->resolve(a, text, &to), 0);
    uint32_t sent = 0;
    for (int i = 0; i < 20; i++)
        sent += send_some(a, &to, 50, 60000); /* 60 MB; the buffer has 16 at most */
    uint32_t received = receive_all(b, sent);
    struct carrier_stats stats;
    b->ops->stats(b, &stats);
    assert_true(stats.missed_datagrams > 0);
    assert_int_equal(received + stats.missed_datagrams, sent);
    a->ops->destroy(a);
    b->ops->destroy(b);
}

static void test_addresses(void **state)
{
    (void)state;
    struct carrier *carrier = open_carrier("127.0.0.1:0", 0);
    assert_non_null(carrier);
    assert_int_equal(carrier->ops->mtu(carrier), 8448);
    static const char *const bad[] = {
        "",         ":",     "127.0.0.1", "127.0.0.1:",  "127.0.0.1:x", "127.0.0.1:65536", "127.0.0.1:-1",
        "::1:7070", "[::1]", "[]:1",      "127.0.0.1:0", "0.0.0.0:7070"};
    struct carrier_address address;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_int_equal(carrier->ops->resolve(carrier, bad[i], &address), HS_ERR_PARSE);
    assert_int_equal(carrier->ops->resolve(carrier, "no-such-host.invalid:7070", &address), HS_ERR_NOT_FOUND);
    assert_int_equal(carrier->ops->resolve(carrier, "localhost:7070", &address), 0);
    char text[64];
    carrier->ops->format(carrier, &address, text, sizeof text);
    assert_string_equal(text, "127.0.0.1:7070");
    carrier->ops->destroy(carrier);
    carrier = open_carrier("0.0.0.0:0", 0);
    assert_non_null(carrier);
    assert_true(carrier->ops->mtu(carrier) <= 1452 && carrier->ops->mtu(carrier) >= 1200); /* less on narrow links */
    carrier->ops->local(carrier, text, sizeof text);
    assert_int_equal(carrier->ops->resolve(carrier, text, &address), 0); /* an address that others could use */
    carrier->ops->destroy(carrier);
}

static void test_errors_say_what_to_do(void **state)
{
    (void)state;
    uint64_t counter = 0;
    struct env env = {.now_ns = no_time, .random_u64 = no_random, .self = &counter};
    struct transport *transport, *second;
    struct error err = {0};
    struct transport_sockets_config config = {.bind = "127.0.0.1:0"};
    assert_int_equal(transport_sockets_create(&config, &env, &transport, &err), 0);
    struct transport_info info;
    transport->ops->info(transport, &info);
    config.bind = info.local;
    assert_int_equal(transport_sockets_create(&config, &env, &second, &err), HS_ERR_BUSY);
    assert_non_null(strstr(err.text, info.local));
    assert_non_null(strstr(err.text, "in use"));
    config.bind = "192.0.2.1:7070"; /* TEST-NET-1, RFC 5737: nobody's */
    config.insecure_peers = true;
    assert_int_equal(transport_sockets_create(&config, &env, &second, &err), HS_ERR_NOT_FOUND);
    assert_non_null(strstr(err.text, "192.0.2.1:7070"));
    config.bind = "seven";
    assert_int_equal(transport_sockets_create(&config, &env, &second, &err), HS_ERR_PARSE);
    assert_non_null(strstr(err.text, "\"seven\""));
    config.bind = "0.0.0.0:0";
    config.insecure_peers = false;
    assert_int_equal(transport_sockets_create(&config, &env, &second, &err), HS_ERR_AUTH);
    assert_non_null(strstr(err.text, "--group-key-file"));
    config.insecure_peers = true;
    assert_int_equal(transport_sockets_create(&config, &env, &second, &err), 0);
    second->ops->destroy(second);
    transport->ops->destroy(transport);
}

static uint32_t mtu_in_sysfs(const char *interface)
{
    char path[128];
    uint32_t mtu = 0;
    snprintf(path, sizeof path, "/sys/class/net/%s/mtu", interface);
    FILE *file = fopen(path, "r");
    if (file) {
        if (fscanf(file, "%u", &mtu) != 1)
            mtu = 0;
        fclose(file);
    }
    return mtu;
}

static void check_datagram(const char *bind, uint32_t asked, uint32_t expected)
{
    struct carrier *carrier = open_carrier(bind, asked);
    assert_non_null(carrier);
    assert_int_equal(carrier->ops->mtu(carrier), expected);
    carrier->ops->destroy(carrier);
}

/* The longest datagram on each interface's IPv4 address is what sysfs says its MTU leaves; one byte more is refused, and the line says why. */
static void test_datagrams_of_the_link(void **state)
{
    struct ifaddrs *all;
    uint32_t n_checked = 0;
    assert_int_equal(getifaddrs(&all), 0);
    for (const struct ifaddrs *i = all; i; i = i->ifa_next) {
        char bind[64], host[INET_ADDRSTRLEN], number[32];
        const uint32_t mtu = mtu_in_sysfs(i->ifa_name);
        if (!i->ifa_addr || i->ifa_addr->sa_family != AF_INET || !(i->ifa_flags & IFF_UP) || mtu < 1228)
            continue;
        inet_ntop(AF_INET, &((const struct sockaddr_in *)i->ifa_addr)->sin_addr, host, sizeof host);
        snprintf(bind, sizeof bind, "%s:0", host);
        const uint32_t passes = mtu - 28;
        check_datagram(bind, UDP_DATAGRAM_OF_LINK, passes < 16640 ? passes : 16640);
        check_datagram(bind, passes < 65000 ? passes : 65000, passes < 65000 ? passes : 65000);
        check_datagram(bind, 1200, 1200);
        const uint32_t usual = i->ifa_flags & IFF_LOOPBACK ? 8448 : 1452;
        check_datagram(bind, 0, passes < usual ? passes : usual);
        if (passes < 65000) {
            struct carrier *carrier;
            struct error err = {0};
            assert_int_equal(udp_carrier_create(bind, passes + 1, &carrier, &err), HS_ERR_INVALID);
            assert_non_null(strstr(err.text, i->ifa_name));
            snprintf(number, sizeof number, "passes %u in one", passes);
            assert_non_null(strstr(err.text, number));
            snprintf(number, sizeof number, "mtu %u", mtu + 1);
            assert_non_null(strstr(err.text, number));
        }
        n_checked++;
    }
    freeifaddrs(all);
    if (n_checked == 0)
        skip();
    check_datagram("127.0.0.1:0", UDP_DATAGRAM_OF_LINK, 16640); /* loopback is as wide as it likes */
    assert_null(open_carrier("127.0.0.1:0", 1199));
    assert_null(open_carrier("127.0.0.1:0", 65001));
    struct carrier *everywhere = open_carrier("0.0.0.0:0", UDP_DATAGRAM_OF_LINK);
    assert_non_null(everywhere);
    const uint32_t least = everywhere->ops->mtu(everywhere);
    assert_true(least >= 1200 && least <= 16640);
    everywhere->ops->destroy(everywhere);
}

static int load(const void *content, size_t len, uint8_t key[32], struct error *err)
{
    char path[] = "/tmp/hearsay-test-key-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, content, len), len);
    close(fd);
    int status = net_group_key_load(path, key, err);
    unlink(path);
    return status;
}

static void test_key_file(void **state)
{
    (void)state;
    uint8_t key[32], expected[32];
    struct error err = {0};
    for (int i = 0; i < 32; i++)
        expected[i] = (uint8_t)i;
    const char *hex = "000102030405060708090a0b0c0d0e0f101112131415161718191A1B1C1D1E1F\n";
    assert_int_equal(load(hex, strlen(hex), key, &err), 0);
    assert_memory_equal(key, expected, 32);
    memset(key, 0, 32);
    assert_int_equal(load(expected, 32, key, &err), 0);
    assert_memory_equal(key, expected, 32);
    assert_int_equal(load(hex, 63, key, &err), HS_ERR_PARSE);
    assert_non_null(strstr(err.text, "openssl rand -hex 32"));
    assert_int_equal(load("", 0, key, &err), HS_ERR_PARSE);
    assert_int_equal(net_group_key_load("/no/such/file", key, &err), HS_ERR_IO);
    assert_non_null(strstr(err.text, "/no/such/file"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_exchange_v4),
        cmocka_unit_test(test_exchange_v6),
        cmocka_unit_test(test_addresses),
        cmocka_unit_test(test_streams_and_single_datagrams),
        cmocka_unit_test(test_missed_datagrams_are_counted),
        cmocka_unit_test(test_errors_say_what_to_do),
        cmocka_unit_test(test_datagrams_of_the_link),
        cmocka_unit_test(test_key_file),
    };
    return cmocka_run_group_tests_name("udp", tests, NULL, NULL);
}

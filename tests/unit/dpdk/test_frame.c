#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/base/rng.h"
#include "net/dpdk/frame.h"

static const struct frame_end one = {.mac = {2, 0, 0, 0, 0, 1}, .port = 7070, .ip = 0x0a000001};
static const struct frame_end two = {.mac = {2, 0, 0, 0, 0, 2}, .port = 7071, .ip = 0x0a000002};

/* Made in Python by RFC 768 and RFC 791: 10.0.0.1:7070 sends "hello" to 10.0.0.2:7071, with a UDP checksum. */
static const uint8_t hello[] = {0x02, 0x00, 0x00, 0x00, 0x00, 0x02, 0x02, 0x00, 0x00, 0x00, 0x00, 0x01, 0x08, 0x00, 0x45, 0x00, 0x00, 0x21, 0x00, 0x00,
                                0x40, 0x00, 0x40, 0x11, 0x26, 0xca, 0x0a, 0x00, 0x00, 0x01, 0x0a, 0x00, 0x00, 0x02, 0x1b, 0x9e, 0x1b, 0x9f,
                                0x00, 0x0d, 0x70, 0xc2, 0x68, 0x65, 0x6c, 0x6c, 0x6f};

/* The example of RFC 1071, 3, and its sum. */
static void test_checksum(void **state)
{
    (void)state;
    static const uint8_t words[] = {0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7};
    assert_int_equal(frame_checksum_end(frame_checksum_add(0, words, sizeof words)), (uint16_t)~0xddf2);
    assert_int_equal(frame_checksum_end(frame_checksum_add(frame_checksum_add(0, words, 4), words + 4, 4)), (uint16_t)~0xddf2);
    static const uint8_t odd[] = {0x12, 0x34, 0x56};
    assert_int_equal(frame_checksum_end(frame_checksum_add(0, odd, 3)), (uint16_t)~(0x1234 + 0x5600));
    uint8_t *ones = malloc(65535);
    assert_non_null(ones);
    memset(ones, 0xff, 65535);
    assert_int_equal(frame_checksum_end(frame_checksum_add(0, ones, 65534)), 0);
    free(ones);
}

/* The header that Wikipedia's "Internet checksum" works out: 192.168.0.1 to 192.168.0.199, 115 bytes. */
static void test_ip_header(void **state)
{
    (void)state;
    static const uint8_t expected[] = {0x45, 0x00, 0x00, 0x73, 0x00, 0x00, 0x40, 0x00, 0x40, 0x11,
                                       0xb8, 0x61, 0xc0, 0xa8, 0x00, 0x01, 0xc0, 0xa8, 0x00, 0xc7};
    const struct frame_end from = {.ip = 0xc0a80001}, to = {.ip = 0xc0a800c7};
    uint8_t frame[FRAME_HEADER_BYTES];
    frame_write_udp(frame, &from, &to, 115 - FRAME_IP_UDP_BYTES);
    assert_memory_equal(frame + FRAME_ETHERNET_BYTES, expected, sizeof expected);
}

static void test_datagram_there_and_back(void **state)
{
    (void)state;
    uint8_t bytes[FRAME_HEADER_BYTES + 100];
    struct frame frame;
    for (uint32_t n = 0; n <= 58; n++) {
        memset(bytes, 0xee, sizeof bytes);
        frame_write_udp(bytes, &one, &two, n);
        frame_parse(bytes, sizeof bytes, &frame); /* with padding behind */
        assert_int_equal(frame.kind, FRAME_UDP);
        assert_memory_equal(frame.from.mac, one.mac, FRAME_MAC_BYTES);
        assert_memory_equal(frame.to.mac, two.mac, FRAME_MAC_BYTES);
        assert_int_equal(frame.from.ip, one.ip);
        assert_int_equal(frame.to.ip, two.ip);
        assert_int_equal(frame.from.port, one.port);
        assert_int_equal(frame.to.port, two.port);
        assert_ptr_equal(frame.payload, bytes + FRAME_HEADER_BYTES);
        assert_int_equal(frame.payload_bytes, n);
    }
}

static void test_outside_datagram(void **state)
{
    (void)state;
    struct frame frame;
    uint8_t bytes[sizeof hello];
    frame_parse(hello, sizeof hello, &frame);
    assert_int_equal(frame.kind, FRAME_UDP);
    assert_int_equal(frame.from.ip, one.ip);
    assert_int_equal(frame.to.port, two.port);
    assert_int_equal(frame.payload_bytes, 5);
    assert_memory_equal(frame.payload, "hello", 5);
    for (size_t len = 0; len < sizeof hello; len++) {
        frame_parse(hello, len, &frame);
        assert_int_equal(frame.kind, FRAME_BAD);
    }
    for (size_t at = FRAME_ETHERNET_BYTES; at < sizeof hello; at++) { /* every flipped bit is found by one checksum or the other */
        memcpy(bytes, hello, sizeof hello);
        bytes[at] ^= 0x10;
        frame_parse(bytes, sizeof bytes, &frame);
        assert_int_equal(frame.kind, FRAME_BAD);
    }
}

static void set_ip_checksum(uint8_t *frame)
{
    uint8_t *ip = frame + FRAME_ETHERNET_BYTES;
    ip[10] = ip[11] = 0;
    uint16_t sum = frame_checksum_end(frame_checksum_add(0, ip, (ip[0] & 15u) * 4));
    ip[10] = (uint8_t)(sum >> 8);
    ip[11] = (uint8_t)sum;
}

static void test_foreign(void **state)
{
    (void)state;
    struct frame frame;
    uint8_t bytes[sizeof hello];
    static const struct {
        size_t at;
        uint8_t value;
    } changes[] = {{FRAME_ETHERNET_BYTES + 6, 0x20}, /* more fragments */
                   {FRAME_ETHERNET_BYTES + 7, 0x01}, /* not the first one */
                   {FRAME_ETHERNET_BYTES + 9, 6}};   /* TCP */
    for (size_t i = 0; i < sizeof changes / sizeof changes[0]; i++) {
        memcpy(bytes, hello, sizeof hello);
        bytes[changes[i].at] = changes[i].value;
        set_ip_checksum(bytes);
        frame_parse(bytes, sizeof bytes, &frame);
        assert_int_equal(frame.kind, FRAME_FOREIGN);
    }
    memcpy(bytes, hello, sizeof hello);
    bytes[12] = 0x86, bytes[13] = 0xdd; /* IPv6 */
    frame_parse(bytes, sizeof bytes, &frame);
    assert_int_equal(frame.kind, FRAME_FOREIGN);
}

static void test_arp(void **state)
{
    (void)state;
    /* RFC 826, by hand: who has 10.0.0.2? tell 10.0.0.1. */
    static const uint8_t request[] = {0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2, 0, 0, 0, 0, 1, 0x08, 0x06, 0, 1, 0x08, 0x00, 6, 4, 0, 1,
                                      2, 0, 0, 0, 0, 1, 10, 0, 0, 1, 0, 0, 0, 0, 0, 0, 10, 0, 0, 2};
    uint8_t bytes[FRAME_ARP_BYTES];
    struct frame frame;
    struct frame_end everybody = two;
    memcpy(everybody.mac, frame_broadcast_mac, FRAME_MAC_BYTES);
    frame_write_arp(bytes, FRAME_ARP_REQUEST, &one, &everybody);
    assert_memory_equal(bytes, request, sizeof request);
    frame_parse(bytes, sizeof bytes, &frame);
    assert_int_equal(frame.kind, FRAME_ARP_REQUEST);
    assert_int_equal(frame.to.ip, two.ip);
    frame_write_arp(bytes, FRAME_ARP_REPLY, &two, &one);
    frame_parse(bytes, sizeof bytes, &frame);
    assert_int_equal(frame.kind, FRAME_ARP_REPLY);
    assert_memory_equal(frame.from.mac, two.mac, FRAME_MAC_BYTES);
    assert_int_equal(frame.from.ip, two.ip);
    assert_memory_equal(frame.to.mac, one.mac, FRAME_MAC_BYTES);
    assert_int_equal(frame.to.ip, one.ip);
    for (size_t len = 0; len < sizeof bytes; len++) {
        frame_parse(bytes, len, &frame);
        assert_int_equal(frame.kind, FRAME_BAD);
    }
    bytes[21] = 3; /* reverse ARP */
    frame_parse(bytes, sizeof bytes, &frame);
    assert_int_equal(frame.kind, FRAME_FOREIGN);
}

/* Whatever comes, the payload lies within what came. */
static void test_noise(void **state)
{
    (void)state;
    struct rng rng;
    rng_seed(&rng, 20260131);
    for (int i = 0; i < 200000; i++) {
        size_t len = (size_t)rng_below(&rng, 80);
        uint8_t *bytes = malloc(len + 1);
        struct frame frame;
        assert_non_null(bytes);
        for (size_t b = 0; b < len; b++)
            bytes[b] = b < sizeof hello && rng_below(&rng, 16) ? hello[b] : (uint8_t)rng_u64(&rng);
        if (len >= FRAME_HEADER_BYTES && rng_below(&rng, 2) && (bytes[FRAME_ETHERNET_BYTES] & 15u) * 4 + FRAME_ETHERNET_BYTES <= len)
            set_ip_checksum(bytes);
        frame_parse(bytes, len, &frame);
        if (frame.kind == FRAME_UDP)
            assert_true(frame.payload >= bytes + FRAME_HEADER_BYTES && frame.payload + frame.payload_bytes <= bytes + len);
        free(bytes);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_checksum), cmocka_unit_test(test_ip_header), cmocka_unit_test(test_datagram_there_and_back),
        cmocka_unit_test(test_outside_datagram), cmocka_unit_test(test_foreign), cmocka_unit_test(test_arp), cmocka_unit_test(test_noise),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

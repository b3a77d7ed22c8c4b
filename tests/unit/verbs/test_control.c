/* The control messages, field by field against the layout in docs/protocol-verbs.md, and bytes that are none. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "core/base/error.h"
#include "core/base/rng.h"
#include "core/port/transport.h"
#include "net/verbs/control.h"

static struct control example_offer(void)
{
    struct control offer = {.type = CONTROL_OFFER,
                            .pair = CONTROL_READS,
                            .epoch = 0x01020304,
                            .queue_pair = 0x00abcdef,
                            .packet_number = 0x00123456,
                            .lid = 0x1718,
                            .mtu_bytes = 4096,
                            .infiniband = true,
                            .credits = 32,
                            .reads = 16,
                            .ciphers = 6};
    for (int i = 0; i < 16; i++)
        offer.gid[i] = (uint8_t)(0x80 + i);
    for (int i = 0; i < CONTROL_SECRET_BYTES; i++)
        offer.secret[i] = (uint8_t)(0x40 + i);
    return offer;
}

static void test_offer_layout(void **state)
{
    static const uint8_t head[] = {1, 1, 1, 0, 4, 3, 2, 1, 0xef, 0xcd, 0xab, 0, 0x56, 0x34, 0x12, 0, 0x18, 0x17, 0, 0x10};
    static const uint8_t tail[] = {1, 0, 32, 0, 16, 0, 0, 0, 6, 0, 0, 0};
    struct control offer = example_offer(), read;
    uint8_t data[CONTROL_MAX_BYTES];
    assert_int_equal(control_encode(&offer, data), 80);
    assert_memory_equal(data, head, sizeof head);
    assert_memory_equal(data + 20, offer.gid, 16);
    assert_memory_equal(data + 36, tail, sizeof tail);
    assert_memory_equal(data + 48, offer.secret, CONTROL_SECRET_BYTES);
    assert_int_equal(control_decode(data, 80, &read), 0);
    assert_memory_equal(&read, &offer, sizeof offer);
}

static void test_others(void **state)
{
    static const uint8_t ready[] = {1, 2, 0, 0, 7, 0, 0, 0};
    static const uint8_t region[] = {1, 6, 0, 1, 5, 0, 0, 0, 0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11,
                                     0xaa, 0xbb, 0xcc, 0xdd, 64, 0, 0, 0, 0, 16, 0, 0, 3, 0, 0, 0};
    struct control out;
    uint8_t data[CONTROL_MAX_BYTES];
    assert_int_equal(control_encode(&(struct control){.type = CONTROL_READY, .epoch = 7}, data), sizeof ready);
    assert_memory_equal(data, ready, sizeof ready);
    assert_int_equal(control_decode(ready, sizeof ready, &out), 0);
    assert_int_equal(out.type, CONTROL_READY);
    assert_int_equal(out.epoch, 7);
    struct control answer = {
        .type = CONTROL_REGION, .region = 5, .found = true, .address = UINT64_C(0x1122334455667788), .key = 0xddccbbaa, .n_pages = 64,
        .page_bytes = 4096, .publication = 3};
    assert_int_equal(control_encode(&answer, data), sizeof region);
    assert_memory_equal(data, region, sizeof region);
    assert_int_equal(control_decode(region, sizeof region, &out), 0);
    assert_memory_equal(&out, &answer, sizeof out);
    for (enum control_type type = CONTROL_RESET; type <= CONTROL_QUERY; type++) {
        struct control in = {.type = type, .pair = CONTROL_READS};
        size_t len = control_encode(&in, data);
        assert_int_equal(len, 8);
        assert_int_equal(control_decode(data, len, &out), 0);
        assert_memory_equal(&out, &in, sizeof out);
    }
}

/* Changes one byte of a good offer: refused where that makes it none. */
static int with_byte(size_t at, uint8_t value)
{
    struct control offer = example_offer(), out;
    uint8_t data[CONTROL_MAX_BYTES];
    size_t len = control_encode(&offer, data);
    data[at] = value;
    return control_decode(data, len, &out);
}

static void test_refused(void **state)
{
    struct control offer = example_offer(), out;
    uint8_t data[CONTROL_MAX_BYTES + 1] = {0};
    size_t len = control_encode(&offer, data);
    for (size_t cut = 0; cut < len; cut++)
        assert_int_equal(control_decode(data, cut, &out), HS_ERR_PROTOCOL);
    assert_int_equal(control_decode(data, len + 1, &out), HS_ERR_PROTOCOL);
    assert_int_equal(with_byte(0, 2), HS_ERR_PROTOCOL);  /* version */
    assert_int_equal(with_byte(1, 0), HS_ERR_PROTOCOL);  /* type */
    assert_int_equal(with_byte(1, 7), HS_ERR_PROTOCOL);
    assert_int_equal(with_byte(2, 2), HS_ERR_PROTOCOL);  /* pair */
    assert_int_equal(with_byte(3, 2), HS_ERR_PROTOCOL);  /* found */
    assert_int_equal(with_byte(11, 1), HS_ERR_PROTOCOL); /* a queue pair of more than 24 bits */
    assert_int_equal(with_byte(15, 1), HS_ERR_PROTOCOL); /* packet number, too */
    assert_int_equal(with_byte(19, 0), HS_ERR_PROTOCOL); /* MTU 0 */
    assert_int_equal(with_byte(36, 2), HS_ERR_PROTOCOL); /* link layer */
    assert_int_equal(with_byte(38, 0), HS_ERR_PROTOCOL); /* no credit */
    assert_int_equal(with_byte(47, 0), 0);
    struct control region = {.type = CONTROL_REGION, .found = true, .n_pages = 1, .page_bytes = TRANSPORT_PAGE_BYTES};
    len = control_encode(&region, data);
    assert_int_equal(control_decode(data, len, &out), 0);
    region.page_bytes++;
    len = control_encode(&region, data);
    assert_int_equal(control_decode(data, len, &out), HS_ERR_PROTOCOL); /* larger than any page */
    region.page_bytes = 1;
    region.n_pages = TRANSPORT_REGION_PAGES + 1;
    len = control_encode(&region, data);
    assert_int_equal(control_decode(data, len, &out), HS_ERR_PROTOCOL);
    region.n_pages = 0;
    len = control_encode(&region, data);
    assert_int_equal(control_decode(data, len, &out), HS_ERR_PROTOCOL); /* found, and nothing there */
}

static void test_random_bytes(void **state)
{
    struct rng rng;
    rng_seed(&rng, 6);
    for (int i = 0; i < 200000; i++) {
        uint8_t data[CONTROL_MAX_BYTES], again[CONTROL_MAX_BYTES];
        size_t len = (size_t)rng_below(&rng, sizeof data);
        for (size_t k = 0; k < len; k++)
            data[k] = (uint8_t)rng_below(&rng, 256);
        if (len >= 4) { /* near enough to be looked at */
            data[0] = CONTROL_VERSION;
            data[1] = (uint8_t)rng_below(&rng, 8);
            data[2] = (uint8_t)rng_below(&rng, 3);
            data[3] = (uint8_t)rng_below(&rng, 3);
        }
        struct control out, back;
        if (control_decode(data, len, &out) != 0)
            continue;
        assert_int_equal(control_encode(&out, again), len); /* what is taken means what it says */
        assert_int_equal(control_decode(again, len, &back), 0);
        assert_memory_equal(&out, &back, sizeof out);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_offer_layout),
        cmocka_unit_test(test_others),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_random_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

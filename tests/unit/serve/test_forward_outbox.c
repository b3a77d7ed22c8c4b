/* What the outbox does with a transport that is busy, closed, or well again. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/base/error.h"
#include "core/serve/forward_outbox.h"

enum { PEERS = 100, KEPT = 64 };

/* Notes the first byte of all that it takes. */
struct fake {
    struct transport transport;
    int status[PEERS];
    uint8_t got[PEERS][KEPT];
    uint32_t n[PEERS];
};

static int fake_send(struct transport *transport, uint32_t peer, const struct iovec *iov, int n, uint32_t flags)
{
    struct fake *fake = (struct fake *)transport;
    if (fake->status[peer] == 0)
        fake->got[peer][fake->n[peer]++ % KEPT] = *(const uint8_t *)iov[0].iov_base;
    return fake->status[peer];
}

static const struct transport_ops OPS = {.send = fake_send};

static int send_byte(struct forward_outbox *outbox, struct fake *fake, uint32_t peer, uint8_t byte)
{
    return forward_outbox_send(outbox, &fake->transport, peer, &byte, 1);
}

static void order_is_kept_for_each_peer(void **state)
{
    struct forward_outbox outbox = {0};
    struct fake fake = {.transport = {.ops = &OPS}};
    assert_int_equal(send_byte(&outbox, &fake, 1, 10), 0);
    assert_true(forward_outbox_empty(&outbox));
    fake.status[1] = HS_ERR_BUSY;
    assert_int_equal(send_byte(&outbox, &fake, 1, 11), 0);
    assert_int_equal(send_byte(&outbox, &fake, 2, 20), 0); /* another peer is not held up */
    assert_int_equal(fake.n[2], 1);
    fake.status[1] = 0;
    assert_int_equal(send_byte(&outbox, &fake, 1, 12), 0); /* but nothing overtakes what waits */
    assert_int_equal(fake.n[1], 1);
    assert_true(forward_outbox_flush(&outbox, &fake.transport));
    assert_true(forward_outbox_empty(&outbox));
    assert_int_equal(fake.n[1], 3);
    const uint8_t expected[] = {10, 11, 12};
    assert_memory_equal(fake.got[1], expected, 3);
    assert_int_equal(send_byte(&outbox, &fake, 1, 13), 0);
    assert_int_equal(fake.n[1], 4);
    forward_outbox_fini(&outbox);
}

static void a_busy_peer_does_not_hold_up_a_flush(void **state)
{
    struct forward_outbox outbox = {0};
    struct fake fake = {.transport = {.ops = &OPS}};
    fake.status[1] = fake.status[2] = fake.status[3] = HS_ERR_BUSY;
    for (uint8_t i = 0; i < 9; i++)
        assert_int_equal(send_byte(&outbox, &fake, 1 + i % 3, i), 0);
    fake.status[2] = 0;
    fake.status[3] = HS_ERR_CLOSED; /* it went down meanwhile */
    assert_true(forward_outbox_flush(&outbox, &fake.transport));
    assert_int_equal(fake.n[2], 3);
    assert_false(forward_outbox_flush(&outbox, &fake.transport));
    forward_outbox_drop(&outbox, 1);
    assert_true(forward_outbox_empty(&outbox));
    assert_int_equal(outbox.bytes, 0);
    fake.status[1] = 0;
    assert_int_equal(send_byte(&outbox, &fake, 1, 99), 0); /* the list's end is right after a removal */
    assert_int_equal(fake.n[1], 1);
    forward_outbox_fini(&outbox);
}

static void it_is_bounded(void **state)
{
    struct forward_outbox outbox = {0};
    struct fake fake = {.transport = {.ops = &OPS}};
    static uint8_t large[1 << 20];
    fake.status[1] = HS_ERR_BUSY;
    for (size_t kept = 0; kept + sizeof large <= FORWARD_OUTBOX_BYTES; kept += sizeof large)
        assert_int_equal(forward_outbox_send(&outbox, &fake.transport, 1, large, sizeof large), 0);
    assert_int_equal(send_byte(&outbox, &fake, 1, 1), HS_ERR_LIMIT);
    assert_true(outbox.refused == 1);
    assert_int_equal(send_byte(&outbox, &fake, 2, 1), 0); /* nobody else suffers */
    fake.status[1] = 0;
    forward_outbox_flush(&outbox, &fake.transport);
    assert_int_equal(send_byte(&outbox, &fake, 1, 1), 0);
    fake.status[1] = HS_ERR_CLOSED;
    assert_int_equal(send_byte(&outbox, &fake, 1, 1), HS_ERR_CLOSED);
    fake.status[1] = HS_ERR_LIMIT;
    assert_int_equal(send_byte(&outbox, &fake, 1, 1), HS_ERR_LIMIT);
    assert_true(forward_outbox_empty(&outbox));
    forward_outbox_fini(&outbox);
}

static void many_busy_peers(void **state)
{
    struct forward_outbox outbox = {0};
    struct fake fake = {.transport = {.ops = &OPS}};
    for (uint32_t peer = 0; peer < PEERS; peer++)
        fake.status[peer] = HS_ERR_BUSY;
    for (uint32_t i = 0; i < 3 * PEERS; i++)
        assert_int_equal(send_byte(&outbox, &fake, i % PEERS, (uint8_t)(i / PEERS)), 0);
    assert_false(forward_outbox_flush(&outbox, &fake.transport));
    for (uint32_t peer = 0; peer < PEERS; peer++)
        fake.status[peer] = 0;
    while (forward_outbox_flush(&outbox, &fake.transport))
        ;
    const uint8_t expected[] = {0, 1, 2};
    for (uint32_t peer = 0; peer < PEERS; peer++) {
        assert_int_equal(fake.n[peer], 3);
        assert_memory_equal(fake.got[peer], expected, 3);
    }
    forward_outbox_fini(&outbox);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(order_is_kept_for_each_peer),
        cmocka_unit_test(a_busy_peer_does_not_hold_up_a_flush),
        cmocka_unit_test(it_is_bounded),
        cmocka_unit_test(many_busy_peers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

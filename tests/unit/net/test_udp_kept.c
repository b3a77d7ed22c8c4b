/* Datagrams that a receiver keeps where the kernel put them stay as they were, however much arrives behind them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "net/udp.h"

enum { BYTES = 2000, MANY = 200 };

static struct carrier *open_carrier(void)
{
    struct error err = {0};
    struct carrier *carrier = NULL;
    assert_int_equal(udp_carrier_create("127.0.0.1:0", 0, &carrier, &err), 0);
    return carrier;
}

static void resolve(struct carrier *from, const struct carrier *to, struct carrier_address *out)
{
    char text[64];
    to->ops->local(to, text, sizeof text);
    assert_int_equal(from->ops->resolve(from, text, out), 0);
}

static void send_numbered(struct carrier *from, const struct carrier_address *to, uint32_t first, uint32_t n)
{
    static uint8_t data[MANY][BYTES];
    struct carrier_datagram datagrams[MANY];
    for (uint32_t i = 0; i < n; i++) {
        memset(data[i], (int)(first + i) & 255, BYTES);
        datagrams[i] = (struct carrier_datagram){.address = *to, .data = data[i], .len = BYTES};
    }
    for (uint32_t sent = 0; sent < n;)
        sent += (uint32_t)from->ops->send(from, datagrams + sent, n - sent);
}

static bool holds(const uint8_t *data, uint32_t number)
{
    for (uint32_t i = 0; i < BYTES; i++)
        if (data[i] != (uint8_t)number)
            return false;
    return true;
}

/* What has arrived, at least one; kept[number] and data[number] of those that could be kept. Returns the next number. */
static uint32_t take(struct carrier *carrier, uint32_t number, void *kept[MANY], const uint8_t *data[MANY])
{
    struct carrier_datagram datagrams[64];
    int n = 0;
    while (n == 0)
        n = carrier->ops->receive(carrier, datagrams, 64);
    for (int i = 0; i < n; i++, number++) {
        assert_int_equal(datagrams[i].len, BYTES);
        assert_true(holds(datagrams[i].data, number));
        assert_non_null(datagrams[i].held);
        kept[number] = carrier->ops->keep(carrier, datagrams[i].held);
        data[number] = datagrams[i].data;
    }
    return number;
}

static uint32_t check_and_release(struct carrier *carrier, void *kept[MANY], const uint8_t *data[MANY])
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < MANY; i++) {
        if (kept[i] == NULL)
            continue;
        n++;
        assert_true(holds(data[i], i));
        carrier->ops->release(carrier, kept[i]);
        kept[i] = NULL;
    }
    return n;
}

static void test_kept_one_by_one(void **state)
{
    (void)state;
    struct carrier *from = open_carrier(), *to = open_carrier();
    struct carrier_address address;
    void *kept[MANY] = {NULL};
    const uint8_t *data[MANY];
    uint32_t first_refused = MANY;
    resolve(from, to, &address);
    for (int round = 0; round < 3; round++) { /* all come back in between */
        for (uint32_t number = 0; number < MANY;) {
            send_numbered(from, &address, number, 1);
            assert_int_equal(take(to, number, kept, data), number + 1);
            if (kept[number++] == NULL && first_refused == MANY)
                first_refused = number - 1;
        }
        assert_in_range(first_refused, 16, MANY - 1); /* there is an end to it, and receiving goes on */
        assert_int_equal(check_and_release(to, kept, data), first_refused);
    }
    from->ops->destroy(from);
    to->ops->destroy(to);
}

/* Runs that the kernel joins: several in one space. The socket's buffer holds them all. */
static void test_kept_in_runs(void **state)
{
    (void)state;
    struct carrier *from = open_carrier(), *to = open_carrier();
    struct carrier_address address;
    void *kept[MANY] = {NULL};
    const uint8_t *data[MANY];
    resolve(from, to, &address);
    for (int round = 0; round < 20; round++) {
        uint32_t number = 0, n = 1 + (uint32_t)round * 7 % 50;
        send_numbered(from, &address, 0, n);
        while (number < n)
            number = take(to, number, kept, data);
        assert_int_equal(check_and_release(to, kept, data), n);
    }
    from->ops->destroy(from);
    to->ops->destroy(to);
}

static void test_short_ones_are_not_kept(void **state)
{
    (void)state;
    struct carrier *from = open_carrier(), *to = open_carrier();
    struct carrier_datagram datagram = {.data = (uint8_t *)"short", .len = 5}, received;
    resolve(from, to, &datagram.address);
    assert_int_equal(from->ops->send(from, &datagram, 1), 1);
    while (to->ops->receive(to, &received, 1) == 0)
        ;
    assert_int_equal(received.len, 5);
    assert_null(received.held);
    from->ops->destroy(from);
    to->ops->destroy(to);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_kept_one_by_one),
        cmocka_unit_test(test_kept_in_runs),
        cmocka_unit_test(test_short_ones_are_not_kept),
    };
    return cmocka_run_group_tests_name("udp_kept", tests, NULL, NULL);
}

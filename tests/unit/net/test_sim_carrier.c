#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "net/sim_carrier.h"

enum { N = 20000 };

struct wire {
    struct sim_net *net;
    struct carrier *a, *b;
};

static struct wire make_wire(uint64_t seed, const struct sim_link *link)
{
    struct sim_net_config config = {.seed = seed, .link = *link};
    struct wire wire = {.net = sim_net_create(&config)};
    assert_non_null(wire.net);
    assert_int_equal(sim_carrier_create(wire.net, "a:1", &wire.a, NULL), 0);
    assert_int_equal(sim_carrier_create(wire.net, "b:1", &wire.b, NULL), 0);
    return wire;
}

static void free_wire(struct wire *wire)
{
    if (wire->a != NULL)
        wire->a->ops->destroy(wire->a);
    if (wire->b != NULL)
        wire->b->ops->destroy(wire->b);
    sim_net_destroy(wire->net);
}

static void send_number(struct wire *wire, uint32_t number)
{
    struct carrier_datagram out = {.data = (uint8_t *)&number, .len = sizeof number};
    assert_int_equal(wire->a->ops->resolve(wire->a, "b:1", &out.address), 0);
    assert_int_equal(wire->a->ops->send(wire->a, &out, 1), 1);
}

/* What arrives until the wire is empty: numbers in order of arrival; returns how many. */
static uint32_t drain(struct wire *wire, uint32_t *numbers, uint64_t *times, uint32_t cap)
{
    uint32_t count = 0;
    uint64_t next;
    while ((next = sim_net_next_event_ns(wire->net)) != UINT64_MAX) {
        sim_net_advance(wire->net, next);
        struct carrier_datagram in[4];
        int n = wire->b->ops->receive(wire->b, in, 4);
        for (int i = 0; i < n && count < cap; i++) {
            assert_int_equal(in[i].len, 4);
            memcpy(&numbers[count], in[i].data, 4);
            times[count++] = sim_net_now_ns(wire->net);
        }
    }
    return count;
}

static uint32_t numbers[2 * N];
static uint64_t times[2 * N];

static void test_delay_and_order(void **state)
{
    (void)state;
    struct wire wire = make_wire(1, &(struct sim_link){.delay_ns = 1000, .jitter_ns = 500});
    uint32_t expected = 0;
    for (uint32_t i = 0; i < 1000; i++) {
        sim_net_advance(wire.net, i * 100);
        send_number(&wire, i);
    }
    uint32_t count = drain(&wire, numbers, times, N);
    assert_int_equal(count, 1000);
    for (uint32_t i = 0; i < count; i++)
        assert_int_equal(numbers[i], expected++); /* jitter alone keeps order */
    free_wire(&wire);

    wire = make_wire(1, &(struct sim_link){.delay_ns = 1000, .jitter_ns = 500});
    send_number(&wire, 7);
    assert_int_equal(drain(&wire, numbers, times, N), 1);
    assert_in_range(times[0], 1000, 1500);
    free_wire(&wire);
}

static void test_rates(void **state)
{
    (void)state;
    struct wire wire =
        make_wire(2, &(struct sim_link){.delay_ns = 1000, .loss = 0.1, .duplicate = 0.05, .reorder = 0.02, .reorder_ns = 50000});
    static uint8_t seen[N];
    memset(seen, 0, sizeof seen);
    for (uint32_t i = 0; i < N; i++) {
        sim_net_advance(wire.net, sim_net_now_ns(wire.net) + 1000);
        send_number(&wire, i);
    }
    uint32_t count = drain(&wire, numbers, times, 2 * N), overtaken = 0, distinct = 0, newest = 0;
    for (uint32_t i = 0; i < count; i++) {
        overtaken += numbers[i] < newest;
        newest = numbers[i] > newest ? numbers[i] : newest;
        distinct += seen[numbers[i]]++ == 0;
    }
    assert_in_range(distinct, N * 0.89, N * 0.91); /* 4.7 standard deviations */
    assert_in_range(count - distinct, N * 0.9 * 0.043, N * 0.9 * 0.057);
    assert_true(overtaken > N * 0.01);
    struct sim_net_stats stats;
    sim_net_stats(wire.net, &stats);
    assert_int_equal(stats.sent, N);
    assert_int_equal(stats.lost, N - distinct);
    assert_int_equal(stats.delivered, count);
    free_wire(&wire);
}

static void test_seed_decides(void **state)
{
    (void)state;
    static uint32_t first[N];
    static uint64_t first_times[N];
    uint32_t counts[3];
    const struct sim_link link = {
        .delay_ns = 1000, .jitter_ns = 900, .loss = 0.1, .duplicate = 0.1, .reorder = 0.1, .corrupt = 0.1};
    for (int run = 0; run < 3; run++) {
        struct wire wire = make_wire(run == 2 ? 8 : 7, &link);
        for (uint32_t i = 0; i < 1000; i++)
            send_number(&wire, i);
        counts[run] = drain(&wire, run ? numbers : first, run ? times : first_times, N);
        if (run == 1) {
            assert_int_equal(counts[1], counts[0]);
            assert_memory_equal(numbers, first, counts[0] * sizeof first[0]);
            assert_memory_equal(times, first_times, counts[0] * sizeof first_times[0]);
        }
        free_wire(&wire);
    }
    assert_true(counts[2] != counts[0] || memcmp(times, first_times, counts[0] * sizeof times[0]) != 0);
}

static void test_cut_crash_and_return(void **state)
{
    (void)state;
    const struct sim_link link = {.delay_ns = 1000};
    struct sim_link cut = link;
    cut.cut = true;
    struct wire wire = make_wire(3, &link);
    assert_int_equal(sim_net_set_link(wire.net, "a:1", "b:1", &cut), 0);
    send_number(&wire, 1);
    assert_int_equal(drain(&wire, numbers, times, N), 0);
    assert_int_equal(sim_net_set_link(wire.net, "a:1", "b:1", &link), 0);
    assert_int_equal(sim_net_set_cut(wire.net, "a:1", NULL, true), 0);
    send_number(&wire, 2);
    assert_int_equal(drain(&wire, numbers, times, N), 0);
    assert_int_equal(sim_net_set_cut(wire.net, "a:1", NULL, false), 0);
    send_number(&wire, 3); /* on the wire while the receiver dies and comes back */
    wire.b->ops->destroy(wire.b);
    struct carrier *twice;
    struct error err;
    assert_int_equal(sim_carrier_create(wire.net, "b:1", &wire.b, NULL), 0);
    assert_int_equal(sim_carrier_create(wire.net, "b:1", &twice, &err), HS_ERR_BUSY);
    assert_int_equal(sim_carrier_create(wire.net, "colonless", &twice, &err), HS_ERR_INVALID);
    assert_int_equal(drain(&wire, numbers, times, N), 1);
    assert_int_equal(numbers[0], 3);
    assert_int_equal(sim_net_kill(wire.net, "a:1"), 0); /* a killed sender is silent until it is made anew */
    send_number(&wire, 5);
    assert_int_equal(drain(&wire, numbers, times, N), 0);
    wire.a->ops->destroy(wire.a);
    assert_int_equal(sim_carrier_create(wire.net, "a:1", &wire.a, NULL), 0);
    send_number(&wire, 4); /* and one for a dead receiver */
    wire.b->ops->destroy(wire.b);
    wire.b = NULL;
    sim_net_advance(wire.net, sim_net_now_ns(wire.net) + 5000);
    assert_true(sim_net_next_event_ns(wire.net) == UINT64_MAX);
    free_wire(&wire);
}

static void test_bandwidth(void **state)
{
    (void)state;
    /* 4 bytes at 4,000 bytes/s take 1 ms each; the queue holds 40 bytes beyond the one on the wire. */
    struct wire wire = make_wire(4, &(struct sim_link){.bytes_per_s = 4000, .queue_bytes = 40});
    for (uint32_t i = 0; i < 30; i++)
        send_number(&wire, i);
    uint32_t count = drain(&wire, numbers, times, N);
    assert_int_equal(count, 11);
    for (uint32_t i = 0; i < count; i++)
        assert_int_equal(times[i], (i + 1) * UINT64_C(1000000));
    free_wire(&wire);
}

/* What waits in an inbox is an event at once for the net, and none for the wire. */
static void test_inbox_and_wire(void **state)
{
    (void)state;
    struct wire wire = make_wire(5, &(struct sim_link){.delay_ns = 1000});
    struct carrier_datagram in[1];
    send_number(&wire, 1);
    assert_int_equal(sim_net_next_flight_ns(wire.net), 1000);
    assert_int_equal(sim_carrier_waiting(wire.b), 0);
    sim_net_advance(wire.net, 1000);
    send_number(&wire, 2);
    assert_int_equal(sim_carrier_waiting(wire.b), 1);
    assert_int_equal(sim_net_next_event_ns(wire.net), 1000);
    assert_int_equal(sim_net_next_flight_ns(wire.net), 2000);
    assert_int_equal(wire.b->ops->receive(wire.b, in, 1), 1);
    assert_int_equal(sim_carrier_waiting(wire.b), 0);
    assert_int_equal(sim_net_next_event_ns(wire.net), 2000);
    free_wire(&wire);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_delay_and_order),      cmocka_unit_test(test_rates),     cmocka_unit_test(test_seed_decides),
        cmocka_unit_test(test_cut_crash_and_return), cmocka_unit_test(test_bandwidth),
        cmocka_unit_test(test_inbox_and_wire),
    };
    return cmocka_run_group_tests_name("sim_carrier", tests, NULL, NULL);
}

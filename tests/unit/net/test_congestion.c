/* How fast the reliable transport sends and when it repeats: round trips, windows, pacing, losses, in virtual time. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/unit/net/lab.h"

#define MS UINT64_C(1000000)

static const struct net_tuning defaults = {0};

static void peer_stats(struct lab *lab, uint32_t i, struct transport_peer_stats *out)
{
    assert_int_equal(lab->nodes[i].transport->ops->peer_stats(lab->nodes[i].transport, 0, out), 0);
}

static void test_slow_path(void **state)
{
    (void)state;
    const struct sim_link far = {.delay_ns = 1000 * MS, .jitter_ns = 100 * MS};
    struct lab *lab = lab_create(7, &far, &defaults);
    lab_pair(lab);
    lab->nodes[1].checking = true;
    lab_send_numbers(lab, 0, 0, 0, 4, 1 << 20);
    lab_wait(lab, &lab->nodes[1].n_messages, 4, 60000);
    struct transport_peer_stats stats;
    peer_stats(lab, 0, &stats);
    assert_true(stats.retransmits < 20); /* before the first sample the timer cannot know */
    assert_in_range(stats.rtt_ns, 2000 * MS, 2200 * MS);
    assert_int_equal(lab->nodes[0].downs[0], 0);
    assert_int_equal(lab->nodes[1].ups[0], 1);
    lab_destroy(lab);
}

static void test_rtt_is_measured(void **state)
{
    (void)state;
    const struct sim_link link = {.delay_ns = 10 * MS};
    struct lab *lab = lab_create(8, &link, &defaults);
    lab_pair(lab);
    for (int i = 0; i < 30; i++) {
        assert_int_equal(lab_send(lab, 0, 0, "x", 1, 0), 0);
        assert_int_equal(lab_send(lab, 1, 0, "x", 1, 0), 0);
        lab_run_ms(lab, 30);
    }
    struct transport_peer_stats stats;
    for (uint32_t i = 0; i < 2; i++) {
        peer_stats(lab, i, &stats);
        assert_in_range(stats.rtt_ns, 20 * MS, 20 * MS + MS / 2);
        assert_true(stats.rtt_variance_ns < MS);
    }
    lab_destroy(lab);
}

/* 10 MB/s with a short queue: the window must find the rate, fill most of it, and not drown it in repetitions. */
static void test_bandwidth_limit(void **state)
{
    (void)state;
    const struct sim_link link = {.delay_ns = 5 * MS, .bytes_per_s = 10000000, .queue_bytes = 200000};
    struct lab *lab = lab_create(9, &link, &defaults);
    lab_pair(lab);
    lab->nodes[1].checking = true;
    uint64_t start = lab->now_ns;
    lab_send_numbers(lab, 0, 0, 0, 200, 100000);
    lab_wait(lab, &lab->nodes[1].n_messages, 200, 60000);
    double seconds = (double)(lab->now_ns - start) / 1e9;
    struct transport_peer_stats stats;
    peer_stats(lab, 0, &stats);
    print_message("          20 MB over 10 MB/s in %.2f s, %llu repetitions\n", seconds, (unsigned long long)stats.retransmits);
    assert_true(seconds < 2.5);
    assert_true(stats.retransmits < 20000000 / 1400 / 20);
    lab_destroy(lab);
}

/* 5 % loss that has nothing to do with load must not starve the stream. */
static void test_loss_tolerance(void **state)
{
    (void)state;
    const struct sim_link link = {.delay_ns = 10 * MS, .loss = 0.05};
    struct lab *lab = lab_create(10, &link, &defaults);
    lab_pair(lab);
    lab->nodes[1].checking = true;
    uint64_t start = lab->now_ns;
    lab_send_numbers(lab, 0, 0, 0, 100, 100000);
    lab_wait(lab, &lab->nodes[1].n_messages, 100, 60000);
    double seconds = (double)(lab->now_ns - start) / 1e9;
    print_message("          10 MB over 20 ms RTT with 5 %% loss in %.2f s\n", seconds);
    assert_true(seconds < 1);
    lab_destroy(lab);
}

/*
 * A path that becomes ten times narrower in a moment, with a queue too short to show in the round trip: heavy loss is congestion at once,
 * however much has arrived without any before.
 */
static void test_sudden_bottleneck(void **state)
{
    (void)state;
    struct sim_link link = {.delay_ns = 5 * MS, .bytes_per_s = 100000000, .queue_bytes = 1000000};
    struct lab *lab = lab_create(20, &link, &defaults);
    lab_pair(lab);
    lab->nodes[1].checking = true;
    lab_send_numbers(lab, 0, 0, 0, 400, 100000);
    lab_wait(lab, &lab->nodes[1].n_messages, 400, 60000);
    struct transport_peer_stats before, after;
    peer_stats(lab, 0, &before);
    link.bytes_per_s = 10000000;
    link.queue_bytes = 20000;
    sim_net_set_default_link(lab->net, &link);
    uint64_t start = lab->now_ns;
    lab_send_numbers(lab, 0, 0, 400, 100, 100000);
    lab_wait(lab, &lab->nodes[1].n_messages, 500, 60000);
    peer_stats(lab, 0, &after);
    double seconds = (double)(lab->now_ns - start) / 1e9;
    unsigned long long repeated = after.retransmits - before.retransmits;
    print_message("          10 MB over what has become 10 MB/s in %.2f s, %llu of 7,000 repeated\n", seconds, repeated);
    assert_true(repeated < 7000 * 2 / 3);
    assert_true(seconds < 2);
    lab_destroy(lab);
}

/* The last packet of a burst vanishes, and nothing behind it shows that: a probe does, long before the retransmission timer. */
static void test_tail_loss(void **state)
{
    (void)state;
    const struct sim_link link = {.delay_ns = 100000};
    struct lab *lab = lab_create(13, &link, &defaults);
    lab_pair(lab);
    lab->nodes[1].checking = true;
    lab_send_numbers(lab, 0, 0, 0, 200, 1000);
    lab_wait(lab, &lab->nodes[1].n_messages, 200, 1000);
    lab_run_ms(lab, 50);
    assert_int_equal(sim_net_set_cut(lab->net, "node0:1", "node1:1", true), 0);
    lab_send_numbers(lab, 0, 0, 200, 1, 1000);
    lab_step(lab);
    assert_int_equal(sim_net_set_cut(lab->net, "node0:1", "node1:1", false), 0);
    uint64_t start = lab->now_ns;
    lab_wait(lab, &lab->nodes[1].n_messages, 201, 1000);
    assert_true(lab->now_ns - start < 3 * MS); /* the timer is at least 20 ms */
    lab_destroy(lab);
}

/* A window's worth does not leave at once: into a queue that holds a fifth of it, most of a burst would be lost. */
static void test_pacing(void **state)
{
    (void)state;
    const struct sim_link link = {.delay_ns = 10 * MS, .bytes_per_s = 100000000, .queue_bytes = 200000};
    struct lab *lab = lab_create(17, &link, &defaults);
    lab_pair(lab);
    lab->nodes[1].checking = true;
    struct transport_peer_stats before, after;
    lab_send_numbers(lab, 0, 0, 0, 300, 100000); /* finds the rate: the window is 2 MB then */
    lab_wait(lab, &lab->nodes[1].n_messages, 300, 60000);
    peer_stats(lab, 0, &before);
    for (uint32_t i = 300; i < 500; i += 10) { /* bursts of half a window after silence */
        lab_send_numbers(lab, 0, 0, i, 10, 100000);
        lab_wait(lab, &lab->nodes[1].n_messages, i + 10, 60000);
        lab_run_ms(lab, 100);
    }
    peer_stats(lab, 0, &after);
    print_message("          bursts of 1 MB into a queue of 0.2 MB: %llu of 14,000 repeated\n",
                  (unsigned long long)(after.retransmits - before.retransmits));
    assert_true(after.retransmits - before.retransmits < 14000 / 5);
    lab_destroy(lab);
}

/* Long datagrams: what lacks to the next one is waited for, no longer, however much there is already. */
static void test_pacing_of_long_datagrams(void **state)
{
    (void)state;
    const struct sim_net_config config = {.seed = 19, .mtu = 60000, .link = {.delay_ns = 100 * MS}};
    struct lab *lab = lab_create_on(&config, &defaults);
    lab_pair(lab);
    lab->nodes[1].checking = true;
    lab_send_numbers(lab, 0, 0, 0, 20, 59000); /* the window is 0.5 MB then: 2.5 MB/s and more */
    lab_wait(lab, &lab->nodes[1].n_messages, 20, 60000);
    lab_run_ms(lab, 1000);
    uint64_t start = lab->now_ns;
    lab_send_numbers(lab, 0, 0, 20, 1, 20000); /* two datagrams may go at once: this and one more, and two thirds of a third */
    lab_send_numbers(lab, 0, 0, 21, 2, 59000);
    lab_wait(lab, &lab->nodes[1].n_messages, 23, 60000);
    print_message("          three datagrams arrived within %llu ms\n", (unsigned long long)((lab->now_ns - start) / MS));
    assert_true(lab->now_ns - start < 150 * MS); /* an acknowledgement would come after 200 */
    lab_destroy(lab);
}

static void test_jitter_is_not_loss(void **state)
{
    (void)state;
    const struct sim_link link = {.delay_ns = 10 * MS, .reorder = 0.1, .reorder_ns = 2 * MS};
    struct lab *lab = lab_create(11, &link, &defaults);
    lab_pair(lab);
    lab->nodes[1].checking = true;
    lab_send_numbers(lab, 0, 0, 0, 2000, 1000);
    lab_wait(lab, &lab->nodes[1].n_messages, 2000, 60000);
    struct transport_peer_stats stats;
    peer_stats(lab, 0, &stats);
    assert_true(stats.retransmits < 40);
    lab_destroy(lab);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_slow_path),
        cmocka_unit_test(test_rtt_is_measured),
        cmocka_unit_test(test_bandwidth_limit),
        cmocka_unit_test(test_loss_tolerance),
        cmocka_unit_test(test_sudden_bottleneck),
        cmocka_unit_test(test_tail_loss),
        cmocka_unit_test(test_pacing),
        cmocka_unit_test(test_pacing_of_long_datagrams),
        cmocka_unit_test(test_jitter_is_not_loss),
    };
    return cmocka_run_group_tests_name("congestion", tests, NULL, NULL);
}

/* What the conformance suite cannot see: single mechanisms, in virtual time. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "core/base/error.h"
#include "core/base/rng.h"
#include "net/seal.h"
#include "tests/unit/net/lab.h"

#define MS UINT64_C(1000000)

static const struct sim_link quick = {.delay_ns = 100000};
static const struct net_tuning defaults = {0};

static void test_unnoticed_restart(void **state)
{
    (void)state;
    struct lab *lab = lab_create(1, &quick, &defaults);
    lab_pair(lab);
    uint64_t boot_id = lab->nodes[0].boot_id[0];
    lab_crash(lab, 1);
    lab_start(lab, 1); /* at once: nothing has timed out */
    lab_resolve(lab, 1, 0);
    lab_wait(lab, &lab->nodes[0].ups[0], 2, 1000);
    assert_int_equal(lab->nodes[0].downs[0], 1);
    assert_int_equal(lab->nodes[0].down_status[0], HS_ERR_CANCELED);
    assert_true(lab->nodes[0].boot_id[0] != boot_id);
    lab->nodes[1].checking = true;
    lab_send_numbers(lab, 0, 0, 0, 10, 100);
    lab_wait(lab, &lab->nodes[1].n_messages, 10, 1000);
    lab_destroy(lab);
}

static void test_late_data_of_an_old_session(void **state)
{
    (void)state;
    struct lab *lab = lab_create(2, &quick, &defaults);
    lab_start(lab, 1);
    lab->nodes[1].tap->recording = true;
    lab_start(lab, 0);
    lab_resolve(lab, 0, 1);
    lab_wait(lab, &lab->nodes[1].ups[0], 1, 1000);
    lab_send_numbers(lab, 0, 0, 0, 20, 500);
    lab_wait(lab, &lab->nodes[1].n_messages, 20, 1000);
    lab->nodes[1].tap->recording = false;
    struct tap *tap = lab->nodes[1].tap;
    uint32_t n = tap->n_records;
    assert_true(n > 3);

    uint64_t before = lab_rejected(lab, 1);
    for (uint32_t r = 0; r < n; r++) /* replayed within the session */
        lab_inject(lab, 1, &tap->records[r].from, tap->records[r].data, tap->records[r].len);
    assert_int_equal(lab_rejected(lab, 1), before + n);
    assert_int_equal(lab->nodes[1].n_messages, 20);

    lab_crash(lab, 0);
    lab_start(lab, 0);
    lab_resolve(lab, 0, 1);
    lab_wait(lab, &lab->nodes[1].ups[0], 2, 1000);
    before = lab_rejected(lab, 1);
    uint32_t packets = 0;
    for (uint32_t r = 0; r < n; r++) { /* and into the next */
        if ((tap->records[r].data[2] & 15) != 4)
            continue;
        packets++;
        lab_inject(lab, 1, &tap->records[r].from, tap->records[r].data, tap->records[r].len);
    }
    assert_int_equal(lab_rejected(lab, 1), before + packets);
    assert_int_equal(lab->nodes[1].n_messages, 20);
    assert_int_equal(lab->nodes[1].downs[0], 1);
    lab_destroy(lab);
}

static void test_rekeying_under_loss(void **state)
{
    (void)state;
    const struct sim_link lossy = {.delay_ns = 500000, .loss = 0.05, .duplicate = 0.05, .reorder = 0.05, .reorder_ns = 2 * MS};
    const struct net_tuning tuning = {.rekey_packets = 40};
    struct lab *lab = lab_create(3, &lossy, &tuning);
    lab_pair(lab);
    lab->nodes[1].checking = true;
    for (uint32_t i = 0; i < 12000; i += 200) /* a key is replaced once a round trip at most: so that there are some */
        lab_send_numbers(lab, 0, 0, i, 200, 700);
    lab_wait(lab, &lab->nodes[1].n_messages, 12000, 60000);
    assert_int_equal(lab->nodes[0].downs[0] + lab->nodes[1].downs[0], 0);
    assert_true(lab->nodes[0].tap->newest_generation >= 10);
    lab_destroy(lab);
}

/* A side that only ever acknowledges and sends unreliable messages gets new keys as well. */
static void test_rekeying_of_a_listener(void **state)
{
    (void)state;
    const struct net_tuning tuning = {.rekey_ns = 500 * MS};
    struct lab *lab = lab_create(4, &quick, &tuning);
    lab_pair(lab);
    for (int i = 0; i < 400; i++) {
        assert_int_equal(lab_send(lab, 1, 0, "probe", 5, TRANSPORT_UNRELIABLE), 0);
        lab_run_ms(lab, 10);
    }
    assert_in_range(lab->nodes[1].tap->newest_generation, 6, 8);
    assert_int_equal(lab->nodes[0].n_messages, 400);
    lab_destroy(lab);
}

static void test_one_way_cut(void **state)
{
    (void)state;
    const struct net_tuning tuning = {.peer_timeout_ns = 2000 * MS, .keep_alive_ns = 1000 * MS};
    struct lab *lab = lab_create(5, &quick, &tuning);
    lab_pair(lab);
    struct sim_link cut = quick;
    cut.cut = true;
    assert_int_equal(sim_net_set_link(lab->net, "node0:1", "node1:1", &cut), 0);
    uint64_t start = lab->now_ns;
    assert_int_equal(lab_send(lab, 0, 0, "lost", 4, 0), 0);
    lab_wait(lab, &lab->nodes[0].downs[0], 1, 10000);
    assert_int_equal(lab->nodes[0].down_status[0], HS_ERR_TIMEOUT);
    assert_in_range(lab->nodes[0].down_ns[0] - start, 2000 * MS, 3500 * MS);
    lab_wait(lab, &lab->nodes[1].downs[0], 1, 10000); /* hears nothing: its keep-alive goes unanswered */
    assert_int_equal(lab->nodes[1].n_messages, 0);
    assert_int_equal(sim_net_set_link(lab->net, "node0:1", "node1:1", &quick), 0);
    lab_wait(lab, &lab->nodes[0].ups[0], 2, 5000);
    lab_wait(lab, &lab->nodes[1].ups[0], 2, 5000);
    lab_destroy(lab);
}

/* Behind a one-way cut both have begun handshakes that the other has half answered; mended, one of them counts, and stays. */
static void test_mended_one_way_cuts(void **state)
{
    (void)state;
    const struct net_tuning tuning = {.peer_timeout_ns = 1000 * MS, .keep_alive_ns = 2000 * MS};
    uint32_t flaps = 0;
    for (uint64_t seed = 0; seed < 200; seed++) {
        struct sim_link link = {.delay_ns = 1 + seed % 5 * 20 * MS, .jitter_ns = seed % 3 * 5 * MS};
        const char *from = seed & 1 ? "node1:1" : "node0:1", *to = seed & 1 ? "node0:1" : "node1:1";
        struct lab *lab = lab_create(seed, &link, &tuning);
        lab_start(lab, 0);
        lab_start(lab, 1);
        lab_resolve(lab, 0, 1);
        lab_resolve(lab, 1, 0);
        lab_run_ms(lab, 1000);
        link.cut = true;
        assert_int_equal(sim_net_set_link(lab->net, from, to, &link), 0);
        lab_run_ms(lab, 3000 + seed * 67);
        link.cut = false;
        assert_int_equal(sim_net_set_link(lab->net, from, to, &link), 0);
        lab_run_ms(lab, 1500);
        uint32_t downs = lab->nodes[0].downs[0] + lab->nodes[1].downs[0];
        lab_run_ms(lab, 5000);
        if (lab->nodes[0].downs[0] + lab->nodes[1].downs[0] != downs || !lab->nodes[0].up[0] || !lab->nodes[1].up[0]) {
            print_message("          seed %llu: up %d and %d\n", (unsigned long long)seed, lab->nodes[0].up[0],
                          lab->nodes[1].up[0]);
            flaps++;
        }
        lab_destroy(lab);
    }
    assert_int_equal(flaps, 0);
}

static uint32_t inits_per_second(uint32_t dead)
{
    struct lab *lab = lab_create(16, &quick, &defaults);
    lab_start(lab, 0);
    struct transport *transport = lab->nodes[0].transport;
    for (uint32_t i = 0; i < dead; i++) {
        char name[16];
        uint32_t peer;
        snprintf(name, sizeof name, "gone%u:1", i);
        assert_int_equal(transport->ops->resolve(transport, name, &peer), 0);
    }
    lab_run_ms(lab, 10000); /* the back-off at first */
    uint32_t before = lab->nodes[0].tap->sent_by_type[1];
    lab_run_ms(lab, 20000);
    uint32_t sent = lab->nodes[0].tap->sent_by_type[1] - before;
    lab_destroy(lab);
    return sent / 20;
}

static void test_the_dead_cost_no_more_by_number(void **state)
{
    (void)state;
    assert_in_range(inits_per_second(1), 8, 10);
    assert_in_range(inits_per_second(200), 8, 10);
}

/* The one that comes, or comes back, among four that do not: found in its turn, at once when there is a reason to call it. */
static void test_one_of_the_dead_returns(void **state)
{
    (void)state;
    for (uint32_t has_reason = 0; has_reason < 2; has_reason++) {
        struct lab *lab = lab_create(17 + has_reason, &quick, &defaults);
        lab_start(lab, 0);
        struct transport *transport = lab->nodes[0].transport;
        uint32_t peer;
        for (char name[] = "gone0:1"; name[4] < '4'; name[4]++)
            assert_int_equal(transport->ops->resolve(transport, name, &peer), 0);
        lab_resolve(lab, 0, 1);
        lab_run_ms(lab, 60000);
        lab_start(lab, 1);
        if (has_reason)
            lab_resolve(lab, 0, 1);
        lab_wait(lab, &lab->nodes[0].ups[4], 1, has_reason ? 110 : 5 * 130);
        lab_destroy(lab);
    }
}

static void test_silent_death_of_an_idle_peer(void **state)
{
    (void)state;
    const struct net_tuning tuning = {.peer_timeout_ns = 1000 * MS, .keep_alive_ns = 2000 * MS};
    struct lab *lab = lab_create(6, &quick, &tuning);
    lab_pair(lab);
    lab_run_ms(lab, 10000); /* keep-alives keep it up */
    assert_int_equal(lab->nodes[0].downs[0] + lab->nodes[1].downs[0], 0);
    uint64_t start = lab->now_ns;
    lab_crash(lab, 1);
    lab_wait(lab, &lab->nodes[0].downs[0], 1, 20000);
    assert_in_range(lab->nodes[0].down_ns[0] - start, 1000 * MS, 5000 * MS);
    lab_destroy(lab);
}

/* Who asks for no sealing talks only to those who ask for it as well. */
static void test_unsealed_is_asked_for(void **state)
{
    (void)state;
    const struct net_tuning unsealed = {.ciphers = 1u << SEAL_CIPHER_NONE};
    struct lab *lab = lab_create(18, &quick, &unsealed);
    lab_start(lab, 0);
    lab->tuning = (struct net_tuning){0};
    lab_start(lab, 1); /* as every node is */
    lab_resolve(lab, 0, 1);
    lab_resolve(lab, 1, 0);
    lab_run_ms(lab, 5000);
    assert_int_equal(lab->nodes[0].ups[0] + lab->nodes[1].ups[0], 0);
    lab->tuning = unsealed;
    lab_start(lab, 2);
    uint32_t peer = lab_resolve(lab, 2, 0);
    lab_wait(lab, &lab->nodes[2].ups[peer], 1, 5000);
    lab->nodes[0].checking = true;
    lab_send_numbers(lab, 2, peer, 0, 50, 3000);
    lab_wait(lab, &lab->nodes[0].n_messages, 50, 1000);
    lab_destroy(lab);
}

static void test_small_messages_share_datagrams(void **state)
{
    (void)state;
    struct lab *lab = lab_create(12, &quick, &defaults);
    lab_pair(lab);
    lab_run_ms(lab, 50);
    uint32_t before = lab->nodes[0].tap->sent_by_type[4];
    lab->nodes[1].checking = true;
    lab_send_numbers(lab, 0, 0, 0, 100, 20);
    lab_wait(lab, &lab->nodes[1].n_messages, 100, 1000);
    assert_in_range(lab->nodes[0].tap->sent_by_type[4] - before, 1, 3); /* 2,800 bytes of frames */
    lab_run_ms(lab, 50);
    assert_true(lab->nodes[1].tap->sent_by_type[4] <= 4); /* and few acknowledgements */
    lab_destroy(lab);
}

static int poll_at(struct lab *lab, uint32_t i, uint64_t after_ns, struct transport_event *event)
{
    lab->now_ns += after_ns;
    sim_net_advance(lab->net, lab->now_ns);
    return lab->nodes[i].transport->ops->poll(lab->nodes[i].transport, lab->now_ns, event, 1);
}

/* Who thinks long over an answer, which then leaves at once, neither takes that time for a round trip nor the answer for lost. */
static void test_an_answer_after_long_thought(void **state)
{
    (void)state;
    static const uint64_t thought_ns[] = {0, 0, 0, 30 * MS, 50 * MS};
    struct lab *lab = lab_create(20, &quick, &defaults);
    lab_pair(lab);
    lab_run_ms(lab, 50);
    struct transport *answers = lab->nodes[1].transport;
    struct transport_peer_stats stats;
    for (size_t i = 0; i < sizeof thought_ns / sizeof thought_ns[0]; i++) {
        struct transport_event event;
        uint32_t sent = lab->nodes[1].tap->sent_by_type[4];
        assert_int_equal(lab_send(lab, 0, 0, "question", 8, 0), 0);
        poll_at(lab, 0, 0, &event);
        assert_int_equal(poll_at(lab, 1, 100000, &event), 1);
        assert_int_equal(event.kind, TRANSPORT_MESSAGE);
        lab->now_ns += thought_ns[i];
        sim_net_advance(lab->net, lab->now_ns);
        assert_int_equal(lab_send(lab, 1, 0, "answer", 6, 0), 0);
        assert_int_equal(lab->nodes[1].tap->sent_by_type[4], sent + 1); /* without a poll */
        assert_int_equal(poll_at(lab, 1, 1000, &event), 0);
        lab_run_ms(lab, 10);
        assert_int_equal(answers->ops->peer_stats(answers, 0, &stats), 0);
        assert_int_equal(stats.retransmits, 0);
        assert_in_range(stats.rtt_ns, 100000, 300000);
    }
    lab_destroy(lab);
}

/* The same of an answer in more packets than have their times remembered: what is known of its fragments tells no round trip either. */
static void test_a_long_answer_after_long_thought(void **state)
{
    (void)state;
    enum { LONG = 2 << 20, MANY_PACKETS = 1000 };
    static uint8_t answer[LONG];
    struct lab *lab = lab_create(21, &quick, &defaults);
    lab_pair(lab);
    lab_send_numbers(lab, 1, 0, 0, 20, LONG); /* opens the window */
    lab_wait(lab, &lab->nodes[0].n_messages, 20, 60000);
    lab_run_ms(lab, 50);
    struct transport_event event;
    struct transport *answers = lab->nodes[1].transport;
    struct transport_peer_stats before, after;
    assert_int_equal(answers->ops->peer_stats(answers, 0, &before), 0);
    assert_int_equal(lab_send(lab, 0, 0, "question", 8, 0), 0);
    poll_at(lab, 0, 0, &event);
    assert_int_equal(poll_at(lab, 1, 100000, &event), 1);
    lab->now_ns += 30 * MS;
    sim_net_advance(lab->net, lab->now_ns);
    uint32_t sent = lab->nodes[1].tap->sent_by_type[4];
    assert_int_equal(lab_send(lab, 1, 0, answer, LONG, 0), 0);
    assert_true(lab->nodes[1].tap->sent_by_type[4] - sent > MANY_PACKETS);
    poll_at(lab, 0, 100000, &event);
    poll_at(lab, 1, 100000, &event); /* the first poll since, and the first acknowledgement is there */
    lab_run_ms(lab, 50);
    assert_int_equal(answers->ops->peer_stats(answers, 0, &after), 0);
    assert_true(after.rtt_ns >= 199000); /* the link's is 200,000 */
    assert_int_equal(after.retransmits, before.retransmits);
    lab_destroy(lab);
}

static void test_limit_of_peers(void **state)
{
    (void)state;
    const struct net_tuning tuning = {.max_peers = 1};
    struct lab *lab = lab_create(13, &quick, &tuning);
    lab_pair(lab);
    uint32_t peer;
    struct transport *transport = lab->nodes[0].transport;
    assert_int_equal(transport->ops->resolve(transport, "node9:1", &peer), HS_ERR_LIMIT);
    lab_start(lab, 2);
    lab_resolve(lab, 2, 0); /* refused at the other end, over and over, without harm */
    lab_run_ms(lab, 3000);
    assert_int_equal(lab->nodes[0].downs[0], 0);
    assert_int_equal(lab->nodes[0].ups[0], 1);
    struct transport_stats stats;
    transport->ops->stats(transport, &stats);
    assert_true(stats.peers.used == 1 && stats.peers.max == 1);
    assert_true(stats.peers.hits >= 2); /* the resolve, and each time that the other one came */
    lab_destroy(lab);
}

/* A sender that does not wait for its peer is told, and what it left there is within the bounds that are shown. */
static void test_limits_of_queues(void **state)
{
    (void)state;
    static uint8_t large[1 << 20];
    struct lab *lab = lab_create(15, &quick, &defaults);
    lab_pair(lab);
    struct transport *transport = lab->nodes[0].transport;
    struct transport_stats stats;
    uint32_t taken = 0;
    while (lab_send(lab, 0, 0, large, sizeof large, 0) == 0)
        taken++;
    transport->ops->stats(transport, &stats);
    assert_in_range(taken, 1, stats.send_bytes.max / sizeof large);
    assert_in_range(stats.send_bytes.used, taken * sizeof large, stats.send_bytes.max); /* and the heads of frames */
    assert_int_equal(stats.send_bytes.hits, 1);
    taken = 0;
    while (lab_send(lab, 0, 0, large, 1000, TRANSPORT_UNRELIABLE) == 0)
        taken++;
    transport->ops->stats(transport, &stats);
    assert_in_range(stats.unreliable_bytes.used, taken * 1000, stats.unreliable_bytes.max);
    assert_int_equal(stats.unreliable_bytes.hits, 1);
    lab_run_ms(lab, 3000);
    transport->ops->stats(transport, &stats);
    assert_int_equal(stats.send_bytes.used, 0);
    assert_int_equal(stats.unreliable_bytes.used, 0);
    lab->nodes[1].transport->ops->stats(lab->nodes[1].transport, &stats);
    assert_in_range(stats.receive_bytes.used, 1, stats.receive_bytes.max);
    lab_destroy(lab);
}

/* Nonsense from more addresses than are remembered: the memory stays as it is, and the others are counted. */
static void test_limit_of_strangers(void **state)
{
    (void)state;
    static uint8_t other_version[32] = {'H', 'S', 0xf1};
    struct lab *lab = lab_create(16, &quick, &defaults);
    lab_start(lab, 0);
    for (uint32_t i = 0; i < 5000; i++) {
        struct carrier_address from = {.len = 8};
        memcpy(from.bytes, "x000000:", 8);
        memcpy(from.bytes + 1, &i, sizeof i);
        lab_inject(lab, 0, &from, other_version, sizeof other_version);
    }
    struct transport_stats stats;
    lab->nodes[0].transport->ops->stats(lab->nodes[0].transport, &stats);
    assert_true(stats.strangers.used == 4096 && stats.strangers.max == 4096);
    assert_int_equal(stats.strangers.hits, 5000 - 4096);
    assert_int_equal(stats.rejected, 5000);
    lab_destroy(lab);
}

/* One recorded first message, sent again from a thousand addresses. */
static void test_flood_of_handshakes(void **state)
{
    (void)state;
    const struct net_tuning tuning = {.max_half_open = 16};
    struct lab *lab = lab_create(14, &quick, &tuning);
    lab_start(lab, 1);
    lab->nodes[1].tap->recording = true;
    lab_start(lab, 0);
    lab_resolve(lab, 0, 1);
    lab_wait(lab, &lab->nodes[0].ups[0], 1, 1000);
    struct tap *tap = lab->nodes[1].tap;
    assert_int_equal(tap->records[0].data[2] & 15, 1);
    uint32_t responses = tap->sent_by_type[2];
    for (uint32_t i = 0; i < 1000; i++) {
        struct carrier_address from = {.len = 8};
        memcpy(from.bytes, "x000000:", 8);
        memcpy(from.bytes + 1, &i, sizeof i);
        lab_inject(lab, 1, &from, tap->records[0].data, tap->records[0].len);
    }
    assert_true(tap->sent_by_type[2] - responses <= 4); /* a quarter of the half-open slots */
    assert_true(tap->sent_by_type[3] >= 990);           /* the others were asked to prove their address */
    struct transport_stats stats;
    lab->nodes[1].transport->ops->stats(lab->nodes[1].transport, &stats);
    assert_true(stats.half_open.max == 16 && stats.half_open.used == 4);
    assert_int_equal(stats.half_open.hits, tap->sent_by_type[3]);
    lab_start(lab, 2); /* an honest newcomer answers the cookie and gets in */
    lab_resolve(lab, 2, 1);
    lab_wait(lab, &lab->nodes[2].ups[0], 1, 1000);
    assert_int_equal(lab->nodes[2].tap->sent_by_type[1], 2);
    lab_run_ms(lab, 11000); /* the half-open ones are forgotten */
    assert_int_equal(lab->nodes[1].downs[0], 0);
    lab_destroy(lab);
}

/* Both call each other, at about the same time, over 300 different wires: up once, and then it stays so. */
static void test_crossing_handshakes(void **state)
{
    (void)state;
    uint32_t flaps = 0;
    for (uint64_t seed = 0; seed < 300; seed++) {
        const struct sim_link link = {.delay_ns = seed % 7 * 30 * MS,
                                      .jitter_ns = seed % 3 * 5 * MS,
                                      .loss = 0.1,
                                      .duplicate = 0.1,
                                      .reorder = 0.1,
                                      .reorder_ns = 3 * MS};
        struct lab *lab = lab_create(seed, &link, &defaults);
        lab_start(lab, 0);
        lab_start(lab, 1);
        lab_resolve(lab, 0, 1);
        lab_run_ms(lab, seed % 5 * 40);
        lab_resolve(lab, 1, 0);
        lab_wait(lab, &lab->nodes[0].ups[0], 1, 20000);
        lab_wait(lab, &lab->nodes[1].ups[0], 1, 20000);
        lab_run_ms(lab, 12000);
        if (lab->nodes[0].ups[0] + lab->nodes[1].ups[0] != 2) {
            print_message("          seed %llu: up %u and %u times\n", (unsigned long long)seed, lab->nodes[0].ups[0],
                          lab->nodes[1].ups[0]);
            flaps++;
        }
        assert_int_equal(lab_send(lab, 0, 0, "x", 1, 0), 0);
        assert_int_equal(lab_send(lab, 1, 0, "x", 1, 0), 0);
        lab_wait(lab, &lab->nodes[0].n_messages, 1, 5000);
        lab_wait(lab, &lab->nodes[1].n_messages, 1, 5000);
        lab_destroy(lab);
    }
    assert_int_equal(flaps, 0);
}

/* ---- crashes, cuts and bad links at random ---- */

struct chaos {
    struct lab *lab;
    struct rng rng;
    uint32_t number[LAB_NODES][LAB_NODES]; /* of the newest message from a to b; grows over restarts */
    uint32_t peer[LAB_NODES][LAB_NODES];
};

static void chaos_start(struct chaos *chaos, uint32_t i)
{
    lab_start(chaos->lab, i);
    chaos->lab->nodes[i].in_sequence = true;
    for (uint32_t j = 0; j < LAB_NODES; j++)
        if (j != i)
            chaos->peer[i][j] = lab_resolve(chaos->lab, i, j);
}

static void chaos_send(struct chaos *chaos, uint32_t i, uint32_t j)
{
    static uint8_t data[30000];
    const struct lab_node *node = &chaos->lab->nodes[i];
    if (node->transport == NULL || i == j || !node->up[chaos->peer[i][j]])
        return;
    uint32_t number = chaos->number[i][j] + 1;
    memcpy(data, &number, sizeof number);
    size_t len = 4 + rng_below(&chaos->rng, rng_below(&chaos->rng, 10) ? 500 : sizeof data - 4);
    if (lab_send(chaos->lab, i, chaos->peer[i][j], data, len, 0) == 0)
        chaos->number[i][j] = number;
}

static void chaos_turn(struct chaos *chaos)
{
    struct lab *lab = chaos->lab;
    uint32_t i = (uint32_t)rng_below(&chaos->rng, LAB_NODES), j = (uint32_t)rng_below(&chaos->rng, LAB_NODES);
    struct sim_link bad = {.delay_ns = rng_below(&chaos->rng, 20) * MS,
                           .jitter_ns = MS,
                           .loss = 0.15,
                           .duplicate = 0.1,
                           .reorder = 0.1,
                           .corrupt = 0.02,
                           .cut = rng_below(&chaos->rng, 2)};
    switch (rng_below(&chaos->rng, 400)) {
    case 0:
        if (lab->nodes[i].transport != NULL)
            lab_crash(lab, i);
        break;
    case 1:
        if (lab->nodes[i].transport != NULL) { /* leaves in order */
            lab->nodes[i].transport->ops->destroy(lab->nodes[i].transport);
            lab->nodes[i].transport = NULL;
            memset(lab->nodes[i].up, 0, sizeof lab->nodes[i].up);
            memset(lab->nodes[i].last, 0, sizeof lab->nodes[i].last);
        }
        break;
    case 2:
    case 3:
    case 4:
        if (lab->nodes[i].transport == NULL)
            chaos_start(chaos, i);
        break;
    case 5:
        assert_int_equal(sim_net_set_link(lab->net, lab->nodes[i].name, lab->nodes[j].name, &bad), 0);
        break;
    case 6:
    case 7:
        assert_int_equal(sim_net_set_link(lab->net, lab->nodes[i].name, lab->nodes[j].name, &quick), 0);
        break;
    default:
        chaos_send(chaos, i, j);
    }
    lab_step(lab);
}

static void chaos_end(struct chaos *chaos)
{
    struct lab *lab = chaos->lab;
    for (uint32_t i = 0; i < LAB_NODES; i++) {
        for (uint32_t j = 0; j < LAB_NODES; j++)
            assert_int_equal(sim_net_set_link(lab->net, lab->nodes[i].name, lab->nodes[j].name, &quick), 0);
        if (lab->nodes[i].transport == NULL)
            chaos_start(chaos, i);
    }
    lab_run_ms(lab, 30000);
    for (uint32_t i = 0; i < LAB_NODES; i++)
        for (uint32_t j = 0; j < LAB_NODES; j++)
            chaos_send(chaos, i, j);
    lab_run_ms(lab, 100);
    for (uint32_t i = 0; i < LAB_NODES; i++)
        for (uint32_t j = 0; j < LAB_NODES; j++)
            if (i != j) { /* all are up, and have everything that was sent last */
                assert_true(lab->nodes[i].up[chaos->peer[i][j]]);
                assert_int_equal(lab->nodes[j].last[chaos->peer[j][i]], chaos->number[i][j]);
            }
}

static void test_chaos(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 20; seed++) {
        print_message("          seed %llu\n", (unsigned long long)seed);
        struct chaos chaos = {.lab = lab_create(seed, &quick, &defaults)};
        rng_seed(&chaos.rng, seed);
        for (uint32_t i = 0; i < LAB_NODES; i++)
            chaos_start(&chaos, i);
        for (int turn = 0; turn < 8000; turn++)
            chaos_turn(&chaos);
        chaos_end(&chaos);
        lab_destroy(chaos.lab);
    }
}

static uint32_t count_in(const char *text, const char *part)
{
    uint32_t count = 0;
    for (; (text = strstr(text, part)) != NULL; text += strlen(part))
        count++;
    return count;
}

static void test_wrong_key_is_said_once(void **state)
{
    (void)state;
    static const uint8_t other[NET_GROUP_KEY_BYTES] = "some other key";
    FILE *file = tmpfile();
    assert_non_null(file);
    int saved = dup(STDERR_FILENO);
    dup2(fileno(file), STDERR_FILENO);
    struct lab *lab = lab_create(16, &quick, &defaults);
    lab->nodes[1].key = other;
    lab_start(lab, 0);
    lab_start(lab, 1);
    lab_resolve(lab, 1, 0);
    lab_run_ms(lab, 20000);
    dup2(saved, STDERR_FILENO);
    close(saved);
    char text[4096] = {0};
    rewind(file);
    size_t len = fread(text, 1, sizeof text - 1, file);
    fclose(file);
    assert_true(len > 0);
    assert_int_equal(count_in(text, "peer node1:1 does not hold our group key, or uses another fabric"), 1);
    assert_int_equal(count_in(text, "\n"), 1);
    assert_true(lab_rejected(lab, 0) > 8);
    assert_int_equal(lab->nodes[0].ups[0] + lab->nodes[1].ups[0], 0);
    lab_destroy(lab);
}

static uint64_t trace_of_a_world(uint64_t seed)
{
    const struct sim_link lossy = {.delay_ns = MS, .jitter_ns = MS, .loss = 0.1, .duplicate = 0.1, .reorder = 0.1, .corrupt = 0.02};
    struct lab *lab = lab_create(seed, &lossy, &defaults);
    lab_pair(lab);
    lab->nodes[1].checking = true;
    lab_send_numbers(lab, 0, 0, 0, 500, 900);
    lab_wait(lab, &lab->nodes[1].n_messages, 500, 60000);
    uint64_t trace = lab->nodes[0].trace * 31 + lab->nodes[1].trace;
    lab_destroy(lab);
    return trace;
}

static void test_same_seed_same_world(void **state)
{
    (void)state;
    assert_true(trace_of_a_world(42) == trace_of_a_world(42));
    assert_true(trace_of_a_world(42) != trace_of_a_world(43));
}

static void test_own_address(void **state)
{
    (void)state;
    struct lab *lab = lab_create(15, &quick, &defaults);
    lab_start(lab, 0);
    lab_resolve(lab, 0, 0);
    lab_run_ms(lab, 5000);
    assert_int_equal(lab->nodes[0].ups[0], 0);
    assert_in_range(lab->nodes[0].tap->sent_by_type[1], 1, 2); /* sees that it talks to itself and stops */
    lab_destroy(lab);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_unnoticed_restart),
        cmocka_unit_test(test_late_data_of_an_old_session),
        cmocka_unit_test(test_rekeying_under_loss),
        cmocka_unit_test(test_rekeying_of_a_listener),
        cmocka_unit_test(test_one_way_cut),
        cmocka_unit_test(test_mended_one_way_cuts),
        cmocka_unit_test(test_the_dead_cost_no_more_by_number),
        cmocka_unit_test(test_one_of_the_dead_returns),
        cmocka_unit_test(test_silent_death_of_an_idle_peer),
        cmocka_unit_test(test_unsealed_is_asked_for),
        cmocka_unit_test(test_small_messages_share_datagrams),
        cmocka_unit_test(test_an_answer_after_long_thought),
        cmocka_unit_test(test_a_long_answer_after_long_thought),
        cmocka_unit_test(test_limit_of_peers),
        cmocka_unit_test(test_limits_of_queues),
        cmocka_unit_test(test_limit_of_strangers),
        cmocka_unit_test(test_flood_of_handshakes),
        cmocka_unit_test(test_crossing_handshakes),
        cmocka_unit_test(test_chaos),
        cmocka_unit_test(test_wrong_key_is_said_once),
        cmocka_unit_test(test_same_seed_same_world),
        cmocka_unit_test(test_own_address),
    };
    return cmocka_run_group_tests_name("reliable", tests, NULL, NULL);
}

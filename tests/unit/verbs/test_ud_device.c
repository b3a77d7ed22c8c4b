/* The datagram carrier over verbs on a device that is memory (fake_device.h). Time is counted, not read; questions go over loopback. */
#include <arpa/inet.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "core/base/rng.h"
#include "net/verbs/ud.h"
#include "net/verbs/ud_message.h"
#include "tests/unit/verbs/fake_device.h"

#define MS UINT64_C(1000000)
static const uint64_t STEP_NS = 100000;
static const uint8_t key[NET_GROUP_KEY_BYTES] = "a group's key";

struct world {
    struct env env;
    struct rng rng;
    uint64_t now_ns;
    struct carrier *carriers[2];
    uint32_t receives; /* of carriers to be started; 0: as many as there are by default */
    uint32_t n_received[2], len; /* len, data: of the last one */
    uint8_t data[8192], salt; /* salt: of what is sent */
};

static uint64_t counted_now(void *self)
{
    return ((struct world *)self)->now_ns;
}

static uint64_t drawn(void *self)
{
    return rng_u64(&((struct world *)self)->rng);
}

static void start(struct world *world, int i, const char *bind)
{
    struct transport_verbs_config config = {.bind = bind, .group_key = key, .receive_datagrams = world->receives};
    struct error err = {0};
    if (verbs_ud_carrier_create(&config, &world->env, &world->carriers[i], &err) != 0)
        fail_msg("%s", err.text);
}

static void stop(struct world *world, int i)
{
    world->carriers[i]->ops->destroy(world->carriers[i]);
    world->carriers[i] = NULL;
}

static int set_up(void **state)
{
    struct world *world = calloc(1, sizeof *world);
    assert_non_null(world);
    fake_device = (struct fake_device){.registered_bytes = 0};
    world->env = (struct env){.now_ns = counted_now, .random_u64 = drawn, .self = world};
    world->now_ns = 1000 * MS;
    rng_seed(&world->rng, 1);
    *state = world;
    return 0;
}

static int tear_down(void **state)
{
    struct world *world = *state;
    for (int i = 0; i < 2; i++)
        if (world->carriers[i] != NULL)
            stop(world, i);
    assert_int_equal(fake_device.registered_bytes, 0);
    assert_int_equal(fake_device.n_queue_pairs, 0);
    assert_int_equal(fake_device.n_handles, 0);
    assert_int_equal(fake_device.dead_handles, 0);
    free(world);
    return 0;
}

static void step(struct world *world)
{
    world->now_ns += STEP_NS;
    for (int i = 0; i < 2; i++) {
        struct carrier_datagram in[8];
        int n = world->carriers[i] != NULL ? world->carriers[i]->ops->receive(world->carriers[i], in, 8) : 0;
        for (int k = 0; k < n; k++) {
            world->n_received[i]++;
            world->len = in[k].len;
            memcpy(world->data, in[k].data, in[k].len);
        }
    }
}

static void run(struct world *world, uint64_t for_ns)
{
    for (uint64_t end_ns = world->now_ns + for_ns; world->now_ns < end_ns;)
        step(world);
}

static void wait_received(struct world *world, int i, uint32_t n)
{
    for (uint64_t end_ns = world->now_ns + 2000 * MS; world->n_received[i] < n && world->now_ns < end_ns;)
        step(world);
    assert_int_equal(world->n_received[i], n);
}

static void send_to(struct world *world, int from, const char *to, uint32_t len)
{
    static uint8_t data[8192];
    struct carrier_datagram out = {.data = data, .len = len};
    for (uint32_t i = 0; i < len; i++)
        data[i] = (uint8_t)(i * 7 + i / 251 + world->salt);
    assert_int_equal(world->carriers[from]->ops->resolve(world->carriers[from], to, &out.address), 0);
    assert_int_equal(world->carriers[from]->ops->send(world->carriers[from], &out, 1), 1);
}

static void check_content(const struct world *world, uint32_t len)
{
    assert_int_equal(world->len, len);
    for (uint32_t i = 0; i < len; i++)
        assert_int_equal(world->data[i], (uint8_t)(i * 7 + i / 251 + world->salt));
}

static void address_of(const struct world *world, int i, char text[TRANSPORT_ADDRESS_TEXT])
{
    world->carriers[i]->ops->local(world->carriers[i], text, TRANSPORT_ADDRESS_TEXT);
}

/* Lengths around the ends of pieces, with each path MTU there is. */
static void test_every_mtu(void **state)
{
    struct world *world = *state;
    static const struct {
        uint32_t path, datagram;
    } mtus[] = {{256, 6 * 232}, {512, 3 * 488}, {1024, 2000}, {2048, 2024}, {4096, 4072}};
    uint32_t received = 0;
    for (size_t k = 0; k < sizeof mtus / sizeof mtus[0]; k++) {
        char there[TRANSPORT_ADDRESS_TEXT];
        struct verbs_ud_stats stats;
        fake_device.mtu_bytes = mtus[k].path;
        for (int i = 0; i < 2; i++)
            start(world, i, "127.0.0.1:0");
        assert_int_equal(world->carriers[0]->ops->mtu(world->carriers[0]), mtus[k].datagram);
        address_of(world, 1, there);
        uint32_t piece = mtus[k].path - UD_HEADER_BYTES, n_pieces = 0;
        const uint32_t lengths[] = {1, piece - 1, piece, piece + 1, 1200, mtus[k].datagram};
        for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
            if (lengths[i] > mtus[k].datagram)
                continue;
            send_to(world, 0, there, lengths[i]);
            wait_received(world, 1, ++received);
            check_content(world, lengths[i]);
            n_pieces += lengths[i] > piece ? (lengths[i] + piece - 1) / piece : 0;
        }
        verbs_ud_stats(world->carriers[1], &stats);
        assert_int_equal(stats.pieces, n_pieces);
        for (int i = 0; i < 2; i++)
            stop(world, i);
    }
}

/* The two ends' MTUs differ: the smaller one counts, either way. */
static void test_mixed_mtu(void **state)
{
    struct world *world = *state;
    char here[TRANSPORT_ADDRESS_TEXT], there[TRANSPORT_ADDRESS_TEXT];
    start(world, 0, "127.0.0.1:0");
    fake_device.mtu_bytes = 1024; /* what longer ones come to from now on */
    start(world, 1, "127.0.0.1:0");
    address_of(world, 0, here);
    address_of(world, 1, there);
    send_to(world, 0, there, 2000);
    wait_received(world, 1, 1);
    check_content(world, 2000);
    send_to(world, 1, here, 2000);
    wait_received(world, 0, 1);
    check_content(world, 2000);
}

/* A datagram of which a piece was lost is not made whole by the one that has its number again, at some hundred megabytes a second. */
static void test_numbers_come_round(void **state)
{
    enum { NUMBERS = 1 << 16, AT_ONCE = 8 };
    struct world *world = *state;
    char there[TRANSPORT_ADDRESS_TEXT];
    struct verbs_ud_stats stats;
    uint64_t pieces = 0;
    uint32_t received = 1;
    fake_device.mtu_bytes = 1024;
    for (int i = 0; i < 2; i++)
        start(world, i, "127.0.0.1:0");
    address_of(world, 1, there);
    send_to(world, 0, there, 2000);
    wait_received(world, 1, received);
    fake_device.percent_lost = 50;
    for (int i = 0; i < 100 && pieces != 1; i++) {
        verbs_ud_stats(world->carriers[1], &stats);
        pieces = stats.pieces;
        send_to(world, 0, there, 2000);
        run(world, 1 * MS);
        verbs_ud_stats(world->carriers[1], &stats);
        pieces = stats.pieces - pieces;
    }
    assert_int_equal(pieces, 1);
    fake_device.percent_lost = 0;
    received = world->n_received[1];
    world->salt = 1;
    for (uint32_t i = 0; i < NUMBERS; i++) {
        send_to(world, 0, there, 2000);
        if (i % AT_ONCE == AT_ONCE - 1)
            step(world);
    }
    wait_received(world, 1, received + NUMBERS);
    check_content(world, 2000);
}

/* However few are asked for, datagrams in pieces arrive. */
static void test_few_receives(void **state)
{
    struct world *world = *state;
    char there[TRANSPORT_ADDRESS_TEXT];
    fake_device.mtu_bytes = 1024;
    world->receives = 1;
    for (int i = 0; i < 2; i++)
        start(world, i, "127.0.0.1:0");
    address_of(world, 1, there);
    for (uint32_t i = 1; i <= 100; i++) {
        send_to(world, 0, there, 2000);
        wait_received(world, 1, i);
        check_content(world, 2000);
    }
}

/* A neighbour restarts while what was sent to it is still with the device, which looks handles up only when it sends. */
static void test_handles_in_use(void **state)
{
    struct world *world = *state;
    char there[TRANSPORT_ADDRESS_TEXT];
    for (int i = 0; i < 2; i++)
        start(world, i, "127.0.0.1:0");
    address_of(world, 1, there);
    send_to(world, 0, there, 100);
    wait_received(world, 1, 1);
    fake_device.hold_datagrams = true;
    for (int i = 0; i < 5; i++)
        send_to(world, 0, there, 1000); /* these do not go inline */
    stop(world, 1);
    start(world, 1, there);
    run(world, 1100 * MS); /* nothing was heard: it is asked again, and elsewhere */
    send_to(world, 0, there, 100);
    run(world, 10 * MS);
    send_to(world, 0, there, 100);
    assert_int_equal(fake_device.n_handles, 2); /* the old one, too */
    fake_device_release_datagrams();
    assert_int_equal(fake_device.dead_handles, 0);
    for (uint32_t i = 0; i < 40; i++) {
        send_to(world, 0, there, 100);
        run(world, 1 * MS);
    }
    assert_int_equal(fake_device.n_handles, 1);
    assert_true(world->n_received[1] > 40);
}

/* Somebody without the key has heard a question, and repeats it: the answer goes to who had asked, and nothing to the one who repeated it. */
static void test_repeated_question(void **state)
{
    struct world *world = *state;
    char there[TRANSPORT_ADDRESS_TEXT], text[32];
    struct sockaddr_in own = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}}, to = own;
    socklen_t len = sizeof own;
    uint8_t word[512];
    int stranger = socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(stranger, (struct sockaddr *)&own, len), 0);
    assert_int_equal(getsockname(stranger, (struct sockaddr *)&own, &len), 0);
    for (int i = 0; i < 2; i++)
        start(world, i, "127.0.0.1:0");
    address_of(world, 1, there);
    snprintf(text, sizeof text, "127.0.0.1:%u", ntohs(own.sin_port));
    send_to(world, 0, text, 100); /* a member looks for the stranger: here is a question */
    struct pollfd readable = {.fd = stranger, .events = POLLIN};
    assert_int_equal(poll(&readable, 1, 10000), 1);
    ssize_t n = recv(stranger, word, sizeof word, 0);
    assert_int_equal(n, UD_WORD_BYTES);
    to.sin_port = htons((uint16_t)strtoul(strrchr(there, ':') + 1, NULL, 10));
    for (int i = 0; i < 3; i++) {
        assert_int_equal(sendto(stranger, word, (size_t)n, 0, (struct sockaddr *)&to, sizeof to), n);
        run(world, 10 * MS);
    }
    struct verbs_ud_stats stats;
    verbs_ud_stats(world->carriers[1], &stats);
    assert_int_equal(stats.tells, 3);
    while ((n = recv(stranger, word, sizeof word, 0)) > 0)
        assert_int_equal(word[3], UD_ASK); /* the member goes on asking, and that is all */
    close(stranger);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_every_mtu, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_mixed_mtu, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_numbers_come_round, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_few_receives, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_handles_in_use, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_repeated_question, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

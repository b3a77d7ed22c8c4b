/*
 * The node's own share of a round trip: two transports in one process, reliable ones over a carrier that only copies, or verbs on two
 * devices, where a message is given time to arrive before it is looked for. Time is counted, not read, so that every run does the same
 * work; perf/instructions counts what fabric_answer_turn takes.
 */
#include "perf/bench_fabric.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/base/rng.h"
#include "net/net.h"
#include "net/seal.h"
#include "perf/progress.h"

enum { SLOTS = 256, MTU = 8192, TURN_NS = 2000, WARM_UP = 1000, TURNS = 20000, DEVICE_WARM_UP = 100, DEVICE_TURNS = 1000 };
enum { ARRIVAL_NS = 2000000, MOST_LOOKS = 1000 }; /* on a device, even an emulated one */

/* ---- a carrier to the other end, whose address is the number of the end ---- */

struct memory_carrier {
    struct carrier carrier;
    struct memory_carrier *other;
    uint8_t id;
    struct carrier_stats stats;
    uint32_t head, tail; /* of what has come in */
    uint32_t len[SLOTS];
    uint8_t data[SLOTS][MTU];
};

static struct memory_carrier *self_of(const struct carrier *carrier)
{
    return (struct memory_carrier *)(uintptr_t)carrier;
}

static uint32_t memory_mtu(const struct carrier *carrier)
{
    (void)carrier;
    return MTU;
}

static int memory_resolve(struct carrier *carrier, const char *text, struct carrier_address *out)
{
    (void)carrier;
    *out = (struct carrier_address){.bytes = {(uint8_t)text[0]}, .len = 1};
    return 0;
}

static void memory_format(const struct carrier *carrier, const struct carrier_address *address, char *text, size_t size)
{
    (void)carrier;
    snprintf(text, size, "%c", address->bytes[0]);
}

static int memory_send(struct carrier *carrier, const struct carrier_datagram *datagrams, uint32_t n)
{
    struct memory_carrier *other = self_of(carrier)->other;
    uint32_t i = 0;
    for (; i < n && other->tail - other->head < SLOTS; i++) {
        uint32_t slot = other->tail++ % SLOTS;
        other->len[slot] = datagrams[i].len;
        memcpy(other->data[slot], datagrams[i].data, datagrams[i].len);
    }
    return (int)i;
}

static int memory_receive(struct carrier *carrier, struct carrier_datagram *datagrams, uint32_t n)
{
    struct memory_carrier *self = self_of(carrier);
    uint32_t i = 0;
    for (; i < n && self->head != self->tail; i++) {
        uint32_t slot = self->head++ % SLOTS;
        datagrams[i] = (struct carrier_datagram){
            .address = {.bytes = {self->other->id}, .len = 1}, .data = self->data[slot], .len = self->len[slot]};
    }
    return (int)i;
}

static void memory_local(const struct carrier *carrier, char *text, size_t size)
{
    snprintf(text, size, "%c", self_of(carrier)->id);
}

static int memory_wait_fd(const struct carrier *carrier)
{
    (void)carrier;
    return -1;
}

static void memory_stats(const struct carrier *carrier, struct carrier_stats *out)
{
    *out = self_of(carrier)->stats;
}

static void memory_destroy(struct carrier *carrier)
{
    (void)carrier; /* its maker frees it, as the other end may still send to it */
}

static const struct carrier_ops memory_ops = {
    .mtu = memory_mtu,
    .resolve = memory_resolve,
    .format = memory_format,
    .send = memory_send,
    .receive = memory_receive,
    .local = memory_local,
    .wait_fd = memory_wait_fd,
    .stats = memory_stats,
    .destroy = memory_destroy,
};

/* ---- two ends ---- */

struct ends {
    struct memory_carrier carrier[2];
    struct transport *transport[2]; /* 0 asks, 1 answers */
    struct env env;
    struct rng rng;
    struct fabric_endpoint endpoint[2]; /* on devices */
    bool on_devices;
    uint64_t now_ns;
    uint32_t peer[2], answered, bytes;
    uint8_t message[MTU / 2];
};

static uint64_t counted_now(void *self)
{
    return ((struct ends *)self)->now_ns;
}

static uint64_t drawn(void *self)
{
    return rng_u64(&((struct ends *)self)->rng);
}

static uint32_t poll_end(struct ends *ends, int i, enum transport_event_kind wanted)
{
    struct transport_event events[4];
    uint32_t found = 0;
    int n = ends->transport[i]->ops->poll(ends->transport[i], ends->now_ns, events, 4);
    for (int e = 0; e < n; e++) {
        if (events[e].kind == TRANSPORT_PEER_UP)
            ends->peer[i] = events[e].peer;
        found += events[e].kind == wanted;
    }
    return found;
}

static int open_on_devices(struct ends *ends, const struct perf_config *config, struct error *err)
{
    struct fabric_job job = {.config = config, .control = -1};
    struct transport_info info;
    uint32_t ups = 0;
    for (int i = 0; i < 2; i++) {
        int rc = fabric_endpoint_open(&ends->endpoint[i], &job, i == 1, err);
        if (rc)
            return rc;
        ends->transport[i] = ends->endpoint[i].transport;
    }
    ends->transport[1]->ops->info(ends->transport[1], &info);
    int rc = ends->transport[0]->ops->resolve(ends->transport[0], info.local, &ends->peer[0]);
    for (uint64_t end_ns = perf_now_ns() + UINT64_C(10000000000); rc == 0 && ups < 2 && ends->now_ns < end_ns;) {
        ends->now_ns = perf_now_ns();
        ups += poll_end(ends, 0, TRANSPORT_PEER_UP) + poll_end(ends, 1, TRANSPORT_PEER_UP);
    }
    return ups == 2 ? 0 : error_set(err, HS_ERR_TIMEOUT, "two ends in one process did not meet");
}

static int open_in_memory(struct ends *ends, const struct perf_config *config, struct error *err)
{
    struct net_tuning tuning = {.ciphers = config->sealed ? 0 : 1u << SEAL_CIPHER_NONE};
    ends->env = (struct env){.now_ns = counted_now, .random_u64 = drawn, .self = ends};
    ends->now_ns = 1000000;
    rng_seed(&ends->rng, config->seed);
    for (uint8_t i = 0; i < 2; i++) {
        struct memory_carrier *carrier = &ends->carrier[i];
        carrier->carrier.ops = &memory_ops;
        carrier->id = (uint8_t)('a' + i);
        carrier->other = &ends->carrier[1 - i];
        int rc = transport_reliable_create(&carrier->carrier, "memory", NULL, &tuning, &ends->env, &ends->transport[i], err);
        if (rc)
            return rc;
    }
    uint32_t ups = 0, peer;
    ends->transport[0]->ops->resolve(ends->transport[0], "b", &peer);
    for (int turn = 0; turn < 100; turn++, ends->now_ns += TURN_NS)
        ups += poll_end(ends, 0, TRANSPORT_PEER_UP) + poll_end(ends, 1, TRANSPORT_PEER_UP);
    return ups == 2 ? 0 : error_set(err, HS_ERR_PROTOCOL, "two ends in one process did not meet");
}

static int say(struct ends *ends, int i)
{
    struct iovec iov = {.iov_base = ends->message, .iov_len = ends->bytes};
    return ends->transport[i]->ops->send(ends->transport[i], ends->peer[i], &iov, 1, 0);
}

/* From the carrier's receive to the carrier's send of the answer. Its name is known to perf/instructions. */
static __attribute__((noinline)) void fabric_answer_turn(struct ends *ends)
{
    if (poll_end(ends, 1, TRANSPORT_MESSAGE) == 1 && say(ends, 1) == 0) {
        poll_end(ends, 1, TRANSPORT_MESSAGE);
        ends->answered++;
    }
}

/* From one end to the other outside of what is counted. */
static int deliver(struct ends *ends)
{
    int rc = say(ends, 0);
    poll_end(ends, 0, TRANSPORT_MESSAGE);
    if (ends->on_devices)
        nanosleep(&(struct timespec){.tv_nsec = ARRIVAL_NS}, NULL);
    return rc;
}

/* The answer is back; on a device it may take a while. */
static bool came_back(struct ends *ends)
{
    uint32_t found = 0;
    for (int looks = 0; found == 0 && looks < (ends->on_devices ? MOST_LOOKS : 1); looks++) {
        if (looks > 0)
            nanosleep(&(struct timespec){.tv_nsec = ARRIVAL_NS / 10}, NULL);
        found = poll_end(ends, 0, TRANSPORT_MESSAGE);
    }
    return found == 1;
}

int fabric_answer(const struct perf_config *config, uint32_t bytes, struct samples *answer_ns, struct error *err)
{
    struct ends *ends = calloc(1, sizeof *ends);
    if (!ends || bytes > sizeof ends->message) {
        free(ends);
        return error_set(err, HS_ERR_LIMIT, "messages of at most %zu bytes are answered in memory", sizeof ends->message);
    }
    ends->bytes = bytes;
    ends->on_devices = strcmp(config->fabric, "verbs") == 0;
    uint32_t warm_up = ends->on_devices ? DEVICE_WARM_UP : WARM_UP, turns = ends->on_devices ? DEVICE_TURNS : TURNS;
    int rc = ends->on_devices ? open_on_devices(ends, config, err) : open_in_memory(ends, config, err);
    for (uint32_t i = 0; rc == 0 && i < warm_up + turns; i++) {
        rc = deliver(ends);
        uint64_t took_ns = 0;
        for (int looks = 0; rc == 0 && ends->answered == i && looks < (ends->on_devices ? MOST_LOOKS : 1); looks++) {
            if (looks > 0)
                nanosleep(&(struct timespec){.tv_nsec = ARRIVAL_NS}, NULL);
            uint64_t start_ns = perf_now_ns();
            fabric_answer_turn(ends);
            took_ns = perf_now_ns() - start_ns;
        }
        ends->now_ns += TURN_NS;
        if (rc == 0 && (ends->answered != i + 1 || !came_back(ends)))
            rc = HS_ERR_PROTOCOL;
        if (i >= warm_up)
            samples_add(answer_ns, (double)took_ns);
    }
    if (rc && (!err || !err->code))
        error_set(err, rc, "an answer did not come back in one turn");
    for (int i = 0; i < 2; i++)
        if (ends->transport[i])
            ends->transport[i]->ops->destroy(ends->transport[i]);
    free(ends);
    return rc;
}

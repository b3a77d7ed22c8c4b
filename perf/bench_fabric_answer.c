/*
 * The node's own share of a round trip: two reliable transports in one process over a carrier that only copies. Time is counted,
 * not read, so that every run does the same work; perf/instructions counts what fabric_answer_turn takes.
 */
#include "perf/bench_fabric.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/rng.h"
#include "net/net.h"
#include "net/seal.h"
#include "perf/progress.h"

enum { SLOTS = 256, MTU = 8192, TURN_NS = 2000, WARM_UP = 1000, TURNS = 20000 };

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

static int open_ends(struct ends *ends, const struct perf_config *config, uint32_t bytes, struct error *err)
{
    struct net_tuning tuning = {.ciphers = config->sealed ? 0 : 1u << SEAL_CIPHER_NONE};
    ends->env = (struct env){.now_ns = counted_now, .random_u64 = drawn, .self = ends};
    ends->now_ns = 1000000;
    ends->bytes = bytes;
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

int fabric_answer(const struct perf_config *config, uint32_t bytes, struct samples *answer_ns, struct error *err)
{
    struct ends *ends = calloc(1, sizeof *ends);
    if (!ends || bytes > sizeof ends->message) {
        free(ends);
        return error_set(err, HS_ERR_LIMIT, "messages of at most %zu bytes are answered in memory", sizeof ends->message);
    }
    int rc = open_ends(ends, config, bytes, err);
    for (uint32_t i = 0; rc == 0 && i < WARM_UP + TURNS; i++) {
        rc = say(ends, 0);
        poll_end(ends, 0, TRANSPORT_MESSAGE);
        uint64_t start_ns = perf_now_ns();
        fabric_answer_turn(ends);
        uint64_t took_ns = perf_now_ns() - start_ns;
        ends->now_ns += TURN_NS;
        if (poll_end(ends, 0, TRANSPORT_MESSAGE) != 1 || ends->answered != i + 1)
            rc = HS_ERR_PROTOCOL;
        if (i >= WARM_UP)
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

/* ---- the cipher alone ---- */

int fabric_cipher(uint32_t bytes, uint64_t duration_ns, double *bytes_per_s, struct error *err)
{
    static const uint8_t bytes_of_key[SEAL_KEY_BYTES] = "a key of no importance";
    struct seal_key key;
    uint8_t *plain = calloc(1, bytes), *sealed = malloc((size_t)bytes + SEAL_TAG_BYTES), head[16] = {0};
    int rc = plain && sealed ? 0 : HS_ERR_NO_MEMORY;
    if (rc == 0)
        rc = seal_key_init(&key, seal_cipher_choose(seal_ciphers_available(), seal_ciphers_available()), bytes_of_key, true);
    if (rc) {
        rc = error_set(err, rc, "the cipher: %s", error_name(rc));
        goto free_memory;
    }
    uint64_t start_ns = perf_now_ns(), counter = 0, now_ns;
    do {
        for (int i = 0; i < 64 && rc == 0; i++)
            rc = seal_encrypt(&key, counter++, head, sizeof head, plain, bytes, sealed);
        now_ns = perf_now_ns();
    } while (rc == 0 && now_ns - start_ns < duration_ns);
    *bytes_per_s = (double)counter * bytes * 1e9 / (double)(now_ns - start_ns);
    seal_key_fini(&key);
free_memory:
    free(plain);
    free(sealed);
    return rc;
}

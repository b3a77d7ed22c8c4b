/*
 * Two transports that hold the group's key, and somebody on the wire between them who does not. The input is a list of orders: let a
 * datagram pass, drop it, keep a copy, change a byte, cut it, splice it, or put in one's own bytes. Nothing may fault; a message
 * that arrives is one that was sent, each once and in order within a session; and left in peace at the end, the two come to
 * terms again.
 */
#include <stdlib.h>
#include <string.h>

#include "tests/fuzz/fabric.h"
#include "tests/fuzz/fuzz.h"

enum { EVENTS = 16, MS = 1000000 };

enum opcode {
    OP_PASS,  /* the oldest, 1 .. n of them */
    OP_DROP,  /* number on the wire */
    OP_COPY,  /* number: delivered and kept */
    OP_FLIP,  /* number, offset (2 bytes), mask: the changed copy is delivered, the good one stays */
    OP_CUT,   /* number, length (2 bytes) */
    OP_RAW,   /* from and to, length (2 bytes), bytes */
    OP_SEND,  /* from, size in 16 bytes, flags */
    OP_TIME,  /* tenths of a millisecond (2 bytes) */
    OP_SWAP,  /* number: from another address */
    OP_CLOSE, /* which side lets the other go */
    OPCODES,
};

struct side {
    struct transport *transport;
    bool up;
    uint32_t sent, heard; /* numbers of messages */
    bool heard_any;
    uint32_t peer;
};

struct scene {
    struct fabric fabric;
    struct side sides[2];
};

static void hear(struct side *side, const struct side *other, const struct transport_event *event)
{
    uint32_t number;
    switch (event->kind) {
    case TRANSPORT_PEER_UP:
        hs_assert(!side->up);
        side->up = true;
        side->peer = event->peer;
        break;
    case TRANSPORT_PEER_DOWN:
        hs_assert(side->up && event->status < 0);
        side->up = false;
        break;
    case TRANSPORT_MESSAGE:
        hs_assert(side->up && event->len >= sizeof number);
        memcpy(&number, event->data, sizeof number);
        hs_assert(number < other->sent);
        if (number & 1) /* reliable: numbers rise */
            hs_assert(!side->heard_any || number > side->heard);
        if (number & 1) {
            side->heard = number;
            side->heard_any = true;
        }
        for (uint32_t i = sizeof number; i < event->len; i++)
            hs_assert(event->data[i] == (uint8_t)(number + i));
        break;
    case TRANSPORT_READ_DONE: hs_assert(false); break;
    }
}

static void poll_side(struct scene *scene, int which)
{
    struct transport_event events[EVENTS];
    struct side *side = &scene->sides[which];
    int n;
    do {
        n = side->transport->ops->poll(side->transport, scene->fabric.now_ns, events, EVENTS);
        for (int i = 0; i < n; i++)
            hear(side, &scene->sides[!which], &events[i]);
    } while (n == EVENTS);
}

static void poll_both(struct scene *scene)
{
    poll_side(scene, 0);
    poll_side(scene, 1);
}

static void pass(struct scene *scene, uint32_t n)
{
    while (n-- > 0 && scene->fabric.n_wire > 0) {
        const struct fabric_datagram *d = &scene->fabric.wire[0];
        fabric_inject(&scene->fabric, d->from, d->to, d->data, d->len);
        fabric_drop(&scene->fabric, 0);
    }
}

/* Odd numbers travel reliably, even ones do not. */
static void send_one(struct scene *scene, int which, uint32_t len, bool reliable)
{
    struct side *side = &scene->sides[which];
    uint32_t number = side->sent + (reliable ? (side->sent & 1) ^ 1 : side->sent & 1);
    len = len < sizeof number ? sizeof number : len;
    if (!reliable && len > 1000)
        len = 1000;
    uint8_t *data = malloc(len);
    hs_assert(data);
    for (uint32_t i = 0; i < len; i++)
        data[i] = (uint8_t)(number + i);
    memcpy(data, &number, sizeof number);
    struct iovec iov = {.iov_base = data, .iov_len = len};
    if (side->up && side->transport->ops->send(side->transport, side->peer, &iov, 1, reliable ? 0 : TRANSPORT_UNRELIABLE) == 0)
        side->sent = number + 1;
    free(data);
}

static void altered(struct scene *scene, enum opcode op, const struct fabric_datagram *d, struct reader *in)
{
    uint16_t at = read_u16(in);
    uint8_t *copy = fuzz_copy(d->data, d->len);
    if (op == OP_FLIP && d->len)
        copy[at % d->len] ^= read_u8(in);
    fabric_inject(&scene->fabric, d->from, d->to, copy, op == OP_CUT ? at % (d->len + 1) : d->len);
    free(copy);
}

static void raw(struct scene *scene, uint8_t ends, struct reader *in)
{
    uint32_t len = read_u16(in);
    if (len > reader_left(in))
        len = (uint32_t)reader_left(in);
    const uint8_t *bytes = read_view(in, len);
    if (bytes)
        fabric_inject(&scene->fabric, ends >> 1, ends & 1, bytes, len);
}

static void obey(struct scene *scene, struct reader *in)
{
    struct fabric *fabric = &scene->fabric;
    enum opcode op = read_u8(in) % OPCODES;
    uint8_t which = read_u8(in);
    const struct fabric_datagram *d = fabric->n_wire ? &fabric->wire[which % fabric->n_wire] : NULL;
    switch (op) {
    case OP_PASS: pass(scene, which % 32 + 1u); break;
    case OP_DROP:
        if (d)
            fabric_drop(fabric, which % fabric->n_wire);
        break;
    case OP_COPY:
        if (d)
            fabric_inject(fabric, d->from, d->to, d->data, d->len);
        break;
    case OP_FLIP:
    case OP_CUT:
        if (d)
            altered(scene, op, d, in);
        break;
    case OP_RAW: raw(scene, which, in); break;
    case OP_SEND: send_one(scene, which & 1, (which >> 1) * 61u, read_u8(in) & 1); break;
    case OP_TIME: fabric->now_ns += (which | (uint64_t)read_u8(in) << 8) * (MS / 10); break;
    case OP_SWAP:
        if (d)
            fabric_inject(fabric, (uint8_t)(d->from + 1), d->to, d->data, d->len);
        break;
    case OP_CLOSE:
        if (scene->sides[which & 1].up) {
            struct side *side = &scene->sides[which & 1];
            side->transport->ops->close_peer(side->transport, side->peer);
            side->up = false;
        }
        break;
    case OPCODES: break;
    }
    poll_both(scene);
}

int fuzz_datagram(const uint8_t *data, size_t len)
{
    struct scene *scene = calloc(1, sizeof *scene);
    struct net_tuning tuning = {.connect_retry_max_ns = 200 * MS};
    struct reader in;
    uint32_t peer;
    hs_assert(scene);
    fabric_open(&scene->fabric);
    for (uint8_t i = 0; i < 2; i++)
        scene->sides[i].transport = fabric_transport(&scene->fabric, i, &tuning);
    hs_assert(scene->sides[0].transport->ops->resolve(scene->sides[0].transport, "p1:1", &peer) == 0);
    poll_both(scene);
    reader_init(&in, data, len);
    for (int orders = 0; orders < 400 && reader_left(&in); orders++)
        obey(scene, &in);
    for (int i = 0; i < 40; i++) { /* peace */
        pass(scene, FABRIC_WIRE);
        scene->fabric.now_ns += 10 * MS;
        poll_both(scene);
    }
    for (uint8_t i = 0; i < 2; i++)
        scene->sides[i].transport->ops->destroy(scene->sides[i].transport);
    fabric_close(&scene->fabric);
    free(scene);
    return 0;
}

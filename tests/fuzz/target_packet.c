/*
 * A peer that holds the group's key and then says what it likes. It does the handshake, and the input is a list of its packets:
 * milliseconds that pass before, length (2 bytes), frames; each is sealed and delivered. The transport may throw it out but not
 * break.
 */
#include <stdlib.h>
#include <string.h>

#include "core/base/codec.h"
#include "net/seal.h"
#include "tests/fuzz/fabric.h"
#include "tests/fuzz/fuzz.h"

enum { EVENTS = 16, SESSION = 777, MS = 1000000 };

struct talker {
    struct fabric fabric;
    struct transport *transport;
    struct seal_session seal;
    uint32_t remote_session;
    bool up;
    uint32_t peer;
};

static void poll_transport(struct talker *talker)
{
    struct transport_event events[EVENTS];
    volatile uint8_t sum = 0;
    int n;
    do {
        n = talker->transport->ops->poll(talker->transport, talker->fabric.now_ns, events, EVENTS);
        for (int i = 0; i < n; i++) {
            if (events[i].kind == TRANSPORT_PEER_UP || events[i].kind == TRANSPORT_PEER_DOWN)
                talker->up = events[i].kind == TRANSPORT_PEER_UP;
            talker->peer = events[i].peer;
            for (uint32_t k = 0; k < events[i].len; k++)
                sum = (uint8_t)(sum + events[i].data[k]);
        }
    } while (n == EVENTS);
}

/* docs/protocol-fabric.md: boot id, session, ciphers, datagram bytes, window, reserved. */
static size_t write_init(struct seal_handshake *noise, const struct env *env, uint8_t *packet, size_t cap)
{
    uint8_t hello[24];
    struct writer w;
    size_t len;
    writer_init(&w, hello, sizeof hello);
    write_u64(&w, 12345);
    write_u32(&w, SESSION);
    write_u32(&w, 1u << SEAL_CIPHER_CHACHA20_POLY1305);
    write_u16(&w, FABRIC_MTU);
    write_u16(&w, 4096);
    write_u32(&w, 0);
    seal_handshake_init(noise, true, fabric_key, "hearsay fabric 1", 16);
    writer_init(&w, packet, cap);
    write_bytes(&w, "HS\x11\0\0\0\0\0", 8);
    write_u32(&w, SESSION);
    write_bytes(&w, (uint8_t[16]){0}, 16);
    hs_assert(seal_handshake_write(noise, env, hello, sizeof hello, packet + w.len, cap - w.len, &len) == 0);
    return w.len + len;
}

static void connect_talker(struct talker *talker)
{
    struct seal_handshake noise;
    uint8_t packet[160], payload[48], send[32], receive[32];
    size_t len;
    struct env env = fabric_env(&talker->fabric, 1);
    len = write_init(&noise, &env, packet, sizeof packet);
    fabric_inject(&talker->fabric, 1, 0, packet, (uint32_t)len);
    poll_transport(talker);
    hs_assert(talker->fabric.n_wire == 1 && talker->fabric.wire[0].data[2] == 0x12);
    const struct fabric_datagram *answer = &talker->fabric.wire[0];
    hs_assert(seal_handshake_read(&noise, answer->data + 8, answer->len - 8, payload, sizeof payload, &len) == 0);
    memcpy(&talker->remote_session, payload + 8, sizeof talker->remote_session);
    fabric_drop(&talker->fabric, 0);
    seal_handshake_finish(&noise, send, receive);
    seal_handshake_fini(&noise);
    hs_assert(seal_session_init(&talker->seal, SEAL_CIPHER_CHACHA20_POLY1305, send, receive, UINT64_MAX, UINT64_MAX, 0) == 0);
}

static void say(struct talker *talker, const uint8_t *frames, uint32_t len)
{
    uint8_t packet[FABRIC_MTU];
    struct writer w;
    uint64_t counter;
    uint8_t generation;
    hs_assert(seal_session_next(&talker->seal, talker->fabric.now_ns, &counter, &generation) == 0);
    writer_init(&w, packet, sizeof packet);
    write_bytes(&w, "HS\x14", 3);
    write_u8(&w, generation);
    write_u32(&w, talker->remote_session);
    write_u64(&w, counter);
    hs_assert(seal_session_seal(&talker->seal, packet, w.len, frames, len, packet + w.len) == 0);
    fabric_inject(&talker->fabric, 1, 0, packet, (uint32_t)w.len + len + SEAL_TAG_BYTES);
    poll_transport(talker);
    while (talker->fabric.n_wire > 0)
        fabric_drop(&talker->fabric, 0);
}

/* So that acknowledgements have something to acknowledge. */
static void send_back(struct talker *talker)
{
    uint8_t data[3000] = {0};
    struct iovec iov = {.iov_base = data, .iov_len = sizeof data};
    if (talker->up)
        talker->transport->ops->send(talker->transport, talker->peer, &iov, 1, 0);
}

int fuzz_packet(const uint8_t *data, size_t len)
{
    struct talker *talker = calloc(1, sizeof *talker);
    struct reader in;
    hs_assert(talker);
    fabric_open(&talker->fabric);
    talker->transport = fabric_transport(&talker->fabric, 0, NULL);
    connect_talker(talker);
    reader_init(&in, data, len);
    for (int packets = 0; packets < 200 && reader_left(&in); packets++) {
        uint8_t wait = read_u8(&in);
        uint32_t size = read_u16(&in) % (FABRIC_MTU - 16 - SEAL_TAG_BYTES + 1);
        if (size > reader_left(&in))
            size = (uint32_t)reader_left(&in);
        const uint8_t *frames = read_view(&in, size);
        talker->fabric.now_ns += (uint64_t)(wait & 0x7F) * MS;
        if (wait & 0x80)
            send_back(talker);
        if (frames)
            say(talker, frames, size);
    }
    talker->transport->ops->destroy(talker->transport);
    seal_session_fini(&talker->seal);
    fabric_close(&talker->fabric);
    free(talker);
    return 0;
}

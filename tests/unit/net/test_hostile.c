/* Datagrams from outside that are random, cut, spliced, damaged or replayed; and a peer that holds the key but babbles. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/base/codec.h"
#include "core/base/error.h"
#include "core/base/rng.h"
#include "net/seal.h"
#include "tests/unit/net/lab.h"

static const struct sim_link quick = {.delay_ns = 100000};

static const uint64_t seed = 20260207;

/* A mutation of something recorded, or noise. Returns the length. */
static uint32_t mutate(struct rng *rng, const struct tap *tap, uint8_t out[2048], struct carrier_address *from)
{
    const struct record *record = &tap->records[rng_below(rng, tap->n_records)];
    const struct record *other = &tap->records[rng_below(rng, tap->n_records)];
    uint32_t len = record->len;
    *from = rng_below(rng, 8) ? record->from : other->from;
    memcpy(out, record->data, len);
    switch (rng_below(rng, 7)) {
    case 0: /* as it was */
        break;
    case 1:
        out[rng_below(rng, len)] ^= (uint8_t)(1u << rng_below(rng, 8));
        break;
    case 2:
        len = (uint32_t)rng_below(rng, len + 1);
        break;
    case 3: /* longer than sent */
        for (uint32_t more = (uint32_t)rng_below(rng, 64); more > 0 && len < 2048; more--)
            out[len++] = (uint8_t)rng_u64(rng);
        break;
    case 4: { /* the head of one, the tail of another */
        uint32_t cut = (uint32_t)rng_below(rng, len < other->len ? len : other->len);
        memcpy(out + cut, other->data + cut, other->len - cut);
        len = other->len;
        break;
    }
    case 5: /* a good header and noise */
        for (uint32_t i = 3; i < len; i++)
            out[i] = (uint8_t)rng_u64(rng);
        break;
    case 6:
        len = (uint32_t)rng_below(rng, 1500);
        for (uint32_t i = 0; i < len; i++)
            out[i] = (uint8_t)rng_u64(rng);
        break;
    }
    return len;
}

static void test_mutated_session(void **state)
{
    (void)state;
    struct net_tuning tuning = {0};
    struct lab *lab = lab_create(seed, &quick, &tuning);
    lab_start(lab, 0);
    lab_start(lab, 1);
    lab->nodes[0].tap->recording = lab->nodes[1].tap->recording = true;
    lab_resolve(lab, 0, 1);
    lab_wait(lab, &lab->nodes[0].ups[0], 1, 1000);
    lab_wait(lab, &lab->nodes[1].ups[0], 1, 1000);
    lab->nodes[1].checking = true;
    lab_send_numbers(lab, 0, 0, 0, 50, 300);
    lab_send_numbers(lab, 0, 0, 50, 3, 20000);
    lab_wait(lab, &lab->nodes[1].n_messages, 53, 1000);
    lab->nodes[0].tap->recording = lab->nodes[1].tap->recording = false;

    struct rng rng;
    rng_seed(&rng, seed);
    uint32_t number = 53;
    uint64_t rejected = lab_rejected(lab, 1);
    for (uint32_t i = 0; i < 20000; i++) {
        uint8_t data[2048];
        struct carrier_address from;
        uint32_t victim = (uint32_t)rng_below(&rng, 2);
        uint32_t len = mutate(&rng, lab->nodes[victim].tap, data, &from);
        lab_inject(lab, victim, &from, data, len);
        if (i % 10 == 0) { /* the session lives on meanwhile */
            lab_send_numbers(lab, 0, 0, number++, 1, 200);
            lab_step(lab);
        }
    }
    lab_wait(lab, &lab->nodes[1].n_messages, number, 5000); /* each once, in order */
    assert_true(lab_rejected(lab, 1) - rejected > 5000);
    for (uint32_t i = 0; i < 2; i++) {
        assert_int_equal(lab->nodes[i].ups[0], 1);
        assert_int_equal(lab->nodes[i].downs[0], 0);
    }
    lab_destroy(lab);
}

/* A third party that can do the handshake and then says whatever it likes. */
struct babbler {
    struct carrier *carrier;
    struct env env;
    struct seal_session session;
    uint32_t remote_id;
};

static void babbler_connect(struct lab *lab, struct babbler *b, uint32_t attempt)
{
    struct seal_handshake noise;
    uint8_t hello[24], payload[48], packet[128];
    struct writer w;
    writer_init(&w, hello, sizeof hello); /* docs/protocol-fabric.md: boot id, session, ciphers, datagram, window, reserved */
    write_u64(&w, 12345);
    write_u32(&w, 777 + attempt);
    write_u32(&w, 1u << SEAL_CIPHER_CHACHA20_POLY1305);
    write_u16(&w, 1452);
    write_u16(&w, 4096);
    write_u32(&w, 0);
    seal_handshake_init(&noise, true, lab_key, "hearsay fabric 1", 16);
    writer_init(&w, packet, sizeof packet);
    write_bytes(&w, "HS\x11\0\0\0\0\0", 8);
    write_u32(&w, 777 + attempt);
    write_bytes(&w, (uint8_t[16]){0}, 16);
    size_t len;
    assert_int_equal(seal_handshake_write(&noise, &b->env, hello, sizeof hello, packet + w.len, sizeof packet - w.len, &len), 0);
    struct carrier_datagram out = {.data = packet, .len = (uint32_t)(w.len + len)}, in[8];
    assert_int_equal(b->carrier->ops->resolve(b->carrier, lab->nodes[0].name, &out.address), 0);
    assert_int_equal(b->carrier->ops->send(b->carrier, &out, 1), 1);
    for (int turns = 0; turns < 100; turns++) {
        lab_step(lab);
        int n = b->carrier->ops->receive(b->carrier, in, 8);
        for (int i = 0; i < n; i++) {
            size_t payload_len;
            if (in[i].data[2] != 0x12 ||
                seal_handshake_read(&noise, in[i].data + 8, in[i].len - 8, payload, sizeof payload, &payload_len) != 0)
                continue;
            uint8_t send[32], receive[32];
            memcpy(&b->remote_id, payload + 8, 4);
            seal_handshake_finish(&noise, send, receive);
            assert_int_equal(
                seal_session_init(&b->session, SEAL_CIPHER_CHACHA20_POLY1305, send, receive, UINT64_MAX, UINT64_MAX, 0), 0);
            return;
        }
    }
    fail_msg("the babbler got no answer");
}

static void babbler_say(struct lab *lab, struct babbler *b, const uint8_t *frames, uint32_t len)
{
    uint8_t packet[1452];
    struct writer w;
    uint64_t counter;
    uint8_t generation;
    assert_int_equal(seal_session_next(&b->session, 0, &counter, &generation), 0);
    writer_init(&w, packet, sizeof packet);
    write_bytes(&w, "HS\x14", 3);
    write_u8(&w, generation);
    write_u32(&w, b->remote_id);
    write_u64(&w, counter);
    assert_int_equal(seal_session_seal(&b->session, packet, 16, frames, len, packet + 16), 0);
    struct carrier_datagram out = {.data = packet, .len = 16 + len + SEAL_TAG_BYTES};
    assert_int_equal(b->carrier->ops->resolve(b->carrier, lab->nodes[0].name, &out.address), 0);
    assert_int_equal(b->carrier->ops->send(b->carrier, &out, 1), 1);
}

/* Frames that look right at first: types, flags, lengths and numbers near the ones in use. */
static uint32_t babble(struct rng *rng, uint8_t out[1400])
{
    struct writer w;
    writer_init(&w, out, 1 + rng_below(rng, 1400));
    while (!w.failed && rng_below(rng, 6) != 0) {
        switch (rng_below(rng, 5)) {
        case 0: { /* acknowledgement */
            uint8_t words = (uint8_t)rng_below(rng, 3);
            write_u8(&w, 1);
            write_u8(&w, words);
            write_u16(&w, 0);
            write_u32(&w, (uint32_t)(rng_below(rng, 4) ? rng_below(rng, 3) : rng_u64(rng)));
            write_u32(&w, (uint32_t)(rng_below(rng, 4) ? rng_below(rng, 3) : rng_u64(rng)));
            write_u32(&w, (uint32_t)rng_u64(rng));
            for (int i = 0; i < words; i++)
                write_u64(&w, rng_u64(rng));
            break;
        }
        case 1:
        case 2: { /* fragment */
            uint8_t noise[64] = {0}, flags = (uint8_t)rng_below(rng, 8);
            uint16_t len = (uint16_t)rng_below(rng, sizeof noise);
            write_u8(&w, 2);
            write_u8(&w, flags);
            write_u16(&w, rng_below(rng, 20) ? len : (uint16_t)rng_u64(rng));
            write_u32(&w, (uint32_t)(rng_below(rng, 30) ? rng_below(rng, 50) : rng_u64(rng)));
            if ((flags & 3) == 1)
                write_u32(&w, (uint32_t)(rng_below(rng, 10) ? rng_below(rng, 5000) : rng_u64(rng)));
            write_bytes(&w, noise, len);
            break;
        }
        case 3:
            write_u8(&w, 3);
            write_u8(&w, 0);
            write_u16(&w, 5);
            write_bytes(&w, "hello", 5);
            break;
        case 4:
            write_u8(&w, (uint8_t)rng_u64(rng));
            break;
        }
    }
    return w.len ? (uint32_t)w.len : 1;
}

static void test_peer_that_babbles(void **state)
{
    (void)state;
    struct net_tuning tuning = {0};
    struct lab *lab = lab_create(seed + 1, &quick, &tuning);
    lab_pair(lab);
    lab->nodes[1].checking = true;
    struct babbler b = {0};
    assert_int_equal(sim_carrier_create(lab->net, "babbler:1", &b.carrier, NULL), 0);
    assert_int_equal(sim_net_env(lab->net, 99, &b.env), 0);
    struct rng rng;
    rng_seed(&rng, seed);
    for (uint32_t attempt = 0; attempt < 400; attempt++) {
        babbler_connect(lab, &b, attempt);
        for (uint32_t i = 0; i < 10; i++) {
            uint8_t frames[1400] = {0};
            uint32_t len = babble(&rng, frames);
            babbler_say(lab, &b, frames, len);
        }
        lab_send_numbers(lab, 0, 0, attempt, 1, 100);
        lab_run_ms(lab, 1);
        seal_session_fini(&b.session);
    }
    lab_wait(lab, &lab->nodes[1].n_messages, 400, 1000); /* nobody else is disturbed */
    assert_int_equal(lab->nodes[0].downs[0] + lab->nodes[1].downs[0], 0);
    assert_true(lab->nodes[0].ups[1] > 100); /* it did get in, and was thrown out */
    assert_true(lab->nodes[0].downs[1] > 100);
    b.carrier->ops->destroy(b.carrier);
    lab_destroy(lab);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_mutated_session),
        cmocka_unit_test(test_peer_that_babbles),
    };
    print_message("seed %llu\n", (unsigned long long)seed);
    return cmocka_run_group_tests_name("hostile", tests, NULL, NULL);
}

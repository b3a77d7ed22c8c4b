#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/base/error.h"
#include "core/base/rng.h"
#include "net/seal.h"

struct noise_vector {
    const uint8_t *prologue, *psk, *initiator, *responder, *payload1, *payload2, *message1, *message2, *key1, *key2;
    size_t prologue_len, psk_len, initiator_len, responder_len, payload1_len, payload2_len, message1_len, message2_len, key1_len,
        key2_len;
};
#include "tests/unit/net/noise_vectors.h"

static uint64_t test_random(void *self)
{
    return rng_u64(self);
}

static void test_noise_vectors(void **state)
{
    (void)state;
    for (size_t v = 0; v < sizeof noise_vectors / sizeof noise_vectors[0]; v++) {
        const struct noise_vector *t = &noise_vectors[v];
        struct seal_handshake i, r;
        uint8_t message[512], payload[512], send[2][32], receive[2][32];
        size_t len, payload_len;
        seal_handshake_init(&i, true, t->psk, t->prologue, t->prologue_len);
        seal_handshake_init(&r, false, t->psk, t->prologue, t->prologue_len);
        assert_int_equal(seal_handshake_write_with(&i, t->initiator, t->payload1, t->payload1_len, message, sizeof message, &len),
                         0);
        assert_int_equal(len, t->message1_len);
        assert_memory_equal(message, t->message1, len);
        assert_int_equal(seal_handshake_read(&r, t->message1, t->message1_len, payload, sizeof payload, &payload_len), 0);
        assert_int_equal(payload_len, t->payload1_len);
        assert_memory_equal(payload, t->payload1, payload_len);
        assert_int_equal(seal_handshake_write_with(&r, t->responder, t->payload2, t->payload2_len, message, sizeof message, &len),
                         0);
        assert_int_equal(len, t->message2_len);
        assert_memory_equal(message, t->message2, len);
        assert_int_equal(seal_handshake_read(&i, t->message2, t->message2_len, payload, sizeof payload, &payload_len), 0);
        assert_int_equal(payload_len, t->payload2_len);
        assert_memory_equal(payload, t->payload2, payload_len);
        seal_handshake_finish(&i, send[0], receive[0]);
        seal_handshake_finish(&r, send[1], receive[1]);
        assert_memory_equal(send[0], t->key1, 32);
        assert_memory_equal(receive[0], t->key2, 32);
        assert_memory_equal(send[1], t->key2, 32);
        assert_memory_equal(receive[1], t->key1, 32);
    }
}

/* Both sides through a handshake; false when it fails. */
static bool handshake(const uint8_t psk_i[32], const uint8_t psk_r[32], const char *prologue_r, int flip, uint8_t keys[4][32])
{
    struct rng rng;
    rng_seed(&rng, 1);
    struct env env = {.random_u64 = test_random, .self = &rng};
    struct seal_handshake i, r;
    uint8_t message[128], payload[64];
    size_t len, payload_len;
    seal_handshake_init(&i, true, psk_i, "p", 1);
    seal_handshake_init(&r, false, psk_r, prologue_r, strlen(prologue_r));
    assert_int_equal(seal_handshake_write(&i, &env, "ping", 4, message, sizeof message, &len), 0);
    if (flip >= 0 && (size_t)flip < len)
        message[flip] ^= 1;
    if (seal_handshake_read(&r, message, len, payload, sizeof payload, &payload_len) != 0)
        return false;
    assert_int_equal(seal_handshake_write(&r, &env, "pong", 4, message, sizeof message, &len), 0);
    if (flip >= 0 && (size_t)flip >= len) {
        message[(size_t)flip - len] ^= 1;
        if (seal_handshake_read(&i, message, len, payload, sizeof payload, &payload_len) == 0)
            return true;
        message[(size_t)flip - len] ^= 1; /* the good message still works after the bad one */
        assert_int_equal(seal_handshake_read(&i, message, len, payload, sizeof payload, &payload_len), 0);
        return false;
    }
    if (seal_handshake_read(&i, message, len, payload, sizeof payload, &payload_len) != 0)
        return false;
    assert_memory_equal(payload, "pong", 4);
    seal_handshake_finish(&i, keys[0], keys[1]);
    seal_handshake_finish(&r, keys[2], keys[3]);
    return true;
}

static void test_handshake_binds_everything(void **state)
{
    (void)state;
    uint8_t a[32] = {1}, b[32] = {2}, keys[4][32];
    assert_true(handshake(a, a, "p", -1, keys));
    assert_memory_equal(keys[0], keys[3], 32);
    assert_memory_equal(keys[1], keys[2], 32);
    assert_memory_not_equal(keys[0], keys[1], 32);
    assert_false(handshake(a, b, "p", -1, keys));
    assert_false(handshake(a, a, "q", -1, keys));
    for (int flip = 0; flip < 2 * (4 + SEAL_HANDSHAKE_OVERHEAD); flip++)
        assert_false(handshake(a, a, "p", flip, keys));
}

static void test_short_messages(void **state)
{
    (void)state;
    uint8_t psk[32] = {0}, message[128] = {0}, payload[16];
    size_t len;
    struct seal_handshake r;
    seal_handshake_init(&r, false, psk, "p", 1);
    for (size_t n = 0; n < SEAL_HANDSHAKE_OVERHEAD; n++)
        assert_int_equal(seal_handshake_read(&r, message, n, payload, sizeof payload, &len), HS_ERR_LIMIT);
    assert_int_equal(seal_handshake_read(&r, message, sizeof message, payload, sizeof payload, &len), HS_ERR_LIMIT);
    assert_int_equal(seal_handshake_read(&r, message, 60, payload, sizeof payload, &len), HS_ERR_AUTH);
}

static void from_hex(const char *hex, uint8_t *out)
{
    for (; *hex != '\0'; hex += 2) {
        unsigned byte;
        assert_int_equal(sscanf(hex, "%2x", &byte), 1);
        *out++ = (uint8_t)byte;
    }
}

/*
 * Nonces here are four zeros and a counter. Made with the Python package cryptography (an independent binding):
 *   AESGCM(key).encrypt(bytes(4) + (7).to_bytes(8, "little"), b"sixteen bytes !!", b"header"), key = bytes(range(32));
 *   the same with ChaCha20Poly1305.
 */
static void test_cipher_vectors(void **state)
{
    (void)state;
    static const struct {
        enum seal_cipher cipher;
        const char *sealed;
    } vectors[] = {
        {SEAL_CIPHER_AES_256_GCM, "8bcd8591289269a3767301d7c12de9ff0a21e4a3ffd4c0f44faa60924af9f1a1"},
        {SEAL_CIPHER_CHACHA20_POLY1305, "8266fc3c478d14a9004f3a568fa831bbb0311e3187da0ecdeef229ea817a5421"},
    };
    uint8_t key[32];
    for (int i = 0; i < 32; i++)
        key[i] = (uint8_t)i;
    for (size_t v = 0; v < 2; v++) {
        if (!(seal_ciphers_available() & 1u << vectors[v].cipher)) {
            print_message("          %s is not used on this CPU\n", seal_cipher_name(vectors[v].cipher));
            continue;
        }
        struct seal_key encrypt, decrypt;
        uint8_t expected[32], sealed[32], plain[16];
        from_hex(vectors[v].sealed, expected);
        assert_int_equal(seal_key_init(&encrypt, vectors[v].cipher, key, true), 0);
        assert_int_equal(seal_key_init(&decrypt, vectors[v].cipher, key, false), 0);
        for (int round = 0; round < 3; round++) { /* contexts are reused */
            assert_int_equal(seal_encrypt(&encrypt, 7, "header", 6, (const uint8_t *)"sixteen bytes !!", 16, sealed), 0);
            assert_memory_equal(sealed, expected, sizeof sealed);
            assert_int_equal(seal_decrypt(&decrypt, 7, "header", 6, sealed, sizeof sealed, plain), 0);
            assert_memory_equal(plain, "sixteen bytes !!", 16);
            assert_int_equal(seal_decrypt(&decrypt, 8, "header", 6, sealed, sizeof sealed, plain), HS_ERR_AUTH);
            assert_int_equal(seal_decrypt(&decrypt, 7, "Header", 6, sealed, sizeof sealed, plain), HS_ERR_AUTH);
            for (size_t byte = 0; byte < sizeof sealed; byte++) {
                sealed[byte] ^= 0x40;
                memset(plain, 0xee, sizeof plain);
                assert_int_equal(seal_decrypt(&decrypt, 7, "header", 6, sealed, sizeof sealed, plain), HS_ERR_AUTH);
                assert_memory_equal(plain, (const uint8_t[16]){0}, 16); /* nothing of what does not authenticate gets out */
                sealed[byte] ^= 0x40;
            }
            assert_int_equal(seal_decrypt(&decrypt, 7, "header", 6, sealed, 15, plain), HS_ERR_AUTH);
        }
        seal_key_fini(&encrypt);
        seal_key_fini(&decrypt);
    }
}

static void test_cipher_choice(void **state)
{
    (void)state;
    uint32_t aes = 1u << SEAL_CIPHER_AES_256_GCM, chacha = 1u << SEAL_CIPHER_CHACHA20_POLY1305;
    assert_int_equal(seal_cipher_choose(aes | chacha, aes | chacha), SEAL_CIPHER_AES_256_GCM);
    assert_int_equal(seal_cipher_choose(aes | chacha, chacha), SEAL_CIPHER_CHACHA20_POLY1305);
    assert_int_equal(seal_cipher_choose(aes, chacha), 0);
    assert_true(seal_ciphers_available() & chacha);
}

/* Against a plain set of everything seen. */
static void test_replay_window(void **state)
{
    (void)state;
    enum { N = 100000 };
    static bool seen[N];
    static struct replay_window window;
    memset(&window, 0, sizeof window);
    struct rng rng;
    rng_seed(&rng, 11);
    uint64_t newest = 0, base = 0;
    bool any = false;
    for (int i = 0; i < 200000; i++) {
        uint64_t kind = rng_below(&rng, 100);
        if (kind == 0)
            base += rng_below(&rng, 3 * SEAL_REPLAY_WINDOW / 2);
        else if (kind < 60)
            base++;
        uint64_t back = rng_below(&rng, kind < 90 ? 50 : 2 * SEAL_REPLAY_WINDOW);
        uint64_t counter = base > back ? base - back : 0;
        if (counter >= N)
            break;
        bool too_old = any && newest >= counter && newest - counter >= SEAL_REPLAY_WINDOW;
        bool expected = !seen[counter] && !too_old;
        assert_int_equal(replay_window_fresh(&window, counter), expected);
        if (expected) {
            replay_window_accept(&window, counter);
            seen[counter] = true;
            newest = !any || counter > newest ? counter : newest;
            any = true;
        }
    }
    assert_true(newest > 4 * SEAL_REPLAY_WINDOW);
    assert_false(replay_window_fresh(&window, UINT64_MAX));
}

struct pair {
    struct seal_session a, b;
};

static void make_pair(struct pair *pair, uint64_t rekey_packets, uint64_t rekey_ns)
{
    uint8_t one[32] = {1}, two[32] = {2};
    enum seal_cipher cipher = seal_cipher_choose(seal_ciphers_available(), UINT32_MAX);
    assert_int_equal(seal_session_init(&pair->a, cipher, one, two, rekey_packets, rekey_ns, 0), 0);
    assert_int_equal(seal_session_init(&pair->b, cipher, two, one, rekey_packets, rekey_ns, 0), 0);
}

struct packet {
    uint64_t counter;
    uint8_t generation, sealed[8 + SEAL_TAG_BYTES];
};

static void seal(struct seal_session *session, uint64_t now, struct packet *out)
{
    assert_int_equal(seal_session_next(session, now, &out->counter, &out->generation), 0);
    assert_int_equal(seal_session_seal(session, &out->counter, 8, (const uint8_t *)"contents", 8, out->sealed), 0);
}

static int open_packet(struct seal_session *session, uint64_t now, const struct packet *packet)
{
    uint8_t plain[8];
    int status = seal_session_open(session, now, packet->counter, packet->generation, &packet->counter, 8, packet->sealed,
                                   sizeof packet->sealed, plain);
    if (status == 0)
        assert_memory_equal(plain, "contents", 8);
    return status;
}

static void test_session_rotation(void **state)
{
    (void)state;
    static struct pair pair;
    make_pair(&pair, 10, UINT64_MAX);
    struct packet packets[1000];
    for (int i = 0; i < 1000; i++) {
        seal(&pair.a, (uint64_t)i, &packets[i]);
        if (i % 2 == 1) { /* neighbours swapped, across a change of keys as well */
            assert_int_equal(open_packet(&pair.b, (uint64_t)i, &packets[i]), 0);
            assert_int_equal(open_packet(&pair.b, (uint64_t)i, &packets[i - 1]), 0);
            assert_int_equal(open_packet(&pair.b, (uint64_t)i, &packets[i - 1]), HS_ERR_CANCELED);
            seal_session_confirm(&pair.a, packets[i].counter);
        }
    }
    assert_int_equal(pair.a.send_generation, 99);
    assert_int_equal(pair.b.receive_generation, 99);
    /* A copy with another generation or counter in its header is forged. */
    struct packet forged;
    seal(&pair.a, 1000, &forged);
    forged.generation++;
    assert_int_equal(open_packet(&pair.b, 1000, &forged), HS_ERR_AUTH);
    forged.generation++;
    assert_int_equal(open_packet(&pair.b, 1000, &forged), HS_ERR_AUTH);
    forged.generation -= 2;
    forged.counter++;
    assert_int_equal(open_packet(&pair.b, 1000, &forged), HS_ERR_AUTH);
    forged.counter--;
    assert_int_equal(open_packet(&pair.b, 1000, &forged), 0);
    seal_session_fini(&pair.a);
    seal_session_fini(&pair.b);
}

static void test_session_overlap_and_confirmation(void **state)
{
    (void)state;
    static struct pair pair;
    const uint64_t second = 1000000000;
    make_pair(&pair, UINT64_MAX, 60 * second);
    struct packet first, late, later, next;
    seal(&pair.a, 0, &first);
    seal(&pair.a, 0, &late);
    seal(&pair.a, 0, &later);
    assert_int_equal(open_packet(&pair.b, 0, &first), 0);
    seal(&pair.a, 61 * second, &next); /* due, but the peer has not confirmed the key in use */
    assert_int_equal(next.generation, 0);
    assert_true(seal_session_wants_confirmation(&pair.a, 61 * second));
    seal_session_confirm(&pair.a, first.counter);
    assert_false(seal_session_wants_confirmation(&pair.a, 61 * second));
    seal(&pair.a, 61 * second, &next);
    assert_int_equal(next.generation, 1);
    assert_int_equal(open_packet(&pair.b, 61 * second, &next), 0);
    assert_int_equal(open_packet(&pair.b, 62 * second, &late), 0); /* the key before is kept for a while ... */
    assert_int_equal(open_packet(&pair.b, 61 * second + SEAL_OVERLAP_MS * UINT64_C(1000000), &later), HS_ERR_AUTH); /* ... only */
    seal_session_fini(&pair.a);
    seal_session_fini(&pair.b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_noise_vectors),    cmocka_unit_test(test_handshake_binds_everything),
        cmocka_unit_test(test_short_messages),   cmocka_unit_test(test_cipher_vectors),
        cmocka_unit_test(test_cipher_choice),    cmocka_unit_test(test_replay_window),
        cmocka_unit_test(test_session_rotation), cmocka_unit_test(test_session_overlap_and_confirmation),
    };
    return cmocka_run_group_tests_name("seal", tests, NULL, NULL);
}

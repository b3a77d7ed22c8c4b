#include "net/seal.h"

#include <sodium.h>
#include <string.h>

#include "core/base/error.h"
#include "core/base/panic.h"

/* Section numbers are those of the Noise Protocol Framework, revision 34. */

static const char protocol_name[] = "Noise_NNpsk0_25519_ChaChaPoly_SHA256";

static void mix_hash(struct seal_handshake *handshake, const void *data, size_t len)
{
    crypto_hash_sha256_state state;
    crypto_hash_sha256_init(&state);
    crypto_hash_sha256_update(&state, handshake->hash, sizeof handshake->hash);
    crypto_hash_sha256_update(&state, data, len);
    crypto_hash_sha256_final(&state, handshake->hash);
}

static void hmac(uint8_t out[32], const uint8_t key[32], const uint8_t *a, size_t a_len, uint8_t last)
{
    crypto_auth_hmacsha256_state state;
    crypto_auth_hmacsha256_init(&state, key, 32);
    crypto_auth_hmacsha256_update(&state, a, a_len);
    if (last)
        crypto_auth_hmacsha256_update(&state, &last, 1);
    crypto_auth_hmacsha256_final(&state, out);
    sodium_memzero(&state, sizeof state);
}

/* HKDF with n outputs (section 4.3). */
static void hkdf(const uint8_t chaining_key[32], const void *input, size_t len, uint8_t out[][32], int n)
{
    uint8_t temporary[32];
    hmac(temporary, chaining_key, input, len, 0);
    for (int i = 0; i < n; i++)
        hmac(out[i], temporary, i ? out[i - 1] : temporary, i ? 32 : 0, (uint8_t)(i + 1));
    sodium_memzero(temporary, sizeof temporary);
}

static void mix_key(struct seal_handshake *handshake, const void *input, size_t len)
{
    uint8_t out[2][32];
    hkdf(handshake->chaining_key, input, len, out, 2);
    memcpy(handshake->chaining_key, out[0], 32);
    memcpy(handshake->cipher_key, out[1], 32);
    handshake->nonce = 0;
    handshake->has_key = true;
    sodium_memzero(out, sizeof out);
}

static void mix_key_and_hash(struct seal_handshake *handshake, const void *input, size_t len)
{
    uint8_t out[3][32];
    hkdf(handshake->chaining_key, input, len, out, 3);
    memcpy(handshake->chaining_key, out[0], 32);
    mix_hash(handshake, out[1], 32);
    memcpy(handshake->cipher_key, out[2], 32);
    handshake->nonce = 0;
    handshake->has_key = true;
    sodium_memzero(out, sizeof out);
}

/* ChaChaPoly's nonce: 32 zero bits, then the counter, little-endian (section 12.3). */
static void make_nonce(const struct seal_handshake *handshake, uint8_t nonce[12])
{
    memset(nonce, 0, 12);
    memcpy(nonce + 4, &handshake->nonce, 8);
}

void seal_handshake_init(struct seal_handshake *handshake, bool initiator, const uint8_t psk[SEAL_KEY_BYTES], const void *prologue,
                         size_t prologue_len)
{
    hs_assert(sodium_init() >= 0);
    *handshake = (struct seal_handshake){.initiator = initiator};
    memcpy(handshake->psk, psk, SEAL_KEY_BYTES);
    crypto_hash_sha256(handshake->hash, (const uint8_t *)protocol_name, sizeof protocol_name - 1);
    memcpy(handshake->chaining_key, handshake->hash, 32);
    mix_hash(handshake, prologue, prologue_len);
}

void seal_handshake_fini(struct seal_handshake *handshake)
{
    sodium_memzero(handshake, sizeof *handshake);
}

/* Tokens of a message after its ephemeral key is known: "psk, e" for the first, "e, ee" for the second. */
static int mix_ephemeral(struct seal_handshake *handshake, bool first, const uint8_t ephemeral[32])
{
    if (first)
        mix_key_and_hash(handshake, handshake->psk, SEAL_KEY_BYTES);
    mix_hash(handshake, ephemeral, 32);
    mix_key(handshake, ephemeral, 32); /* also mixed as key, as patterns with a psk demand (section 9.2) */
    if (first)
        return 0;
    uint8_t shared[32];
    if (crypto_scalarmult_curve25519(shared, handshake->secret, handshake->remote_public_key) != 0)
        return HS_ERR_AUTH;
    mix_key(handshake, shared, sizeof shared);
    sodium_memzero(shared, sizeof shared);
    return 0;
}

int seal_handshake_write_with(struct seal_handshake *handshake, const uint8_t secret[32], const void *payload, size_t len,
                              uint8_t *out, size_t cap, size_t *out_len)
{
    if (cap < SEAL_HANDSHAKE_OVERHEAD || len > cap - SEAL_HANDSHAKE_OVERHEAD)
        return HS_ERR_LIMIT;
    memcpy(handshake->secret, secret, 32);
    crypto_scalarmult_curve25519_base(handshake->public_key, handshake->secret);
    int status = mix_ephemeral(handshake, handshake->initiator, handshake->public_key);
    if (status != 0)
        return status;
    memcpy(out, handshake->public_key, 32);
    uint8_t nonce[12];
    make_nonce(handshake, nonce);
    crypto_aead_chacha20poly1305_ietf_encrypt(out + 32, NULL, payload, len, handshake->hash, 32, NULL, nonce,
                                              handshake->cipher_key);
    mix_hash(handshake, out + 32, len + SEAL_TAG_BYTES);
    handshake->nonce++;
    *out_len = len + SEAL_HANDSHAKE_OVERHEAD;
    return 0;
}

int seal_handshake_write(struct seal_handshake *handshake, const struct env *env, const void *payload, size_t len, uint8_t *out,
                         size_t cap, size_t *out_len)
{
    uint64_t random[4];
    for (int i = 0; i < 4; i++)
        random[i] = env_random_u64(env);
    uint8_t secret[32];
    memcpy(secret, random, sizeof secret);
    int status = seal_handshake_write_with(handshake, secret, payload, len, out, cap, out_len);
    sodium_memzero(random, sizeof random);
    sodium_memzero(secret, sizeof secret);
    return status;
}

int seal_handshake_read(struct seal_handshake *handshake, const uint8_t *message, size_t len, uint8_t *payload, size_t cap,
                        size_t *payload_len)
{
    if (len < SEAL_HANDSHAKE_OVERHEAD || len - SEAL_HANDSHAKE_OVERHEAD > cap)
        return HS_ERR_LIMIT;
    struct seal_handshake next = *handshake;
    memcpy(next.remote_public_key, message, 32);
    int status = mix_ephemeral(&next, !next.initiator, next.remote_public_key);
    if (status == 0) {
        uint8_t nonce[12];
        make_nonce(&next, nonce);
        if (crypto_aead_chacha20poly1305_ietf_decrypt(payload, NULL, NULL, message + 32, len - 32, next.hash, 32, nonce,
                                                      next.cipher_key) != 0)
            status = HS_ERR_AUTH;
    }
    if (status == 0) {
        mix_hash(&next, message + 32, len - 32);
        next.nonce++;
        *handshake = next;
        *payload_len = len - SEAL_HANDSHAKE_OVERHEAD;
    }
    seal_handshake_fini(&next);
    return status;
}

void seal_handshake_finish(const struct seal_handshake *handshake, uint8_t send_secret[SEAL_KEY_BYTES],
                           uint8_t receive_secret[SEAL_KEY_BYTES])
{
    uint8_t out[2][32];
    hkdf(handshake->chaining_key, NULL, 0, out, 2);
    memcpy(send_secret, out[handshake->initiator ? 0 : 1], SEAL_KEY_BYTES);
    memcpy(receive_secret, out[handshake->initiator ? 1 : 0], SEAL_KEY_BYTES);
    sodium_memzero(out, sizeof out);
}

#include "net/seal.h"

#include <sodium.h>
#include <string.h>

#include "core/base/error.h"
#include "core/base/panic.h"
#include "net/seal_gcm.h"

const char *seal_cipher_name(enum seal_cipher cipher)
{
    switch (cipher) {
    case SEAL_CIPHER_AES_256_GCM:
        return "AES-256-GCM";
    case SEAL_CIPHER_CHACHA20_POLY1305:
        return "ChaCha20-Poly1305";
    case SEAL_CIPHER_NONE:
        break;
    }
    return "none";
}

const char *seal_cipher_library(enum seal_cipher cipher)
{
    switch (cipher) {
    case SEAL_CIPHER_AES_256_GCM:
        return seal_gcm_library();
    case SEAL_CIPHER_CHACHA20_POLY1305:
        return "libsodium";
    case SEAL_CIPHER_NONE:
        break;
    }
    return "nothing";
}

uint32_t seal_ciphers_available(void)
{
    hs_assert(sodium_init() >= 0);
    uint32_t mask = 1u << SEAL_CIPHER_CHACHA20_POLY1305;
    if (crypto_aead_aes256gcm_is_available() /* asks the CPU for AES and carry-less multiplication */ && seal_gcm_works())
        mask |= 1u << SEAL_CIPHER_AES_256_GCM;
    return mask;
}

enum seal_cipher seal_cipher_choose(uint32_t ours, uint32_t theirs)
{
    uint32_t common = ours & theirs;
    if (common & 1u << SEAL_CIPHER_AES_256_GCM)
        return SEAL_CIPHER_AES_256_GCM;
    if (common & 1u << SEAL_CIPHER_CHACHA20_POLY1305)
        return SEAL_CIPHER_CHACHA20_POLY1305;
    if (common & 1u << SEAL_CIPHER_NONE)
        return SEAL_CIPHER_NONE;
    return (enum seal_cipher)0;
}

int seal_key_init(struct seal_key *key, enum seal_cipher cipher, const uint8_t bytes[SEAL_KEY_BYTES], bool encrypts)
{
    *key = (struct seal_key){.cipher = cipher};
    if (cipher == SEAL_CIPHER_CHACHA20_POLY1305) {
        memcpy(key->key, bytes, SEAL_KEY_BYTES);
        return 0;
    }
    if (cipher == SEAL_CIPHER_NONE)
        return 0;
    if (cipher != SEAL_CIPHER_AES_256_GCM)
        return HS_ERR_INVALID;
    return seal_gcm_create(bytes, encrypts, &key->gcm);
}

void seal_key_fini(struct seal_key *key)
{
    if (key->gcm != NULL)
        seal_gcm_destroy(key->gcm);
    sodium_memzero(key, sizeof *key);
}

/* Both ciphers take 12 bytes: four zeros and the counter, little-endian. */
static void make_nonce(uint64_t counter, uint8_t nonce[12])
{
    memset(nonce, 0, 4);
    memcpy(nonce + 4, &counter, 8);
}

int seal_encrypt(struct seal_key *key, uint64_t counter, const void *aad, size_t aad_len, const uint8_t *plain, size_t len,
                 uint8_t *out)
{
    if (key->cipher == SEAL_CIPHER_NONE) {
        if (out != plain)
            memcpy(out, plain, len);
        memset(out + len, 0, SEAL_TAG_BYTES);
        return 0;
    }
    uint8_t nonce[12];
    make_nonce(counter, nonce);
    if (key->cipher == SEAL_CIPHER_CHACHA20_POLY1305) {
        crypto_aead_chacha20poly1305_ietf_encrypt(out, NULL, plain, len, aad, aad_len, NULL, nonce, key->key);
        return 0;
    }
    return seal_gcm_encrypt(key->gcm, nonce, aad, aad_len, plain, len, out) ? 0 : HS_ERR_IO;
}

int seal_decrypt(struct seal_key *key, uint64_t counter, const void *aad, size_t aad_len, const uint8_t *sealed, size_t len,
                 uint8_t *out)
{
    if (len < SEAL_TAG_BYTES)
        return HS_ERR_AUTH;
    if (key->cipher == SEAL_CIPHER_NONE) {
        if (out != sealed)
            memcpy(out, sealed, len - SEAL_TAG_BYTES);
        return 0;
    }
    uint8_t nonce[12];
    make_nonce(counter, nonce);
    bool good;
    if (key->cipher == SEAL_CIPHER_CHACHA20_POLY1305)
        good = crypto_aead_chacha20poly1305_ietf_decrypt(out, NULL, NULL, sealed, len, aad, aad_len, nonce, key->key) == 0;
    else
        good = seal_gcm_decrypt(key->gcm, nonce, aad, aad_len, sealed, len - SEAL_TAG_BYTES, out);
    if (good)
        return 0;
    memset(out, 0, len - SEAL_TAG_BYTES); /* nothing of what does not authenticate gets out */
    return HS_ERR_AUTH;
}

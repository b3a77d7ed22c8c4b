#include "net/seal.h"

#include <openssl/evp.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "core/base/panic.h"
#include "net/seal_aes.h"

/*
 * AES-256-GCM comes from two places: libcrypto has the quicker loop, seal_aes the quicker call. They cross at about 700 bytes. Both
 * hold their key schedule from init on.
 */
enum { SHORT_BYTES = 640 };

struct aes_context {
    struct seal_aes_key key; /* first: wants its alignment */
    EVP_CIPHER_CTX *evp;
    size_t short_bytes; /* 0: seal_aes is not available */
};

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

uint32_t seal_ciphers_available(void)
{
    hs_assert(sodium_init() >= 0);
    uint32_t mask = 1u << SEAL_CIPHER_CHACHA20_POLY1305;
    if (crypto_aead_aes256gcm_is_available()) /* asks the CPU for AES and carry-less multiplication */
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
    size_t size = (sizeof(struct aes_context) + 63) & ~(size_t)63;
    struct aes_context *context = aligned_alloc(64, size);
    if (context == NULL)
        return HS_ERR_NO_MEMORY;
    memset(context, 0, size);
    context->evp = EVP_CIPHER_CTX_new();
    if (context->evp == NULL || EVP_CipherInit_ex(context->evp, EVP_aes_256_gcm(), NULL, bytes, NULL, encrypts) != 1) {
        int status = context->evp == NULL ? HS_ERR_NO_MEMORY : HS_ERR_UNSUPPORTED;
        EVP_CIPHER_CTX_free(context->evp);
        free(context);
        return status;
    }
    if (seal_aes_available()) {
        seal_aes_init(&context->key, bytes);
        context->short_bytes = SHORT_BYTES;
    }
    key->context = context;
    return 0;
}

void seal_key_fini(struct seal_key *key)
{
    struct aes_context *context = key->context;
    if (context != NULL) {
        EVP_CIPHER_CTX_free(context->evp); /* wipes the key schedule */
        sodium_memzero(context, sizeof *context);
        free(context);
    }
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
    struct aes_context *aes = key->context;
    if (len < aes->short_bytes) {
        seal_aes_encrypt(&aes->key, nonce, aad, aad_len, plain, len, out);
        return 0;
    }
    EVP_CIPHER_CTX *context = aes->evp;
    int n;
    bool good = EVP_EncryptInit_ex2(context, NULL, NULL, nonce, NULL) == 1 &&
                EVP_EncryptUpdate(context, NULL, &n, aad, (int)aad_len) == 1 &&
                EVP_EncryptUpdate(context, out, &n, plain, (int)len) == 1 && EVP_EncryptFinal_ex(context, out + len, &n) == 1 &&
                EVP_CIPHER_CTX_ctrl(context, EVP_CTRL_AEAD_GET_TAG, SEAL_TAG_BYTES, out + len) == 1;
    return good ? 0 : HS_ERR_IO;
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
    if (key->cipher == SEAL_CIPHER_CHACHA20_POLY1305)
        return crypto_aead_chacha20poly1305_ietf_decrypt(out, NULL, NULL, sealed, len, aad, aad_len, nonce, key->key) == 0
                   ? 0
                   : HS_ERR_AUTH;
    struct aes_context *aes = key->context;
    len -= SEAL_TAG_BYTES;
    if (len < aes->short_bytes)
        return seal_aes_decrypt(&aes->key, nonce, aad, aad_len, sealed, len, out) ? 0 : HS_ERR_AUTH;
    EVP_CIPHER_CTX *context = aes->evp;
    uint8_t tag[SEAL_TAG_BYTES];
    memcpy(tag, sealed + len, SEAL_TAG_BYTES);
    int n;
    bool good = EVP_DecryptInit_ex2(context, NULL, NULL, nonce, NULL) == 1 &&
                EVP_DecryptUpdate(context, NULL, &n, aad, (int)aad_len) == 1 &&
                EVP_DecryptUpdate(context, out, &n, sealed, (int)len) == 1 &&
                EVP_CIPHER_CTX_ctrl(context, EVP_CTRL_AEAD_SET_TAG, SEAL_TAG_BYTES, tag) == 1 &&
                EVP_DecryptFinal_ex(context, out + len, &n) == 1;
    return good ? 0 : HS_ERR_AUTH;
}

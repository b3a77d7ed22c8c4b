#include "net/seal_gcm.h"

#include <openssl/evp.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"

/* No struct of that name: a key is libcrypto's own context, which holds the key schedule from create on. */
static EVP_CIPHER_CTX *context_of(struct seal_gcm *key)
{
    return (EVP_CIPHER_CTX *)key;
}

bool seal_gcm_works(void)
{
    return true;
}

const char *seal_gcm_library(void)
{
    return "libcrypto " OPENSSL_VERSION_STR;
}

int seal_gcm_create(const uint8_t bytes[SEAL_GCM_KEY_BYTES], bool encrypts, struct seal_gcm **out)
{
    EVP_CIPHER_CTX *context = EVP_CIPHER_CTX_new();
    if (context == NULL)
        return HS_ERR_NO_MEMORY;
    if (EVP_CipherInit_ex(context, EVP_aes_256_gcm(), NULL, bytes, NULL, encrypts) != 1) {
        EVP_CIPHER_CTX_free(context);
        return HS_ERR_UNSUPPORTED;
    }
    *out = (struct seal_gcm *)context;
    return 0;
}

void seal_gcm_destroy(struct seal_gcm *key)
{
    EVP_CIPHER_CTX_free(context_of(key)); /* wipes the key schedule */
}

bool seal_gcm_encrypt(struct seal_gcm *key, const uint8_t nonce[SEAL_GCM_NONCE_BYTES], const uint8_t *aad, size_t aad_len,
                      const uint8_t *plain, size_t len, uint8_t *out)
{
    EVP_CIPHER_CTX *context = context_of(key);
    int n;
    return EVP_EncryptInit_ex2(context, NULL, NULL, nonce, NULL) == 1 &&
           EVP_EncryptUpdate(context, NULL, &n, aad, (int)aad_len) == 1 && EVP_EncryptUpdate(context, out, &n, plain, (int)len) == 1 &&
           EVP_EncryptFinal_ex(context, out + len, &n) == 1 &&
           EVP_CIPHER_CTX_ctrl(context, EVP_CTRL_AEAD_GET_TAG, SEAL_GCM_TAG_BYTES, out + len) == 1;
}

bool seal_gcm_decrypt(struct seal_gcm *key, const uint8_t nonce[SEAL_GCM_NONCE_BYTES], const uint8_t *aad, size_t aad_len,
                      const uint8_t *sealed, size_t len, uint8_t *out)
{
    EVP_CIPHER_CTX *context = context_of(key);
    uint8_t tag[SEAL_GCM_TAG_BYTES];
    memcpy(tag, sealed + len, sizeof tag);
    int n;
    return EVP_DecryptInit_ex2(context, NULL, NULL, nonce, NULL) == 1 &&
           EVP_DecryptUpdate(context, NULL, &n, aad, (int)aad_len) == 1 && EVP_DecryptUpdate(context, out, &n, sealed, (int)len) == 1 &&
           EVP_CIPHER_CTX_ctrl(context, EVP_CTRL_AEAD_SET_TAG, SEAL_GCM_TAG_BYTES, tag) == 1 &&
           EVP_DecryptFinal_ex(context, out + len, &n) == 1;
}

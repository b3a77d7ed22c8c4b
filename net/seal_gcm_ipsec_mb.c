#include "net/seal_gcm.h"

#include <pthread.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>

#define NO_COMPAT_IMB_API_053 /* the names of old versions, some of them short */
#include <intel-ipsec-mb.h>

#include "core/base/error.h"

/* The quickest functions for this CPU: plain code without a state, so that threads and forked processes share them. */
static pthread_once_t chosen = PTHREAD_ONCE_INIT;
static aes_gcm_pre_t expand_key;
static aes_gcm_enc_dec_t encrypt, decrypt;

static void choose(void)
{
    IMB_MGR *manager = alloc_mb_mgr(0);
    if (manager == NULL)
        return;
    init_mb_mgr_auto(manager, NULL); /* and tests itself: half a millisecond */
    if (imb_get_errno(manager) == 0) {
        expand_key = manager->gcm256_pre;
        encrypt = manager->gcm256_enc;
        decrypt = manager->gcm256_dec;
    }
    free_mb_mgr(manager);
}

struct seal_gcm {
    struct gcm_key_data key; /* first: wants its alignment */
    struct gcm_context_data scratch;
};

enum { ALIGNMENT = 64 };

bool seal_gcm_works(void)
{
    pthread_once(&chosen, choose);
    return encrypt != NULL;
}

const char *seal_gcm_library(void)
{
    return "libIPSec_MB " IMB_VERSION_STR;
}

int seal_gcm_create(const uint8_t bytes[SEAL_GCM_KEY_BYTES], bool encrypts, struct seal_gcm **out)
{
    (void)encrypts; /* one schedule serves both */
    if (!seal_gcm_works())
        return HS_ERR_UNSUPPORTED;
    struct seal_gcm *key = aligned_alloc(ALIGNMENT, (sizeof *key + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT);
    if (key == NULL)
        return HS_ERR_NO_MEMORY;
    memset(key, 0, sizeof *key);
    expand_key(bytes, &key->key);
    *out = key;
    return 0;
}

void seal_gcm_destroy(struct seal_gcm *key)
{
    if (key == NULL)
        return;
    sodium_memzero(key, sizeof *key);
    free(key);
}

bool seal_gcm_encrypt(struct seal_gcm *key, const uint8_t nonce[SEAL_GCM_NONCE_BYTES], const uint8_t *aad, size_t aad_len,
                      const uint8_t *plain, size_t len, uint8_t *out)
{
    encrypt(&key->key, &key->scratch, out, plain, len, nonce, aad, aad_len, out + len, SEAL_GCM_TAG_BYTES);
    return true;
}

bool seal_gcm_decrypt(struct seal_gcm *key, const uint8_t nonce[SEAL_GCM_NONCE_BYTES], const uint8_t *aad, size_t aad_len,
                      const uint8_t *sealed, size_t len, uint8_t *out)
{
    uint8_t tag[SEAL_GCM_TAG_BYTES];
    decrypt(&key->key, &key->scratch, out, sealed, len, nonce, aad, aad_len, tag, sizeof tag);
    return crypto_verify_16(tag, sealed + len) == 0; /* in constant time */
}

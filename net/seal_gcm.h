/*
 * AES-256-GCM (NIST SP 800-38D) with twelve-byte nonces and sixteen-byte tags, from one of two libraries, chosen when hearsay is built:
 * libIPSec_MB (seal_gcm_ipsec_mb.c), made for packets and much the quicker on x86-64, or libcrypto (seal_gcm_libcrypto.c), which is
 * everywhere. What they seal is the same. docs/decisions/051 has the figures.
 *
 * Threading: a key belongs to one thread at a time. Ownership: create and destroy, which wipes the key. Errors: below.
 */
#ifndef HEARSAY_NET_SEAL_GCM_H
#define HEARSAY_NET_SEAL_GCM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { SEAL_GCM_KEY_BYTES = 32, SEAL_GCM_NONCE_BYTES = 12, SEAL_GCM_TAG_BYTES = 16 };

struct seal_gcm;

/* Whether the library works on this CPU. */
bool seal_gcm_works(void);
/* Its name and version. */
const char *seal_gcm_library(void);
/* A key for one direction. 0, HS_ERR_NO_MEMORY, or HS_ERR_UNSUPPORTED: it does not work. */
int seal_gcm_create(const uint8_t bytes[SEAL_GCM_KEY_BYTES], bool encrypts, struct seal_gcm **out);
void seal_gcm_destroy(struct seal_gcm *key); /* NULL is fine */
/* out[len + SEAL_GCM_TAG_BYTES]; may be in place. False: the library has failed. */
bool seal_gcm_encrypt(struct seal_gcm *key, const uint8_t nonce[SEAL_GCM_NONCE_BYTES], const uint8_t *aad, size_t aad_len,
                      const uint8_t *plain, size_t len, uint8_t *out);
/* len without the tag, which follows the data; out[len]; may be in place. False: it does not authenticate, and out holds garbage. */
bool seal_gcm_decrypt(struct seal_gcm *key, const uint8_t nonce[SEAL_GCM_NONCE_BYTES], const uint8_t *aad, size_t aad_len,
                      const uint8_t *sealed, size_t len, uint8_t *out);

#endif

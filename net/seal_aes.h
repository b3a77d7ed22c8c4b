/*
 * AES-256-GCM (NIST SP 800-38D) for short packets, on x86 with AES and carry-less multiplication: a packet of one message costs a
 * few dozen nanoseconds, where a call of a general library costs ten times its work. Twelve-byte nonces and sixteen-byte tags only.
 *
 *     counter blocks   J0+1, J0+2, ...  eight at a time through the rounds
 *     GHASH            aad | sealed | lengths, each block by its own power of H, up to eight blocks for one reduction
 *
 * Nothing depends on secret data but the values in registers: no table, no branch. Threading: a key may be shared, nothing is
 * written. Ownership: caller-owned; wiped by whoever owns it.
 */
#ifndef HEARSAY_NET_SEAL_AES_H
#define HEARSAY_NET_SEAL_AES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { SEAL_AES_NONCE_BYTES = 12, SEAL_AES_TAG_BYTES = 16 };

struct seal_aes_key {
    _Alignas(16) uint8_t rounds[15][16];
    uint8_t powers[8][16]; /* H to the 1st .. 8th power, bytes in GHASH's order reversed */
};

/* Whether this CPU has the instructions. */
bool seal_aes_available(void);
void seal_aes_init(struct seal_aes_key *key, const uint8_t bytes[32]);
/* out[len + SEAL_AES_TAG_BYTES]; may be in place. */
void seal_aes_encrypt(const struct seal_aes_key *key, const uint8_t nonce[SEAL_AES_NONCE_BYTES], const uint8_t *aad, size_t aad_len,
                      const uint8_t *plain, size_t len, uint8_t *out);
/* len without the tag, which follows the data. False: it does not authenticate, and out is untouched. */
bool seal_aes_decrypt(const struct seal_aes_key *key, const uint8_t nonce[SEAL_AES_NONCE_BYTES], const uint8_t *aad, size_t aad_len,
                      const uint8_t *sealed, size_t len, uint8_t *out);

#endif

/*
 * Names of token blocks: h(0) = H(namespace), h(i) = H(h(i-1), tokens of block i), a keyed 64-bit hash (SipHash-2-4, Aumasson and
 * Bernstein 2012; equal to libsodium's shorthash) under the group's key. A block is page_tokens tokens, so it names one KV page
 * together with everything before it. Numbers enter the hash little-endian, the parent before the tokens. Members of a group can
 * test guesses against a digest, outsiders cannot.
 *
 * Pure; any thread.
 */
#ifndef HEARSAY_CACHE_BLOCK_HASH_H
#define HEARSAY_CACHE_BLOCK_HASH_H

#include <stdint.h>

enum { BLOCK_HASH_KEY_BYTES = 16, NAMESPACE_BYTES = 32, BLOCK_HASH_MAX_TOKENS = 1024 /* in a block */ };

struct block_hash_key {
    uint8_t bytes[BLOCK_HASH_KEY_BYTES];
};

/* Derived from the group's 32-byte key (libsodium's generichash with a context of its own). */
void block_hash_key_derive(const uint8_t group_key[32], struct block_hash_key *out);
/* h(0) of a namespace. */
uint64_t block_hash_root(const struct block_hash_key *key, const uint8_t namespace_id[NAMESPACE_BYTES]);
/* h(i) from h(i-1) and the block's tokens. */
uint64_t block_hash_next(const struct block_hash_key *key, uint64_t parent, const uint32_t *tokens, uint32_t n_tokens);
/* All whole blocks of tokens[n_tokens]: out[n_tokens / page_tokens]; returns their number. */
uint32_t block_hash_chain(const struct block_hash_key *key, const uint8_t namespace_id[NAMESPACE_BYTES], const uint32_t *tokens,
                          uint32_t n_tokens, uint32_t page_tokens, uint64_t *out);

#endif

#include "core/cache/block_hash.h"

#include <sodium.h>
#include <string.h>

#include "core/base/panic.h"

_Static_assert(BLOCK_HASH_KEY_BYTES == crypto_shorthash_KEYBYTES, "the key is SipHash's");
_Static_assert(crypto_shorthash_BYTES == sizeof(uint64_t), "a name is one SipHash output");
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "names hash little-endian words in place");

static uint64_t siphash(const struct block_hash_key *key, const void *bytes, size_t n)
{
    uint64_t name;
    uint8_t out[crypto_shorthash_BYTES];
    crypto_shorthash(out, bytes, n, key->bytes);
    memcpy(&name, out, sizeof name);
    return name;
}

void block_hash_key_derive(const uint8_t group_key[32], struct block_hash_key *out)
{
    static const char context[] = "hearsay block names 1";
    crypto_generichash(out->bytes, sizeof out->bytes, (const uint8_t *)context, sizeof context - 1, group_key, 32);
}

uint64_t block_hash_root(const struct block_hash_key *key, const uint8_t namespace_id[NAMESPACE_BYTES])
{
    return siphash(key, namespace_id, NAMESPACE_BYTES);
}

uint64_t block_hash_next(const struct block_hash_key *key, uint64_t parent, const uint32_t *tokens, uint32_t n_tokens)
{
    uint8_t message[sizeof parent + BLOCK_HASH_MAX_TOKENS * sizeof *tokens];
    hs_assert(n_tokens > 0 && n_tokens <= BLOCK_HASH_MAX_TOKENS);
    memcpy(message, &parent, sizeof parent);
    memcpy(message + sizeof parent, tokens, n_tokens * sizeof *tokens);
    return siphash(key, message, sizeof parent + n_tokens * sizeof *tokens);
}

uint32_t block_hash_chain(const struct block_hash_key *key, const uint8_t namespace_id[NAMESPACE_BYTES], const uint32_t *tokens,
                          uint32_t n_tokens, uint32_t page_tokens, uint64_t *out)
{
    uint32_t n_blocks = n_tokens / page_tokens;
    uint64_t name = block_hash_root(key, namespace_id);
    for (uint32_t i = 0; i < n_blocks; i++) {
        name = block_hash_next(key, name, tokens + (size_t)i * page_tokens, page_tokens);
        out[i] = name;
    }
    return n_blocks;
}

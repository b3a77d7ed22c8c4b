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

/*
 * SipHash-2-4 of a parent and the tokens behind it, word by word from where they stand. The same function as libsodium's, which
 * wants one contiguous message and takes a sixth longer for a block of 16 tokens; a prompt's chain is half of what routing costs.
 */
struct sip {
    uint64_t a, b, c, d;
};

static uint64_t rotate(uint64_t x, int bits)
{
    return x << bits | x >> (64 - bits);
}

static struct sip sip_round(struct sip v)
{
    v.a += v.b;
    v.b = rotate(v.b, 13) ^ v.a;
    v.a = rotate(v.a, 32);
    v.c += v.d;
    v.d = rotate(v.d, 16) ^ v.c;
    v.a += v.d;
    v.d = rotate(v.d, 21) ^ v.a;
    v.c += v.b;
    v.b = rotate(v.b, 17) ^ v.c;
    v.c = rotate(v.c, 32);
    return v;
}

static struct sip sip_word(struct sip v, uint64_t word)
{
    v.d ^= word;
    v = sip_round(sip_round(v));
    v.a ^= word;
    return v;
}

uint64_t block_hash_next(const struct block_hash_key *key, uint64_t parent, const uint32_t *tokens, uint32_t n_tokens)
{
    hs_assert(n_tokens > 0 && n_tokens <= BLOCK_HASH_MAX_TOKENS);
    uint64_t k[2];
    memcpy(k, key->bytes, sizeof k);
    struct sip v = {k[0] ^ 0x736f6d6570736575u, k[1] ^ 0x646f72616e646f6du, k[0] ^ 0x6c7967656e657261u, k[1] ^ 0x7465646279746573u};
    v = sip_word(v, parent);
    for (uint32_t i = 0; i + 1 < n_tokens; i += 2) {
        uint64_t word;
        memcpy(&word, tokens + i, sizeof word);
        v = sip_word(v, word);
    }
    uint64_t n_bytes = sizeof parent + (uint64_t)n_tokens * sizeof *tokens;
    v = sip_word(v, n_bytes << 56 | (n_tokens % 2 ? tokens[n_tokens - 1] : 0));
    v.c ^= 0xff;
    v = sip_round(sip_round(sip_round(sip_round(v))));
    return v.a ^ v.b ^ v.c ^ v.d;
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

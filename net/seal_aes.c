#include "net/seal_aes.h"

#include <string.h>

#include "core/base/panic.h"

#if defined(__x86_64__)
#include <immintrin.h>

bool seal_aes_available(void)
{
    return __builtin_cpu_supports("aes") && __builtin_cpu_supports("pclmul") && __builtin_cpu_supports("avx");
}

#ifdef __clang__
#pragma clang attribute push(__attribute__((target("aes,pclmul,avx"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("aes,pclmul,avx")
#endif

enum { LANES = 8, BLOCK = 16 };

/* ---- AES-256 (FIPS 197) ---- */

static __m128i round_key(const struct seal_aes_key *key, int i)
{
    return _mm_load_si128((const __m128i *)key->rounds[i]);
}

/* All lanes at once: a round takes four cycles whether one block waits for it or eight. */
static inline void encrypt_lanes(const struct seal_aes_key *key, __m128i blocks[LANES])
{
#pragma GCC unroll 8
    for (int i = 0; i < LANES; i++)
        blocks[i] = _mm_xor_si128(blocks[i], round_key(key, 0));
    for (int round = 1; round < 14; round++) {
        __m128i k = round_key(key, round);
#pragma GCC unroll 8
        for (int i = 0; i < LANES; i++)
            blocks[i] = _mm_aesenc_si128(blocks[i], k);
    }
#pragma GCC unroll 8
    for (int i = 0; i < LANES; i++)
        blocks[i] = _mm_aesenclast_si128(blocks[i], round_key(key, 14));
}

/* words ^ (words << 32) ^ (words << 64) ^ (words << 96) ^ mixed */
static __m128i next_words(__m128i words, __m128i mixed)
{
    words = _mm_xor_si128(words, _mm_slli_si128(words, 4));
    words = _mm_xor_si128(words, _mm_slli_si128(words, 8));
    return _mm_xor_si128(words, mixed);
}

static void expand_key(struct seal_aes_key *key, const uint8_t bytes[32])
{
    __m128i even = _mm_loadu_si128((const __m128i *)bytes), odd = _mm_loadu_si128((const __m128i *)(bytes + 16));
    _mm_store_si128((__m128i *)key->rounds[0], even);
    _mm_store_si128((__m128i *)key->rounds[1], odd);
/* The round constant is part of the instruction. */
#define EVEN_ROUND(i, constant)                                                                                                    \
    even = next_words(even, _mm_shuffle_epi32(_mm_aeskeygenassist_si128(odd, constant), 0xff));                                    \
    _mm_store_si128((__m128i *)key->rounds[i], even)
#define ODD_ROUND(i)                                                                                                               \
    odd = next_words(odd, _mm_shuffle_epi32(_mm_aeskeygenassist_si128(even, 0), 0xaa));                                            \
    _mm_store_si128((__m128i *)key->rounds[i], odd)
    EVEN_ROUND(2, 0x01);
    ODD_ROUND(3);
    EVEN_ROUND(4, 0x02);
    ODD_ROUND(5);
    EVEN_ROUND(6, 0x04);
    ODD_ROUND(7);
    EVEN_ROUND(8, 0x08);
    ODD_ROUND(9);
    EVEN_ROUND(10, 0x10);
    ODD_ROUND(11);
    EVEN_ROUND(12, 0x20);
    ODD_ROUND(13);
    EVEN_ROUND(14, 0x40);
#undef EVEN_ROUND
#undef ODD_ROUND
}

/* ---- GHASH ---- */

static inline __m128i reversed(__m128i block)
{
    return _mm_shuffle_epi8(block, _mm_set_epi8(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15));
}

/* x^128 + x^127 + x^126 + x^121 + 1 as GHASH's bit order has it. */
static inline __m128i polynomial(void)
{
    return _mm_set_epi64x((long long)0xc200000000000000ull, 1);
}

/* A product before reduction: 64-bit halves multiplied crosswise. */
struct product {
    __m128i low, middle, high;
};

static inline void multiply_add(struct product *sum, __m128i a, __m128i b)
{
    sum->low = _mm_xor_si128(sum->low, _mm_clmulepi64_si128(a, b, 0x00));
    sum->high = _mm_xor_si128(sum->high, _mm_clmulepi64_si128(a, b, 0x11));
    sum->middle = _mm_xor_si128(sum->middle, _mm_xor_si128(_mm_clmulepi64_si128(a, b, 0x01), _mm_clmulepi64_si128(a, b, 0x10)));
}

/* Folds the low half into the high one, 64 bits at a time. */
static inline __m128i reduce(struct product sum)
{
    __m128i fold = _mm_clmulepi64_si128(polynomial(), sum.low, 0x01);
    __m128i middle = _mm_xor_si128(_mm_xor_si128(sum.middle, _mm_shuffle_epi32(sum.low, 0x4e)), fold);
    fold = _mm_clmulepi64_si128(polynomial(), middle, 0x01);
    return _mm_xor_si128(_mm_xor_si128(sum.high, _mm_shuffle_epi32(middle, 0x4e)), fold);
}

/* H times x, so that a product of bit-reversed values needs no shift of its own. */
static __m128i times_x(__m128i h)
{
    uint64_t low = (uint64_t)_mm_extract_epi64(h, 0), high = (uint64_t)_mm_extract_epi64(h, 1);
    uint64_t carry = 0 - (high >> 63);
    __m128i shifted = _mm_set_epi64x((long long)(high << 1 | low >> 63), (long long)(low << 1));
    return _mm_xor_si128(shifted, _mm_and_si128(polynomial(), _mm_set1_epi64x((long long)carry)));
}

struct ghash {
    __m128i sum, blocks[LANES];
    int n; /* blocks that wait */
};

static inline __m128i power(const struct seal_aes_key *key, int i)
{
    return _mm_load_si128((const __m128i *)key->powers[i - 1]);
}

static inline void ghash_fold(struct ghash *hash, const struct seal_aes_key *key)
{
    struct product sum = {_mm_setzero_si128(), _mm_setzero_si128(), _mm_setzero_si128()};
    if (hash->n == 0)
        return;
    hash->blocks[0] = _mm_xor_si128(hash->blocks[0], hash->sum);
    for (int i = 0; i < hash->n; i++)
        multiply_add(&sum, hash->blocks[i], power(key, hash->n - i));
    hash->sum = reduce(sum);
    hash->n = 0;
}

static inline void ghash_add(struct ghash *hash, const struct seal_aes_key *key, __m128i block)
{
    hash->blocks[hash->n++] = reversed(block);
    if (hash->n == LANES)
        ghash_fold(hash, key);
}

/* Up to a block from memory, zeros behind. */
static inline __m128i load_part(const uint8_t *data, size_t len)
{
    uint8_t block[BLOCK] = {0};
    memcpy(block, data, len);
    return _mm_loadu_si128((const __m128i *)block);
}

static inline void ghash_data(struct ghash *hash, const struct seal_aes_key *key, const uint8_t *data, size_t len)
{
    for (; len >= BLOCK; data += BLOCK, len -= BLOCK)
        ghash_add(hash, key, _mm_loadu_si128((const __m128i *)data));
    if (len > 0)
        ghash_add(hash, key, load_part(data, len));
}

/* GHASH of the whole, with the mask of the tag on it. */
static inline __m128i tag_of(const struct seal_aes_key *key, const uint8_t *aad, size_t aad_len, const uint8_t *sealed, size_t len,
                             __m128i mask)
{
    struct ghash hash = {.sum = _mm_setzero_si128()};
    ghash_data(&hash, key, aad, aad_len);
    ghash_data(&hash, key, sealed, len);
    hash.blocks[hash.n++] = _mm_set_epi64x((long long)(aad_len * 8), (long long)(len * 8)); /* reversed already */
    ghash_fold(&hash, key);
    return _mm_xor_si128(reversed(hash.sum), mask);
}

/* ---- counter mode ---- */

/* Encrypted counters from `first` on. */
static inline void key_stream(const struct seal_aes_key *key, const uint8_t nonce[SEAL_AES_NONCE_BYTES], uint32_t first,
                              __m128i stream[LANES])
{
    uint8_t block[BLOCK] = {0};
    memcpy(block, nonce, SEAL_AES_NONCE_BYTES);
    __m128i base = _mm_loadu_si128((const __m128i *)block);
#pragma GCC unroll 8
    for (int i = 0; i < LANES; i++)
        stream[i] = _mm_insert_epi32(base, (int)__builtin_bswap32(first + (uint32_t)i), 3);
    encrypt_lanes(key, stream);
}

static inline void apply(const __m128i *stream, int n, const uint8_t **in, uint8_t **out, size_t *len)
{
    for (int i = 0; i<n && * len> 0; i++) {
        if (*len >= BLOCK) {
            __m128i data = _mm_loadu_si128((const __m128i *)*in);
            _mm_storeu_si128((__m128i *)*out, _mm_xor_si128(data, stream[i]));
            *in += BLOCK;
            *out += BLOCK;
            *len -= BLOCK;
        } else {
            uint8_t block[BLOCK];
            _mm_storeu_si128((__m128i *)block, _mm_xor_si128(load_part(*in, *len), stream[i]));
            memcpy(*out, block, *len);
            *len = 0;
        }
    }
}

/* stream: the lanes from counter 1 on; the first is the tag's mask. */
static inline void apply_all(const struct seal_aes_key *key, const uint8_t nonce[SEAL_AES_NONCE_BYTES], __m128i stream[LANES],
                             const uint8_t *in, size_t len, uint8_t *out)
{
    apply(stream + 1, LANES - 1, &in, &out, &len);
    for (uint32_t counter = 1 + LANES; len > 0; counter += LANES) {
        key_stream(key, nonce, counter, stream);
        apply(stream, LANES, &in, &out, &len);
    }
}

void seal_aes_init(struct seal_aes_key *key, const uint8_t bytes[32])
{
    expand_key(key, bytes);
    __m128i lanes[LANES] = {_mm_setzero_si128()};
    for (int i = 1; i < LANES; i++)
        lanes[i] = lanes[0];
    encrypt_lanes(key, lanes);
    __m128i h = times_x(reversed(lanes[0])), h_to_i = h;
    for (int i = 0; i < 8; i++) {
        _mm_store_si128((__m128i *)key->powers[i], h_to_i);
        struct product product = {_mm_setzero_si128(), _mm_setzero_si128(), _mm_setzero_si128()};
        multiply_add(&product, h_to_i, h);
        h_to_i = reduce(product);
    }
}

void seal_aes_encrypt(const struct seal_aes_key *key, const uint8_t nonce[SEAL_AES_NONCE_BYTES], const uint8_t *aad, size_t aad_len,
                      const uint8_t *plain, size_t len, uint8_t *out)
{
    __m128i stream[LANES];
    key_stream(key, nonce, 1, stream);
    __m128i mask = stream[0];
    apply_all(key, nonce, stream, plain, len, out);
    _mm_storeu_si128((__m128i *)(out + len), tag_of(key, aad, aad_len, out, len, mask));
}

bool seal_aes_decrypt(const struct seal_aes_key *key, const uint8_t nonce[SEAL_AES_NONCE_BYTES], const uint8_t *aad, size_t aad_len,
                      const uint8_t *sealed, size_t len, uint8_t *out)
{
    __m128i stream[LANES];
    key_stream(key, nonce, 1, stream);
    __m128i tag = tag_of(key, aad, aad_len, sealed, len, stream[0]);
    __m128i same = _mm_cmpeq_epi8(tag, _mm_loadu_si128((const __m128i *)(sealed + len)));
    if (_mm_movemask_epi8(same) != 0xffff)
        return false;
    apply_all(key, nonce, stream, sealed, len, out);
    return true;
}

#ifdef __clang__
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif

#else

bool seal_aes_available(void)
{
    return false;
}

void seal_aes_init(struct seal_aes_key *key, const uint8_t bytes[32])
{
    (void)key, (void)bytes;
}

void seal_aes_encrypt(const struct seal_aes_key *key, const uint8_t nonce[SEAL_AES_NONCE_BYTES], const uint8_t *aad, size_t aad_len,
                      const uint8_t *plain, size_t len, uint8_t *out)
{
    (void)key, (void)nonce, (void)aad, (void)aad_len, (void)plain, (void)len, (void)out;
    hs_assert(false); /* nobody asks where it is not available */
}

bool seal_aes_decrypt(const struct seal_aes_key *key, const uint8_t nonce[SEAL_AES_NONCE_BYTES], const uint8_t *aad, size_t aad_len,
                      const uint8_t *sealed, size_t len, uint8_t *out)
{
    (void)key, (void)nonce, (void)aad, (void)aad_len, (void)sealed, (void)len, (void)out;
    return false;
}

#endif

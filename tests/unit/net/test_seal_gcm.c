/* AES-256-GCM, from whichever library it comes, against its authors' test case and against libcrypto called plainly. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>
#include <openssl/evp.h>
#include <sodium.h>

#include "core/base/rng.h"
#include "net/seal_gcm.h"

enum { SHORT_BYTES = 700, MAX_BYTES = 65000, MAX_AAD = 48 };

static void need_library(void)
{
    if (!seal_gcm_works()) {
        print_message("          %s does not work on this CPU\n", seal_gcm_library());
        skip();
    }
}

static size_t from_hex(const char *hex, uint8_t *out, size_t cap)
{
    size_t len;
    assert_int_equal(sodium_hex2bin(out, cap, hex, strlen(hex), NULL, &len, NULL), 0);
    return len;
}

/* McGrew and Viega, "The Galois/Counter Mode of Operation", appendix B, test case 16. */
static void test_published_case(void **state)
{
    (void)state;
    need_library();
    print_message("          %s\n", seal_gcm_library());
    uint8_t bytes[32], nonce[12], aad[20], plain[60], expected[76], out[76], back[60];
    from_hex("feffe9928665731c6d6a8f9467308308feffe9928665731c6d6a8f9467308308", bytes, sizeof bytes);
    from_hex("cafebabefacedbaddecaf888", nonce, sizeof nonce);
    from_hex("feedfacedeadbeeffeedfacedeadbeefabaddad2", aad, sizeof aad);
    size_t len =
        from_hex("d9313225f88406e5a55909c5aff5269a86a7a9531534f7da2e4c303d8a318a721c3c0c95956809532fcf0e2449a6b525b16aedf5aa0de657"
                 "ba637b39",
                 plain, sizeof plain);
    from_hex(
        "522dc1f099567d07f47f37a32a84427d643a8cdcbfe5c0c97598a2bd2555d1aa8cb08e48590dbb3da7b08b1056828838c5f61e6393ba7a0abcc9f662"
        "76fc6ece0f4e1768cddf8853bb2d551b",
        expected, sizeof expected);
    struct seal_gcm *seals, *opens;
    assert_int_equal(seal_gcm_create(bytes, true, &seals), 0);
    assert_int_equal(seal_gcm_create(bytes, false, &opens), 0);
    assert_true(seal_gcm_encrypt(seals, nonce, aad, sizeof aad, plain, len, out));
    assert_memory_equal(out, expected, sizeof expected);
    assert_true(seal_gcm_decrypt(opens, nonce, aad, sizeof aad, expected, len, back));
    assert_memory_equal(back, plain, len);
    seal_gcm_destroy(seals);
    seal_gcm_destroy(opens);
}

static void libcrypto_encrypt(const uint8_t bytes[32], const uint8_t nonce[12], const uint8_t *aad, size_t aad_len,
                              const uint8_t *plain, size_t len, uint8_t *out)
{
    EVP_CIPHER_CTX *context = EVP_CIPHER_CTX_new();
    int n;
    assert_non_null(context);
    assert_int_equal(EVP_EncryptInit_ex(context, EVP_aes_256_gcm(), NULL, bytes, nonce), 1);
    assert_int_equal(EVP_EncryptUpdate(context, NULL, &n, aad, (int)aad_len), 1);
    assert_int_equal(EVP_EncryptUpdate(context, out, &n, plain, (int)len), 1);
    assert_int_equal(EVP_EncryptFinal_ex(context, out + len, &n), 1);
    assert_int_equal(EVP_CIPHER_CTX_ctrl(context, EVP_CTRL_AEAD_GET_TAG, 16, out + len), 1);
    EVP_CIPHER_CTX_free(context);
}

static void fill(struct rng *rng, uint8_t *data, size_t len)
{
    for (size_t i = 0; i < len; i++)
        data[i] = (uint8_t)rng_u64(rng);
}

/* In place and not; and no flipped bit passes. */
static void check_length(struct rng *rng, size_t len)
{
    static uint8_t plain[MAX_BYTES], out[MAX_BYTES + 16], expected[MAX_BYTES + 16], back[MAX_BYTES];
    uint8_t bytes[32], nonce[12], aad[MAX_AAD];
    size_t aad_len = rng_below(rng, sizeof aad + 1);
    fill(rng, bytes, sizeof bytes);
    fill(rng, nonce, sizeof nonce);
    fill(rng, aad, sizeof aad);
    fill(rng, plain, len);
    libcrypto_encrypt(bytes, nonce, aad, aad_len, plain, len, expected);
    struct seal_gcm *seals, *opens;
    assert_int_equal(seal_gcm_create(bytes, true, &seals), 0);
    assert_int_equal(seal_gcm_create(bytes, false, &opens), 0);
    memset(out, 0xee, len + 16);
    assert_true(seal_gcm_encrypt(seals, nonce, aad, aad_len, plain, len, out));
    assert_memory_equal(out, expected, len + 16);
    memcpy(out, plain, len);
    assert_true(seal_gcm_encrypt(seals, nonce, aad, aad_len, out, len, out));
    assert_memory_equal(out, expected, len + 16);
    assert_true(seal_gcm_decrypt(opens, nonce, aad, aad_len, out, len, back));
    assert_memory_equal(back, plain, len);
    for (int flips = 0; flips < 3; flips++) { /* of the data or the tag, of the tag, of what it is bound to */
        size_t bit = flips == 1 ? len * 8 + rng_below(rng, 128) : rng_below(rng, (len + 16) * 8);
        uint8_t *flipped = flips < 2 ? &out[bit / 8] : aad_len > 0 ? &aad[rng_below(rng, aad_len)] : &nonce[0];
        *flipped ^= (uint8_t)(1 << bit % 8);
        assert_false(seal_gcm_decrypt(opens, nonce, aad, aad_len, out, len, back));
        *flipped ^= (uint8_t)(1 << bit % 8);
    }
    assert_true(seal_gcm_decrypt(opens, nonce, aad, aad_len, out, len, out));
    assert_memory_equal(out, plain, len);
    seal_gcm_destroy(seals);
    seal_gcm_destroy(opens);
}

/* Every length on either side of each number of blocks at once, and what fills datagrams. */
static void test_every_length(void **state)
{
    (void)state;
    need_library();
    static const size_t long_ones[] = {768, 1023, 1024, 1025, 1168, 1420, 2047, 4096, 8175, 8192, 8200, 8416, 16608, 33168, 64967, MAX_BYTES};
    struct rng rng;
    rng_seed(&rng, 38);
    for (size_t len = 0; len <= SHORT_BYTES; len++)
        check_length(&rng, len);
    for (size_t i = 0; i < sizeof long_ones / sizeof long_ones[0]; i++)
        check_length(&rng, long_ones[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_published_case),
        cmocka_unit_test(test_every_length),
    };
    return cmocka_run_group_tests_name("seal_gcm", tests, NULL, NULL);
}

/* AES-256-GCM for short packets against its authors' test case and against libcrypto, which knows nothing of it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>
#include <openssl/evp.h>
#include <sodium.h>

#include "core/base/rng.h"
#include "net/seal_aes.h"

enum { MAX_BYTES = 700 };

static void need_instructions(void)
{
    if (!seal_aes_available()) {
        print_message("          this CPU has no AES or no carry-less multiplication\n");
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
    need_instructions();
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
    struct seal_aes_key key;
    seal_aes_init(&key, bytes);
    seal_aes_encrypt(&key, nonce, aad, sizeof aad, plain, len, out);
    assert_memory_equal(out, expected, sizeof expected);
    assert_true(seal_aes_decrypt(&key, nonce, aad, sizeof aad, expected, len, back));
    assert_memory_equal(back, plain, len);
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

/* Every length on either side of each number of lanes, in place and not; and no flipped bit passes. */
static void test_every_length(void **state)
{
    (void)state;
    need_instructions();
    struct rng rng;
    rng_seed(&rng, 38);
    for (size_t len = 0; len <= MAX_BYTES; len++) {
        uint8_t bytes[32], nonce[12], aad[48], plain[MAX_BYTES], out[MAX_BYTES + 16], expected[MAX_BYTES + 16], back[MAX_BYTES];
        size_t aad_len = rng_below(&rng, sizeof aad + 1);
        for (size_t i = 0; i < sizeof bytes; i++)
            bytes[i] = (uint8_t)rng_u64(&rng);
        for (size_t i = 0; i < sizeof nonce; i++)
            nonce[i] = (uint8_t)rng_u64(&rng);
        for (size_t i = 0; i < sizeof aad; i++)
            aad[i] = (uint8_t)rng_u64(&rng);
        for (size_t i = 0; i < len; i++)
            plain[i] = (uint8_t)rng_u64(&rng);
        libcrypto_encrypt(bytes, nonce, aad, aad_len, plain, len, expected);
        struct seal_aes_key key;
        seal_aes_init(&key, bytes);
        seal_aes_encrypt(&key, nonce, aad, aad_len, plain, len, out);
        assert_memory_equal(out, expected, len + 16);
        memcpy(out, plain, len);
        seal_aes_encrypt(&key, nonce, aad, aad_len, out, len, out);
        assert_memory_equal(out, expected, len + 16);
        assert_true(seal_aes_decrypt(&key, nonce, aad, aad_len, out, len, back));
        assert_memory_equal(back, plain, len);
        size_t bit = rng_below(&rng, (len + 16) * 8);
        out[bit / 8] ^= (uint8_t)(1 << bit % 8);
        memset(back, 0xee, sizeof back);
        assert_false(seal_aes_decrypt(&key, nonce, aad, aad_len, out, len, back));
        for (size_t i = 0; i < len; i++)
            assert_int_equal(back[i], 0xee); /* nothing of what does not authenticate gets out */
        assert_true(seal_aes_decrypt(&key, nonce, aad, aad_len, expected, len, expected));
        assert_memory_equal(expected, plain, len);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_published_case),
        cmocka_unit_test(test_every_length),
    };
    return cmocka_run_group_tests_name("seal_aes", tests, NULL, NULL);
}

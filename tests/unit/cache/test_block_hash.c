/* Expected values: tests/vectors/make_block_hash_vectors.py. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>
#include <sodium.h>

#include "core/cache/block_hash.h"

enum { N_TOKENS = 40 };

static struct block_hash_key key;
static uint8_t namespace_id[NAMESPACE_BYTES];
static uint32_t tokens[N_TOKENS];

static int set_up(void **state)
{
    uint8_t group_key[32];
    for (uint32_t i = 0; i < 32; i++) {
        group_key[i] = (uint8_t)(100 + i);
        namespace_id[i] = (uint8_t)i;
    }
    for (uint32_t i = 0; i < N_TOKENS; i++)
        tokens[i] = 7 * i * i + 49151;
    block_hash_key_derive(group_key, &key);
    return 0;
}

static void test_key_is_keyed_blake2b(void **state)
{
    static const uint8_t expected[] = {0xa1, 0x29, 0xcd, 0x42, 0xfa, 0xc7, 0x94, 0xac,
                                       0x5e, 0xa4, 0x58, 0xb9, 0xc4, 0x99, 0xcb, 0x70};
    assert_memory_equal(key.bytes, expected, sizeof expected);
}

static void test_names_are_chained_siphash(void **state)
{
    uint64_t names[3] = {0, 0, 77};
    assert_true(block_hash_root(&key, namespace_id) == 0xe3478a2c244d0dc1);
    assert_int_equal(block_hash_chain(&key, namespace_id, tokens, N_TOKENS, 16, names), 2);
    assert_true(names[0] == 0x44e18ea127b7737e);
    assert_true(names[1] == 0x5c1403331a1eadd4);
    assert_int_equal(names[2], 77);
    assert_true(block_hash_next(&key, names[0], tokens + 16, 16) == names[1]);
}

/* libsodium's SipHash over the same bytes in one message, for every length that a block can have. */
static void test_names_equal_libsodium(void **state)
{
    static uint32_t many[BLOCK_HASH_MAX_TOKENS];
    static uint8_t message[sizeof(uint64_t) + sizeof many];
    uint64_t parent = 0x9e3779b97f4a7c15, expected;
    for (uint32_t i = 0; i < BLOCK_HASH_MAX_TOKENS; i++)
        many[i] = i * 2654435761u;
    for (uint32_t n = 1; n <= BLOCK_HASH_MAX_TOKENS; n++) {
        memcpy(message, &parent, sizeof parent);
        memcpy(message + sizeof parent, many, n * sizeof *many);
        crypto_shorthash((uint8_t *)&expected, message, sizeof parent + n * sizeof *many, key.bytes);
        assert_true(block_hash_next(&key, parent, many, n) == expected);
        parent = expected;
    }
}

static void test_every_input_counts(void **state)
{
    uint64_t base[2], other[2];
    block_hash_chain(&key, namespace_id, tokens, 32, 16, base);
    for (uint32_t i = 0; i < 32; i++) {
        tokens[i] ^= 1;
        block_hash_chain(&key, namespace_id, tokens, 32, 16, other);
        tokens[i] ^= 1;
        assert_true((other[0] == base[0]) == (i >= 16));
        assert_true(other[1] != base[1]);
    }
    uint8_t elsewhere[NAMESPACE_BYTES];
    memcpy(elsewhere, namespace_id, sizeof elsewhere);
    elsewhere[31] ^= 1;
    block_hash_chain(&key, elsewhere, tokens, 32, 16, other);
    assert_true(other[0] != base[0] && other[1] != base[1]);
    struct block_hash_key other_key = key;
    other_key.bytes[15] ^= 1;
    block_hash_chain(&other_key, namespace_id, tokens, 32, 16, other);
    assert_true(other[0] != base[0] && other[1] != base[1]);
}

static void test_part_of_a_block_has_no_name(void **state)
{
    assert_int_equal(block_hash_chain(&key, namespace_id, tokens, 15, 16, NULL), 0);
    assert_int_equal(block_hash_chain(&key, namespace_id, tokens, 0, 16, NULL), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_key_is_keyed_blake2b),        cmocka_unit_test(test_names_are_chained_siphash),
        cmocka_unit_test(test_names_equal_libsodium),       cmocka_unit_test(test_every_input_counts),
        cmocka_unit_test(test_part_of_a_block_has_no_name),
    };
    return cmocka_run_group_tests(tests, set_up, NULL);
}

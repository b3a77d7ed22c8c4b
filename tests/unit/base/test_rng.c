#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "core/base/rng.h"

/* Lines "philox4x32 10" of Random123's tests/kat_vectors (https://github.com/DEShawResearch/random123). */
static void test_philox_known_answers(void **unused)
{
    static const struct {
        uint32_t counter[4], key[2], out[4];
    } vectors[] = {
        {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
        {{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
         {0xffffffff, 0xffffffff},
         {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
        {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
         {0xa4093822, 0x299f31d0},
         {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
    };
    for (size_t i = 0; i < sizeof vectors / sizeof *vectors; i++) {
        uint32_t out[4];
        philox4x32(vectors[i].key, vectors[i].counter, out);
        assert_memory_equal(out, vectors[i].out, sizeof out);
    }
}

/* splitmix64's first outputs for seed 1234567, from https://rosettacode.org/wiki/Pseudo-random_numbers/Splitmix64 */
static void test_seed_is_splitmix64(void **unused)
{
    struct rng rng;
    rng_seed(&rng, 1234567);
    assert_int_equal(rng.state[0], 6457827717110365317u);
    assert_int_equal(rng.state[1], 3203168211198807973u);
    assert_int_equal(rng.state[2], 9817491932198370423u);
    assert_int_equal(rng.state[3], 4593380528125082431u);
}

/* xoshiro256** from state 1, 2, 3, 4: the reference test of Rust's rand_xoshiro, made with the authors' C program. */
static void test_xoshiro_known_answers(void **unused)
{
    static const uint64_t expected[] = {
        11520u,
        0u,
        1509978240u,
        1215971899390074240u,
        1216172134540287360u,
        607988272756665600u,
        16172922978634559625u,
        8476171486693032832u,
        10595114339597558777u,
        2904607092377533576u,
    };
    struct rng rng = {{1, 2, 3, 4}};
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++)
        assert_int_equal(rng_u64(&rng), expected[i]);
}

static void test_below_is_bounded_and_even(void **unused)
{
    struct rng rng;
    rng_seed(&rng, 0);
    uint32_t counts[7] = {0};
    for (int i = 0; i < 70000; i++) {
        uint64_t value = rng_below(&rng, 7);
        assert_true(value < 7);
        counts[value]++;
    }
    for (int i = 0; i < 7; i++) /* 10000 expected, standard deviation 93 */
        assert_in_range(counts[i], 9500, 10500);
    for (int i = 0; i < 1000; i++) {
        assert_int_equal(rng_below(&rng, 1), 0);
        assert_true(rng_below(&rng, UINT64_MAX) < UINT64_MAX);
    }
}

static void test_unit_fills_the_interval(void **unused)
{
    struct rng rng;
    rng_seed(&rng, 42);
    double sum = 0;
    for (int i = 0; i < 100000; i++) {
        double x = rng_unit(&rng);
        assert_true(x >= 0 && x < 1);
        sum += x;
    }
    assert_true(sum > 49500 && sum < 50500); /* standard deviation 91 */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_philox_known_answers),     cmocka_unit_test(test_seed_is_splitmix64),
        cmocka_unit_test(test_xoshiro_known_answers),    cmocka_unit_test(test_below_is_bounded_and_even),
        cmocka_unit_test(test_unit_fills_the_interval),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

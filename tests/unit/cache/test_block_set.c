#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/base/error.h"
#include "core/base/rng.h"
#include "core/cache/block_set.h"
#include "tests/unit/cache/fail_malloc.h"

enum { N_UNIVERSE = 600 };

static int ascending(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* Names of every kind: evenly spread, both ends of the number range, and a run crowded into one page. */
static void make_universe(struct rng *rng, uint64_t names[N_UNIVERSE])
{
    for (uint32_t i = 0; i < N_UNIVERSE; i++)
        names[i] = i % 3 == 0 ? UINT64_C(0x4200000000000000) + i : rng_u64(rng);
    names[0] = 0;
    names[1] = UINT64_MAX;
    names[2] = UINT64_C(0x00ffffffffffffff);
    names[4] = UINT64_C(0x0100000000000000);
}

static void check_pages(const struct block_set *set, const uint64_t *names, const bool *present)
{
    uint64_t expected[N_UNIVERSE], found[N_UNIVERSE], total = 0;
    for (uint32_t page = 0; page < BLOCK_SET_PAGES; page++) {
        uint32_t n = 0;
        for (uint32_t i = 0; i < N_UNIVERSE; i++)
            if (present[i] && names[i] >> 56 == page)
                expected[n++] = names[i];
        qsort(expected, n, sizeof *expected, ascending);
        assert_int_equal(block_set_page_names(set, page, found, N_UNIVERSE), n);
        assert_memory_equal(found, expected, n * sizeof *found);
        if (n > 1) {
            found[1] = 7;
            assert_int_equal(block_set_page_names(set, page, found, 1), n);
            assert_int_equal(found[1], 7);
        }
        total += block_set_page_checksum(set, page);
    }
    assert_true(block_set_checksum(set) == total);
}

static void test_equals_a_flag_array(void **state)
{
    for (uint64_t seed = 1; seed <= 8; seed++) {
        struct rng rng;
        uint64_t names[N_UNIVERSE];
        bool present[N_UNIVERSE] = {false};
        uint32_t n_present = 0;
        struct block_set *set = block_set_create(0);
        rng_seed(&rng, seed);
        make_universe(&rng, names);
        for (uint32_t step = 0; step < 6000; step++) {
            uint32_t i = (uint32_t)rng_below(&rng, N_UNIVERSE);
            bool growing = (step / 1500) % 2 == 0;
            assert_int_equal(block_set_has(set, names[i]), present[i]);
            if (rng_below(&rng, 4) == 0 ? growing : !growing) {
                assert_int_equal(block_set_remove(set, names[i]), present[i]);
                n_present -= present[i];
                present[i] = false;
            } else {
                assert_int_equal(block_set_add(set, names[i]), present[i] ? 0 : 1);
                n_present += !present[i];
                present[i] = true;
            }
            assert_int_equal(block_set_len(set), n_present);
            if (step % 500 == 0)
                check_pages(set, names, present);
        }
        block_set_clear(set);
        assert_int_equal(block_set_len(set), 0);
        assert_true(block_set_checksum(set) == 0);
        memset(present, 0, sizeof present);
        check_pages(set, names, present);
        block_set_destroy(set);
    }
}

static void test_checksum_forgets_the_order(void **state)
{
    struct rng rng;
    uint64_t names[N_UNIVERSE];
    struct block_set *there = block_set_create(0), *back = block_set_create(0);
    rng_seed(&rng, 3);
    make_universe(&rng, names);
    for (uint32_t i = 0; i < N_UNIVERSE; i++) {
        block_set_add(there, names[i]);
        block_set_add(back, names[N_UNIVERSE - 1 - i]);
    }
    for (uint32_t page = 0; page < BLOCK_SET_PAGES; page++)
        assert_true(block_set_page_checksum(there, page) == block_set_page_checksum(back, page));
    uint64_t before = block_set_checksum(there);
    assert_true(before == block_set_checksum(back));
    block_set_remove(there, names[10]);
    assert_true(block_set_checksum(there) != before);
    block_set_add(there, names[10]);
    assert_true(block_set_checksum(there) == before);
    block_set_destroy(there);
    block_set_destroy(back);
}

/* Origin and replica may run on different builds: the sum is part of the protocol (tests/vectors/make_block_hash_vectors.py). */
static void test_checksum_is_fixed(void **state)
{
    struct block_set *set = block_set_create(0);
    block_set_add(set, 0x0123456789abcdef);
    block_set_add(set, 0x01000000000000ff);
    assert_true(block_set_page_checksum(set, 1) == 0xf333d26a0fd5f767);
    assert_true(block_set_checksum(set) == 0xf333d26a0fd5f767);
    assert_int_equal(block_set_page_of(0x0123456789abcdef), 1);
    block_set_destroy(set);
}

static void test_match_ends_at_a_hole(void **state)
{
    const uint64_t names[] = {11, UINT64_C(5) << 60, 13, UINT64_MAX};
    struct block_set *set = block_set_create(0);
    assert_int_equal(block_set_match(set, names, 4), 0);
    for (uint32_t i = 0; i < 4; i++)
        block_set_add(set, names[i]);
    assert_int_equal(block_set_match(set, names, 4), 4);
    assert_int_equal(block_set_match(set, names, 3), 3);
    block_set_remove(set, names[2]);
    assert_int_equal(block_set_match(set, names, 4), 2);
    block_set_remove(set, names[0]);
    assert_int_equal(block_set_match(set, names, 4), 0);
    block_set_destroy(set);
}

static uint32_t match_in_turn(const struct block_set *set, const uint64_t *names, uint32_t n)
{
    uint32_t matched = 0;
    while (matched < n && block_set_has(set, names[matched]))
        matched++;
    return matched;
}

/* Many sets, each closed under prefixes, some missing altogether, asked at once: as asking for every block in turn. */
static void test_match_equals_asking_in_turn(void **state)
{
    enum { N_SETS = 150, N_PROMPTS = 12, N_BLOCKS = 300 };
    static uint64_t names[N_PROMPTS][N_BLOCKS];
    struct block_set *sets[N_SETS];
    struct rng rng;
    rng_seed(&rng, 31);
    for (uint32_t p = 0; p < N_PROMPTS; p++)
        for (uint32_t i = 0; i < N_BLOCKS; i++)
            names[p][i] = p && i < 40 * (p % 3) ? names[0][i] : rng_u64(&rng); /* some share a head */
    for (uint32_t s = 0; s < N_SETS; s++) {
        sets[s] = s % 10 == 9 ? NULL : block_set_create(0);
        for (uint32_t p = 0; sets[s] && p < N_PROMPTS; p++) {
            uint32_t depth = (uint32_t)rng_below(&rng, N_BLOCKS + 1);
            for (uint32_t i = 0; i < depth; i++)
                block_set_add(sets[s], names[p][i]);
        }
    }
    for (uint32_t p = 0; p < N_PROMPTS; p++)
        for (uint32_t n = 0; n <= N_BLOCKS; n += 1 + n / 3) {
            uint32_t matches[N_SETS];
            block_set_match_each((const struct block_set *const *)sets, N_SETS, names[p], n, matches);
            for (uint32_t s = 0; s < N_SETS; s++)
                assert_int_equal(matches[s], sets[s] ? match_in_turn(sets[s], names[p], n) : 0);
        }
    for (uint32_t s = 0; s < N_SETS; s++)
        block_set_destroy(sets[s]);
}

/* A replica under way has holes. Without block 1 it matches nothing; else what it matches is there, and what comes next is not. */
static void test_match_with_holes(void **state)
{
    enum { N_BLOCKS = 200 };
    uint64_t names[N_BLOCKS];
    struct rng rng;
    rng_seed(&rng, 32);
    for (uint32_t round = 0; round < 300; round++) {
        struct block_set *set = block_set_create(0);
        uint32_t depth = (uint32_t)rng_below(&rng, N_BLOCKS + 1);
        for (uint32_t i = 0; i < N_BLOCKS; i++)
            names[i] = rng_u64(&rng);
        for (uint32_t i = 0; i < depth; i++)
            if (rng_below(&rng, 8))
                block_set_add(set, names[i]);
        uint32_t match = block_set_match(set, names, N_BLOCKS);
        assert_true(match >= (match_in_turn(set, names, N_BLOCKS) > 0) && match <= depth);
        assert_true(!match || (block_set_has(set, names[0]) && block_set_has(set, names[match - 1])));
        assert_true(match == N_BLOCKS || !block_set_has(set, names[match]));
        block_set_destroy(set);
    }
}

static void test_cap_refuses(void **state)
{
    struct block_set *set = block_set_create(2);
    assert_int_equal(block_set_add(set, 1), 1);
    assert_int_equal(block_set_add(set, 2), 1);
    assert_int_equal(block_set_add(set, 3), HS_ERR_LIMIT);
    assert_int_equal(block_set_add(set, 2), 0);
    assert_true(block_set_remove(set, 1));
    assert_int_equal(block_set_add(set, 3), 1);
    assert_false(block_set_has(set, 1));
    block_set_destroy(set);
}

static void test_at_most_twelve_bytes_a_name(void **state)
{
    enum { N = 100000 };
    struct block_set *set = block_set_create(0);
    struct rng rng;
    rng_seed(&rng, 9);
    size_t empty = block_set_bytes(set);
    for (uint32_t i = 0; i < N; i++)
        block_set_add(set, rng_u64(&rng));
    assert_true(block_set_bytes(set) - empty <= (size_t)N * 12);
    rng_seed(&rng, 9);
    for (uint32_t i = 0; i < N - 500; i++)
        assert_true(block_set_remove(set, rng_u64(&rng)));
    /* Memory comes back: a run keeps eight places, or three times what it holds. */
    assert_true(block_set_bytes(set) - empty <= (BLOCK_SET_PAGES * 8 + 500 * 3) * sizeof(uint64_t));
    block_set_destroy(set);
}

static void test_without_memory(void **state)
{
    fail_malloc_after(1);
    assert_null(block_set_create(0));
    struct block_set *set = block_set_create(0);
    fail_malloc_after(1);
    assert_int_equal(block_set_add(set, 5), HS_ERR_NO_MEMORY);
    assert_true(fail_malloc_done());
    assert_int_equal(block_set_len(set), 0);
    assert_true(block_set_checksum(set) == 0);
    assert_int_equal(block_set_add(set, 5), 1);
    block_set_destroy(set);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_equals_a_flag_array),
        cmocka_unit_test(test_checksum_forgets_the_order),
        cmocka_unit_test(test_checksum_is_fixed),
        cmocka_unit_test(test_match_ends_at_a_hole),
        cmocka_unit_test(test_match_equals_asking_in_turn),
        cmocka_unit_test(test_match_with_holes),
        cmocka_unit_test(test_cap_refuses),
        cmocka_unit_test(test_at_most_twelve_bytes_a_name),
        cmocka_unit_test(test_without_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

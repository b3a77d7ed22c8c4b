/* The joining against a naive one that looks through the whole word for every step, and its work on long words. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/base/rng.h"
#include "core/model/bpe.h"

#define MAX_WORD 64

static size_t join_naively(const struct bpe_table *table, uint32_t *ids, size_t n)
{
    for (;;) {
        const struct bpe_pair *best = NULL;
        size_t at = 0;
        for (size_t i = 0; i + 1 < n; i++) {
            const struct bpe_pair *pair = bpe_table_get(table, ids[i], ids[i + 1]);
            if (pair && (!best || pair->rank < best->rank)) {
                best = pair;
                at = i;
            }
        }
        if (!best)
            return n;
        ids[at] = best->joined;
        memmove(ids + at + 1, ids + at + 2, (n - at - 2) * sizeof *ids);
        n--;
    }
}

/*
 * A random table over a few letters, as training makes them: each token is two earlier ones, and stands for their letters,
 * so that no two tokens have the same. Some ranks are shared, as SentencePiece's equal scores are.
 */
static void make_table(struct rng *rng, struct bpe_table *table, uint32_t n_letters, uint32_t n_tokens, char texts[][MAX_WORD])
{
    uint32_t n = 0;
    for (; n < n_letters; n++) {
        texts[n][0] = (char)('a' + n);
        texts[n][1] = '\0';
    }
    for (uint32_t tries = 0; n < n_tokens && tries < 1000; tries++) {
        uint32_t left = (uint32_t)rng_below(rng, n), right = (uint32_t)rng_below(rng, n), known = 0;
        char joined[2 * MAX_WORD] = "";
        strcat(strcpy(joined, texts[left]), texts[right]);
        while (known < n && strcmp(texts[known], joined) != 0)
            known++;
        if (known < n || strlen(joined) >= MAX_WORD)
            continue;
        strcpy(texts[n], joined);
        assert_int_equal(bpe_table_put(table, left, right, (uint32_t)rng_below(rng, 2) ? n : n / 2, n), 0);
        n++;
    }
}

static void test_equals_the_naive_joining(void **state)
{
    (void)state;
    const uint64_t seed = 7;
    struct rng rng;
    rng_seed(&rng, seed);
    for (int round = 0; round < 200; round++) {
        static char texts[40][MAX_WORD];
        struct bpe_table table = {0};
        struct bpe_scratch scratch = {0};
        uint32_t n_letters = 1 + (uint32_t)rng_below(&rng, 4);
        make_table(&rng, &table, n_letters, 8 + (uint32_t)rng_below(&rng, 32), texts);
        for (int word = 0; word < 20; word++) {
            uint32_t ids[MAX_WORD];
            size_t n = rng_below(&rng, MAX_WORD + 1);
            struct token_list out = {0};
            for (size_t i = 0; i < n; i++) {
                ids[i] = (uint32_t)rng_below(&rng, n_letters);
                assert_int_equal(bpe_add_symbol(&scratch, ids[i]), 0);
            }
            assert_int_equal(bpe_join(&scratch, &table, &out), 0);
            n = join_naively(&table, ids, n);
            assert_int_equal(out.n, n);
            if (n)
                assert_memory_equal(out.ids, ids, n * sizeof *ids);
            token_list_fini(&out);
        }
        bpe_scratch_fini(&scratch);
        bpe_table_fini(&table);
    }
}

/* a a -> aa, aa aa -> aaaa, ...: every symbol takes part in joinings. The work stays below three candidates a symbol. */
static void test_work_on_long_words_is_linear(void **state)
{
    (void)state;
    struct bpe_table table = {0};
    struct bpe_scratch scratch = {0};
    struct token_list out = {0};
    const size_t n = 1u << 20;
    for (uint32_t level = 0; level < 6; level++)
        assert_int_equal(bpe_table_put(&table, level, level, level, level + 1), 0);
    for (size_t i = 0; i < n; i++)
        assert_int_equal(bpe_add_symbol(&scratch, 0), 0);
    assert_int_equal(bpe_join(&scratch, &table, &out), 0);
    assert_int_equal(out.n, n / 64);
    for (size_t i = 0; i < out.n; i++)
        assert_int_equal(out.ids[i], 6);
    assert_in_range(scratch.steps, n / 2, 3 * n);
    bpe_scratch_fini(&scratch);
    bpe_table_fini(&table);
    token_list_fini(&out);
}

static void test_table(void **state)
{
    (void)state;
    struct bpe_table table = {0};
    assert_null(bpe_table_get(&table, 1, 2));
    assert_int_equal(bpe_table_reserve(&table, 10), 0);
    for (uint32_t i = 0; i < 5000; i++)
        assert_int_equal(bpe_table_put(&table, i, i * 7, i, i + 1), 0);
    assert_int_equal(bpe_table_put(&table, 3, 21, 99, 100), 0); /* the later one stays */
    assert_int_equal(table.n, 5000);
    for (uint32_t i = 0; i < 5000; i++) {
        const struct bpe_pair *pair = bpe_table_get(&table, i, i * 7);
        assert_non_null(pair);
        assert_int_equal(pair->joined, i == 3 ? 100 : i + 1);
        assert_null(bpe_table_get(&table, i * 7 + 1, i));
    }
    bpe_table_fini(&table);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_equals_the_naive_joining),
        cmocka_unit_test(test_work_on_long_words_is_linear),
        cmocka_unit_test(test_table),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

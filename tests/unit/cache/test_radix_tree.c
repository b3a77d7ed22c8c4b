/* Single properties of the radix tree, by example; test_radix_random.c compares it with a naive model at large. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "core/base/error.h"
#include "core/base/rng.h"
#include "core/cache/radix_tree.h"
#include "tests/unit/cache/fail_malloc.h"

enum { PAGE_TOKENS = 4, N_PAGES = 64 };
#define SECOND_NS UINT64_C(1000000000)

static const uint8_t home[NAMESPACE_BYTES] = {1};
static const uint8_t abroad[NAMESPACE_BYTES] = {2};

struct fixture {
    struct page_pool *pool;
    struct radix_tree *tree;
    struct block_hash_key key;
    uint64_t held[N_PAGES]; /* names a peer has */
    uint32_t n_held;
    uint64_t added[N_PAGES], removed[N_PAGES], parent;
    uint32_t n_added, n_removed;
};

static void on_added(void *self, uint64_t parent, const uint64_t *names, uint32_t n)
{
    struct fixture *f = self;
    f->parent = parent;
    memcpy(f->added, names, n * sizeof *names);
    f->n_added = n;
}

static void on_removed(void *self, const uint64_t *names, uint32_t n)
{
    struct fixture *f = self;
    memcpy(f->removed + f->n_removed, names, n * sizeof *names);
    f->n_removed += n;
}

static bool on_held_elsewhere(void *self, uint64_t name)
{
    struct fixture *f = self;
    for (uint32_t i = 0; i < f->n_held; i++)
        if (f->held[i] == name)
            return true;
    return false;
}

static int set_up(void **state)
{
    static struct fixture f;
    memset(&f, 0, sizeof f);
    f.pool = page_pool_create(N_PAGES);
    struct radix_config config = {
        .page_tokens = PAGE_TOKENS,
        .hash_key = f.key,
        .pool = f.pool,
        .listener = {.added = on_added, .removed = on_removed, .held_elsewhere = on_held_elsewhere, .self = &f}};
    f.tree = radix_create(&config);
    *state = &f;
    return f.tree ? 0 : -1;
}

static int tear_down(void **state)
{
    struct fixture *f = *state;
    radix_destroy(f->tree);
    page_pool_destroy(f->pool);
    return 0;
}

/* Tokens of a path written as one letter for each page. */
static uint32_t spell(const char *text, uint32_t *tokens)
{
    uint32_t n = (uint32_t)strlen(text);
    for (uint32_t i = 0; i < n * PAGE_TOKENS; i++)
        tokens[i] = (uint32_t)text[i / PAGE_TOKENS] * 10 + i % PAGE_TOKENS;
    return n;
}

/* Inserts a path of fresh pages and lets go of them, so that only the tree owns them. */
static int put(struct fixture *f, const uint8_t *namespace_id, const char *text, uint64_t now_ns)
{
    uint32_t tokens[N_PAGES * PAGE_TOKENS], pages[N_PAGES] = {0}, n = spell(text, tokens);
    for (uint32_t i = 0; i < n; i++)
        pages[i] = page_pool_alloc(f->pool);
    int taken = radix_insert(f->tree, namespace_id, tokens, pages, n, now_ns);
    for (uint32_t i = 0; i < n; i++)
        page_pool_unref(f->pool, pages[i]);
    return taken;
}

static uint32_t peek(const struct fixture *f, const uint8_t *namespace_id, const char *text)
{
    uint32_t tokens[N_PAGES * PAGE_TOKENS], n = spell(text, tokens);
    return radix_peek(f->tree, namespace_id, tokens, n * PAGE_TOKENS);
}

static uint32_t match(struct fixture *f, const char *text, uint64_t now_ns, uint32_t *pages)
{
    uint32_t tokens[N_PAGES * PAGE_TOKENS], n = spell(text, tokens);
    return radix_match(f->tree, home, tokens, n * PAGE_TOKENS, now_ns, pages, N_PAGES);
}

static void release(struct fixture *f, const uint32_t *pages, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        page_pool_unref(f->pool, pages[i]);
}

static uint64_t name_of(const struct fixture *f, const char *text)
{
    uint32_t tokens[N_PAGES * PAGE_TOKENS], n = spell(text, tokens);
    uint64_t names[N_PAGES];
    block_hash_chain(&f->key, home, tokens, n * PAGE_TOKENS, PAGE_TOKENS, names);
    return names[n - 1];
}

static uint64_t n_nodes(const struct fixture *f)
{
    struct radix_stats stats;
    radix_stats(f->tree, &stats);
    return stats.nodes;
}

static void test_splits_and_merges(void **state)
{
    struct fixture *f = *state;
    assert_int_equal(put(f, home, "abcd", 1), 4);
    assert_int_equal(n_nodes(f), 1);
    assert_int_equal(put(f, home, "abxy", 2), 2);
    assert_int_equal(n_nodes(f), 3);
    assert_int_equal(put(f, home, "abxyz", 3), 1); /* a leaf grows in place */
    assert_int_equal(n_nodes(f), 3);
    assert_int_equal(put(f, home, "abx", 4), 0);
    assert_int_equal(peek(f, home, "abcdq"), 4);
    assert_int_equal(peek(f, home, "abxyzq"), 5);
    assert_int_equal(peek(f, home, "abq"), 2);
    assert_int_equal(peek(f, home, "qb"), 0);
    assert_int_equal(radix_evict(f->tree, 2, 5), 2); /* "cd" is older than "xyz" */
    assert_int_equal(peek(f, home, "abcd"), 2);
    assert_int_equal(n_nodes(f), 1); /* "ab" and "xyz" are one edge again */
    assert_int_equal(peek(f, home, "abxyz"), 5);
}

static void test_namespaces_share_nothing(void **state)
{
    struct fixture *f = *state;
    put(f, home, "abc", 1);
    assert_int_equal(peek(f, abroad, "abc"), 0);
    assert_int_equal(put(f, abroad, "abc", 2), 3);
    struct radix_stats stats;
    radix_stats(f->tree, &stats);
    assert_int_equal(stats.namespaces, 2);
    assert_int_equal(radix_evict(f->tree, 3, 3), 3);
    assert_int_equal(peek(f, home, "abc"), 0);
    assert_int_equal(peek(f, abroad, "abc"), 3);
    radix_stats(f->tree, &stats);
    assert_int_equal(stats.namespaces, 1);
}

static void test_part_pages_never_match(void **state)
{
    struct fixture *f = *state;
    uint32_t tokens[8 * PAGE_TOKENS], pages[8];
    put(f, home, "abc", 1);
    spell("abc", tokens);
    assert_int_equal(radix_peek(f->tree, home, tokens, 3 * PAGE_TOKENS - 1), 2);
    assert_int_equal(radix_match(f->tree, home, tokens, 3 * PAGE_TOKENS, 2, pages, 1), 1); /* the caller's cap */
    assert_int_equal(page_pool_owners(f->pool, pages[0]), 2);
    release(f, pages, 1);
    tokens[2 * PAGE_TOKENS + PAGE_TOKENS - 1]++; /* the last token of the last page */
    assert_int_equal(radix_peek(f->tree, home, tokens, 3 * PAGE_TOKENS), 2);
    assert_int_equal(radix_peek(f->tree, home, tokens, 0), 0);
}

static void test_a_part_is_found_in_the_page_that_shares_most(void **state)
{
    struct fixture *f = *state;
    uint32_t tokens[8 * PAGE_TOKENS], pages[8], page = 77;
    put(f, home, "abc", 1);
    put(f, home, "abd", 2);
    const uint32_t n = spell("abd", tokens) * PAGE_TOKENS;
    assert_int_equal(radix_match(f->tree, home, tokens, n, 3, pages, 8), 3);
    release(f, pages, 3);
    assert_int_equal(radix_match_part(f->tree, home, tokens, n - 1, 2, 4, &page), PAGE_TOKENS - 1); /* at the fork: of two pages */
    assert_int_equal(page, pages[2]);
    assert_int_equal(radix_match_part(f->tree, home, tokens, 2 * PAGE_TOKENS - 1, 1, 4, &page), PAGE_TOKENS - 1); /* inside an edge */
    assert_int_equal(page, pages[1]);
    assert_int_equal(page_pool_owners(f->pool, page), 1);
    page = 77;
    assert_int_equal(radix_match_part(f->tree, home, tokens, n, 3, 4, &page), 0); /* nothing left, and nothing below */
    tokens[2 * PAGE_TOKENS] += 7; /* the first token of the third page */
    assert_int_equal(radix_match_part(f->tree, home, tokens, n, 2, 4, &page), 0);
    assert_int_equal(radix_match_part(f->tree, abroad, tokens, n, 0, 4, &page), 0);
    assert_int_equal(page, 77);
}

/* Thousands of runs behind one page, coming and going: the longest part is always found, as by looking at all of them. */
static void test_a_part_is_found_among_thousands(void **state)
{
    enum { MANY = 4000, VALUES = 12 };
    static uint32_t tokens[MANY][2 * PAGE_TOKENS];
    struct page_pool *pool = page_pool_create(MANY + 1);
    struct radix_config config = {.page_tokens = PAGE_TOKENS, .pool = pool};
    struct radix_tree *tree = radix_create(&config);
    struct rng rng;
    rng_seed(&rng, 7);
    for (uint32_t i = 0; i < MANY; i++) {
        uint32_t pages[2] = {page_pool_alloc(pool), page_pool_alloc(pool)}, wanted[2 * PAGE_TOKENS] = {0}, page, most = 0;
        for (uint32_t t = PAGE_TOKENS; t < 2 * PAGE_TOKENS; t++) {
            tokens[i][t] = (uint32_t)rng_below(&rng, VALUES);
            wanted[t] = (uint32_t)rng_below(&rng, VALUES);
        }
        assert_true(radix_insert(tree, home, tokens[i], pages, 2, i) >= 0);
        page_pool_unref(pool, pages[0]);
        page_pool_unref(pool, pages[1]);
        if (i % 3 == 0)
            radix_evict(tree, 1 + (uint32_t)rng_below(&rng, 2), i);
        uint32_t n = 1 + (uint32_t)rng_below(&rng, PAGE_TOKENS);
        for (uint32_t k = 0; k <= i; k++) {
            uint32_t common = 0;
            while (common < n && tokens[k][PAGE_TOKENS + common] == wanted[PAGE_TOKENS + common])
                common++;
            if (common > most && radix_peek(tree, home, tokens[k], 2 * PAGE_TOKENS) == 2)
                most = common;
        }
        assert_int_equal(radix_match_part(tree, home, wanted, PAGE_TOKENS + n, 1, i, &page), most);
    }
    struct radix_stats stats;
    radix_stats(tree, &stats);
    assert_true(stats.nodes > MANY / 4);
    radix_destroy(tree);
    page_pool_destroy(pool);
}

static void test_a_part_counts_as_used(void **state)
{
    struct fixture *f = *state;
    uint32_t tokens[8 * PAGE_TOKENS], page;
    put(f, home, "ab", 1);
    put(f, home, "ac", 2);
    const uint32_t n = spell("ab", tokens) * PAGE_TOKENS;
    assert_int_equal(radix_match_part(f->tree, home, tokens, n - 1, 1, 3, &page), PAGE_TOKENS - 1);
    assert_int_equal(radix_evict(f->tree, 1, 5), 1); /* "c", which is younger but was not used since */
    assert_int_equal(radix_peek(f->tree, home, tokens, n), 2);
}

static void test_listener_hears_names_in_path_order(void **state)
{
    struct fixture *f = *state;
    put(f, home, "ab", 1);
    assert_true(f->parent == block_hash_root(&f->key, home));
    put(f, home, "abcd", 2);
    assert_true(f->parent == name_of(f, "ab"));
    assert_int_equal(f->n_added, 2);
    assert_true(f->added[0] == name_of(f, "abc") && f->added[1] == name_of(f, "abcd"));
    radix_evict(f->tree, 3, 3);
    assert_int_equal(f->n_removed, 3);
    assert_true(f->removed[0] == name_of(f, "ab") && f->removed[2] == name_of(f, "abcd")); /* deepest last */
}

static void test_least_recently_used_goes_first(void **state)
{
    struct fixture *f = *state;
    uint32_t pages[N_PAGES];
    put(f, home, "hA", 1 * SECOND_NS);
    put(f, home, "hB", 2 * SECOND_NS);
    put(f, home, "hC", 3 * SECOND_NS);
    release(f, pages, match(f, "hA", 4 * SECOND_NS, pages));
    radix_evict(f->tree, 1, 5 * SECOND_NS);
    assert_int_equal(peek(f, home, "hB"), 1);
    radix_evict(f->tree, 1, 5 * SECOND_NS);
    assert_int_equal(peek(f, home, "hC"), 1);
    assert_int_equal(peek(f, home, "hA"), 2);
}

static void test_a_cold_tail_is_trimmed_from_a_hot_head(void **state)
{
    struct fixture *f = *state;
    uint32_t pages[N_PAGES];
    put(f, home, "headtail", 1 * SECOND_NS);
    put(f, home, "other", 5 * SECOND_NS);
    release(f, pages, match(f, "head", 9 * SECOND_NS, pages));
    radix_evict(f->tree, 4, 10 * SECOND_NS);
    assert_int_equal(peek(f, home, "headtail"), 4);
    assert_int_equal(peek(f, home, "other"), 5);
    radix_evict(f->tree, 5, 10 * SECOND_NS);
    assert_int_equal(peek(f, home, "headtail"), 4);
    assert_int_equal(peek(f, home, "other"), 0);
}

static void test_dear_pages_stay_longer(void **state)
{
    struct fixture *f = *state;
    put(f, home, "abcdefghijklmnopqrstuvwxyz", 0);
    put(f, home, "A", 1000); /* used a microsecond later, but its context is short */
    radix_evict(f->tree, 1, 2000);
    assert_int_equal(peek(f, home, "A"), 0);
    assert_int_equal(peek(f, home, "abcdefghijklmnopqrstuvwxyz"), 26);
}

/* Reads a path, so that its leaf's worth is found anew. */
static void touch(struct fixture *f, const char *text, uint64_t now_ns)
{
    uint32_t pages[N_PAGES];
    release(f, pages, match(f, text, now_ns, pages));
}

/* Splitting and merging an edge leaves the pages' depths, and so their worth, as they were. */
static void test_depth_survives_split_and_merge(void **state)
{
    struct fixture *f = *state;
    put(f, home, "abcdefghijklmnop", 0);               /* 16 pages deep */
    put(f, abroad, "0123456789ABC", 0);                /* 13 */
    assert_int_equal(put(f, home, "abcdefghX", 0), 1); /* splits the first path in the middle; 9 deep */
    touch(f, "abcdefghijklmnop", 0);
    assert_int_equal(radix_evict(f->tree, 1, 1), 1); /* the shallowest leaf, which merges the halves again */
    assert_int_equal(peek(f, home, "abcdefghX"), 8);
    touch(f, "abcdefghijklmnop", 0);
    assert_int_equal(n_nodes(f), 2);
    assert_int_equal(radix_evict(f->tree, 1, 1), 1); /* 13 against 16 */
    assert_int_equal(peek(f, abroad, "0123456789ABC"), 12);
    put(f, abroad, "0123456789ABCDEFGHIJ", 0); /* 20 against 16 */
    touch(f, "abcdefghijklmnop", 0);
    assert_int_equal(radix_evict(f->tree, 1, 1), 1);
    assert_int_equal(peek(f, home, "abcdefghijklmnop"), 15);
}

static void test_depth_survives_a_second_split(void **state)
{
    struct fixture *f = *state;
    put(f, home, "abcdefghijklmnop", 0);
    put(f, home, "abcdefghX", SECOND_NS); /* stays */
    put(f, home, "abcdefghijklY", 0);     /* splits the lower half */
    assert_int_equal(radix_evict(f->tree, 1, 1), 1);
    assert_int_equal(peek(f, home, "abcdefghijklY"), 12); /* and its halves merge */
    touch(f, "abcdefghijklmnop", 0);
    put(f, abroad, "0123456789AB", 0); /* 12 against 16 */
    assert_int_equal(radix_evict(f->tree, 1, 1), 1);
    assert_int_equal(peek(f, abroad, "0123456789AB"), 11);
}

static void test_last_copies_go_last(void **state)
{
    struct fixture *f = *state;
    put(f, home, "1", 1 * SECOND_NS);
    put(f, home, "2", 2 * SECOND_NS);
    put(f, home, "3", 3 * SECOND_NS);
    put(f, home, "4", 4 * SECOND_NS);
    f->held[0] = name_of(f, "3"); /* learnt after the insertion */
    f->held[1] = name_of(f, "4");
    f->n_held = 2;
    radix_evict(f->tree, 1, 5 * SECOND_NS);
    assert_int_equal(peek(f, home, "3"), 0);
    f->n_held = 0; /* the peer has dropped "4": the oldest goes */
    radix_evict(f->tree, 1, 5 * SECOND_NS);
    assert_int_equal(peek(f, home, "1"), 0);
    assert_int_equal(peek(f, home, "2") + peek(f, home, "4"), 2);
}

static void test_pinned_pages_stay(void **state)
{
    struct fixture *f = *state;
    uint32_t pages[N_PAGES];
    put(f, home, "abcd", 1);
    uint32_t n = match(f, "abc", 2, pages);
    assert_int_equal(n, 3);
    assert_int_equal(radix_evictable_pages(f->tree), 1);
    assert_int_equal(radix_evict(f->tree, 10, 3), 1);
    assert_int_equal(radix_evict(f->tree, 10, 3), 0);
    assert_int_equal(peek(f, home, "abc"), 3);
    release(f, pages, n);
    assert_int_equal(radix_evict(f->tree, 10, 4), 3);
    assert_int_equal(page_pool_free_pages(f->pool), N_PAGES);
}

static void test_flush_forgets_pinned_pages_too(void **state)
{
    struct fixture *f = *state;
    uint32_t pages[N_PAGES];
    put(f, home, "abc", 1);
    put(f, abroad, "xyz", 1);
    uint32_t n = match(f, "ab", 2, pages);
    radix_flush(f->tree);
    assert_int_equal(f->n_removed, 6);
    assert_int_equal(peek(f, home, "abc"), 0);
    assert_int_equal(page_pool_free_pages(f->pool), N_PAGES - 2); /* the reader keeps its two */
    assert_int_equal(put(f, home, "abc", 3), 3);
    release(f, pages, n);
    assert_int_equal(page_pool_free_pages(f->pool), N_PAGES - 3);
}

static void test_two_readers_of_one_new_prompt(void **state)
{
    struct fixture *f = *state;
    uint32_t tokens[3 * PAGE_TOKENS], mine[3], yours[3];
    spell("abc", tokens);
    for (uint32_t i = 0; i < 3; i++) {
        mine[i] = page_pool_alloc(f->pool);
        yours[i] = page_pool_alloc(f->pool);
    }
    assert_int_equal(radix_insert(f->tree, home, tokens, mine, 2, 1), 2);
    assert_int_equal(radix_insert(f->tree, home, tokens, yours, 3, 2), 1);
    assert_int_equal(page_pool_owners(f->pool, yours[1]), 1);
    assert_int_equal(page_pool_owners(f->pool, yours[2]), 2);
    release(f, mine, 3);
    assert_int_equal(radix_evict(f->tree, 9, 3), 0); /* below the unread pages hangs one that is read */
    release(f, yours, 3);
    assert_int_equal(radix_evict(f->tree, 9, 3), 3);
}

static void test_create_without_memory(void **state)
{
    struct fixture *f = *state;
    struct page_pool *pool = page_pool_create(4);
    struct radix_config config = {.page_tokens = PAGE_TOKENS, .hash_key = f->key, .pool = pool};
    for (uint32_t n = 1; n <= 4; n++) {
        fail_malloc_after(n);
        assert_null(radix_create(&config));
        assert_true(fail_malloc_done());
    }
    page_pool_destroy(pool);
}

#define WITH_TREE(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_TREE(test_splits_and_merges),
        WITH_TREE(test_namespaces_share_nothing),
        WITH_TREE(test_part_pages_never_match),
        WITH_TREE(test_a_part_counts_as_used),
        WITH_TREE(test_a_part_is_found_in_the_page_that_shares_most),
        cmocka_unit_test(test_a_part_is_found_among_thousands),
        WITH_TREE(test_listener_hears_names_in_path_order),
        WITH_TREE(test_least_recently_used_goes_first),
        WITH_TREE(test_a_cold_tail_is_trimmed_from_a_hot_head),
        WITH_TREE(test_dear_pages_stay_longer),
        WITH_TREE(test_depth_survives_split_and_merge),
        WITH_TREE(test_depth_survives_a_second_split),
        WITH_TREE(test_last_copies_go_last),
        WITH_TREE(test_pinned_pages_stay),
        WITH_TREE(test_flush_forgets_pinned_pages_too),
        WITH_TREE(test_two_readers_of_one_new_prompt),
        WITH_TREE(test_create_without_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/*
 * Random streams of what a node does with its cache, each step compared with the naive model: sequences start (match, fill up with
 * new pages, evicting where the pool is empty), insert what they have, end; flushes; peers get and drop copies; allocations fail.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "core/base/error.h"
#include "core/base/rng.h"
#include "tests/unit/cache/fail_malloc.h"
#include "tests/unit/cache/radix_model.h"

enum { N_SEQUENCES = 8, N_SEEDS = 24, N_STEPS = 1500, N_NAMESPACES = 3, SMALL_MAX_BYTES = 4000 };

struct sequence {
    uint8_t namespace_id[NAMESPACE_BYTES];
    uint32_t tokens[MODEL_PATH_TOKENS];
    uint32_t pages[MODEL_MAX_PAGES];
    uint32_t n_pages; /* 0: not running */
};

struct world {
    struct rng rng;
    struct page_pool *pool;
    struct radix_tree *tree;
    struct radix_model model;
    struct sequence sequences[N_SEQUENCES];
    uint64_t now_ns;
    uint64_t max_bytes;
    bool failures; /* allocations fail now and then */
    bool unmerged; /* one did: chains may stand unmerged from now on */
};

static void world_init(struct world *world, uint64_t seed, uint64_t max_bytes, bool failures)
{
    struct block_hash_key key;
    uint8_t group_key[32] = {1, 2, 3};
    memset(world, 0, sizeof *world);
    rng_seed(&world->rng, seed);
    block_hash_key_derive(group_key, &key);
    world->pool = page_pool_create(MODEL_POOL_PAGES);
    model_init(&world->model, world->pool, &key);
    struct radix_config config = {.page_tokens = MODEL_PAGE_TOKENS,
                                  .max_bytes = max_bytes,
                                  .hash_key = key,
                                  .pool = world->pool,
                                  .listener = model_listener(&world->model)};
    world->tree = radix_create(&config);
    assert_non_null(world->tree);
    world->max_bytes = max_bytes ? max_bytes : UINT64_MAX;
    world->failures = failures;
}

static void world_fini(struct world *world)
{
    for (uint32_t s = 0; s < N_SEQUENCES; s++)
        for (uint32_t i = 0; i < world->sequences[s].n_pages; i++)
            page_pool_unref(world->pool, world->sequences[s].pages[i]);
    radix_destroy(world->tree);
    assert_int_equal(page_pool_free_pages(world->pool), MODEL_POOL_PAGES);
    model_fini(&world->model);
    page_pool_destroy(world->pool);
}

static uint32_t evict(struct world *world, uint32_t n)
{
    world->model.evicting = true;
    world->model.n_removed = 0;
    uint32_t free_before = page_pool_free_pages(world->pool);
    uint32_t evicted = radix_evict(world->tree, n, world->now_ns);
    world->model.evicting = false;
    assert_int_equal(world->model.n_removed, evicted);
    assert_int_equal(page_pool_free_pages(world->pool), free_before + evicted);
    assert_true(evicted <= n);
    if (evicted < n)
        assert_false(model_has_victim(&world->model));
    return evicted;
}

/* Prompts share heads: few tokens, and often a page is all one token. */
static void random_tokens(struct world *world, struct sequence *sequence)
{
    memset(sequence->namespace_id, (int)rng_below(&world->rng, N_NAMESPACES), NAMESPACE_BYTES);
    for (uint32_t i = 0; i < MODEL_PATH_TOKENS; i++)
        sequence->tokens[i] = rng_below(&world->rng, 12) == 0 ? 2 : (i / MODEL_PAGE_TOKENS) % 2;
}

static void start(struct world *world, struct sequence *sequence)
{
    uint32_t n_pages = 1 + (uint32_t)rng_below(&world->rng, MODEL_MAX_PAGES);
    random_tokens(world, sequence);
    uint32_t expected = model_match(&world->model, sequence->namespace_id, sequence->tokens, n_pages);
    uint32_t n_tokens = n_pages * MODEL_PAGE_TOKENS + (uint32_t)rng_below(&world->rng, MODEL_PAGE_TOKENS);
    if (n_tokens > MODEL_PATH_TOKENS)
        n_tokens = MODEL_PATH_TOKENS;
    assert_int_equal(radix_peek(world->tree, sequence->namespace_id, sequence->tokens, n_tokens), expected);
    uint32_t n =
        radix_match(world->tree, sequence->namespace_id, sequence->tokens, n_tokens, world->now_ns, sequence->pages, n_pages);
    assert_int_equal(n, expected);
    for (uint32_t i = 0; i < n; i++)
        assert_int_equal(sequence->pages[i], model_page(&world->model, sequence->namespace_id, sequence->tokens, i + 1));
    uint32_t source, part = model_part(&world->model, sequence->namespace_id, sequence->tokens, n_tokens, n);
    assert_int_equal(radix_match_part(world->tree, sequence->namespace_id, sequence->tokens, n_tokens, n, world->now_ns, &source), part);
    while (n < n_pages) {
        uint32_t page = page_pool_alloc(world->pool);
        if (page == PAGE_NONE) {
            if (evict(world, 1 + (uint32_t)rng_below(&world->rng, 5)) == 0)
                break;
            continue;
        }
        sequence->pages[n++] = page;
    }
    sequence->n_pages = n;
}

static void insert(struct world *world, struct sequence *sequence)
{
    uint32_t n_pages = (uint32_t)rng_below(&world->rng, sequence->n_pages + 1);
    bool arm = world->failures && rng_below(&world->rng, 3) == 0;
    fail_malloc_after(arm ? 1 + (uint32_t)rng_below(&world->rng, 6) : 0);
    int taken = radix_insert(world->tree, sequence->namespace_id, sequence->tokens, sequence->pages, n_pages, world->now_ns);
    bool failed = fail_malloc_done();
    world->unmerged |= failed;
    if (taken < 0) {
        assert_true(failed);
        assert_int_equal(taken, HS_ERR_NO_MEMORY);
        return;
    }
    /* Under a byte limit fewer may be taken; whatever was evicted for it has already left the model. */
    uint32_t known = model_match(&world->model, sequence->namespace_id, sequence->tokens, n_pages);
    assert_true(known + (uint32_t)taken <= n_pages);
    if (world->max_bytes == UINT64_MAX)
        assert_int_equal(known + (uint32_t)taken, n_pages);
    assert_int_equal(
        model_insert(&world->model, sequence->namespace_id, sequence->tokens, sequence->pages, known + (uint32_t)taken), taken);
}

static void end(struct world *world, struct sequence *sequence)
{
    bool forwards = rng_below(&world->rng, 2);
    for (uint32_t i = 0; i < sequence->n_pages; i++)
        page_pool_unref(world->pool, sequence->pages[forwards ? i : sequence->n_pages - 1 - i]);
    sequence->n_pages = 0;
}

static void step(struct world *world)
{
    struct sequence *sequence = &world->sequences[rng_below(&world->rng, N_SEQUENCES)];
    world->now_ns += rng_below(&world->rng, 1000000000);
    switch (rng_below(&world->rng, 40)) {
    case 0:
        if (rng_below(&world->rng, 10) == 0) {
            radix_flush(world->tree);
            assert_int_equal(world->model.n_blocks, 0);
        }
        break;
    case 1:
        evict(world, (uint32_t)rng_below(&world->rng, 20));
        break;
    case 2:
        world->model.held[rng_below(&world->rng, 256)] ^= 1;
        break;
    default:
        if (sequence->n_pages == 0)
            start(world, sequence);
        else if (rng_below(&world->rng, 3))
            insert(world, sequence);
        else
            end(world, sequence);
    }
}

static bool count_block(void *arg, uint64_t name)
{
    struct radix_model *model = arg;
    assert_true(block_set_has(model->advertised, name));
    model->n_removed++;
    return true;
}

static void check_pages(struct world *world)
{
    uint32_t owners[MODEL_POOL_PAGES] = {0};
    uint32_t n_owned = 0, n_unpinned = 0;
    for (uint32_t s = 0; s < N_SEQUENCES; s++)
        for (uint32_t i = 0; i < world->sequences[s].n_pages; i++)
            owners[world->sequences[s].pages[i]]++;
    for (uint32_t i = 0; i < world->model.n_blocks; i++) {
        uint32_t *n = &owners[world->model.blocks[i].page];
        n_unpinned += *n == 0;
        (*n)++;
    }
    for (uint32_t page = 0; page < MODEL_POOL_PAGES; page++) {
        assert_int_equal(page_pool_owners(world->pool, page), owners[page]);
        n_owned += owners[page] > 0;
    }
    assert_int_equal(page_pool_free_pages(world->pool) + n_owned, MODEL_POOL_PAGES);
    assert_int_equal(radix_evictable_pages(world->tree), n_unpinned);
}

static void check(struct world *world)
{
    struct radix_stats stats;
    radix_stats(world->tree, &stats);
    check_pages(world);
    model_check_advertised(&world->model);
    world->model.n_removed = 0;
    radix_each_block(world->tree, count_block, &world->model);
    assert_int_equal(world->model.n_removed, world->model.n_blocks);
    assert_int_equal(stats.pages, world->model.n_blocks);
    assert_true(stats.bytes <= world->max_bytes);
    if (world->unmerged)
        assert_true(stats.nodes >= model_edges(&world->model));
    else
        assert_int_equal(stats.nodes, model_edges(&world->model));
    if (stats.pages == 0)
        assert_int_equal(stats.nodes + stats.namespaces + stats.bytes, 0);
}

static void run(uint64_t seed, uint64_t max_bytes, bool failures)
{
    static struct world world;
    fprintf(stderr, "seed %llu max_bytes %llu failures %d\n", (unsigned long long)seed, (unsigned long long)max_bytes, failures);
    world_init(&world, seed, max_bytes, failures);
    for (uint32_t i = 0; i < N_STEPS; i++) {
        step(&world);
        check(&world);
    }
    world_fini(&world);
}

static void test_equals_the_naive_model(void **state)
{
    for (uint64_t seed = 1; seed <= N_SEEDS; seed++)
        run(seed, 0, false);
}

static void test_keeps_to_its_memory(void **state)
{
    for (uint64_t seed = 1; seed <= N_SEEDS; seed++)
        run(seed, SMALL_MAX_BYTES, false);
}

static void test_survives_failing_allocations(void **state)
{
    for (uint64_t seed = 1; seed <= N_SEEDS; seed++)
        run(seed, seed % 2 ? 0 : SMALL_MAX_BYTES, true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_equals_the_naive_model),
        cmocka_unit_test(test_keeps_to_its_memory),
        cmocka_unit_test(test_survives_failing_allocations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

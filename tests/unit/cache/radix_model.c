#include "tests/unit/cache/radix_model.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "tests/unit/cache/fail_malloc.h"

static bool is_path(const struct model_block *block, const uint8_t *namespace_id, const uint32_t *tokens, uint32_t depth)
{
    return block->depth == depth && memcmp(block->namespace_id, namespace_id, NAMESPACE_BYTES) == 0 &&
           memcmp(block->tokens, tokens, depth * MODEL_PAGE_TOKENS * sizeof *tokens) == 0;
}

static bool is_child(const struct model_block *child, const struct model_block *parent)
{
    return child->depth == parent->depth + 1 && memcmp(child->namespace_id, parent->namespace_id, NAMESPACE_BYTES) == 0 &&
           memcmp(child->tokens, parent->tokens, parent->depth * MODEL_PAGE_TOKENS * sizeof *child->tokens) == 0;
}

static uint32_t n_children(const struct radix_model *model, const struct model_block *parent)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < model->n_blocks; i++)
        n += is_child(&model->blocks[i], parent);
    return n;
}

static bool is_victim(const struct radix_model *model, const struct model_block *block)
{
    return page_pool_owners(model->pool, block->page) == 1 && n_children(model, block) == 0;
}

static bool is_held(const struct radix_model *model, uint64_t name)
{
    return model->held[name & 0xff];
}

static void on_added(void *self, uint64_t parent, const uint64_t *names, uint32_t n)
{
    struct radix_model *model = self;
    fail_malloc_hold(true);
    for (uint32_t i = 0; i < n; i++)
        assert_int_equal(block_set_add(model->advertised, names[i]), 1);
    fail_malloc_hold(false);
}

/* Called for one block that leaves: it must be one that may, and no block held elsewhere may have been a candidate in its stead. */
static void check_victim(const struct radix_model *model, const struct model_block *block)
{
    assert_int_equal(n_children(model, block), 0);
    if (is_held(model, block->name))
        return;
    for (uint32_t i = 0; i < model->n_blocks; i++)
        if (&model->blocks[i] != block && is_victim(model, &model->blocks[i]))
            assert_false(is_held(model, model->blocks[i].name));
}

static void on_removed(void *self, const uint64_t *names, uint32_t n)
{
    struct radix_model *model = self;
    model->n_removed += n;
    for (uint32_t i = n; i-- > 0;) { /* a run comes in path order, its deepest block goes first */
        assert_true(block_set_remove(model->advertised, names[i]));
        uint32_t at = 0;
        while (at < model->n_blocks && model->blocks[at].name != names[i])
            at++;
        assert_true(at < model->n_blocks);
        if (model->evicting) {
            check_victim(model, &model->blocks[at]);
            assert_int_equal(page_pool_owners(model->pool, model->blocks[at].page), 0); /* so nobody else was reading it */
        }
        model->blocks[at] = model->blocks[--model->n_blocks];
    }
}

static bool on_held_elsewhere(void *self, uint64_t name)
{
    return is_held(self, name);
}

void model_init(struct radix_model *model, struct page_pool *pool, const struct block_hash_key *key)
{
    *model = (struct radix_model){.pool = pool, .key = *key, .advertised = block_set_create(0)};
    assert_non_null(model->advertised);
}

void model_fini(struct radix_model *model)
{
    block_set_destroy(model->advertised);
}

struct radix_listener model_listener(struct radix_model *model)
{
    return (struct radix_listener){.added = on_added, .removed = on_removed, .held_elsewhere = on_held_elsewhere, .self = model};
}

static const struct model_block *find(const struct radix_model *model, const uint8_t *namespace_id, const uint32_t *tokens,
                                      uint32_t depth)
{
    for (uint32_t i = 0; i < model->n_blocks; i++)
        if (is_path(&model->blocks[i], namespace_id, tokens, depth))
            return &model->blocks[i];
    return NULL;
}

uint32_t model_match(const struct radix_model *model, const uint8_t *namespace_id, const uint32_t *tokens, uint32_t n_pages)
{
    uint32_t depth = 0;
    while (depth < n_pages && find(model, namespace_id, tokens, depth + 1))
        depth++;
    return depth;
}

uint32_t model_page(const struct radix_model *model, const uint8_t *namespace_id, const uint32_t *tokens, uint32_t depth)
{
    const struct model_block *block = find(model, namespace_id, tokens, depth);
    return block ? block->page : PAGE_NONE;
}

uint32_t model_part(const struct radix_model *model, const uint8_t *namespace_id, const uint32_t *tokens, uint32_t n_tokens, uint32_t n_pages)
{
    uint32_t most = 0, from = n_pages * MODEL_PAGE_TOKENS;
    for (uint32_t i = 0; i < model->n_blocks; i++) {
        const struct model_block *block = &model->blocks[i];
        uint32_t common = 0;
        if (block->depth != n_pages + 1 || memcmp(block->namespace_id, namespace_id, NAMESPACE_BYTES) != 0 ||
            memcmp(block->tokens, tokens, from * sizeof *tokens) != 0)
            continue;
        while (common < MODEL_PAGE_TOKENS && from + common < n_tokens && block->tokens[from + common] == tokens[from + common])
            common++;
        most = common > most ? common : most;
    }
    return most;
}

uint32_t model_insert(struct radix_model *model, const uint8_t *namespace_id, const uint32_t *tokens, const uint32_t *pages,
                      uint32_t n_pages)
{
    uint64_t names[MODEL_MAX_PAGES];
    uint32_t known = model_match(model, namespace_id, tokens, n_pages);
    block_hash_chain(&model->key, namespace_id, tokens, n_pages * MODEL_PAGE_TOKENS, MODEL_PAGE_TOKENS, names);
    for (uint32_t i = known; i < n_pages; i++) {
        assert_true(model->n_blocks < MODEL_POOL_PAGES);
        struct model_block *block = &model->blocks[model->n_blocks++];
        *block = (struct model_block){.depth = i + 1, .page = pages[i], .name = names[i]};
        memcpy(block->namespace_id, namespace_id, NAMESPACE_BYTES);
        memcpy(block->tokens, tokens, (i + 1) * MODEL_PAGE_TOKENS * sizeof *tokens);
    }
    return n_pages - known;
}

void model_clear(struct radix_model *model)
{
    model->n_blocks = 0;
}

uint32_t model_edges(const struct radix_model *model)
{
    uint32_t n_edges = 0;
    for (uint32_t i = 0; i < model->n_blocks; i++) {
        const struct model_block *block = &model->blocks[i];
        const struct model_block *parent = NULL;
        for (uint32_t j = 0; j < model->n_blocks; j++)
            if (is_child(block, &model->blocks[j]))
                parent = &model->blocks[j];
        assert_true(parent || block->depth == 1);
        n_edges += !parent || n_children(model, parent) > 1;
    }
    return n_edges;
}

bool model_has_victim(const struct radix_model *model)
{
    for (uint32_t i = 0; i < model->n_blocks; i++)
        if (is_victim(model, &model->blocks[i]))
            return true;
    return false;
}

void model_check_advertised(const struct radix_model *model)
{
    assert_int_equal(block_set_len(model->advertised), model->n_blocks);
    for (uint32_t i = 0; i < model->n_blocks; i++)
        assert_true(block_set_has(model->advertised, model->blocks[i].name));
}

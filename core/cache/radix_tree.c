#include "core/cache/radix_tree.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "core/base/panic.h"
#include "core/cache/radix_internal.h"

#define DEFAULT_MAX_BYTES (UINT64_C(256) << 20)
enum { FIRST_BUCKETS = 64, NAMES_PER_CALL = 64 };

static void on_pin_change(void *self, uint32_t page)
{
    struct radix_tree *tree = self;
    if (tree->pages[page].leaf)
        radix_leaf_update(tree, tree->pages[page].leaf);
}

struct radix_tree *radix_create(const struct radix_config *config)
{
    hs_assert(config->page_tokens > 0 && config->page_tokens <= BLOCK_HASH_MAX_TOKENS && config->pool);
    struct radix_tree *tree = calloc(1, sizeof *tree);
    if (!tree)
        return NULL;
    uint32_t n_pages = page_pool_total_pages(config->pool);
    tree->config = *config;
    if (tree->config.max_bytes == 0)
        tree->config.max_bytes = DEFAULT_MAX_BYTES;
    tree->stats.max_bytes = tree->config.max_bytes;
    tree->stride = 1 + config->page_tokens;
    tree->n_buckets = FIRST_BUCKETS;
    tree->pages = calloc(n_pages ? n_pages : 1, sizeof *tree->pages);
    tree->heap = calloc(n_pages ? n_pages : 1, sizeof(struct radix_node *));
    tree->buckets = calloc(tree->n_buckets, sizeof(struct radix_node *));
    if (!tree->pages || !tree->heap || !tree->buckets) {
        free(tree->pages);
        free(tree->heap);
        free(tree->buckets);
        free(tree);
        return NULL;
    }
    page_pool_watch(config->pool, &(struct page_pool_watcher){.pinned = on_pin_change, .unpinned = on_pin_change, .self = tree});
    return tree;
}

void radix_destroy(struct radix_tree *tree)
{
    if (!tree)
        return;
    tree->config.listener = (struct radix_listener){0};
    radix_flush(tree);
    page_pool_watch(tree->config.pool, NULL);
    free(tree->pages);
    free(tree->heap);
    free(tree->buckets);
    free(tree);
}

/* Marks the pages of the path to `place` as used, and where out is given writes their numbers and refers to them. */
static void use_path(struct radix_tree *tree, struct radix_place place, uint64_t now_ns, uint32_t *out)
{
    struct radix_node *deepest = place.node;
    while (place.depth > 0) {
        uint32_t page = radix_page_at(tree, place.node, place.used - 1);
        tree->pages[page].used_ns = now_ns;
        place.depth--;
        place.used--;
        if (out) {
            page_pool_ref(tree->config.pool, page);
            out[place.depth] = page;
        }
        if (place.used == 0 && place.depth > 0) {
            place.node = place.node->parent;
            place.used = place.node->n_pages;
        }
    }
    if (deepest)
        radix_leaf_update(tree, deepest);
}

uint32_t radix_match(struct radix_tree *tree, const uint8_t namespace_id[NAMESPACE_BYTES], const uint32_t *tokens,
                     uint32_t n_tokens, uint64_t now_ns, uint32_t *pages, uint32_t cap)
{
    uint32_t n_pages = n_tokens / tree->config.page_tokens;
    struct radix_place place = radix_walk(tree, namespace_id, tokens, n_pages < cap ? n_pages : cap);
    use_path(tree, place, now_ns, pages);
    return place.depth;
}

uint32_t radix_match_part(struct radix_tree *tree, const uint8_t namespace_id[NAMESPACE_BYTES], const uint32_t *tokens,
                          uint32_t n_tokens, uint32_t n_pages, uint64_t now_ns, uint32_t *page)
{
    const uint32_t page_tokens = tree->config.page_tokens, from = n_pages * page_tokens;
    uint32_t n = n_tokens - from, common;
    if (n > page_tokens)
        n = page_tokens;
    struct radix_place place = radix_walk(tree, namespace_id, tokens, n_pages);
    if (!place.node || place.depth < n_pages)
        return 0;
    bool is_fork = place.used == place.node->n_pages;
    struct radix_node *node = place.node;
    if (is_fork)
        node = radix_order_nearest(tree, place.node, tokens + from, n, &common);
    else
        common = radix_common(tree, node, place.used, tokens + from, n);
    if (!common)
        return 0;
    *page = radix_page_at(tree, node, is_fork ? 0 : place.used);
    tree->pages[*page].used_ns = now_ns;
    radix_leaf_update(tree, node);
    return common;
}

uint32_t radix_peek(const struct radix_tree *tree, const uint8_t namespace_id[NAMESPACE_BYTES], const uint32_t *tokens,
                    uint32_t n_tokens)
{
    return radix_walk(tree, namespace_id, tokens, n_tokens / tree->config.page_tokens).depth;
}

/* Evicts until tokens[n_pages] fit under max_bytes; returns how many leading pages may be known afterwards. */
static uint32_t make_room(struct radix_tree *tree, const uint8_t namespace_id[NAMESPACE_BYTES], const uint32_t *tokens,
                          uint32_t n_pages, uint64_t now_ns)
{
    const uint64_t overhead = 3 * sizeof(struct radix_node) + NAMESPACE_BYTES; /* a root, a split's upper half, a child */
    const uint64_t max = tree->config.max_bytes;
    for (;;) {
        /* Eviction may take of the path itself, so it is walked again each time. */
        uint32_t known = radix_walk(tree, namespace_id, tokens, n_pages).depth;
        uint64_t need = tree->stats.bytes + overhead + radix_run_bytes(tree, n_pages - known);
        if (known == n_pages || need <= max)
            return n_pages;
        uint64_t too_many = (need - max) / radix_run_bytes(tree, 1) + 1;
        uint32_t evicted = radix_evict(tree, too_many < UINT32_MAX ? (uint32_t)too_many : UINT32_MAX, now_ns);
        tree->stats.capped_pages += evicted;
        if (evicted > 0)
            continue;
        uint64_t taken = tree->stats.bytes + overhead;
        uint32_t room = (uint32_t)(taken < max ? (max - taken) / radix_run_bytes(tree, 1) : 0);
        tree->stats.capped_pages += n_pages - known - room;
        return known + room;
    }
}

/* Makes place for n_new pages behind `place`; returns the node whose last n_new pages are to be filled, not yet linked if new. */
static struct radix_node *open_edge(struct radix_tree *tree, struct radix_place *place, uint32_t n_new)
{
    struct radix_node *node = place->node;
    if (node->parent && !node->first_child && place->used == node->n_pages) {
        radix_leaf_forget(tree, node);
        if (radix_node_grow(tree, node, n_new) == 0)
            return node;
        radix_leaf_update(tree, node);
        return NULL;
    }
    struct radix_node *child = radix_node_create(tree, n_new);
    if (!child)
        return NULL;
    if (place->used < node->n_pages) {
        place->node = radix_node_split(tree, node, place->used);
        if (!place->node) {
            radix_node_free(tree, child);
            return NULL;
        }
    }
    child->first_page = place->depth;
    return child;
}

/* Writes the new pages into the last n places of node's run and takes them over. */
static void fill_edge(struct radix_tree *tree, struct radix_node *node, uint64_t parent_name, const uint32_t *tokens,
                      const uint32_t *pages, uint32_t n, uint64_t now_ns)
{
    uint32_t page_tokens = tree->config.page_tokens;
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t *block = tokens + (size_t)i * page_tokens;
        uint32_t *entry = radix_run_at(tree, node, node->n_pages - n + i);
        entry[0] = pages[i];
        memcpy(entry + 1, block, page_tokens * sizeof *block);
        parent_name = block_hash_next(&tree->config.hash_key, parent_name, block, page_tokens);
        tree->pages[pages[i]] = (struct radix_page){.name = parent_name, .used_ns = now_ns};
        page_pool_ref(tree->config.pool, pages[i]);
        page_pool_set_cached(tree->config.pool, pages[i], true);
    }
}

static void tell_added(struct radix_tree *tree, uint64_t parent_name, const uint32_t *pages, uint32_t n)
{
    const struct radix_listener *listener = &tree->config.listener;
    uint64_t names[NAMES_PER_CALL];
    if (!listener->added)
        return;
    for (uint32_t done = 0; done < n;) {
        uint32_t n_names = 0;
        while (n_names < NAMES_PER_CALL && done < n)
            names[n_names++] = tree->pages[pages[done++]].name;
        listener->added(listener->self, parent_name, names, n_names);
        parent_name = names[n_names - 1];
    }
}

int radix_insert(struct radix_tree *tree, const uint8_t namespace_id[NAMESPACE_BYTES], const uint32_t *tokens,
                 const uint32_t *pages, uint32_t n_pages, uint64_t now_ns)
{
    use_path(tree, radix_walk(tree, namespace_id, tokens, n_pages), now_ns, NULL);
    n_pages = make_room(tree, namespace_id, tokens, n_pages, now_ns);
    struct radix_place place = radix_walk(tree, namespace_id, tokens, n_pages);
    if (place.depth == n_pages)
        return 0;
    struct radix_node *new_root = NULL;
    if (!place.node) {
        place.node = new_root = radix_root_create(tree, namespace_id);
        if (!new_root)
            return HS_ERR_NO_MEMORY;
    }
    uint32_t n_new = n_pages - place.depth;
    uint64_t parent_name = place.depth ? tree->pages[radix_page_at(tree, place.node, place.used - 1)].name : place.node->name;
    struct radix_node *edge = open_edge(tree, &place, n_new);
    if (!edge) {
        if (new_root) {
            radix_node_detach(tree, new_root);
            radix_node_free(tree, new_root);
        }
        return HS_ERR_NO_MEMORY;
    }
    fill_edge(tree, edge, parent_name, tokens + (size_t)place.depth * tree->config.page_tokens, pages + place.depth, n_new, now_ns);
    if (edge != place.node) {
        edge->name = tree->pages[radix_page_at(tree, edge, 0)].name;
        radix_node_attach(tree, edge, place.node);
    }
    radix_leaf_update(tree, edge);
    tree->stats.pages += n_new;
    tree->stats.inserted_pages += n_new;
    tell_added(tree, parent_name, pages + place.depth, n_new);
    return (int)n_new;
}

void radix_flush(struct radix_tree *tree)
{
    for (struct radix_node *node = tree->first_root; node; node = radix_next(node)) {
        if (node->n_pages)
            radix_release_pages(tree, node, 0, node->n_pages);
        node->heap_index = NOT_IN_HEAP;
    }
    tree->n_heap = 0;
    struct radix_node *node = tree->first_root;
    while (node) {
        if (node->first_child) {
            node = node->first_child;
            continue;
        }
        struct radix_node *next = node->next_sibling ? node->next_sibling : node->parent;
        radix_node_detach(tree, node);
        radix_node_free(tree, node);
        node = next;
    }
}

void radix_stats(const struct radix_tree *tree, struct radix_stats *out)
{
    *out = tree->stats;
}

void radix_each_block(const struct radix_tree *tree, bool (*each)(void *arg, uint64_t name), void *arg)
{
    for (struct radix_node *node = tree->first_root; node; node = radix_next(node))
        for (uint32_t i = 0; i < node->n_pages; i++)
            if (!each(arg, tree->pages[radix_page_at(tree, node, i)].name))
                return;
}

/*
 * The exact radix tree of what this node's KV pages hold: token runs to page runs, per namespace.
 *
 *     namespace root
 *        |  [t0 .. t31]        edge of two pages (16 tokens each)      edges are whole pages long, split only between pages;
 *        |   pages 7 2         siblings differ in their first page's tokens; a chain without branches re-merges into one edge
 *        +-- [t32 .. t47] page 9
 *        +-- [t32'.. t63'] pages 4 5
 *
 * Match is decided by comparing tokens, never hashes. The tree owns one reference of each page in it; a page that has
 * further owners (sequences reading it) is pinned and not evicted. Only tokens whose KV entries are final (verified) may be
 * inserted. Each page also carries its block's name (block_hash.h), reported to the listener as it comes and goes.
 *
 * Eviction takes tail pages of leaves, lowest worth first: worth = recency and recompute cost of the page, lowered when another
 * live peer is known to hold the same block (the last copy in the group goes last). Source: RadixAttention (SGLang, arXiv
 * 2312.07104) for the idea; page granularity and worth are this project's.
 *
 * Memory: nodes and token runs count against max_bytes; an insertion that would pass it evicts first. Threading: node loop only.
 */
#ifndef HEARSAY_CACHE_RADIX_TREE_H
#define HEARSAY_CACHE_RADIX_TREE_H

#include <stdbool.h>
#include <stdint.h>

#include "core/cache/block_hash.h"
#include "core/cache/page_pool.h"

struct radix_tree;

/* Called in the middle of an operation: a listener must not call the tree or the pool. */
struct radix_listener {
    /* Blocks names[n], in path order, became available behind block `parent` (a name or a namespace's root hash). */
    void (*added)(void *self, uint64_t parent, const uint64_t *names, uint32_t n);
    /* These are gone (deepest last). */
    void (*removed)(void *self, const uint64_t *names, uint32_t n);
    /* Whether another live peer advertises the block: consulted at eviction. May be NULL. */
    bool (*held_elsewhere)(void *self, uint64_t name);
    void *self;
};

struct radix_config {
    uint32_t page_tokens;
    uint64_t max_bytes; /* of nodes and tokens, 0: 256 MiB */
    struct block_hash_key hash_key;
    struct page_pool *pool; /* borrowed, outlives the tree */
    struct radix_listener listener;
};

struct radix_stats {
    uint64_t pages, nodes, namespaces, bytes;
    uint64_t inserted_pages, evicted_pages; /* since creation */
    uint64_t max_bytes, capped_pages;       /* capped: evicted or never taken, to stay within max_bytes */
};

/* NULL when out of memory. */
struct radix_tree *radix_create(const struct radix_config *config);
void radix_destroy(struct radix_tree *tree);

/*
 * Longest cached prefix of tokens[n_tokens], in whole pages: writes up to cap page numbers, takes a reference on each for the
 * caller (who unrefs them through the pool), marks the path as used at now_ns. Returns the number of pages.
 */
uint32_t radix_match(struct radix_tree *tree, const uint8_t namespace_id[NAMESPACE_BYTES], const uint32_t *tokens,
                     uint32_t n_tokens, uint64_t now_ns, uint32_t *pages, uint32_t cap);
/*
 * Behind the n_pages that radix_match found: the page that shares the most leading tokens with the next ones of tokens[n_tokens], and how many
 * (less than a page; 0: none, *page stays). The page is marked as used at now_ns and not referenced: copy it before the tree is used
 * again. Where n runs follow, about 1.4 log2(n) of them are compared.
 */
uint32_t radix_match_part(struct radix_tree *tree, const uint8_t namespace_id[NAMESPACE_BYTES], const uint32_t *tokens,
                          uint32_t n_tokens, uint32_t n_pages, uint64_t now_ns, uint32_t *page);
/* The same length as radix_match without references or marks. */
uint32_t radix_peek(const struct radix_tree *tree, const uint8_t namespace_id[NAMESPACE_BYTES], const uint32_t *tokens,
                    uint32_t n_tokens);
/*
 * Makes pages[n_pages], holding tokens[n_pages * page_tokens], known. Where the tree has a prefix already its own pages stay (the
 * caller keeps what it has); of the rest the tree takes one reference each. Returns the number of pages newly taken: fewer, always
 * leading, where max_bytes leaves no more room because all else is pinned; or HS_ERR_NO_MEMORY (tree unchanged in meaning).
 */
int radix_insert(struct radix_tree *tree, const uint8_t namespace_id[NAMESPACE_BYTES], const uint32_t *tokens,
                 const uint32_t *pages, uint32_t n_pages, uint64_t now_ns);
/* Frees at least n_pages pages if so many are unpinned; returns how many. */
uint32_t radix_evict(struct radix_tree *tree, uint32_t n_pages, uint64_t now_ns);
/*
 * Pages that eviction could free now, O(1). An upper bound: a page without readers below which a reader holds a page counts too
 * (that reader computed its own copies of the path, which only happens when two sequences prefill the same tokens at once).
 */
uint32_t radix_evictable_pages(const struct radix_tree *tree);
/* Drops everything that is not pinned by sequences; pinned pages are forgotten by the tree too (their sequences keep them). */
void radix_flush(struct radix_tree *tree);
void radix_stats(const struct radix_tree *tree, struct radix_stats *out);
/* Calls each(arg, name) for every advertised block until it returns false: to rebuild a digest. */
void radix_each_block(const struct radix_tree *tree, bool (*each)(void *arg, uint64_t name), void *arg);

#endif

/*
 * A naive radix tree to compare the real one with: a flat list of cached blocks, each with its whole path of tokens. Everything is
 * found by looking at every entry. It also plays the listener: what the tree reports must be what the model expects.
 */
#ifndef HEARSAY_TESTS_UNIT_CACHE_RADIX_MODEL_H
#define HEARSAY_TESTS_UNIT_CACHE_RADIX_MODEL_H

#include "core/cache/block_set.h"
#include "core/cache/radix_tree.h"

enum {
    MODEL_PAGE_TOKENS = 4,
    MODEL_MAX_PAGES = 16,
    MODEL_POOL_PAGES = 96,
    MODEL_PATH_TOKENS = MODEL_PAGE_TOKENS * MODEL_MAX_PAGES
};

struct model_block {
    uint8_t namespace_id[NAMESPACE_BYTES];
    uint32_t tokens[MODEL_PATH_TOKENS];
    uint32_t depth; /* blocks from the root, this one included */
    uint32_t page;
    uint64_t name;
};

struct radix_model {
    struct page_pool *pool; /* borrowed, as set: both are looked at in callbacks */
    struct block_hash_key key;
    struct model_block blocks[MODEL_POOL_PAGES];
    uint32_t n_blocks;
    struct block_set *advertised; /* fed by the listener alone */
    uint8_t held[256];            /* held elsewhere, by the name's low byte */
    uint32_t n_removed;           /* reported by the listener since it was last cleared */
    bool evicting;                /* removed blocks must be the right victims */
};

void model_init(struct radix_model *model, struct page_pool *pool, const struct block_hash_key *key);
void model_fini(struct radix_model *model);
struct radix_listener model_listener(struct radix_model *model);
uint32_t model_match(const struct radix_model *model, const uint8_t *namespace_id, const uint32_t *tokens, uint32_t n_pages);
uint32_t model_page(const struct radix_model *model, const uint8_t *namespace_id, const uint32_t *tokens, uint32_t depth);
/* The most leading tokens of tokens[n] that any block behind the first n_pages shares. */
uint32_t model_part(const struct radix_model *model, const uint8_t *namespace_id, const uint32_t *tokens, uint32_t n_tokens, uint32_t n_pages);
/* Adds what is missing of the path; returns how many blocks that were. */
uint32_t model_insert(struct radix_model *model, const uint8_t *namespace_id, const uint32_t *tokens, const uint32_t *pages,
                      uint32_t n_pages);
void model_clear(struct radix_model *model);
/* Edges that a fully merged tree of these blocks has. */
uint32_t model_edges(const struct radix_model *model);
/* Whether eviction could take anything: a block without readers and without blocks behind it. */
bool model_has_victim(const struct radix_model *model);
/* The advertised set holds exactly the model's blocks. */
void model_check_advertised(const struct radix_model *model);

#endif

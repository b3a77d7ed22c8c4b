/*
 * The memory behind KV pages. A page holds page_tokens positions of all layers in 16-bit values, FP16. Pages lie in slabs of
 * KV_SLAB_PAGES; in a slab the keys of one head and layer stand together, page after page, and so do its values:
 *
 *     slab     layer 0: head 0: keys of page 0 | 1 | ... | 15 | values of page 0 | 1 | ... | 15 |  head 1: ...      layer 1: ...
 *     page     keys                                   values
 *              key tile 0   i=0:  k0[0] k1[0] .. k15[0]     slot 0: v0[0] v0[1] ... v0[d_padded-1]
 *                           i=1:  k0[1] k1[1] .. k15[1]     slot 1: v1[0] ...
 *                           ...   d_head lines              ...
 *              key tile 1   slots 16 .. 31                  slot page_tokens-1
 *
 * (In a pool of group 2, for kernels that multiply pairs: keys k0[0] k0[1] k1[0] k1[1] ..., values v0[0] v1[0] v0[1] v1[1] ...,
 * BF16.) Keys stand transposed in tiles of CPU_KEY_TILE slots, so that one vector holds one value of 16 keys and each score is a
 * lane; values stand by slot, padded with zeros to d_padded, so that each output value is a lane. Pages are handed out in
 * ascending order while the pool is fresh, and what a head reads is then one run of memory for a slab at a time: the hardware
 * prefetches it at twice the speed of scattered pages. A slab, not the whole pool, so that a few pages touch little memory.
 *
 * Threading: plain memory; the step orders who writes and reads.
 */
#ifndef HEARSAY_CPU_KV_POOL_H
#define HEARSAY_CPU_KV_POOL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/error.h"
#include "core/cpu/kernels.h"
#include "core/cpu/topology.h"
#include "core/port/model.h"

enum { KV_SLAB_PAGES = 16 };

struct kv_pool {
    uint16_t *memory; /* [n_slabs][slab_size] */
    size_t page_size; /* 16-bit values in a page */
    size_t slab_size;
    size_t head_size; /* of one head in one layer of a slab */
    size_t key_size;  /* of its keys */
    uint32_t n_slabs;
    uint32_t n_pages;
    uint32_t page_tokens;
    uint32_t n_layers;
    uint32_t n_kv_heads;
    uint32_t d_head;
    uint32_t d_padded;
    uint32_t group; /* values that stand together: kernels' inputs_per_word */
};

/* Bytes of one page, for sizing a pool. */
uint64_t kv_page_bytes(const struct model_desc *model, uint32_t page_tokens);
/* 0 or HS_ERR_NO_MEMORY. */
int kv_pool_init(struct kv_pool *pool, const struct model_desc *model, uint32_t n_pages, uint32_t page_tokens, uint32_t group,
                 struct error *err);
void kv_pool_fini(struct kv_pool *pool);
uint64_t kv_pool_bytes(const struct kv_pool *pool);
/* Before anything is stored: slabs shall stand on these nodes in turn. False: the kernel refuses. */
bool kv_pool_place(const struct kv_pool *pool, const struct topology *topology, uint64_t nodes);
/* Stores one position's key and value (d_head each) of a head. */
void kv_pool_store(const struct kv_pool *pool, uint32_t page, uint32_t slot, uint32_t layer, uint32_t head, const uint16_t *key,
                   const uint16_t *value);
/* Copies part `part` of `n_parts` of a page. */
void kv_pool_copy(const struct kv_pool *pool, uint32_t dst, uint32_t src, uint32_t part, uint32_t n_parts);

/* All keys of a head in a slab. */
static inline uint16_t *kv_pool_head(const struct kv_pool *pool, uint32_t page, uint32_t layer, uint32_t head)
{
    return pool->memory + page / KV_SLAB_PAGES * pool->slab_size + ((size_t)layer * pool->n_kv_heads + head) * pool->head_size;
}

/* The key tile that begins at slot, a multiple of CPU_KEY_TILE: [d_head][CPU_KEY_TILE]. */
static inline uint16_t *kv_pool_keys(const struct kv_pool *pool, uint32_t page, uint32_t slot, uint32_t layer, uint32_t head)
{
    return kv_pool_head(pool, page, layer, head) + ((size_t)page % KV_SLAB_PAGES * pool->page_tokens + slot) * pool->d_head;
}

/* Values from slot on, a multiple of group: [...][d_padded]. */
static inline uint16_t *kv_pool_values(const struct kv_pool *pool, uint32_t page, uint32_t slot, uint32_t layer, uint32_t head)
{
    return kv_pool_head(pool, page, layer, head) + pool->key_size +
           ((size_t)page % KV_SLAB_PAGES * pool->page_tokens + slot) * pool->d_padded;
}

#endif

#include "core/cpu/kv_pool.h"

#include <string.h>

#include "core/cpu/memory.h"

static uint32_t padded_head(const struct model_desc *model)
{
    return (model->d_head + CPU_HEAD_ALIGN - 1) / CPU_HEAD_ALIGN * CPU_HEAD_ALIGN;
}

uint64_t kv_page_bytes(const struct model_desc *model, uint32_t page_tokens)
{
    return (uint64_t)model->n_layers * model->n_kv_heads * page_tokens * (model->d_head + padded_head(model)) * sizeof(uint16_t);
}

uint64_t kv_pool_bytes(const struct kv_pool *pool)
{
    return pool->n_slabs * pool->slab_size * sizeof(uint16_t);
}

int kv_pool_init(struct kv_pool *pool, const struct model_desc *model, uint32_t n_pages, uint32_t page_tokens, uint32_t group,
                 struct error *err)
{
    *pool = (struct kv_pool){
        .page_size = kv_page_bytes(model, page_tokens) / sizeof(uint16_t),
        .n_pages = n_pages,
        .page_tokens = page_tokens,
        .n_layers = model->n_layers,
        .n_kv_heads = model->n_kv_heads,
        .d_head = model->d_head,
        .d_padded = padded_head(model),
        .group = group,
    };
    pool->n_slabs = (n_pages + KV_SLAB_PAGES - 1) / KV_SLAB_PAGES;
    pool->slab_size = KV_SLAB_PAGES * pool->page_size;
    pool->key_size = (size_t)KV_SLAB_PAGES * page_tokens * pool->d_head;
    pool->head_size = pool->key_size + (size_t)KV_SLAB_PAGES * page_tokens * pool->d_padded;
    size_t bytes = kv_pool_bytes(pool);
    pool->memory = memory_map(bytes);
    if (!pool->memory)
        return error_set(err, HS_ERR_NO_MEMORY, "no memory for %u KV pages (%zu MiB): ask for fewer", n_pages, bytes >> 20);
    return 0;
}

void kv_pool_fini(struct kv_pool *pool)
{
    memory_unmap(pool->memory, kv_pool_bytes(pool));
    pool->memory = NULL;
}

bool kv_pool_place(const struct kv_pool *pool, const struct topology *topology, uint64_t nodes)
{
    return topology_place(topology, pool->memory, kv_pool_bytes(pool), nodes);
}

void kv_pool_store(const struct kv_pool *pool, uint32_t page, uint32_t slot, uint32_t layer, uint32_t head, const uint16_t *key,
                   const uint16_t *value)
{
    const uint32_t lane = slot % CPU_KEY_TILE, group = pool->group;
    uint16_t *keys = kv_pool_keys(pool, page, slot - lane, layer, head) + lane * group;
    uint16_t *values = kv_pool_values(pool, page, slot - slot % group, layer, head) + slot % group;
    if (group == 1) {
        for (uint32_t i = 0; i < pool->d_head; i++)
            keys[(size_t)i * CPU_KEY_TILE] = key[i];
        memcpy(values, value, pool->d_head * sizeof *values);
    } else {
        for (uint32_t i = 0; i < pool->d_head; i += 2)
            memcpy(keys + (size_t)i * CPU_KEY_TILE, key + i, 2 * sizeof *keys);
        for (uint32_t i = 0; i < pool->d_head; i++)
            values[(size_t)i * 2] = value[i];
    }
    for (uint32_t i = pool->d_head; i < pool->d_padded; i++)
        values[(size_t)i * group] = 0;
}

void kv_pool_copy(const struct kv_pool *pool, uint32_t dst, uint32_t src, uint32_t part, uint32_t n_parts)
{
    const uint32_t n_heads = pool->n_layers * pool->n_kv_heads; /* of all layers */
    const size_t key_bytes = (size_t)pool->page_tokens * pool->d_head * sizeof(uint16_t);
    const size_t value_bytes = (size_t)pool->page_tokens * pool->d_padded * sizeof(uint16_t);
    const uint32_t last = (uint32_t)((uint64_t)n_heads * (part + 1) / n_parts);
    if (dst == src)
        return;
    for (uint32_t head = (uint32_t)((uint64_t)n_heads * part / n_parts); head < last; head++) {
        memcpy(kv_pool_keys(pool, dst, 0, 0, head), kv_pool_keys(pool, src, 0, 0, head), key_bytes);
        memcpy(kv_pool_values(pool, dst, 0, 0, head), kv_pool_values(pool, src, 0, 0, head), value_bytes);
    }
}

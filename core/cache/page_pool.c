#include "core/cache/page_pool.h"

#include <stdlib.h>

#include "core/base/panic.h"

struct page_state {
    uint32_t owners : 31;
    uint32_t cached : 1;
};

struct page_pool {
    struct page_state *pages; /* [n_pages] */
    uint32_t *free_stack;     /* [n_free] on top of it the page freed last, whose memory is likely still warm */
    uint32_t n_pages;
    uint32_t n_free;
    uint32_t n_unpinned;
    struct page_pool_watcher watcher;
};

struct page_pool *page_pool_create(uint32_t n_pages)
{
    struct page_pool *pool = calloc(1, sizeof *pool);
    if (!pool)
        return NULL;
    pool->pages = calloc(n_pages ? n_pages : 1, sizeof *pool->pages);
    pool->free_stack = calloc(n_pages ? n_pages : 1, sizeof *pool->free_stack);
    if (!pool->pages || !pool->free_stack) {
        page_pool_destroy(pool);
        return NULL;
    }
    pool->n_pages = n_pages;
    pool->n_free = n_pages;
    for (uint32_t i = 0; i < n_pages; i++)
        pool->free_stack[i] = n_pages - 1 - i;
    return pool;
}

void page_pool_destroy(struct page_pool *pool)
{
    if (!pool)
        return;
    free(pool->pages);
    free(pool->free_stack);
    free(pool);
}

uint32_t page_pool_alloc(struct page_pool *pool)
{
    if (pool->n_free == 0)
        return PAGE_NONE;
    uint32_t page = pool->free_stack[--pool->n_free];
    hs_assert(pool->pages[page].owners == 0);
    pool->pages[page].owners = 1;
    return page;
}

void page_pool_ref(struct page_pool *pool, uint32_t page)
{
    hs_assert(page < pool->n_pages);
    struct page_state *state = &pool->pages[page];
    hs_assert(state->owners > 0);
    state->owners++;
    if (state->cached && state->owners == 2) {
        pool->n_unpinned--;
        if (pool->watcher.pinned)
            pool->watcher.pinned(pool->watcher.self, page);
    }
}

void page_pool_unref(struct page_pool *pool, uint32_t page)
{
    hs_assert(page < pool->n_pages);
    struct page_state *state = &pool->pages[page];
    hs_assert(state->owners > (state->cached ? 1 : 0)); /* the cache unmarks before it lets go */
    state->owners--;
    if (state->owners == 0) {
        pool->free_stack[pool->n_free++] = page;
    } else if (state->cached && state->owners == 1) {
        pool->n_unpinned++;
        if (pool->watcher.unpinned)
            pool->watcher.unpinned(pool->watcher.self, page);
    }
}

uint32_t page_pool_owners(const struct page_pool *pool, uint32_t page)
{
    hs_assert(page < pool->n_pages);
    return pool->pages[page].owners;
}

uint32_t page_pool_free_pages(const struct page_pool *pool)
{
    return pool->n_free;
}

uint32_t page_pool_total_pages(const struct page_pool *pool)
{
    return pool->n_pages;
}

void page_pool_watch(struct page_pool *pool, const struct page_pool_watcher *watcher)
{
    pool->watcher = watcher ? *watcher : (struct page_pool_watcher){0};
}

void page_pool_set_cached(struct page_pool *pool, uint32_t page, bool cached)
{
    hs_assert(page < pool->n_pages);
    struct page_state *state = &pool->pages[page];
    hs_assert(state->owners > 0 && state->cached != cached);
    state->cached = cached;
    if (state->owners == 1)
        pool->n_unpinned += cached ? 1 : -1;
}

bool page_pool_is_cached(const struct page_pool *pool, uint32_t page)
{
    hs_assert(page < pool->n_pages);
    return pool->pages[page].cached;
}

uint32_t page_pool_unpinned_pages(const struct page_pool *pool)
{
    return pool->n_unpinned;
}

/*
 * Book-keeping of KV pages: which are free, and how many owners each has. The bytes are the backend's.
 *
 * A page has one owner for each sequence that reads it and one for the radix tree. It is writable only by a sequence that is its
 * sole owner; anyone else copies first (copy-on-write). Freed when the last owner lets go. No allocation after create.
 *
 * The cache marks the pages that it owns. Such a page is pinned while it has further owners; the pool counts the unpinned ones and
 * tells the cache of each change, so that eviction never has to look for pages that may go.
 * Threading: node loop only.
 */
#ifndef HEARSAY_CACHE_PAGE_POOL_H
#define HEARSAY_CACHE_PAGE_POOL_H

#include <stdbool.h>
#include <stdint.h>

struct page_pool;

enum { PAGE_NONE = UINT32_MAX };

/* NULL when out of memory. */
struct page_pool *page_pool_create(uint32_t n_pages);
void page_pool_destroy(struct page_pool *pool);
/* A free page with one owner, or PAGE_NONE. Lowest-number-first is not promised. */
uint32_t page_pool_alloc(struct page_pool *pool);
void page_pool_ref(struct page_pool *pool, uint32_t page);
void page_pool_unref(struct page_pool *pool, uint32_t page);
uint32_t page_pool_owners(const struct page_pool *pool, uint32_t page); /* 0: free */
uint32_t page_pool_free_pages(const struct page_pool *pool);
uint32_t page_pool_total_pages(const struct page_pool *pool);

/* What the radix tree needs; others need not call these. */

struct page_pool_watcher {
    void (*pinned)(void *self, uint32_t page);   /* a cached page got a second owner */
    void (*unpinned)(void *self, uint32_t page); /* the cache is its only owner again */
    void *self;
};

/* At most one watcher; NULL ends it. */
void page_pool_watch(struct page_pool *pool, const struct page_pool_watcher *watcher);
/* Marks or unmarks a page of which the cache has (had) one reference. The watcher is not called for the mark itself. */
void page_pool_set_cached(struct page_pool *pool, uint32_t page, bool cached);
bool page_pool_is_cached(const struct page_pool *pool, uint32_t page);
/* Cached pages without another owner. */
uint32_t page_pool_unpinned_pages(const struct page_pool *pool);

#endif

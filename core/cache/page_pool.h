/*
 * Book-keeping of KV pages: which are free, and how many owners each has. The bytes are the backend's.
 *
 * A page has one owner for each sequence that reads it and one for the radix tree. It is writable only by a sequence that is its sole
 * owner; anyone else copies first (copy-on-write). Freed when the last owner lets go. No allocation after create.
 * Threading: node loop only.
 */
#ifndef HEARSAY_CACHE_PAGE_POOL_H
#define HEARSAY_CACHE_PAGE_POOL_H

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

#endif

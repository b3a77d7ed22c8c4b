/*
 * How many KV pages a node holds.
 */
#ifndef HEARSAY_TOOLS_KV_SIZE_H
#define HEARSAY_TOOLS_KV_SIZE_H

#include <stdint.h>

#include "core/base/error.h"

struct kv_size_request {
    uint64_t pages;        /* as asked for, 0: not */
    uint64_t memory_bytes; /* as asked for, 0: not */
    uint64_t page_bytes;
    uint64_t useful_pages; /* what all sequences together can use */
    uint64_t free_bytes;   /* of the machine, at start; 0: not known */
};

/*
 * Pages to allocate: what was asked for, else a quarter of the free memory, at most the useful pages. HS_ERR_LIMIT when not even two
 * pages fit, or more was asked for than is free.
 */
int kv_size_pages(const struct kv_size_request *request, uint32_t *out, struct error *err);
/* MemAvailable of /proc/meminfo, 0 when unknown. */
uint64_t kv_size_free_memory(void);

#endif

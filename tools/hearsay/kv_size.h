/*
 * How many KV pages a node holds.
 */
#ifndef HEARSAY_TOOLS_KV_SIZE_H
#define HEARSAY_TOOLS_KV_SIZE_H

#include <stdint.h>

#include "core/base/error.h"
#include "core/port/model.h"

struct kv_size_request {
    uint64_t pages;        /* as asked for, 0: not */
    uint64_t memory_bytes; /* as asked for, 0: not */
    uint32_t page_tokens;
    uint32_t max_sequences;
    uint64_t free_bytes; /* of the machine, at start */
};

/* Bytes of one page: FP16 K and V of all layers. */
uint64_t kv_page_bytes(const struct model_desc *model, uint32_t page_tokens);
/*
 * Pages to allocate: what was asked for, else a quarter of the free memory, at most what max_sequences sequences of the model's full
 * context can use. HS_ERR_LIMIT when not even two pages fit.
 */
int kv_size_pages(const struct kv_size_request *request, const struct model_desc *model, uint32_t *out, struct error *err);
/* MemAvailable of /proc/meminfo, 0 when unknown. */
uint64_t kv_size_free_memory(void);

#endif

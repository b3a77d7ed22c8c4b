/*
 * How many KV pages a node holds.
 */
#ifndef HEARSAY_TOOLS_KV_SIZE_H
#define HEARSAY_TOOLS_KV_SIZE_H

#include <stdint.h>

#include "core/base/error.h"
#include "core/cpu/weight_form.h"
#include "core/port/model.h"
#include "tools/hearsay/free_memory.h"

struct kv_size_request {
    uint64_t pages;        /* as asked for, 0: not */
    uint64_t memory_bytes; /* as asked for, 0: not */
    uint64_t page_bytes;
    uint64_t useful_pages; /* what all sequences together can use */
    uint64_t weight_bytes; /* that will be taken besides */
    struct free_memory free;
};

struct kv_size {
    uint32_t pages;
    char why[sizeof(struct free_memory) + 128]; /* "as asked for", "a quarter of the 7900 MiB that the weights leave free on this machine" */
};

/*
 * Pages to allocate: what was asked for, else a quarter of the memory that is free beside the weights, at most the useful pages.
 * HS_ERR_LIMIT when that is less than two pages, or more than is free, or nothing was asked for and what is free is not known.
 */
int kv_size_choose(const struct kv_size_request *request, struct kv_size *out, struct error *err);
/* About what a model's matrices take. */
uint64_t kv_size_weight_bytes(const struct model_desc *model, enum weight_form form);

#endif

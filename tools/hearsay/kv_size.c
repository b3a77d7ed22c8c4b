#include "tools/hearsay/kv_size.h"

#include <stdbool.h>
#include <stdio.h>

enum { MIN_PAGES = 2, MAX_PAGES = 1 << 30 };

static unsigned long long mib(uint64_t bytes)
{
    return bytes >> 20;
}

static uint64_t min(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

int kv_size_choose(const struct kv_size_request *request, struct kv_size *out, struct error *err)
{
    const struct free_memory *memory = &request->free;
    const uint64_t page_bytes = request->page_bytes;
    const uint64_t left = memory->bytes > request->weight_bytes ? memory->bytes - request->weight_bytes : 0;
    const bool asked = request->pages || request->memory_bytes;
    uint64_t pages = request->pages ? request->pages : request->memory_bytes / page_bytes;
    struct kv_size size = {.why = "as asked for"};
    if (!asked && !memory->bytes)
        return error_set(err, HS_ERR_LIMIT, "how much memory is free cannot be read here (/proc/meminfo); give --kv-memory");
    if (!asked) {
        const uint64_t share = left / 4 / page_bytes;
        pages = min(share, request->useful_pages);
        snprintf(size.why, sizeof size.why, "%s %llu MiB that the weights leave free %s",
                 pages < share ? "all that can be used at once, of the" : "a quarter of the", mib(left), memory->under);
    }
    pages = min(pages, MAX_PAGES);
    const uint64_t wanted = pages < MIN_PAGES ? MIN_PAGES : pages;
    if (memory->bytes && wanted * page_bytes > left)
        return error_set(err, HS_ERR_LIMIT,
                         "%llu KV pages need %llu MiB, the weights about %llu MiB, and %llu MiB are free %s; give %s, or a smaller model",
                         (unsigned long long)wanted, mib(wanted * page_bytes), mib(request->weight_bytes),
                         mib(memory->bytes), memory->under, asked ? "a smaller --kv-memory or --kv-pages" : "more memory");
    if (pages < MIN_PAGES)
        return error_set(err, HS_ERR_LIMIT, "--kv-memory: room for %llu KV pages of %llu bytes; at least %d are needed",
                         (unsigned long long)pages, (unsigned long long)page_bytes, MIN_PAGES);
    size.pages = (uint32_t)pages;
    *out = size;
    return 0;
}

/* As integers, or in 16 bits. The embedding is read where it lies in the file. */
static uint64_t matrix_bytes(const struct tensor_view *t, enum weight_form form)
{
    const uint64_t wide = 2 * (uint64_t)t->rows * t->cols;
    const bool as_in_file = form == WEIGHT_FORM_NATIVE || (form == WEIGHT_FORM_AUTO && tensor_is_w4(t->type));
    return as_in_file ? min(t->bytes, wide) : wide;
}

uint64_t kv_size_weight_bytes(const struct model_desc *model, enum weight_form form)
{
    uint64_t bytes = matrix_bytes(&model->output, form);
    for (uint32_t i = 0; i < model->n_layers; i++) {
        const struct model_layer *l = &model->layers[i];
        const struct tensor_view *const matrices[] = {&l->wq, &l->wk, &l->wv, &l->wo, &l->w_gate, &l->w_up, &l->w_down};
        for (size_t j = 0; j < sizeof matrices / sizeof matrices[0]; j++)
            bytes += matrix_bytes(matrices[j], form);
    }
    return bytes;
}

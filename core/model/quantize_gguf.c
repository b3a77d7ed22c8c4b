/* The head of a GGUF file with quantised tensors: metadata byte for byte, tensors anew. */
#include <stdlib.h>
#include <string.h>

#include "core/base/codec.h"
#include "core/base/panic.h"
#include "core/model/gguf_internal.h"
#include "core/model/quantize_model.h"

enum { MAGIC = 0x46554747, HEAD_BYTES = 24, DEFAULT_ALIGNMENT = 32 };

static uint64_t align_up(uint64_t value, uint64_t alignment)
{
    return (value + alignment - 1) / alignment * alignment;
}

/* ggml's numbers of the types that are kept (gguf.c reads them). */
static uint32_t file_number(enum tensor_type type)
{
    static const uint8_t numbers[] = {[TENSOR_F32] = 0,  [TENSOR_F16] = 1,  [TENSOR_BF16] = 30, [TENSOR_Q8_0] = 8,
                                      [TENSOR_Q4_0] = 2, [TENSOR_Q4_1] = 3, [TENSOR_Q5_0] = 6,  [TENSOR_Q5_1] = 7,
                                      [TENSOR_Q4_K] = 12, [TENSOR_Q5_K] = 13, [TENSOR_Q6_K] = 14};
    if (type <= TENSOR_Q6_K)
        return numbers[type];
    return w4_file_number(type);
}

static void write_tensor_entry(struct writer *w, const struct quantize_tensor *t)
{
    write_u64(w, strlen(t->source.name));
    write_bytes(w, t->source.name, strlen(t->source.name));
    write_u32(w, t->n_dims);
    for (uint32_t d = 0; d < t->n_dims; d++)
        write_u64(w, t->dims[d]);
    write_u32(w, file_number(t->type));
    write_u64(w, t->offset);
}

int quantize_plan_gguf(struct quantize_plan *plan, struct error *err)
{
    const struct gguf *gguf = plan->model->gguf;
    const uint64_t alignment = gguf->alignment ? gguf->alignment : DEFAULT_ALIGNMENT;
    const size_t values_bytes = gguf->values_end - gguf->values_start;
    uint64_t bytes = HEAD_BYTES + values_bytes;
    struct writer w;
    plan->data_bytes = 0;
    for (uint32_t i = 0; i < plan->n; i++) {
        struct quantize_tensor *t = &plan->tensors[i];
        bytes += 8 + strlen(t->source.name) + 4 + 8 * (uint64_t)t->n_dims + 4 + 8;
        t->offset = align_up(plan->data_bytes, alignment);
        plan->data_bytes = t->offset + t->bytes;
    }
    plan->header_bytes = align_up(bytes, alignment);
    plan->header = calloc(1, plan->header_bytes);
    if (!plan->header)
        return error_set(err, HS_ERR_NO_MEMORY, "%s: out of memory", gguf->path);
    writer_init(&w, plan->header, plan->header_bytes);
    write_u32(&w, MAGIC);
    write_u32(&w, gguf->version);
    write_u64(&w, plan->n);
    write_u64(&w, gguf->n_values);
    write_bytes(&w, gguf->data + gguf->values_start, values_bytes);
    for (uint32_t i = 0; i < plan->n; i++)
        write_tensor_entry(&w, &plan->tensors[i]);
    hs_assert(!w.failed && w.len == bytes);
    return 0;
}

/* Allocates what a forward pass works in. */
#include <stdlib.h>

#include "core/cpu/forward.h"
#include "core/cpu/memory.h"

enum { PARTIAL_STATES = 1024, FLOATS_PER_LINE = 16 };

/* Takes n floats, rounded up to whole cache lines, from a block; with a NULL
 * block only counts. */
static float *take(float *block, size_t *used, size_t n)
{
    float *start = block ? block + *used : NULL;
    *used += (n + FLOATS_PER_LINE - 1) / FLOATS_PER_LINE * FLOATS_PER_LINE;
    return start;
}

static uint32_t larger(uint32_t a, uint32_t b)
{
    return a > b ? a : b;
}

/* Words of the most that a product's rows take as integers: three forms of what feeds q, k and v, or one of any other input. */
static size_t fixed_words(const struct forward *f, size_t rows)
{
    const struct model_desc *m = f->model;
    const uint32_t planes = f->kernels->input_planes, d_heads = m->n_heads * m->d_head;
    if (f->weights->n_quantised == 0)
        return 0;
    const uint32_t most = larger(cpu_fixed_words(WEIGHT_W8_G16, d_heads, planes), cpu_fixed_words(WEIGHT_W8_G16, m->d_ff, planes));
    return rows * larger(most, 3 * cpu_fixed_words(WEIGHT_W8_G16, m->d_model, planes));
}

static void place_scratch(const struct forward *f, struct worker_scratch *s, float *block, size_t *used)
{
    const struct model_desc *m = f->model;
    const size_t queries = f->kernels->tile_rows;
    s->rows = take(block, used, queries * larger(m->d_model, m->d_head));
    s->tile = take(block, used, queries * m->d_model);
    s->fixed = (int32_t *)take(block, used, fixed_words(f, FEW_FIXED_ROWS));
    s->shorts = (uint16_t *)take(block, used, larger(m->d_model, 2 * m->d_head) / 2 + 1);
    size_t most_inputs = larger(larger(2 * m->d_model, m->d_ff), m->n_heads * m->d_head);
    s->panels = take(block, used, f->kernels->widen_panels ? WIDENED_AT_ONCE * most_inputs * f->kernels->panel_width : 0);
    s->queries = take(block, used, queries * m->d_head);
    s->scores = take(block, used, queries * CPU_KV_SEGMENT);
    s->part.values = take(block, used, queries * f->kv->d_padded);
    s->total.values = take(block, used, queries * f->kv->d_padded);
}

/* Gives every float array its place in the block and returns the floats needed.
 */
static size_t place_all(struct forward *f, float *block)
{
    const struct model_desc *m = f->model;
    const size_t rows = f->max_rows;
    size_t used = 0;
    f->x = take(block, &used, rows * m->d_model);
    f->tiles = take(block, &used, larger(f->max_rows, OUTPUT_GROUP) * (size_t)larger(m->d_model, m->n_heads * m->d_head));
    f->tiles_ff = take(block, &used, rows * m->d_ff);
    f->fixed = (int32_t *)take(block, &used, fixed_words(f, larger(f->max_rows, OUTPUT_GROUP)));
    f->qkv = take(block, &used, rows * (m->n_heads + 2 * (size_t)m->n_kv_heads) * m->d_head);
    f->rotations = take(block, &used, rows * m->d_head);
    f->logits = take(block, &used, (size_t)OUTPUT_GROUP * m->n_vocab);
    for (uint32_t i = 0; i < f->n_workers; i++)
        place_scratch(f, &f->scratch[i], block, &used);
    for (uint32_t i = 0; i < f->n_partials; i++)
        f->partials[i].values = take(block, &used, (size_t)f->kernels->tile_rows * f->kv->d_padded);
    return used;
}

int forward_create(const struct model_desc *model, const struct weights *weights, const struct kv_pool *kv,
                   const struct cpu_kernels *kernels, uint32_t n_workers, uint32_t max_rows, uint32_t max_spans,
                   struct forward **out, struct error *err)
{
    struct forward *f = calloc(1, sizeof *f);
    if (!f)
        goto fail;
    f->model = model;
    f->weights = weights;
    f->kv = kv;
    f->kernels = kernels;
    f->n_workers = n_workers;
    f->max_rows = max_rows;
    f->max_spans = max_spans;
    f->n_partials = n_workers > 1 ? PARTIAL_STATES : 0;
    f->rows = calloc(max_rows, sizeof *f->rows);
    f->outputs = calloc(max_rows, sizeof *f->outputs);
    f->first_row = calloc(max_spans + (size_t)1, sizeof *f->first_row);
    f->first_index = calloc(max_spans, sizeof *f->first_index);
    f->first_block = calloc(max_spans + (size_t)1, sizeof *f->first_block);
    f->scratch = calloc(n_workers, sizeof *f->scratch);
    f->shares = aligned_alloc(_Alignof(struct work_share), n_workers * sizeof *f->shares);
    f->partials = calloc(PARTIAL_STATES, sizeof *f->partials);
    f->n_attended = calloc(PARTIAL_STATES, sizeof *f->n_attended);
    if (!f->rows || !f->outputs || !f->first_row || !f->first_index || !f->first_block || !f->scratch || !f->shares ||
        !f->partials || !f->n_attended)
        goto fail;
    f->memory_bytes = place_all(f, NULL) * sizeof(float);
    f->memory = memory_map(f->memory_bytes);
    if (!f->memory)
        goto fail;
    place_all(f, f->memory);
    for (uint32_t i = 0; i < n_workers; i++) {
        f->scratch[i].sample = sample_scratch_create(model->n_vocab);
        if (!f->scratch[i].sample)
            goto fail;
    }
    *out = f;
    return 0;
fail:
    forward_destroy(f);
    return error_set(err, HS_ERR_NO_MEMORY, "no memory for the activations of %u rows: use a smaller batch", max_rows);
}

void forward_destroy(struct forward *f)
{
    if (!f)
        return;
    for (uint32_t i = 0; f->scratch && i < f->n_workers; i++)
        sample_scratch_destroy(f->scratch[i].sample);
    memory_unmap(f->memory, f->memory_bytes);
    free(f->n_attended);
    free(f->partials);
    free(f->shares);
    free(f->scratch);
    free(f->first_block);
    free(f->first_index);
    free(f->first_row);
    free(f->outputs);
    free(f->rows);
    free(f);
}

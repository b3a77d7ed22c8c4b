#include "core/cpu/forward.h"

#include <string.h>

#include "core/base/panic.h"
#include "core/cpu/attention.h"
#include "core/cpu/half.h"
#include "core/cpu/rotary.h"

enum stage {
    STAGE_COPIES,
    STAGE_EMBED,
    STAGE_ATTN_NORM,
    STAGE_QKV,
    STAGE_ROTATE,
    STAGE_ATTEND,
    STAGE_ATTN_OUTPUT,
    STAGE_FFN_NORM,
    STAGE_GATE_UP,
    STAGE_DOWN,
    STAGE_OUTPUT_NORM,
    STAGE_LOGITS,
    STAGE_SAMPLE,
    STAGE_END,
};

enum {
    COPY_PARTS = 8,
    FEWEST_ROWS = 2, /* of a chunk */
};

/* ---- stages over rows ---- */

static void embed_row(struct forward *f, uint32_t worker, uint32_t row)
{
    const struct model_desc *m = f->model;
    const struct step_span *span = f->rows[row].span;
    uint32_t position = span->position + f->rows[row].index;
    float *x = f->x + (size_t)row * m->d_model;
    uint16_t *halves = f->scratch[worker].shorts;
    m->dequantize(&m->token_embedding, span->history[position], 1, x);
    /* Like every other matrix, the embedding counts as FP16; in BF16 only what is
     * multiplied is rounded. */
    if (m->token_embedding.type != TENSOR_BF16 && f->kernels->inputs_per_word == 1) {
        f->kernels->shorts_from_floats(x, halves, m->d_model);
        for (uint32_t i = 0; i < m->d_model; i++)
            x[i] = half_to_float(halves[i]);
    }
    rotary_table(m, position, f->rotations + (size_t)row * m->d_head);
}

static void rotate_row(struct forward *f, uint32_t worker, uint32_t row)
{
    const struct model_desc *m = f->model;
    float *q = f->qkv + (size_t)row * forward_qkv_size(f);
    for (uint32_t head = 0; head < m->n_heads; head++)
        forward_rotate_query(f, row, head, q + (size_t)head * m->d_head);
    for (uint32_t head = 0; head < m->n_kv_heads; head++)
        forward_store_key(f, worker, row, head);
}

static void sample_output(struct forward *f, uint32_t worker, uint32_t index)
{
    const struct output_row *output = &f->outputs[f->first_output + index];
    const struct step_span *span = f->rows[output->row].span;
    const float *logits = f->logits + (size_t)index * f->model->n_vocab;
    if (span->logits)
        memcpy(span->logits + (size_t)output->index * f->model->n_vocab, logits, f->model->n_vocab * sizeof *logits);
    sample_row(logits, f->model->n_vocab, span, output->index, &span->results[output->index], f->scratch[worker].sample);
}

static uint32_t group_outputs(const struct forward *f)
{
    uint32_t left = f->n_outputs - f->first_output;
    return left < OUTPUT_GROUP ? left : OUTPUT_GROUP;
}

/* ---- the stages as chunks ---- */

/* A tile each: two workers that write into one tile would take its cache lines from each other. Less where there are too few rows
 * for the workers; not single rows, which are done sooner than handed over. */
uint32_t forward_rows_per_chunk(const struct forward *f, uint32_t n_rows)
{
    uint32_t share = (n_rows + f->n_workers - 1) / f->n_workers, height = forward_tile_rows(f, n_rows);
    if (share < FEWEST_ROWS)
        return FEWEST_ROWS;
    return share < height ? share : height;
}

static uint32_t row_chunks(const struct forward *f, uint32_t n_rows)
{
    uint32_t rows = forward_rows_per_chunk(f, n_rows);
    return (n_rows + rows - 1) / rows;
}

/* Names the rows of a norm stage; 0 chunks if the workers normalise them as they come to the product. */
static uint32_t norm_chunks(struct forward *f, const float *weight, uint32_t n_rows)
{
    f->norm = (struct norm){.weight = weight, .n_rows = n_rows};
    if (f->stage == STAGE_OUTPUT_NORM)
        f->norm.outputs = f->outputs + f->first_output;
    f->norm.in_product = forward_norms_in_product(f, n_rows);
    return f->norm.in_product ? 0 : row_chunks(f, n_rows);
}

/* Prepares the current stage; returns its number of chunks, 0 if there is
 * nothing to do in it. */
static uint32_t begin_stage(struct forward *f)
{
    const struct layer_weights *layer = f->layer < f->model->n_layers ? &f->weights->layers[f->layer] : NULL;
    switch ((enum stage)f->stage) {
    case STAGE_COPIES:
        return f->n_copies > 0 ? COPY_PARTS : 0;
    case STAGE_EMBED:
        return row_chunks(f, f->n_rows);
    case STAGE_ROTATE:
        return f->rotates_late ? 0 : row_chunks(f, f->n_rows);
    case STAGE_ATTN_NORM:
        return norm_chunks(f, layer->attn_norm, f->n_rows);
    case STAGE_FFN_NORM:
        return norm_chunks(f, layer->ffn_norm, f->n_rows);
    case STAGE_QKV:
        return forward_start_product(f, f->tiles, f->n_rows, 3, (const struct packed_matrix *[]){&layer->q, &layer->k, &layer->v});
    case STAGE_ATTEND:
        return attention_start(f);
    case STAGE_ATTN_OUTPUT:
        return forward_start_product(f, f->tiles, f->n_rows, 1, (const struct packed_matrix *[]){&layer->o});
    case STAGE_GATE_UP:
        return forward_start_product(f, f->tiles, f->n_rows, 1, (const struct packed_matrix *[]){&layer->gate});
    case STAGE_DOWN:
        return forward_start_product(f, f->tiles_ff, f->n_rows, 1, (const struct packed_matrix *[]){&layer->down});
    case STAGE_OUTPUT_NORM:
        return norm_chunks(f, f->weights->output_norm, group_outputs(f));
    case STAGE_LOGITS:
        return forward_start_product(f, f->tiles, group_outputs(f), 1, (const struct packed_matrix *[]){&f->weights->output});
    case STAGE_SAMPLE:
        return group_outputs(f);
    case STAGE_END:
        break;
    }
    return 0;
}

/* Leaves only the rows that want a result: those that end their spans. */
static void keep_output_rows(struct forward *f)
{
    const size_t d_model = f->model->d_model, d_qkv = forward_qkv_size(f);
    if (f->n_outputs == f->n_rows)
        return;
    for (uint32_t i = 0; i < f->n_outputs; i++) {
        uint32_t from = f->outputs[i].row; /* never below i */
        memmove(f->x + i * d_model, f->x + from * d_model, d_model * sizeof *f->x);
        memmove(f->qkv + i * d_qkv, f->qkv + from * d_qkv, d_qkv * sizeof *f->qkv);
        f->rows[i] = f->rows[from];
        f->outputs[i].row = i;
    }
    f->n_rows = 0;
    for (uint32_t s = 0; s < f->step->n_spans; s++) {
        f->first_row[s] = f->n_rows;
        f->first_index[s] = f->step->spans[s].n_tokens - f->step->spans[s].n_outputs;
        f->n_rows += f->step->spans[s].n_outputs;
    }
    f->first_row[f->step->n_spans] = f->n_rows;
    attention_plan(f);
}

/* Steps to the stage that follows the current one. */
static void next_stage(struct forward *f)
{
    switch ((enum stage)f->stage) {
    case STAGE_COPIES:
        f->n_copies = 0;
        f->stage = STAGE_EMBED;
        return;
    case STAGE_ROTATE:
        f->stage = STAGE_ATTEND;
        if (f->layer + 1 == f->model->n_layers) {
            keep_output_rows(f);
            f->stage = f->n_rows > 0 ? STAGE_ATTEND : STAGE_END;
        }
        return;
    case STAGE_DOWN:
        f->layer++;
        f->stage = f->layer < f->model->n_layers ? STAGE_ATTN_NORM : STAGE_OUTPUT_NORM;
        return;
    case STAGE_SAMPLE:
        f->first_output += group_outputs(f);
        f->stage = f->first_output < f->n_outputs ? STAGE_OUTPUT_NORM : STAGE_END;
        return;
    default:
        f->stage++;
    }
}

/* The stages whose chunks are rows. */
static void run_rows(struct forward *f, uint32_t worker, uint32_t chunk)
{
    uint32_t n_rows = f->stage == STAGE_OUTPUT_NORM ? group_outputs(f) : f->n_rows;
    uint32_t rows = forward_rows_per_chunk(f, n_rows), first = chunk * rows, last = first + rows < n_rows ? first + rows : n_rows;
    switch ((enum stage)f->stage) {
    case STAGE_EMBED:
        for (uint32_t row = first; row < last; row++)
            embed_row(f, worker, row);
        break;
    case STAGE_ROTATE:
        for (uint32_t row = first; row < last; row++)
            rotate_row(f, worker, row);
        break;
    default:
        forward_norm(f, worker, first, last);
    }
}

void forward_run(struct forward *f, uint32_t worker, uint32_t chunk)
{
    if (f->product.fixing) {
        forward_fix_inputs(f, chunk);
        return;
    }
    switch ((enum stage)f->stage) {
    case STAGE_COPIES: /* each part goes through all copies in order, so that a
                          copy of a copy is right */
        for (uint32_t i = 0; i < f->n_copies; i++)
            kv_pool_copy(f->kv, f->copies[i].dst, f->copies[i].src, chunk, COPY_PARTS);
        return;
    case STAGE_QKV:
        forward_qkv(f, worker);
        return;
    case STAGE_ATTEND:
        attention_run(f, worker);
        return;
    case STAGE_ATTN_OUTPUT:
    case STAGE_DOWN:
        forward_add_product(f, worker);
        return;
    case STAGE_GATE_UP:
        forward_gate_up(f, worker);
        return;
    case STAGE_LOGITS:
        forward_logits(f, worker);
        return;
    case STAGE_SAMPLE:
        sample_output(f, worker, chunk);
        return;
    default:
        run_rows(f, worker, chunk);
    }
}

uint32_t forward_advance(struct forward *f, uint32_t worker)
{
    for (;;) {
        uint32_t chunks;
        if (f->product.fixing) {
            f->product.fixing = false;
            chunks = f->n_workers;
        } else {
            next_stage(f);
            if (f->stage == STAGE_END)
                return 0;
            chunks = begin_stage(f);
        }
        if (chunks > 1)
            return chunks;
        if (chunks == 1)
            forward_run(f, worker, 0);
    }
}

uint32_t forward_begin(struct forward *f, const struct step *step)
{
    f->step = step;
    f->n_rows = f->n_outputs = 0;
    f->layer = f->first_output = 0;
    for (uint32_t s = 0; s < step->n_spans; s++) {
        const struct step_span *span = &step->spans[s];
        f->first_row[s] = f->n_rows;
        f->first_index[s] = 0;
        for (uint32_t i = 0; i < span->n_tokens; i++) {
            uint32_t before_outputs = span->n_tokens - span->n_outputs;
            if (i >= before_outputs)
                f->outputs[f->n_outputs++] = (struct output_row){.row = f->n_rows, .index = i - before_outputs};
            f->rows[f->n_rows++] = (struct step_row){.span = span, .index = i};
        }
    }
    f->first_row[step->n_spans] = f->n_rows;
    attention_plan(f);
    f->rotates_late = attention_may_rotate(f);
    f->stage = STAGE_COPIES;
    uint32_t chunks = begin_stage(f);
    if (chunks > 0)
        return chunks;
    next_stage(f);
    return begin_stage(f);
}

/*
 * One forward pass: the stages of a step, and the memory they work in.
 *
 *     copies, embed, [ norm, qkv, rotate, attend, (merge), output product, norm, gate/up, down ] x n_layers,
 *     [ output norm, logits, sample ] for every OUTPUT_GROUP rows that want a result
 *
 * After the last layer's keys and values are stored, only rows that want a result go on.
 *
 * A stage is cut into chunks by outputs or by rows, never along a sum, so no cut can change a bit. Activations between stages
 * are float; what feeds a product lies in row tiles (kernels.h). All memory is allocated by forward_create.
 *
 * Threading: forward_begin by the submitting thread; forward_run and forward_advance by the workers as worker_pool.h says.
 */
#ifndef HEARSAY_CPU_FORWARD_H
#define HEARSAY_CPU_FORWARD_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "core/base/error.h"
#include "core/cpu/kernels.h"
#include "core/cpu/kv_pool.h"
#include "core/cpu/sample.h"
#include "core/cpu/weights.h"
#include "core/port/backend.h"
#include "core/port/model.h"

enum {
    WIDENED_AT_ONCE = 2,       /* panels of a matrix made floats at a time */
    OUTPUT_GROUP = 48,         /* rows whose logits are held at a time */
    MAX_PENDING_COPIES = 1024, /* of pages, between two steps */
};

struct page_copy {
    uint32_t dst, src;
};

struct step_row {
    const struct step_span *span;
    uint32_t index; /* in its span */
};

struct output_row {
    uint32_t row;   /* among the forward's rows */
    uint32_t index; /* in its span's results */
};

struct worker_scratch {
    uint16_t *shorts; /* [max(d_model, 2 * d_head)] */
    float *rows;      /* [tile_rows][d_model] */
    float *tile;      /* rows that this worker has normalised for the product under way, if own_tile is its serial */
    uint64_t own_tile;
    _Atomic uint32_t next_chunk; /* of those of the product under way that are this worker's */
    float *panels;    /* WIDENED_AT_ONCE panels each of gate and up, or of what has the most inputs, as floats; NULL if kernels
                         widen none */
    float *queries;   /* words [d_head][queries] */
    float *scores;    /* [queries][CPU_KV_SEGMENT] */
    struct attention_state part, total;
    struct sample_scratch *sample;
};

/* The last norm stage. */
struct norm {
    const float *weight;
    const struct output_row *outputs; /* its rows, or NULL: those of the step */
    uint32_t n_rows;
    bool in_product; /* not yet done, but left to the next product */
};

/* The rows as integers for weights of a type (kernels_fixed.h). */
struct fixed_tiles {
    enum weight_type type;
    int32_t *tiles;
};

/* A product under way: panels of up to three matrices over the same rows, numbered through. */
struct product {
    uint64_t serial;
    const struct packed_matrix *parts[3];
    uint32_t n_parts;
    uint32_t n_panels;
    uint32_t panels_per_chunk, n_chunks;
    uint32_t n_rows;
    struct fixed_tiles fixed[3]; /* one for each quantised type among the parts */
    uint32_t n_fixed;
    bool fixing;        /* the rows are being made integers; the product itself comes next */
    const float *tiles; /* words (kernels.h) */
    bool norms;         /* instead of tiles each worker takes the rows of the last norm stage, which it normalises for itself */
};

struct forward {
    const struct model_desc *model;
    const struct cpu_kernels *kernels;
    const struct weights *weights;
    const struct kv_pool *kv;
    uint32_t n_workers, max_rows, max_spans;

    float *x;                         /* [max_rows][d_model], the residual stream */
    float *tiles;                     /* row tiles of max(d_model, n_heads * d_head) inputs, in words (kernels.h) */
    float *tiles_ff;                  /* row tiles of d_ff inputs */
    int32_t *fixed;                   /* what product.fixed points at */
    float *qkv;                       /* [max_rows][(n_heads + 2 n_kv_heads) * d_head] */
    float *rotations;                 /* [max_rows][d_head] */
    float *logits;                    /* [OUTPUT_GROUP][n_vocab] */
    struct step_row *rows;            /* [max_rows] */
    struct output_row *outputs;       /* [max_rows] */
    uint32_t *first_row;              /* [max_spans + 1], of span s among the rows */
    uint32_t *first_index;            /* [max_spans] index in span s of its first row that is still wanted */
    uint32_t *first_task;             /* [max_spans + 1], of span s in attention */
    struct worker_scratch *scratch;   /* [n_workers] */
    struct attention_state *partials; /* [n_partials] */
    uint32_t n_partials;
    float *memory; /* behind the float arrays above */
    size_t memory_bytes;
    struct page_copy copies[MAX_PENDING_COPIES];
    uint32_t n_copies;

    /* The step under way. */
    const struct step *step;
    uint32_t n_rows, n_outputs;
    uint32_t n_segments;         /* of attention: 1, or more when tasks are split along the keys */
    uint32_t n_split_chunks;     /* then: even runs of segments, of one task after the other */
    int stage;           /* enum stage of forward.c */
    uint32_t layer, first_output;
    struct norm norm;
    struct product product;
};

/* 0 or HS_ERR_NO_MEMORY. What it is given must outlive it. */
int forward_create(const struct model_desc *model, const struct weights *weights, const struct kv_pool *kv,
                   const struct cpu_kernels *kernels, uint32_t n_workers, uint32_t max_rows, uint32_t max_spans,
                   struct forward **out, struct error *err);
void forward_destroy(struct forward *forward);

/* Takes a checked step; returns the number of chunks of its first stage. */
uint32_t forward_begin(struct forward *forward, const struct step *step);
void forward_run(struct forward *forward, uint32_t worker, uint32_t chunk);
/* Whether little is left of the step when this chunk of the current stage is taken: 0.2 ms with a model of 135M parameters. */
bool forward_ends_soon(const struct forward *forward, uint32_t chunk);
uint32_t forward_advance(struct forward *forward, uint32_t worker); /* chunks of the next stage; 0: the step is done */

/* forward_norms.c: normalises rows first .. last-1 of the norm stage into tiles. */
void forward_norm(struct forward *forward, uint32_t worker, uint32_t first, uint32_t last);
/* True if rows are better normalised by each worker for itself. */
bool forward_norms_in_product(const struct forward *forward, uint32_t n_rows);
/* The product's tiles as this worker reads them, normalised if that is left to it. */
const float *forward_product_tiles(struct forward *forward, uint32_t worker);

/*
 * forward_fixed.c: what comes before a product with integer weights. Plans it for the product under way and returns its chunks, 0 if the
 * product has no such weights; then runs one.
 */
uint32_t forward_start_fixing(struct forward *forward);
void forward_fix_inputs(struct forward *forward, uint32_t chunk);
/* The rows from `row` on, the first of a tile, as integers for weights of this type; NULL if they are no integers. */
const int32_t *forward_fixed_tile(const struct forward *forward, enum weight_type type, uint32_t row);

/*
 * forward_products.c: makes a product over all rows of tiles the one under way and returns its chunks; then runs one, of its own
 * choice. The outputs go to qkv, are added to x, are the output group's logits, or become tiles_ff.
 */
uint32_t forward_start_product(struct forward *forward, const float *tiles, uint32_t n_rows, uint32_t n_parts,
                               const struct packed_matrix *const *parts);
void forward_qkv(struct forward *forward, uint32_t worker);
void forward_add_product(struct forward *forward, uint32_t worker);
void forward_logits(struct forward *forward, uint32_t worker);
void forward_gate_up(struct forward *forward, uint32_t worker);

/* attention.c: plans the step's tasks, then runs them. */
void attention_plan(struct forward *forward);
uint32_t attention_chunks(const struct forward *forward);
uint32_t attention_merge_chunks(const struct forward *forward); /* 0: nothing was split */
void attention_run(struct forward *forward, uint32_t worker, uint32_t chunk);
void attention_merge(struct forward *forward, uint32_t worker, uint32_t chunk);

/* Values of a row of qkv. */
static inline uint32_t forward_qkv_size(const struct forward *f)
{
    return (f->model->n_heads + 2 * f->model->n_kv_heads) * f->model->d_head;
}

/* Rows of a tile, but for the last, when there are n_rows: as few tiles as can be, of about the same height. */
static inline uint32_t forward_tile_rows(const struct forward *f, uint32_t n_rows)
{
    uint32_t n_tiles = (n_rows + f->kernels->tile_rows - 1) / f->kernels->tile_rows;
    return (n_rows + n_tiles - 1) / n_tiles;
}

/* Where row `row` begins in tiles of n_inputs inputs over n_rows rows, in words; words of one row are *stride apart. */
static inline size_t forward_tile_offset(const struct forward *f, uint32_t n_rows, uint32_t n_inputs, uint32_t row,
                                         uint32_t *stride)
{
    uint32_t tile_rows = forward_tile_rows(f, n_rows), first = row / tile_rows * tile_rows;
    *stride = n_rows - first < tile_rows ? n_rows - first : tile_rows;
    return (size_t)first * (n_inputs / f->kernels->inputs_per_word) + (row - first);
}

#endif

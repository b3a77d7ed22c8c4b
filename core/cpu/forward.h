/*
 * One forward pass: the stages of a step, and the memory they work in.
 *
 *     copies, embed, [ norm, qkv, (rotate), attend, output product, norm, gate/up, down ] x n_layers,
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

#include <stdbool.h>
#include <stdint.h>

#include "core/base/error.h"
#include "core/cpu/kernels.h"
#include "core/cpu/kv_pool.h"
#include "core/cpu/product.h"
#include "core/cpu/sample.h"
#include "core/cpu/weights.h"
#include "core/cpu/work_share.h"
#include "core/cpu/worker_scratch.h"
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

/* Who wants to know a moment before a step ends: soon is called by any worker, more than once. A clock that always says 0 is none. */
struct end_watch {
    uint64_t (*now_ns)(void *arg);
    void (*soon)(void *arg);
    void *arg;
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
    uint32_t *first_block;            /* [max_spans + 1], of span s in attention */
    struct worker_scratch *scratch;   /* [n_workers] */
    struct work_share *shares;        /* [n_workers] of the product or attention under way */
    struct attention_state *partials; /* [n_partials] */
    _Atomic uint32_t *n_attended;     /* [n_partials] segments of each task, when tasks are split */
    uint32_t n_partials;
    float *memory; /* behind the float arrays above */
    size_t memory_bytes;
    struct page_copy copies[MAX_PENDING_COPIES];
    uint32_t n_copies;

    /* The step under way. */
    const struct step *step;
    uint32_t n_rows, n_outputs;
    uint32_t n_segments;  /* of attention: 1, or more when tasks are split along the keys */
    bool rotates_late;    /* what attends to a head rotates it first; there is no stage for it */
    int stage;            /* enum stage of forward.c */
    uint32_t layer, first_output;
    struct norm norm;
    struct product product;
    struct end_watch watch; /* set by the owner */
};

/* 0 or HS_ERR_NO_MEMORY. What it is given must outlive it. */
int forward_create(const struct model_desc *model, const struct weights *weights, const struct kv_pool *kv,
                   const struct cpu_kernels *kernels, uint32_t n_workers, uint32_t max_rows, uint32_t max_spans,
                   struct forward **out, struct error *err);
void forward_destroy(struct forward *forward);

/* Takes a checked step; returns the number of chunks of its first stage. */
uint32_t forward_begin(struct forward *forward, const struct step *step);
void forward_run(struct forward *forward, uint32_t worker, uint32_t chunk);
uint32_t forward_advance(struct forward *forward, uint32_t worker); /* chunks of the next stage; 0: the step is done */
/* Of stages whose chunks are rows, or rows of tiles. */
uint32_t forward_rows_per_chunk(const struct forward *forward, uint32_t n_rows);

/* forward_norms.c: normalises rows first .. last-1 of the norm stage into tiles. */
void forward_norm(struct forward *forward, uint32_t worker, uint32_t first, uint32_t last);
/* True if rows are better normalised by each worker for itself. Of integer weights: and made integers as well. */
bool forward_norms_in_product(const struct forward *forward, uint32_t n_rows);
/* The product's rows as this worker reads them, after it has done what is left to it. */
struct product_rows forward_product_rows(struct forward *forward, uint32_t worker);

/* forward_rotate.c: a head of q of one row, normalised and rotated; out may be where it lies. */
void forward_rotate_query(const struct forward *forward, uint32_t row, uint32_t head, float *out);
/* Finishes a head of k and stores it with that of v in the row's page. */
void forward_store_key(const struct forward *forward, uint32_t worker, uint32_t row, uint32_t kv_head);

/* forward_fixed.c: what comes before a product with integer weights. Plans it for the product under way and returns its chunks, 0 if
 * the product has no such weights or each worker does it for itself; then runs one. */
uint32_t forward_start_fixing(struct forward *forward);
void forward_fix_inputs(struct forward *forward, uint32_t chunk);
/* Where all rows are integers, or this worker's own of the tiles, the only ones; NULL without integer weights. */
const int32_t *forward_fixed_rows(struct forward *forward, uint32_t worker, const float *tiles);
/* Of those, the rows from `row` on, the first of a tile, for weights of this type; NULL if it has no integers. */
const int32_t *forward_fixed_tile(const struct forward *forward, const int32_t *fixed, enum weight_type type, uint32_t row);

/*
 * forward_products.c: makes a product over all rows of tiles the one under way and returns its chunks: one for each worker, which
 * multiplies until nothing is left. The outputs go to qkv, are added to x, are the output group's logits, or become tiles_ff.
 */
uint32_t forward_start_product(struct forward *forward, const float *tiles, uint32_t n_rows, uint32_t n_parts,
                               const struct packed_matrix *const *parts);
void forward_qkv(struct forward *forward, uint32_t worker);
void forward_add_product(struct forward *forward, uint32_t worker);
void forward_logits(struct forward *forward, uint32_t worker);
void forward_gate_up(struct forward *forward, uint32_t worker);
/* For worker_pool_while_waiting; arg is the forward. */
void forward_wait(void *arg, uint32_t worker);
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

/*
 * Root mean square norms of whole rows, written as the tiles that a product reads. A tile of few rows is normalised by every worker
 * for itself when it comes to the product: that takes about as long as to fetch a tile that another has written, and saves
 * a stage of its own with its hand-over. The operations are the same, and so are the bits.
 */
#include "core/cpu/forward.h"

/* Rows first .. last-1, all of one tile that starts at `out` and has `stride` rows. */
static void norm_into_tile(const struct forward *f, struct worker_scratch *scratch, uint32_t first, uint32_t last, float *out,
                           uint32_t stride)
{
    const struct norm *norm = &f->norm;
    const size_t d_model = f->model->d_model;
    const float *rows[CPU_MAX_TILE_ROWS];
    for (uint32_t row = first; row < last; row++) {
        const float *from = f->x + (norm->outputs ? norm->outputs[row].row : row) * d_model;
        float *scaled = scratch->rows + (row - first) * d_model;
        f->kernels->normalize(from, norm->weight, f->model->d_model, f->model->rms_epsilon, scaled);
        rows[row - first] = scaled;
    }
    f->kernels->pack_rows(rows, last - first, f->model->d_model, out, stride);
}

void forward_norm(struct forward *f, uint32_t worker, uint32_t first, uint32_t last)
{
    const uint32_t n_rows = f->norm.n_rows, tile_rows = forward_tile_rows(f, n_rows);
    for (uint32_t end, stride; first < last; first = end) { /* tile by tile */
        float *out = f->tiles + forward_tile_offset(f, n_rows, f->model->d_model, first, &stride);
        end = (first / tile_rows + 1) * tile_rows;
        end = end < last ? end : last;
        norm_into_tile(f, &f->scratch[worker], first, end, out, stride);
    }
}

/* More rows that become integers (forward_fixed.c) are wanted in one place. */
bool forward_norms_in_product(const struct forward *f, uint32_t n_rows)
{
    return n_rows <= (f->weights->n_quantised > 0 ? (uint32_t)FEW_FIXED_ROWS : f->kernels->tile_rows);
}

struct product_rows forward_product_rows(struct forward *f, uint32_t worker)
{
    struct worker_scratch *scratch = &f->scratch[worker];
    struct product_rows rows = {.tiles = f->product.tiles};
    if (f->product.norms) {
        norm_into_tile(f, scratch, 0, f->norm.n_rows, scratch->tile, f->norm.n_rows);
        rows.tiles = scratch->tile;
    }
    rows.fixed = forward_fixed_rows(f, worker, rows.tiles);
    return rows;
}

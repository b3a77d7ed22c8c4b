/* The products of a forward pass: rows in tiles with panels of weights, cut into chunks by outputs. */
#include <string.h>

#include "core/cpu/forward.h"

enum {
    CHUNKS_PER_WORKER = 4,       /* of a product: enough to even out, few enough to stay cheap */
    RESIDENT_BYTES = 384 * 1024, /* panels that should stay in a core's cache while many rows pass */
    WIDEN_TILES = 4,             /* of rows from which on panels are made floats first: once per panel, not once per tile */
};

/* Receives values of outputs first .. first+n-1 of one row. */
typedef void emit_fn(struct forward *f, const struct packed_matrix *matrix, uint32_t row, uint32_t first, uint32_t n,
                     const float *values);

uint32_t forward_start_product(struct forward *f, const float *tiles, uint32_t n_rows, uint32_t n_parts,
                               const struct packed_matrix *const *parts)
{
    struct product *p = &f->product;
    *p = (struct product){.n_parts = n_parts, .n_rows = n_rows, .tiles = tiles};
    for (uint32_t i = 0; i < n_parts; i++) {
        p->parts[i] = parts[i];
        p->n_panels += parts[i]->n_panels;
    }
    uint32_t wanted = CHUNKS_PER_WORKER * f->n_workers;
    p->panels_per_chunk = (p->n_panels + wanted - 1) / wanted;
    if (n_rows > f->kernels->tile_rows) {
        size_t panel_bytes = (size_t)parts[0]->n_inputs * f->kernels->panel_width * sizeof(uint16_t);
        uint32_t resident = (uint32_t)(RESIDENT_BYTES / panel_bytes) + 1;
        p->panels_per_chunk = p->panels_per_chunk < resident ? p->panels_per_chunk : resident;
    }
    return (p->n_panels + p->panels_per_chunk - 1) / p->panels_per_chunk;
}

/* Consecutive panels of a matrix as matmul takes them. */
struct panel_block {
    const char *panels;
    size_t panel_bytes;
    enum weight_type type;
    uint32_t first, n; /* number of the first in its matrix */
};

/* Many rows: a panel is made floats once and stays in a core's cache while all
 * tiles of rows pass. The values are the same. */
static bool widens(const struct forward *f)
{
    return f->kernels->widen_panels && f->product.n_rows >= WIDEN_TILES * f->kernels->tile_rows;
}

/* Panels from `first` on: as many as go at once, at most n; memory is for one
 * widened panel. */
static struct panel_block take_panels(const struct forward *f, const struct packed_matrix *matrix, uint32_t first, uint32_t n,
                                      float *memory)
{
    const size_t values = (size_t)matrix->n_inputs * f->kernels->panel_width;
    const uint16_t *panels = matrix->panels + first * values;
    if (!widens(f))
        return (struct panel_block){(const char *)panels, values * sizeof *panels, matrix->type, first, n};
    f->kernels->widen_panels(panels, matrix->type, values, memory);
    return (struct panel_block){(const char *)memory, values * sizeof *memory, WEIGHT_F32, first, 1};
}

/* A block with all rows: tile by tile, so that the panels stay in cache from
 * tile to tile. */
static void run_block(struct forward *f, const struct packed_matrix *matrix, const struct panel_block *block, emit_fn *emit)
{
    const struct cpu_kernels *k = f->kernels;
    const struct product *p = &f->product;
    _Alignas(64) float out[CPU_MAX_PANELS_AT_ONCE * CPU_MAX_TILE_ROWS * CPU_MAX_PANEL_WIDTH];
    for (uint32_t row = 0; row < p->n_rows; row += k->tile_rows) {
        uint32_t rows = p->n_rows - row < k->tile_rows ? p->n_rows - row : k->tile_rows;
        const float *x = p->tiles + (size_t)row * (matrix->n_inputs / k->inputs_per_word);
        for (uint32_t panel = 0, n; panel < block->n; panel += n) {
            n = block->n - panel < CPU_MAX_PANELS_AT_ONCE ? block->n - panel : CPU_MAX_PANELS_AT_ONCE;
            k->matmul(block->panels + panel * block->panel_bytes, block->type, matrix->n_inputs, n, x, rows, out);
            for (uint32_t i = 0; i < n; i++) {
                uint32_t output = (block->first + panel + i) * k->panel_width;
                uint32_t count = matrix->n_outputs - output < k->panel_width ? matrix->n_outputs - output : k->panel_width;
                for (uint32_t r = 0; r < rows; r++)
                    emit(f, matrix, row + r, output, count, out + ((size_t)i * rows + r) * k->panel_width);
            }
        }
    }
}

static void run_product(struct forward *f, uint32_t worker, uint32_t chunk, emit_fn *emit)
{
    const struct product *p = &f->product;
    uint32_t first = chunk * p->panels_per_chunk, last = first + p->panels_per_chunk, base = 0;
    for (uint32_t i = 0; i < p->n_parts && base < last; i++) {
        uint32_t end = base + p->parts[i]->n_panels, to = last < end ? last : end;
        for (uint32_t panel = first > base ? first : base; panel < to;) {
            struct panel_block block = take_panels(f, p->parts[i], panel - base, to - panel, f->scratch[worker].panels);
            run_block(f, p->parts[i], &block, emit);
            panel += block.n;
        }
        base = end;
    }
}

static void emit_qkv(struct forward *f, const struct packed_matrix *matrix, uint32_t row, uint32_t first, uint32_t n,
                     const float *values)
{
    const struct layer_weights *layer = &f->weights->layers[f->layer];
    uint32_t base = 0;
    if (matrix != &layer->q)
        base = layer->q.n_outputs + (matrix == &layer->v ? layer->k.n_outputs : 0);
    float *out = f->qkv + (size_t)row * forward_qkv_size(f) + base + first;
    for (uint32_t i = 0; i < n; i++)
        out[i] = matrix->bias ? values[i] + matrix->bias[first + i] : values[i];
}

static void emit_residual(struct forward *f, const struct packed_matrix *matrix, uint32_t row, uint32_t first, uint32_t n,
                          const float *values)
{
    float *out = f->x + (size_t)row * f->model->d_model + first;
    for (uint32_t i = 0; i < n; i++)
        out[i] += values[i];
}

static void emit_logits(struct forward *f, const struct packed_matrix *matrix, uint32_t row, uint32_t first, uint32_t n,
                        const float *values)
{
    memcpy(f->logits + (size_t)row * f->model->n_vocab + first, values, n * sizeof *values);
}

/* The same panels of gate and up with one tile of rows, multiplied together at
 * once: their outputs never leave the cache. */
static void gate_up_tile(struct forward *f, const struct panel_block *gates, const struct panel_block *ups, uint32_t panel,
                         uint32_t n_panels, uint32_t row, uint32_t rows)
{
    const struct cpu_kernels *k = f->kernels;
    const uint32_t n_inputs = f->model->d_model, d_ff = f->model->d_ff;
    const float *x = f->product.tiles + (size_t)row * (n_inputs / k->inputs_per_word);
    float *out = f->tiles_ff + (size_t)row * (d_ff / k->inputs_per_word);
    _Alignas(64) float gate[CPU_MAX_PANELS_AT_ONCE * CPU_MAX_TILE_ROWS * CPU_MAX_PANEL_WIDTH];
    _Alignas(64) float up[CPU_MAX_PANELS_AT_ONCE * CPU_MAX_TILE_ROWS * CPU_MAX_PANEL_WIDTH];
    k->matmul(gates->panels + panel * gates->panel_bytes, gates->type, n_inputs, n_panels, x, rows, gate);
    k->matmul(ups->panels + panel * ups->panel_bytes, ups->type, n_inputs, n_panels, x, rows, up);
    k->silu_multiply(gate, up, gate, n_panels * rows * k->panel_width);
    for (uint32_t p = 0; p < n_panels; p++) {
        uint32_t first = (gates->first + panel + p) * k->panel_width;
        uint32_t count = d_ff - first < k->panel_width ? d_ff - first : k->panel_width;
        const float *values = gate + (size_t)p * rows * k->panel_width;
        for (uint32_t r = 0; r < rows; r++)
            k->pack_inputs(values + (size_t)r * k->panel_width, count, out + (size_t)(first / k->inputs_per_word) * rows + r, rows);
    }
}

void forward_gate_up(struct forward *f, uint32_t worker, uint32_t chunk)
{
    const struct layer_weights *layer = &f->weights->layers[f->layer];
    const struct product *p = &f->product;
    const uint32_t tile_rows = f->kernels->tile_rows;
    float *memory = f->scratch[worker].panels;
    uint32_t at = chunk * p->panels_per_chunk;
    uint32_t last = at + p->panels_per_chunk < p->n_panels ? at + p->panels_per_chunk : p->n_panels;
    for (struct panel_block gates, ups; at < last; at += gates.n) {
        gates = take_panels(f, &layer->gate, at, last - at, memory);
        ups = take_panels(f, &layer->up, at, last - at, memory + (size_t)layer->gate.n_inputs * f->kernels->panel_width);
        for (uint32_t row = 0; row < p->n_rows; row += tile_rows) {
            uint32_t rows = p->n_rows - row < tile_rows ? p->n_rows - row : tile_rows;
            for (uint32_t panel = 0, n; panel < gates.n; panel += n) {
                n = gates.n - panel < CPU_MAX_PANELS_AT_ONCE ? gates.n - panel : CPU_MAX_PANELS_AT_ONCE;
                gate_up_tile(f, &gates, &ups, panel, n, row, rows);
            }
        }
    }
}

void forward_qkv(struct forward *f, uint32_t worker, uint32_t chunk)
{
    run_product(f, worker, chunk, emit_qkv);
}

void forward_add_product(struct forward *f, uint32_t worker, uint32_t chunk)
{
    run_product(f, worker, chunk, emit_residual);
}

void forward_logits(struct forward *f, uint32_t worker, uint32_t chunk)
{
    run_product(f, worker, chunk, emit_logits);
}

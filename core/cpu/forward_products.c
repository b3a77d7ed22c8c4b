/*
 * The products of a forward pass: rows in tiles with panels of weights, cut into chunks by outputs. While a worker multiplies
 * some panels, those that it will probably take next are on their way into its cache.
 */
#include "core/base/panic.h"
#include "core/cpu/forward.h"
#include "core/cpu/placement.h"

enum {
    RESIDENT_BYTES = 384 * 1024, /* panels that should stay in a core's cache while many rows pass */
    WIDEN_TILES = 4,             /* of rows from which on panels are made floats first: once per panels, not once per tile */
    BLOCK_FLOATS = CPU_MAX_PANELS_AT_ONCE * CPU_MAX_TILE_ROWS * CPU_MAX_PANEL_WIDTH,
};

/* ---- chunks ---- */

static size_t panel_bytes_of(const struct forward *f, const struct packed_matrix *matrix)
{
    return weight_panel_bytes(matrix->type, matrix->n_inputs, f->kernels->panel_width);
}

static const char *panel_of(const struct forward *f, const struct packed_matrix *matrix, uint32_t panel)
{
    return (const char *)matrix->panels + panel * panel_bytes_of(f, matrix);
}

/* Of the run of chunks that a worker owns (those of placement_first_panel); the last one's ends where that of one more would begin. */
static uint32_t first_chunk_of(const struct forward *f, uint32_t worker)
{
    return (uint32_t)((uint64_t)f->product.n_chunks * worker / f->n_workers);
}

uint32_t forward_start_product(struct forward *f, const float *tiles, uint32_t n_rows, uint32_t n_parts,
                               const struct packed_matrix *const *parts)
{
    struct product *p = &f->product;
    *p = (struct product){.serial = p->serial + 1, .n_parts = n_parts, .n_rows = n_rows, .tiles = tiles, .norms = f->norm.in_product};
    f->norm.in_product = false;
    for (uint32_t i = 0; i < n_parts; i++) {
        p->parts[i] = parts[i];
        p->n_panels += parts[i]->n_panels;
    }
    p->panels_per_chunk = placement_chunk_panels(p->n_panels, f->n_workers);
    if (n_rows > f->kernels->tile_rows) {
        uint32_t resident = (uint32_t)(RESIDENT_BYTES / panel_bytes_of(f, parts[0])) + 1;
        if (resident > CPU_MAX_PANELS_AT_ONCE)
            resident = resident / CPU_MAX_PANELS_AT_ONCE * CPU_MAX_PANELS_AT_ONCE;
        p->panels_per_chunk = p->panels_per_chunk < resident ? p->panels_per_chunk : resident;
    }
    p->n_chunks = (p->n_panels + p->panels_per_chunk - 1) / p->panels_per_chunk;
    for (uint32_t w = 0; w < f->n_workers; w++)
        atomic_store_explicit(&f->scratch[w].next_chunk, first_chunk_of(f, w), memory_order_relaxed);
    const uint32_t fixing = forward_start_fixing(f);
    return fixing > 0 ? fixing : p->n_chunks;
}

/* The matrices of the product after the one under way; returns how many. */
static uint32_t following(const struct forward *f, const struct packed_matrix *parts[3])
{
    const struct packed_matrix *matrix = f->product.parts[0], *single = NULL;
    const bool ends = matrix == &f->weights->output; /* the next step follows */
    const struct layer_weights *layer = &f->weights->layers[ends ? 0 : f->layer];
    if (!ends) {
        if (matrix == &layer->q)
            single = &layer->o;
        else if (matrix == &layer->o)
            single = &layer->gate;
        else if (matrix == &layer->gate)
            single = &layer->down;
        else if (f->layer + 1 == f->model->n_layers)
            single = &f->weights->output;
        else
            layer++;
    }
    parts[0] = single ? single : &layer->q;
    parts[1] = &layer->k;
    parts[2] = &layer->v;
    return single ? 1 : 3;
}

/* NULL: there are not so many. */
static const char *panel_among(const struct forward *f, const struct packed_matrix *const *parts, uint32_t n_parts, uint32_t panel)
{
    for (uint32_t i = 0; i < n_parts; i++) {
        if (panel < parts[i]->n_panels)
            return panel_of(f, parts[i], panel);
        panel -= parts[i]->n_panels;
    }
    return NULL;
}

/*
 * The chunk that a worker multiplies next. Each has its own run of them, neighbours in memory, so that what it will read is known
 * ahead; who is done takes what others have not begun. As many calls as chunks come, so each finds one.
 */
static uint32_t take_chunk(struct forward *f, uint32_t worker)
{
    for (uint32_t i = 0, owner = worker; i < f->n_workers; i++) {
        uint32_t end = first_chunk_of(f, owner + 1);
        if (atomic_load_explicit(&f->scratch[owner].next_chunk, memory_order_relaxed) < end) {
            uint32_t chunk = atomic_fetch_add_explicit(&f->scratch[owner].next_chunk, 1, memory_order_relaxed);
            if (chunk < end)
                return chunk;
        }
        owner = owner + 1 < f->n_workers ? owner + 1 : 0;
    }
    hs_assert(!"fewer chunks than calls");
    return 0;
}

/* Where the worker goes on after this chunk, if nobody else takes that; maybe NULL. A guess, on which no result depends. */
static const char *next_panels(const struct forward *f, uint32_t worker, uint32_t chunk)
{
    const struct product *p = &f->product;
    const struct packed_matrix *next[3];
    uint32_t n_next, n_panels = 0;
    if (chunk + 1 != first_chunk_of(f, worker + 1))
        return panel_among(f, p->parts, p->n_parts, (chunk + 1) * p->panels_per_chunk);
    n_next = following(f, next);
    for (uint32_t i = 0; i < n_next; i++)
        n_panels += next[i]->n_panels;
    return panel_among(f, next, n_next, (uint32_t)((uint64_t)n_panels * worker / f->n_workers));
}

/* ---- blocks of panels ---- */

/* Consecutive panels of a matrix as matmul takes them. */
struct panel_block {
    const char *panels;
    size_t panel_bytes;
    enum weight_type type;
    uint32_t first, n; /* number of the first in its matrix */
    const char *next;  /* what this worker probably takes after them */
};

/* Many rows: panels are made floats once and stay in a core's cache while all tiles of rows pass. The values are the same. */
static bool widens(const struct forward *f, const struct packed_matrix *matrix)
{
    return f->kernels->widen_panels && !weight_is_quantised(matrix->type) &&
           f->product.n_rows >= WIDEN_TILES * f->kernels->tile_rows;
}

/* Panels from `first` on: as many as go at once, at most n; memory is for WIDENED_AT_ONCE widened panels. */
static struct panel_block take_panels(const struct forward *f, const struct packed_matrix *matrix, uint32_t first, uint32_t n,
                                      const char *next, float *memory)
{
    const char *panels = panel_of(f, matrix, first);
    if (!widens(f, matrix))
        return (struct panel_block){panels, panel_bytes_of(f, matrix), matrix->type, first, n, next};
    const size_t values = (size_t)matrix->n_inputs * f->kernels->panel_width;
    n = n < WIDENED_AT_ONCE ? n : WIDENED_AT_ONCE;
    f->kernels->widen_panels((const uint16_t *)panels, matrix->type, n * values, memory);
    return (struct panel_block){(const char *)memory, values * sizeof *memory, WEIGHT_F32, first, n, next};
}

/* The product of a block's panels from `panel` on, at most CPU_MAX_PANELS_AT_ONCE, with the tile that starts at `row`; where the
 * outputs go is left open. */
static struct matmul block_product(const struct forward *f, const struct packed_matrix *matrix, const struct panel_block *block,
                                   const float *tiles, uint32_t panel, uint32_t row)
{
    const struct product *p = &f->product;
    const uint32_t tile_rows = forward_tile_rows(f, p->n_rows), left = block->n - panel;
    struct matmul m = {
        .panels = block->panels + panel * block->panel_bytes,
        .type = block->type,
        .n_inputs = matrix->n_inputs,
        .n_panels = left < CPU_MAX_PANELS_AT_ONCE ? left : CPU_MAX_PANELS_AT_ONCE,
        .x = tiles + (size_t)row * (matrix->n_inputs / f->kernels->inputs_per_word),
        .n_rows = p->n_rows - row < tile_rows ? p->n_rows - row : tile_rows,
    };
    m.fixed = forward_fixed_tile(f, block->type, row);
    if (row == 0) { /* later tiles find their panels in cache */
        m.ahead = left > m.n_panels ? (const char *)m.panels + m.n_panels * block->panel_bytes : block->next;
        m.ahead_bytes = m.n_panels * block->panel_bytes;
    }
    return m;
}

/* ---- products whose outputs are stored or added ---- */

/* Where output 0 of row 0 goes; rows are stride apart. */
struct destination {
    float *values;
    size_t stride;
    bool add;
};

/* Stores count outputs of each row from what was multiplied apart. */
static void store_rows(const struct matmul *m, float *out, const struct destination *to, uint32_t count)
{
    for (uint32_t r = 0; r < m->n_rows; r++, out += to->stride) {
        const float *values = m->out + r * m->out_stride;
        for (uint32_t i = 0; i < count; i++)
            out[i] = to->add ? out[i] + values[i] : values[i];
    }
}

static void add_bias(const struct matmul *m, const float *bias, float *out, size_t stride, uint32_t count)
{
    for (uint32_t r = 0; r < m->n_rows; r++, out += stride)
        for (uint32_t i = 0; i < count; i++)
            out[i] += bias[i];
}

/* A block with all rows: tile by tile, so that the panels stay in cache from tile to tile. */
static void run_block(struct forward *f, const struct packed_matrix *matrix, const struct panel_block *block, const float *tiles,
                      const struct destination *to)
{
    const uint32_t width = f->kernels->panel_width;
    _Alignas(64) float apart[BLOCK_FLOATS];
    for (uint32_t row = 0, rows; row < f->product.n_rows; row += rows) {
        rows = 0;
        for (uint32_t panel = 0, n; panel < block->n; panel += n) {
            struct matmul m = block_product(f, matrix, block, tiles, panel, row);
            uint32_t first = (block->first + panel) * width, left = matrix->n_outputs - first;
            float *out = to->values + row * to->stride + first;
            bool whole = left >= m.n_panels * width; /* else the last panel has lanes that are no outputs */
            n = m.n_panels;
            rows = m.n_rows;
            m.out = whole ? out : apart;
            m.out_stride = whole ? to->stride : n * width;
            m.add = whole && to->add;
            f->kernels->matmul(&m);
            if (!whole)
                store_rows(&m, out, to, left);
            if (matrix->bias)
                add_bias(&m, matrix->bias + first, out, to->stride, whole ? n * width : left);
        }
    }
}

static void run_product(struct forward *f, uint32_t worker, const struct destination *to)
{
    const struct product *p = &f->product;
    const uint32_t chunk = take_chunk(f, worker);
    const float *tiles = forward_product_tiles(f, worker);
    const char *next = next_panels(f, worker, chunk);
    uint32_t first = chunk * p->panels_per_chunk, last = first + p->panels_per_chunk, base = 0;
    for (uint32_t i = 0; i < p->n_parts && base < last; i++) {
        uint32_t end = base + p->parts[i]->n_panels, until = last < end ? last : end;
        for (uint32_t panel = first > base ? first : base; panel < until;) {
            struct panel_block block = take_panels(f, p->parts[i], panel - base, until - panel, next, f->scratch[worker].panels);
            run_block(f, p->parts[i], &block, tiles, &to[i]);
            panel += block.n;
        }
        base = end;
    }
}

void forward_qkv(struct forward *f, uint32_t worker)
{
    const struct layer_weights *layer = &f->weights->layers[f->layer];
    const uint32_t stride = forward_qkv_size(f);
    float *k = f->qkv + layer->q.n_outputs, *v = k + layer->k.n_outputs;
    const struct destination to[] = {{f->qkv, stride, false}, {k, stride, false}, {v, stride, false}};
    run_product(f, worker, to);
}

void forward_add_product(struct forward *f, uint32_t worker)
{
    run_product(f, worker, &(struct destination){f->x, f->model->d_model, true});
}

void forward_logits(struct forward *f, uint32_t worker)
{
    run_product(f, worker, &(struct destination){f->logits, f->model->n_vocab, false});
}

/* ---- gate and up ---- */

/* The same panels of gate and up with one tile of rows, multiplied together at once: their outputs never leave the cache. Returns
 * the number of panels. */
static uint32_t gate_up_tile(struct forward *f, const struct panel_block *gates, const struct panel_block *ups, const float *tiles,
                             uint32_t panel, uint32_t row)
{
    const struct cpu_kernels *k = f->kernels;
    const struct layer_weights *layer = &f->weights->layers[f->layer];
    _Alignas(64) float gate[BLOCK_FLOATS];
    _Alignas(64) float up[BLOCK_FLOATS];
    struct matmul m = block_product(f, &layer->gate, gates, tiles, panel, row);
    const uint32_t outputs = m.n_panels * k->panel_width, first = (gates->first + panel) * k->panel_width;
    const uint32_t count = f->model->d_ff - first < outputs ? f->model->d_ff - first : outputs;
    float *out = f->tiles_ff + ((size_t)row * f->model->d_ff + (size_t)first * m.n_rows) / k->inputs_per_word;
    m.out = gate;
    m.out_stride = outputs;
    k->matmul(&m);
    m = block_product(f, &layer->up, ups, tiles, panel, row);
    m.out = up;
    m.out_stride = outputs;
    k->matmul(&m);
    k->silu_multiply(gate, up, gate, m.n_rows * outputs);
    const float *rows[CPU_MAX_TILE_ROWS];
    for (uint32_t r = 0; r < m.n_rows; r++)
        rows[r] = gate + (size_t)r * outputs;
    k->pack_rows(rows, m.n_rows, count, out, m.n_rows);
    return m.n_panels;
}

void forward_gate_up(struct forward *f, uint32_t worker)
{
    const struct layer_weights *layer = &f->weights->layers[f->layer];
    const struct product *p = &f->product;
    const uint32_t chunk = take_chunk(f, worker), tile_rows = forward_tile_rows(f, p->n_rows);
    const float *tiles = forward_product_tiles(f, worker);
    float *memory = f->scratch[worker].panels;
    float *memory_up = memory ? memory + (size_t)WIDENED_AT_ONCE * layer->gate.n_inputs * f->kernels->panel_width : NULL;
    uint32_t at = chunk * p->panels_per_chunk;
    uint32_t last = at + p->panels_per_chunk < p->n_panels ? at + p->panels_per_chunk : p->n_panels;
    for (struct panel_block gates, ups; at < last; at += gates.n) {
        gates = take_panels(f, &layer->gate, at, last - at, panel_of(f, &layer->up, at), memory);
        ups = take_panels(f, &layer->up, at, last - at, next_panels(f, worker, chunk), memory_up);
        for (uint32_t row = 0; row < p->n_rows; row += tile_rows)
            for (uint32_t panel = 0; panel < gates.n;)
                panel += gate_up_tile(f, &gates, &ups, tiles, panel, row);
    }
}

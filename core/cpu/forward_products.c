/*
 * The products of a forward pass: rows in tiles with panels of weights. Each worker owns a run of panels (work_share.h), those of
 * placement_first_panel. While it multiplies some, those that it will probably take next are on their way into its cache; when
 * nothing is left and it waits for the others, the first ones of the next product are.
 */
#include "core/base/panic.h"
#include "core/cpu/attention.h"
#include "core/cpu/forward.h"
#include "core/cpu/placement.h"

enum {
    RESIDENT_BYTES = 384 * 1024, /* panels that should stay in a core's cache while many rows pass */
    MOST_BYTES = 2 << 20,        /* at once: some 80 us of memory's time, by which the end of a step is foreseen */
    END_SOON_NS = 250000,
    SHORTEST_NS = 50000,         /* the end of what takes less is not announced */
    SOON_BYTES = 128 * 1024,     /* of the next product, asked for while a worker waits */
    LINES_A_WAIT = 8,
    CACHE_LINE = 64,
    WIDEN_TILES = 4,             /* of rows from which on panels are made floats first: once per panels, not once per tile */
    BLOCK_FLOATS = CPU_MAX_PANELS_AT_ONCE * CPU_MAX_TILE_ROWS * CPU_MAX_PANEL_WIDTH,
};

/* ---- who multiplies what ---- */

static size_t panel_bytes_of(const struct forward *f, const struct packed_matrix *matrix)
{
    return weight_panel_bytes(matrix->type, matrix->n_inputs, f->kernels->panel_width);
}

static const char *panel_of(const struct forward *f, const struct packed_matrix *matrix, uint32_t panel)
{
    return (const char *)matrix->panels + panel * panel_bytes_of(f, matrix);
}

/* How many panels a worker takes at once. */
static uint32_t choose_panels(const struct forward *f, const struct product *p)
{
    const size_t bytes = p->n_rows > f->kernels->tile_rows ? RESIDENT_BYTES : MOST_BYTES;
    uint32_t n = placement_chunk_panels(p->n_panels, f->n_workers), most = (uint32_t)(bytes / panel_bytes_of(f, p->parts[0])) + 1;
    if (most > CPU_MAX_PANELS_AT_ONCE)
        most = most / CPU_MAX_PANELS_AT_ONCE * CPU_MAX_PANELS_AT_ONCE;
    return n < most ? n : most;
}

uint32_t forward_start_product(struct forward *f, const float *tiles, uint32_t n_rows, uint32_t n_parts,
                               const struct packed_matrix *const *parts)
{
    struct product *p = &f->product;
    *p = (struct product){.n_parts = n_parts, .n_rows = n_rows, .tiles = tiles, .norms = f->norm.in_product};
    f->norm.in_product = false;
    for (uint32_t i = 0; i < n_parts; i++) {
        p->parts[i] = parts[i];
        p->n_panels += parts[i]->n_panels;
    }
    p->panels_at_once = choose_panels(f, p);
    for (uint32_t w = 0; w < f->n_workers; w++)
        work_share_set(&f->shares[w], (struct work_run){placement_first_panel(p->n_panels, f->n_workers, w),
                                                        placement_first_panel(p->n_panels, f->n_workers, w + 1)});
    p->ends_step = parts[0] == &f->weights->output && f->first_output + n_rows == f->n_outputs;
    if (p->ends_step)
        p->started_ns = f->watch.now_ns(f->watch.arg);
    const uint32_t fixing = forward_start_fixing(f);
    return fixing > 0 ? fixing : f->n_workers;
}

/* Called by a worker that has just taken panels. What all workers are at counts as not begun. */
static void watch_end(const struct forward *f)
{
    const struct product *p = &f->product;
    uint64_t left = 0;
    for (uint32_t w = 0; w < f->n_workers; w++) {
        const struct work_run run = work_share_left(&f->shares[w]);
        left += run.end - run.first;
    }
    const uint64_t undone = left + (uint64_t)f->n_workers * p->panels_at_once, elapsed = f->watch.now_ns(f->watch.arg) - p->started_ns;
    const bool soon = left == 0 || (undone < p->n_panels && elapsed * undone / (p->n_panels - undone) < END_SOON_NS);
    if (soon && elapsed >= SHORTEST_NS)
        f->watch.soon(f->watch.arg);
}

/* The next panels for a worker; false: there are none. */
static bool take_panels(const struct forward *f, uint32_t worker, struct work_run *out)
{
    if (!work_share_take(f->shares, f->n_workers, worker, f->product.panels_at_once, out))
        return false;
    if (f->product.ends_step)
        watch_end(f);
    return true;
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

/* NULL: there are not so many. bytes: from there to the end of its matrix. */
static const char *panel_among(const struct forward *f, const struct packed_matrix *const *parts, uint32_t n_parts, uint32_t panel,
                               size_t *bytes)
{
    *bytes = 0;
    for (uint32_t i = 0; i < n_parts; i++) {
        if (panel < parts[i]->n_panels) {
            *bytes = (parts[i]->n_panels - panel) * panel_bytes_of(f, parts[i]);
            return panel_of(f, parts[i], panel);
        }
        panel -= parts[i]->n_panels;
    }
    return NULL;
}

/* Where the worker begins in the next product; maybe NULL. */
static const char *first_of_next(const struct forward *f, uint32_t worker, size_t *bytes)
{
    const struct packed_matrix *next[3];
    uint32_t n_next = following(f, next), n_panels = 0;
    for (uint32_t i = 0; i < n_next; i++)
        n_panels += next[i]->n_panels;
    return panel_among(f, next, n_next, placement_first_panel(n_panels, f->n_workers, worker), bytes);
}

/* Where the worker goes on after what it has taken, if nobody else takes that; maybe NULL. A guess, on which no result depends. */
static const char *next_panels(const struct forward *f, uint32_t worker)
{
    const struct work_run left = work_share_left(&f->shares[worker]);
    size_t bytes;
    if (left.first < left.end)
        return panel_among(f, f->product.parts, f->product.n_parts, left.first, &bytes);
    return first_of_next(f, worker, &bytes);
}

/* The worker has found nothing more to do in the product. */
static void look_ahead(struct forward *f, uint32_t worker)
{
    struct worker_scratch *scratch = &f->scratch[worker];
    size_t bytes;
    scratch->soon = first_of_next(f, worker, &bytes);
    scratch->soon_bytes = bytes < SOON_BYTES ? bytes : SOON_BYTES;
}

void forward_wait(void *arg, uint32_t worker)
{
    struct worker_scratch *scratch = &((struct forward *)arg)->scratch[worker];
    for (uint32_t i = 0; i < LINES_A_WAIT && scratch->soon_bytes >= CACHE_LINE; i++) {
        __builtin_prefetch(scratch->soon, 0, 2);
        scratch->soon += CACHE_LINE;
        scratch->soon_bytes -= CACHE_LINE;
    }
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
static struct panel_block make_block(const struct forward *f, const struct packed_matrix *matrix, uint32_t first, uint32_t n,
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
                                   const struct product_rows *rows, uint32_t panel, uint32_t row)
{
    const struct product *p = &f->product;
    const uint32_t tile_rows = forward_tile_rows(f, p->n_rows), left = block->n - panel;
    struct matmul m = {
        .panels = block->panels + panel * block->panel_bytes,
        .type = block->type,
        .n_inputs = matrix->n_inputs,
        .n_panels = left < CPU_MAX_PANELS_AT_ONCE ? left : CPU_MAX_PANELS_AT_ONCE,
        .x = rows->tiles + (size_t)row * (matrix->n_inputs / f->kernels->inputs_per_word),
        .n_rows = p->n_rows - row < tile_rows ? p->n_rows - row : tile_rows,
    };
    m.fixed = forward_fixed_tile(f, rows->fixed, block->type, row);
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
static void run_block(struct forward *f, const struct packed_matrix *matrix, const struct panel_block *block,
                      const struct product_rows *inputs, const struct destination *to)
{
    const uint32_t width = f->kernels->panel_width;
    _Alignas(64) float apart[BLOCK_FLOATS];
    for (uint32_t row = 0, rows; row < f->product.n_rows; row += rows) {
        rows = 0;
        for (uint32_t panel = 0, n; panel < block->n; panel += n) {
            struct matmul m = block_product(f, matrix, block, inputs, panel, row);
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

/* Panels of all parts, numbered through. */
static void run_panels(struct forward *f, uint32_t worker, struct work_run panels, const struct product_rows *rows,
                       const struct destination *to)
{
    const struct product *p = &f->product;
    const char *next = next_panels(f, worker);
    for (uint32_t i = 0, base = 0, end; i < p->n_parts && base < panels.end; i++, base = end) {
        end = base + p->parts[i]->n_panels;
        uint32_t until = panels.end < end ? panels.end : end;
        for (uint32_t panel = panels.first > base ? panels.first : base; panel < until;) {
            struct panel_block block = make_block(f, p->parts[i], panel - base, until - panel, next, f->scratch[worker].panels);
            run_block(f, p->parts[i], &block, rows, &to[i]);
            panel += block.n;
        }
    }
}

static void run_product(struct forward *f, uint32_t worker, const struct destination *to)
{
    struct product_rows rows = {NULL, NULL};
    for (struct work_run panels; take_panels(f, worker, &panels);) {
        if (!rows.tiles)
            rows = forward_product_rows(f, worker);
        run_panels(f, worker, panels, &rows, to);
    }
    look_ahead(f, worker);
}

void forward_qkv(struct forward *f, uint32_t worker)
{
    const struct layer_weights *layer = &f->weights->layers[f->layer];
    const uint32_t stride = forward_qkv_size(f);
    float *k = f->qkv + layer->q.n_outputs, *v = k + layer->k.n_outputs;
    const struct destination to[] = {{f->qkv, stride, false}, {k, stride, false}, {v, stride, false}};
    run_product(f, worker, to);
    attention_ask(f, worker);
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
static uint32_t gate_up_tile(struct forward *f, const struct panel_block *gates, const struct panel_block *ups,
                             const struct product_rows *rows, uint32_t panel, uint32_t row)
{
    const struct cpu_kernels *k = f->kernels;
    const struct layer_weights *layer = &f->weights->layers[f->layer];
    _Alignas(64) float gate[BLOCK_FLOATS];
    _Alignas(64) float up[BLOCK_FLOATS];
    struct matmul m = block_product(f, &layer->gate, gates, rows, panel, row);
    const uint32_t outputs = m.n_panels * k->panel_width, first = (gates->first + panel) * k->panel_width;
    const uint32_t count = f->model->d_ff - first < outputs ? f->model->d_ff - first : outputs;
    float *out = f->tiles_ff + ((size_t)row * f->model->d_ff + (size_t)first * m.n_rows) / k->inputs_per_word;
    m.out = gate;
    m.out_stride = outputs;
    k->matmul(&m);
    m = block_product(f, &layer->up, ups, rows, panel, row);
    m.out = up;
    m.out_stride = outputs;
    k->matmul(&m);
    k->silu_multiply(gate, up, gate, m.n_rows * outputs);
    const float *values[CPU_MAX_TILE_ROWS];
    for (uint32_t r = 0; r < m.n_rows; r++)
        values[r] = gate + (size_t)r * outputs;
    k->pack_rows(values, m.n_rows, count, out, m.n_rows);
    return m.n_panels;
}

static void run_gate_up(struct forward *f, uint32_t worker, struct work_run panels, const struct product_rows *rows)
{
    const struct layer_weights *layer = &f->weights->layers[f->layer];
    const uint32_t n_rows = f->product.n_rows, tile_rows = forward_tile_rows(f, n_rows);
    float *memory = f->scratch[worker].panels;
    float *memory_up = memory ? memory + (size_t)WIDENED_AT_ONCE * layer->gate.n_inputs * f->kernels->panel_width : NULL;
    const char *next = next_panels(f, worker);
    for (struct panel_block gates, ups; panels.first < panels.end; panels.first += gates.n) {
        const uint32_t n = panels.end - panels.first;
        gates = make_block(f, &layer->gate, panels.first, n, panel_of(f, &layer->up, panels.first), memory);
        ups = make_block(f, &layer->up, panels.first, n, next, memory_up);
        for (uint32_t row = 0; row < n_rows; row += tile_rows)
            for (uint32_t panel = 0; panel < gates.n;)
                panel += gate_up_tile(f, &gates, &ups, rows, panel, row);
    }
}

void forward_gate_up(struct forward *f, uint32_t worker)
{
    struct product_rows rows = {NULL, NULL};
    for (struct work_run panels; take_panels(f, worker, &panels);) {
        if (!rows.tiles)
            rows = forward_product_rows(f, worker);
        run_gate_up(f, worker, panels, &rows);
    }
    look_ahead(f, worker);
}

/*
 * Part of kernels_body.h: the products. Functions whose first parameters are counts are inlined with constant counts, so that
 * their arrays of sums become registers. A sum is always one chain in ascending order; only how many chains run side by side
 * differs.
 *
 * Panels that are widened while they are multiplied leave little room for anything else, so they go in passes that take few
 * broadcasts for their sums: tall ones of all rows with three vectors, wide ones of up to PASS_ROWS rows with PANELS_SIDE panels
 * side by side, broad ones of up to BROAD_ROWS rows with three panels. Passes with the same panels follow each other, so
 * the second finds them in cache.
 */
#ifndef HEARSAY_CPU_KERNELS_PRODUCTS_H
#define HEARSAY_CPU_KERNELS_PRODUCTS_H

enum {
    LINE_BYTES = 64,
    /* Fewer rows read the panels, one at a time, as fast as the hardware's own prefetching brings them; asking for lines as well
     * slowed that by a quarter (Zen 4). With so many a pass multiplies for about as long as its weights take to come. */
    ASKING_ROWS = INPUTS_PER_WORD == 1 ? 3 : 6,
    TALL_VECS = 3,
    MOST_PANELS = 3, /* of two tall passes, or of a broad one */
    MOST_VECS = MOST_PANELS * PANEL_VECS,
};

/* What a pass works on: some rows of a tile with some vectors of panels. */
struct pass {
    const char *panels;
    size_t panel_bytes;
    uint32_t n_words; /* of a row */
    const float *x;   /* the first row's; words of a row are x_stride apart */
    uint32_t x_stride;
    float *out; /* as of struct matmul */
    size_t out_stride;
    bool add;
    const char *ahead; /* lines to ask for, ahead_step bytes further with each word */
    size_t ahead_step;
};

/* n_vecs vectors from vector `first` of the panels on. */
KERNEL_INLINE void run_pass(const uint32_t rows, const uint32_t n_vecs, const uint32_t first, const enum weight_type type,
                            const bool asks, const struct pass *pass)
{
    const size_t vec_bytes = VEC_SHORTS * (type == WEIGHT_F32 ? sizeof(float) : sizeof(uint16_t));
    const char *at = pass->panels, *ahead = pass->ahead;
    const float *x = pass->x;
    vec sum[TILE_ROWS][MOST_VECS];
    UNROLL for (uint32_t r = 0; r < rows; r++) UNROLL for (uint32_t v = 0; v < n_vecs; v++) sum[r][v] = vec_zero();
    for (uint32_t k = 0; k < pass->n_words; k++) {
        vec w[MOST_VECS];
        UNROLL for (uint32_t v = 0; v < n_vecs; v++) w[v] =
            load_weights(at + (first + v) / PANEL_VECS * pass->panel_bytes + (first + v) % PANEL_VECS * vec_bytes, type);
        if (asks)
            UNROLL for (uint32_t line = 0; line < n_vecs * vec_bytes; line += LINE_BYTES)
                __builtin_prefetch(ahead + line, 0, 2);
        UNROLL for (uint32_t r = 0; r < rows; r++)
        {
            vec input = vec_broadcast(x[r]);
            UNROLL for (uint32_t v = 0; v < n_vecs; v++) sum[r][v] = multiply_words(input, w[v], sum[r][v]);
        }
        at += PANEL_VECS * vec_bytes;
        x += pass->x_stride;
        ahead += pass->ahead_step;
    }
    UNROLL for (uint32_t r = 0; r < rows; r++)
    {
        float *out = pass->out + r * pass->out_stride + first * LANES;
        if (pass->add)
            UNROLL for (uint32_t v = 0; v < n_vecs; v++) sum[r][v] = vec_add(vec_load(out + v * LANES), sum[r][v]);
        UNROLL for (uint32_t v = 0; v < n_vecs; v++) vec_store(out + v * LANES, sum[r][v]);
    }
}

KERNEL_INLINE void run_pass_of(const uint32_t rows, const uint32_t n_vecs, const uint32_t first, const bool asks,
                               enum weight_type type, const struct pass *pass)
{
    if (INPUTS_PER_WORD == 2)
        run_pass(rows, n_vecs, first, WEIGHT_BF16_PAIRS, asks, pass);
    else if (type == WEIGHT_F16)
        run_pass(rows, n_vecs, first, WEIGHT_F16, asks, pass);
    else if (type == WEIGHT_BF16)
        run_pass(rows, n_vecs, first, WEIGHT_BF16, asks, pass);
    else
        run_pass(rows, n_vecs, first, WEIGHT_F32, false, pass);
}

typedef void pass_fn(enum weight_type type, const struct pass *pass);
#define PASS_FN(name, rows, n_vecs, first, asks)                                                                                   \
    static void name(enum weight_type type, const struct pass *pass)                                                               \
    {                                                                                                                              \
        run_pass_of(rows, n_vecs, first, asks, type, pass);                                                                        \
    }
#define NARROW_PASS_FOR(rows) PASS_FN(narrow_pass_##rows, rows, PANEL_VECS, 0, rows >= ASKING_ROWS)
#define WIDE_PASS_FOR(rows)   PASS_FN(wide_pass_##rows, rows, PANELS_SIDE *PANEL_VECS, 0, true)
#define BROAD_PASS_FOR(rows)  PASS_FN(broad_pass_##rows, rows, MOST_VECS, 0, true)
#define TALL_PASSES_FOR(rows)                                                                                                      \
    PASS_FN(tall_pass_##rows, rows, TALL_VECS, 0, true)                                                                            \
    PASS_FN(next_tall_pass_##rows, rows, TALL_VECS, TALL_VECS, true)
FOR_EACH_ROW_COUNT(NARROW_PASS_FOR)
FOR_EACH_PASS_ROWS(WIDE_PASS_FOR)
FOR_EACH_BROAD_ROWS(BROAD_PASS_FOR)
FOR_EACH_TALL_ROWS(TALL_PASSES_FOR)

#define NARROW_PASS_ENTRY(rows) [rows] = narrow_pass_##rows,
#define WIDE_PASS_ENTRY(rows)   [rows] = wide_pass_##rows,
#define BROAD_PASS_ENTRY(rows)  [rows] = broad_pass_##rows,
#define TALL_PASSES_ENTRY(rows) [rows] = {tall_pass_##rows, next_tall_pass_##rows},
static pass_fn *const narrow_passes[TILE_ROWS + 1] = {FOR_EACH_ROW_COUNT(NARROW_PASS_ENTRY)};
static pass_fn *const wide_passes[PASS_ROWS + 1] = {FOR_EACH_PASS_ROWS(WIDE_PASS_ENTRY)};
static pass_fn *const broad_passes[BROAD_ROWS + 1] = {[0] = NULL, FOR_EACH_BROAD_ROWS(BROAD_PASS_ENTRY)};
static pass_fn *const tall_passes[TILE_ROWS + 1][2] = {[0] = {NULL}, FOR_EACH_TALL_ROWS(TALL_PASSES_ENTRY)};

/* All rows of a tile, in passes of at most so many. */
static void run_passes_of(pass_fn *const *by_rows, uint32_t most_rows, const struct matmul *m, struct pass pass)
{
    const uint32_t n = (m->n_rows + most_rows - 1) / most_rows;
    pass.ahead_step /= n;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t rows = m->n_rows / n + (i < m->n_rows % n);
        by_rows[rows](m->type, &pass);
        pass.x += rows;
        pass.out += rows * m->out_stride;
        pass.ahead += pass.ahead_step * pass.n_words;
    }
}

static void run_tall_passes(const struct matmul *m, struct pass pass)
{
    pass.ahead_step /= 2;
    for (uint32_t i = 0; i < 2; i++) {
        tall_passes[m->n_rows][i](m->type, &pass);
        pass.ahead += pass.ahead_step * pass.n_words;
    }
}

static void run_passes(const struct matmul *m, uint32_t n_panels, struct pass pass)
{
    if (n_panels == 1)
        narrow_passes[m->n_rows](m->type, &pass);
    else if (n_panels < MOST_PANELS)
        run_passes_of(wide_passes, PASS_ROWS, m, pass);
    else if (tall_passes[m->n_rows][0])
        run_tall_passes(m, pass);
    else
        run_passes_of(broad_passes, BROAD_ROWS, m, pass);
}

/* How many of the panels that are left go at once. */
static uint32_t panels_at_once(const struct matmul *m, uint32_t left)
{
    const bool widens = INPUTS_PER_WORD == 1 && m->type != WEIGHT_F32;
    if (!widens || m->n_rows < ASKING_ROWS || left < PANELS_SIDE)
        return 1;
    const bool broad = BROAD_ROWS > 0 && (m->n_rows <= BROAD_ROWS || m->n_rows > 2 * BROAD_ROWS);
    return left >= MOST_PANELS && (broad || tall_passes[m->n_rows][0]) ? MOST_PANELS : PANELS_SIDE;
}

/* What follows n panels is asked for while they are multiplied: as much of it, and no more than that ahead, or with many inputs it
 * would push what is in use out of the cache. */
static void ask_ahead(const struct matmul *m, uint32_t following, uint32_t n, struct pass *pass)
{
    const bool last = following == m->n_panels;
    size_t bytes = n * pass->panel_bytes;
    if (last)
        bytes = !m->ahead ? 0 : m->ahead_bytes < bytes ? m->ahead_bytes : bytes;
    pass->ahead = last && m->ahead ? m->ahead : pass->panels + (last ? 0 : n * pass->panel_bytes);
    pass->ahead_step = bytes / pass->n_words;
}

static void matmul(const struct matmul *m)
{
    struct pass pass = {
        .panels = m->panels,
        .panel_bytes = weight_panel_bytes(m->type, m->n_inputs, PANEL_WIDTH),
        .n_words = m->n_inputs / INPUTS_PER_WORD,
        .x = m->x,
        .x_stride = m->n_rows,
        .out = m->out,
        .out_stride = m->out_stride,
        .add = m->add,
    };
    hs_assert(m->n_rows >= 1 && m->n_rows <= TILE_ROWS && m->n_panels <= CPU_MAX_PANELS_AT_ONCE);
    if (weight_is_quantised(m->type)) {
        matmul_quantised(m);
        return;
    }
    for (uint32_t p = 0, n; p < m->n_panels; p += n) {
        n = panels_at_once(m, m->n_panels - p);
        ask_ahead(m, p + n, n, &pass);
        run_passes(m, n, pass);
        pass.panels += n * pass.panel_bytes;
        pass.out += n * PANEL_WIDTH;
    }
}

#endif

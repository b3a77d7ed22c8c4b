/*
 * Part of kernels_body.h: the products. Functions whose first parameters are counts are inlined with constant counts, so that
 * their arrays of sums become registers. A sum is always one chain in ascending order; only how many chains run side by side
 * differs.
 *
 * Panels that are widened while they are multiplied leave little room for anything else, so they go in wide passes: PANELS_SIDE
 * of them side by side with up to PASS_ROWS of the rows. That is as many sums as a pass of one panel with all rows has, for half
 * the broadcasts. Passes with the same panels follow each other, so the second finds them in cache.
 */
#ifndef HEARSAY_CPU_KERNELS_PRODUCTS_H
#define HEARSAY_CPU_KERNELS_PRODUCTS_H

enum {
    LINE_BYTES = 64,
    /* Fewer rows read the panels, one at a time, as fast as the hardware's own prefetching brings them; asking for lines as well
     * slowed that by a quarter (Zen 4). With so many a pass multiplies for about as long as its weights take to come. */
    ASKING_ROWS = INPUTS_PER_WORD == 1 ? 3 : 6,
};

/* What a pass works on: some rows of a tile with one panel or PANELS_SIDE of them. */
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

KERNEL_INLINE void run_pass(const uint32_t rows, const uint32_t n_panels, const enum weight_type type, const bool asks,
                            const struct pass *pass)
{
    const size_t vec_bytes = VEC_SHORTS * (type == WEIGHT_F32 ? sizeof(float) : sizeof(uint16_t));
    const char *at = pass->panels, *ahead = pass->ahead;
    const float *x = pass->x;
    vec sum[PANELS_SIDE][TILE_ROWS][PANEL_VECS];
    UNROLL for (uint32_t p = 0; p < n_panels; p++) UNROLL for (uint32_t r = 0; r < rows; r++)
        UNROLL for (uint32_t v = 0; v < PANEL_VECS; v++) sum[p][r][v] = vec_zero();
    for (uint32_t k = 0; k < pass->n_words; k++) {
        vec w[PANELS_SIDE][PANEL_VECS];
        UNROLL for (uint32_t p = 0; p < n_panels; p++) UNROLL for (uint32_t v = 0; v < PANEL_VECS; v++)
            w[p][v] = load_weights(at + p * pass->panel_bytes + v * vec_bytes, type);
        if (asks)
            UNROLL for (uint32_t line = 0; line < n_panels * PANEL_VECS * vec_bytes; line += LINE_BYTES)
                __builtin_prefetch(ahead + line, 0, 2);
        UNROLL for (uint32_t r = 0; r < rows; r++)
        {
            vec input = vec_broadcast(x[r]);
            UNROLL for (uint32_t p = 0; p < n_panels; p++) UNROLL for (uint32_t v = 0; v < PANEL_VECS; v++)
                sum[p][r][v] = multiply_words(input, w[p][v], sum[p][r][v]);
        }
        at += PANEL_VECS * vec_bytes;
        x += pass->x_stride;
        ahead += pass->ahead_step;
    }
    UNROLL for (uint32_t r = 0; r < rows; r++)
    {
        float *out = pass->out + r * pass->out_stride;
        if (pass->add)
            UNROLL for (uint32_t p = 0; p < n_panels; p++) UNROLL for (uint32_t v = 0; v < PANEL_VECS; v++)
                sum[p][r][v] = vec_add(vec_load(out + p * PANEL_WIDTH + v * LANES), sum[p][r][v]);
        UNROLL for (uint32_t p = 0; p < n_panels; p++) UNROLL for (uint32_t v = 0; v < PANEL_VECS; v++)
            vec_store(out + p * PANEL_WIDTH + v * LANES, sum[p][r][v]);
    }
}

KERNEL_INLINE void run_pass_of(const uint32_t rows, const uint32_t n_panels, const bool asks, enum weight_type type,
                               const struct pass *pass)
{
    if (INPUTS_PER_WORD == 2)
        run_pass(rows, n_panels, WEIGHT_BF16_PAIRS, asks, pass);
    else if (type == WEIGHT_F16)
        run_pass(rows, n_panels, WEIGHT_F16, asks, pass);
    else if (type == WEIGHT_BF16)
        run_pass(rows, n_panels, WEIGHT_BF16, asks, pass);
    else
        run_pass(rows, n_panels, WEIGHT_F32, false, pass);
}

typedef void pass_fn(enum weight_type type, const struct pass *pass);
#define NARROW_PASS_FOR(rows)                                                                                                      \
    static void narrow_pass_##rows(enum weight_type type, const struct pass *pass)                                                 \
    {                                                                                                                              \
        run_pass_of(rows, 1, rows >= ASKING_ROWS, type, pass);                                                                                          \
    }
#define WIDE_PASS_FOR(rows)                                                                                                        \
    static void wide_pass_##rows(enum weight_type type, const struct pass *pass)                                                   \
    {                                                                                                                              \
        run_pass_of(rows, PANELS_SIDE, true, type, pass);                                                                                \
    }
FOR_EACH_ROW_COUNT(NARROW_PASS_FOR)
FOR_EACH_PASS_ROWS(WIDE_PASS_FOR)

#define NARROW_PASS_ENTRY(rows) [rows] = narrow_pass_##rows,
#define WIDE_PASS_ENTRY(rows)   [rows] = wide_pass_##rows,
static pass_fn *const narrow_passes[TILE_ROWS + 1] = {FOR_EACH_ROW_COUNT(NARROW_PASS_ENTRY)};
static pass_fn *const wide_passes[PASS_ROWS + 1] = {FOR_EACH_PASS_ROWS(WIDE_PASS_ENTRY)};

/* All rows of a tile with PANELS_SIDE panels. */
static void run_wide_passes(const struct matmul *m, struct pass *pass)
{
    const uint32_t n = (m->n_rows + PASS_ROWS - 1) / PASS_ROWS;
    const float *x = pass->x;
    float *out = pass->out;
    const size_t ahead_step = pass->ahead_step;
    pass->ahead_step = ahead_step / n;
    for (uint32_t i = 0, rows; i < n; i++) {
        rows = m->n_rows / n + (i < m->n_rows % n);
        wide_passes[rows](m->type, pass);
        pass->x += rows;
        pass->out += rows * m->out_stride;
        pass->ahead += pass->ahead_step * pass->n_words;
    }
    pass->x = x;
    pass->out = out;
    pass->ahead_step = ahead_step;
}

static void matmul(const struct matmul *m)
{
    const bool widens = INPUTS_PER_WORD == 1 && m->type != WEIGHT_F32;
    const uint32_t side = widens && m->n_rows >= ASKING_ROWS ? PANELS_SIDE : 1;
    struct pass pass = {
        .panel_bytes = weight_panel_bytes(m->type, m->n_inputs, PANEL_WIDTH),
        .n_words = m->n_inputs / INPUTS_PER_WORD,
        .x = m->x,
        .x_stride = m->n_rows,
        .out_stride = m->out_stride,
        .add = m->add,
        .ahead = m->ahead ? m->ahead : m->panels,
    };
    hs_assert(m->n_rows >= 1 && m->n_rows <= TILE_ROWS && m->n_panels <= CPU_MAX_PANELS_AT_ONCE);
    if (weight_is_quantised(m->type)) {
        matmul_quantised(m);
        return;
    }
    for (uint32_t p = 0, n; p < m->n_panels; p += n) {
        n = m->n_panels - p < side ? 1 : side;
        pass.panels = (const char *)m->panels + p * pass.panel_bytes;
        pass.out = m->out + p * PANEL_WIDTH;
        pass.ahead_step = m->ahead ? m->ahead_bytes / m->n_panels * n / pass.n_words : 0;
        if (n == 1) {
            narrow_passes[m->n_rows](m->type, &pass);
            pass.ahead += pass.ahead_step * pass.n_words;
        } else
            run_wide_passes(m, &pass);
    }
}

#endif

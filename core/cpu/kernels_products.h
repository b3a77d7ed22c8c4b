/*
 * Part of kernels_body.h: the products. Functions whose first parameters are
 * counts are inlined with constant counts, so that their arrays of sums become
 * registers. A sum is always one chain in ascending order; only how many chains
 * run side by side differs.
 */
#ifndef HEARSAY_CPU_KERNELS_PRODUCTS_H
#define HEARSAY_CPU_KERNELS_PRODUCTS_H

enum { PREFETCH_BYTES = 2048, LINE_BYTES = 64 };

/*
 * One row reads the panels as fast as the hardware's own prefetching brings them, and asking for lines as well only slowed it
 * (by 13 %, Zen 4). A few rows multiply for as long as their weights take to come, so they ask early: 8 rows gain 13 %.
 */
KERNEL_INLINE bool asks_early(const uint32_t rows, const enum weight_type type)
{
    return rows > 1 && rows < TILE_ROWS && type != WEIGHT_F32;
}

KERNEL_INLINE void matmul_tile(const uint32_t rows, const uint32_t n_panels, const enum weight_type type, const void *panels,
                               uint32_t n_inputs, const float *x, float *out)
{
    vec sum[CPU_MAX_PANELS_AT_ONCE][TILE_ROWS][PANEL_VECS];
    const size_t value_bytes = type == WEIGHT_F32 ? sizeof(float) : sizeof(uint16_t);
    const size_t panel_bytes = (size_t)n_inputs * PANEL_WIDTH * value_bytes, vec_bytes = VEC_SHORTS * value_bytes;
    UNROLL for (uint32_t p = 0; p < n_panels; p++) UNROLL for (uint32_t r = 0; r < rows; r++)
        UNROLL for (uint32_t v = 0; v < PANEL_VECS; v++) sum[p][r][v] = vec_zero();
    for (uint32_t k = 0; k < n_inputs / INPUTS_PER_WORD; k++) {
        UNROLL for (uint32_t p = 0; p < n_panels; p++)
        {
            const char *weights = (const char *)panels + p * panel_bytes + (size_t)k * PANEL_VECS * vec_bytes;
            if (asks_early(rows, type))
                UNROLL for (uint32_t at = 0; at < PANEL_VECS * vec_bytes; at += LINE_BYTES)
                    __builtin_prefetch(weights + PREFETCH_BYTES + at);
            vec w[PANEL_VECS];
            UNROLL for (uint32_t v = 0; v < PANEL_VECS; v++) w[v] = load_weights(weights + v * vec_bytes, type);
            UNROLL for (uint32_t r = 0; r < rows; r++)
            {
                vec input = vec_broadcast(x[(size_t)k * rows + r]);
                UNROLL for (uint32_t v = 0; v < PANEL_VECS; v++) sum[p][r][v] = multiply_words(input, w[v], sum[p][r][v]);
            }
        }
    }
    UNROLL for (uint32_t p = 0; p < n_panels; p++) UNROLL for (uint32_t r = 0; r < rows; r++)
        UNROLL for (uint32_t v = 0; v < PANEL_VECS; v++)
            vec_store(out + ((size_t)p * rows + r) * PANEL_WIDTH + v * LANES, sum[p][r][v]);
}

/* Few rows leave registers free: more panels side by side hide the latency of
 * the chains. */
KERNEL_INLINE void matmul_rows(const uint32_t rows, const enum weight_type type, const void *panels, uint32_t n_inputs,
                               uint32_t n_panels, const float *x, float *out)
{
    const uint32_t at_once = rows == 1 ? 4 : rows < 4 ? 2 : 1;
    const size_t panel_bytes = (size_t)n_inputs * PANEL_WIDTH * (type == WEIGHT_F32 ? sizeof(float) : sizeof(uint16_t));
    const char *at = panels;
    uint32_t p = 0;
    for (; p + at_once <= n_panels; p += at_once)
        matmul_tile(rows, at_once, type, at + p * panel_bytes, n_inputs, x, out + (size_t)p * rows * PANEL_WIDTH);
    if (at_once > 1)
        for (; p < n_panels; p++)
            matmul_tile(rows, 1, type, at + p * panel_bytes, n_inputs, x, out + (size_t)p * rows * PANEL_WIDTH);
}

#define MATMUL_FOR(rows)                                                                                                           \
    static void matmul_##rows(const void *panels, enum weight_type type, uint32_t n_inputs, uint32_t n_panels, const float *x,     \
                              float *out)                                                                                          \
    {                                                                                                                              \
        if (INPUTS_PER_WORD == 2)                                                                                                  \
            matmul_rows(rows, WEIGHT_BF16_PAIRS, panels, n_inputs, n_panels, x, out);                                              \
        else if (type == WEIGHT_F16)                                                                                               \
            matmul_rows(rows, WEIGHT_F16, panels, n_inputs, n_panels, x, out);                                                     \
        else if (type == WEIGHT_BF16)                                                                                              \
            matmul_rows(rows, WEIGHT_BF16, panels, n_inputs, n_panels, x, out);                                                    \
        else                                                                                                                       \
            matmul_rows(rows, WEIGHT_F32, panels, n_inputs, n_panels, x, out);                                                     \
    }
FOR_EACH_ROW_COUNT(MATMUL_FOR)

static void matmul(const void *panels, enum weight_type type, uint32_t n_inputs, uint32_t n_panels, const float *x, uint32_t n_rows,
                   float *out)
{
    typedef void matmul_fn(const void *, enum weight_type, uint32_t, uint32_t, const float *, float *);
#define MATMUL_ENTRY(rows) [rows] = matmul_##rows,
    static matmul_fn *const by_rows[TILE_ROWS + 1] = {FOR_EACH_ROW_COUNT(MATMUL_ENTRY)};
    hs_assert(n_rows >= 1 && n_rows <= TILE_ROWS && n_panels <= CPU_MAX_PANELS_AT_ONCE);
    by_rows[n_rows](panels, type, n_inputs, n_panels, x, out);
}

#endif

/*
 * Part of kernels_body.h: whole tiles with integer weights, in passes of kernels_quantised.h. Constant counts of rows and panels become
 * registers, as in kernels_products.h.
 */
#ifndef HEARSAY_CPU_KERNELS_QUANTISED_TILES_H
#define HEARSAY_CPU_KERNELS_QUANTISED_TILES_H

typedef void quantised_pass_fn(enum weight_type type, const struct quantised_pass *pass);

#define QUANTISED_PASS_FOR(rows)                                                                                                   \
    static void quantised_narrow_##rows(enum weight_type type, const struct quantised_pass *pass)                                  \
    {                                                                                                                              \
        run_quantised_pass_of(rows, 1, type, pass);                                                                                \
    }                                                                                                                              \
    static void quantised_wide_##rows(enum weight_type type, const struct quantised_pass *pass)                                    \
    {                                                                                                                              \
        run_quantised_pass_of(rows, PANELS_SIDE, type, pass);                                                                      \
    }
FOR_EACH_PASS_ROWS(QUANTISED_PASS_FOR)

#define QUANTISED_ROW_FOR(n_panels)                                                                                                \
    static void quantised_row_##n_panels(enum weight_type type, const struct quantised_pass *pass)                                 \
    {                                                                                                                              \
        run_quantised_pass_of(1, n_panels, type, pass);                                                                            \
    }
FOR_EACH_ROW_PANELS(QUANTISED_ROW_FOR)

/* One row: as many panels side by side as there are, up to ROW_PANELS. */
static void multiply_quantised_row(const struct matmul *m, struct quantised_pass *pass)
{
#define QUANTISED_ROW_ENTRY(n_panels) [n_panels] = quantised_row_##n_panels,
    static quantised_pass_fn *const by_panels[ROW_PANELS + 1] = {FOR_EACH_ROW_PANELS(QUANTISED_ROW_ENTRY)};
    for (uint32_t p = 0, n; p < m->n_panels; p += n) {
        n = m->n_panels - p < ROW_PANELS ? m->n_panels - p : ROW_PANELS;
        by_panels[n](m->type, pass);
        pass->panels += n * pass->panel_bytes;
        pass->ahead += pass->ahead ? n * pass->panel_bytes : 0;
        pass->totals += n * PANEL_WIDTH;
    }
}

/* Many rows go in passes over a few panels, which the passes after the first find in cache. */
static void multiply_quantised_rows(const struct matmul *m, struct quantised_pass *pass)
{
#define QUANTISED_PASS_ENTRY(rows) [rows] = {quantised_narrow_##rows, quantised_wide_##rows},
    static quantised_pass_fn *const by_rows[PASS_ROWS + 1][2] = {FOR_EACH_PASS_ROWS(QUANTISED_PASS_ENTRY)};
    const uint32_t n_passes = (m->n_rows + PASS_ROWS - 1) / PASS_ROWS;
    const float *x = pass->x, *input_sums = pass->input_sums;
    float *totals = pass->totals;
    const char *ahead = pass->ahead;
    for (uint32_t p = 0, n; p < m->n_panels; p += n) {
        const bool wide = m->n_panels - p >= PANELS_SIDE;
        n = wide ? PANELS_SIDE : 1;
        for (uint32_t i = 0, row = 0, rows; i < n_passes; i++, row += rows) {
            rows = m->n_rows / n_passes + (i < m->n_rows % n_passes);
            pass->ahead = i == 0 ? ahead : NULL;
            pass->x = x + row;
            pass->input_sums = input_sums + row;
            pass->totals = totals + ((size_t)p * m->n_rows + row) * PANEL_WIDTH;
            by_rows[rows][wide](m->type, pass);
        }
        pass->panels += n * pass->panel_bytes;
        ahead += ahead ? n * pass->panel_bytes : 0;
    }
}

static void matmul_quantised(const struct matmul *m)
{
    float input_sums[CPU_MAX_GROUPS_WITH_MINIMA * TILE_ROWS];
    _Alignas(64) float totals[CPU_MAX_PANELS_AT_ONCE * TILE_ROWS * PANEL_WIDTH];
    struct quantised_pass pass = {
        .panels = m->panels,
        .panel_bytes = weight_panel_bytes(m->type, m->n_inputs, PANEL_WIDTH),
        .group = weight_group(m->type),
        .n_inputs = m->n_inputs,
        .x = m->x,
        .n_tile_rows = m->n_rows,
        .input_sums = input_sums,
        .totals = totals,
    };
    if (m->ahead && m->ahead_bytes >= m->n_panels * pass.panel_bytes)
        pass.ahead = m->ahead;
    if (weight_has_minimum(m->type)) {
        hs_assert(m->n_inputs <= CPU_MAX_GROUPS_WITH_MINIMA * pass.group);
        sum_inputs(m->n_rows, pass.group, m->n_inputs, m->x, input_sums);
    }
    if (m->n_rows == 1)
        multiply_quantised_row(m, &pass);
    else
        multiply_quantised_rows(m, &pass);
    for (uint32_t p = 0; p < m->n_panels; p++) {
        for (uint32_t r = 0; r < m->n_rows; r++) {
            const float *values = totals + ((size_t)p * m->n_rows + r) * PANEL_WIDTH;
            float *out = m->out + r * m->out_stride + p * PANEL_WIDTH;
            for (uint32_t i = 0; i < PANEL_WIDTH; i += LANES) {
                vec value = vec_load(values + i);
                vec_store(out + i, m->add ? vec_add(vec_load(out + i), value) : value);
            }
        }
    }
}

#endif

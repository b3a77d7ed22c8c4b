/*
 * Part of kernels_body.h: products with weights that stay integers of 4 or 8 bits.
 *
 *     panel    [group 0][group 1] ... [last group, perhaps shorter]
 *     group    [n / per_dword][panel_width] dwords   per_dword = 8 inputs of 4 bits, or 4 of 8 bits
 *              [panel_width] scales in FP16
 *              [panel_width] minima in FP16, if the type has them
 *     dword    one output's inputs k, k+1, ...: 4 bits: input k + 2i in bits 4i, input k + 2i + 1 in bits 16 + 4i;
 *              8 bits: input k + i in bits 8i
 *
 * An output is a lane here too, and its value total = 0, then for each group total = sum * scale + total with sum the chain of
 * multiply-adds of integers and inputs over the group, and with minima total = inputs * minimum + total with the sum of the
 * group's inputs. The integers are exact in every path's words. No step depends on how many rows or panels go side by side.
 *
 * A path defines ROW_PANELS (side by side for one row, no fewer than PANELS_SIDE: enough chains to hide their latency), dwords, load_packed, unpack_words, load_scales and add_words beside what kernels_body.h lists.
 */
#ifndef HEARSAY_CPU_KERNELS_QUANTISED_H
#define HEARSAY_CPU_KERNELS_QUANTISED_H

enum {
    WORDS_PER_PAIR = 2 / INPUTS_PER_WORD,
    SUM_CHAINS = 16, /* a divisor of the words of every group */
    ASKED_LINE = 64, /* bytes */
};

/* Some rows of a tile with some panels. */
struct quantised_pass {
    const char *panels;
    size_t panel_bytes;
    uint32_t group, n_inputs;
    const float *x; /* the first row's; words of a row are n_tile_rows apart */
    uint32_t n_tile_rows;
    const float *input_sums; /* with minima: the first row's; those of a row's groups are n_tile_rows apart */
    float *totals; /* the first row's; panels are n_tile_rows rows apart */
    const char *ahead; /* lines to ask for while it runs, as many as it reads; or NULL */
};

/*
 * sums[group][row] of a tile's inputs. In a group, chain c takes words c, c + 16, ..., and the chains are added in a tree. Rows are
 * interleaved, so that the loops run over memory in order for any number of them.
 */
static void sum_inputs(uint32_t n_rows, uint32_t group, uint32_t n_inputs, const float *x, float *sums)
{
    const uint32_t n_chains = SUM_CHAINS * n_rows;
    for (uint32_t first = 0, n; first < n_inputs; first += n, sums += n_rows) {
        float chains[SUM_CHAINS * TILE_ROWS];
        n = n_inputs - first < group ? n_inputs - first : group;
        for (uint32_t i = 0; i < n_chains; i += LANES) {
            vec chain = vec_zero();
            for (uint32_t word = 0; word < n / INPUTS_PER_WORD; word += SUM_CHAINS)
                chain = add_words(chain, vec_load(x + (size_t)word * n_rows + i));
            vec_store(chains + i, chain);
        }
        for (uint32_t half = SUM_CHAINS / 2; half > 0; half /= 2)
            for (uint32_t i = 0; i < half * n_rows; i++)
                chains[i] += chains[i + half * n_rows];
        for (uint32_t r = 0; r < n_rows; r++)
            sums[r] = chains[r];
        x += (size_t)n / INPUTS_PER_WORD * n_rows;
    }
}

typedef vec group_sums[ROW_PANELS][PASS_ROWS][PANEL_VECS];

/* One group of n inputs: sum[panel][row] are the chains over its integers. */
KERNEL_INLINE void multiply_group(const uint32_t rows, const uint32_t n_panels, const uint32_t bits, const bool has_minimum,
                                  const struct quantised_pass *pass, const char *at, const char *ahead, uint32_t n, const float *x,
                                  group_sums sum)
{
    const uint32_t per_dword = 32 / bits;
    UNROLL for (uint32_t p = 0; p < n_panels; p++) UNROLL for (uint32_t r = 0; r < rows; r++)
        UNROLL for (uint32_t v = 0; v < PANEL_VECS; v++) sum[p][r][v] = vec_zero();
    for (uint32_t k = 0; k < n; k += per_dword, at += PANEL_WIDTH * sizeof(uint32_t)) {
        dwords raw[ROW_PANELS][PANEL_VECS];
        UNROLL for (uint32_t p = 0; p < n_panels; p++) UNROLL for (uint32_t v = 0; v < PANEL_VECS; v++)
            raw[p][v] = load_packed(at + p * pass->panel_bytes + v * LANES * sizeof(uint32_t));
        UNROLL for (uint32_t line = 0; line < n_panels * PANEL_WIDTH * sizeof(uint32_t); line += ASKED_LINE)
            __builtin_prefetch(ahead + line, 0, 2);
        ahead += pass->ahead ? n_panels * PANEL_WIDTH * sizeof(uint32_t) : 0;
        UNROLL for (uint32_t pair = 0; pair < per_dword / 2; pair++)
        {
            vec words[ROW_PANELS][PANEL_VECS][WORDS_PER_PAIR];
            UNROLL for (uint32_t p = 0; p < n_panels; p++) UNROLL for (uint32_t v = 0; v < PANEL_VECS; v++)
                unpack_words(raw[p][v], pair, bits, has_minimum, words[p][v]);
            UNROLL for (uint32_t w = 0; w < WORDS_PER_PAIR; w++) UNROLL for (uint32_t r = 0; r < rows; r++)
            {
                vec input = vec_broadcast(x[r]);
                UNROLL for (uint32_t p = 0; p < n_panels; p++) UNROLL for (uint32_t v = 0; v < PANEL_VECS; v++)
                    sum[p][r][v] = multiply_words(input, words[p][v][w], sum[p][r][v]);
                if (r + 1 == rows)
                    x += pass->n_tile_rows;
            }
        }
    }
}

/* Scales a group's chains and adds them to the totals in out. */
KERNEL_INLINE void add_group(const uint32_t rows, const uint32_t n_panels, const bool has_minimum,
                             const struct quantised_pass *pass, const char *scales, const float *input_sums, group_sums sum)
{
    UNROLL for (uint32_t p = 0; p < n_panels; p++)
    {
        UNROLL for (uint32_t v = 0; v < PANEL_VECS; v++)
        {
            const char *at = scales + p * pass->panel_bytes + v * LANES * sizeof(uint16_t);
            const vec scale = load_scales(at);
            const vec minimum = has_minimum ? load_scales(at + PANEL_WIDTH * sizeof(uint16_t)) : vec_zero();
            UNROLL for (uint32_t r = 0; r < rows; r++)
            {
                float *total = pass->totals + ((size_t)p * pass->n_tile_rows + r) * PANEL_WIDTH + v * LANES;
                vec value = vec_multiply_add(sum[p][r][v], scale, vec_load(total));
                if (has_minimum)
                    value = vec_multiply_add(vec_broadcast(input_sums[r]), minimum, value);
                vec_store(total, value);
            }
        }
    }
}

KERNEL_INLINE void run_quantised_pass(const uint32_t rows, const uint32_t n_panels, const uint32_t bits, const bool has_minimum,
                                      const struct quantised_pass *pass)
{
    const char *at = pass->panels, *ahead = pass->ahead ? pass->ahead : at;
    const size_t group_steps = n_panels * (pass->ahead ? 1 : 0);
    const float *x = pass->x, *input_sums = pass->input_sums;
    for (uint32_t p = 0; p < n_panels; p++)
        for (uint32_t i = 0; i < rows * PANEL_WIDTH; i += LANES)
            vec_store(pass->totals + (size_t)p * pass->n_tile_rows * PANEL_WIDTH + i, vec_zero());
    for (uint32_t first = 0, n; first < pass->n_inputs; first += n) {
        group_sums sum;
        n = pass->n_inputs - first < pass->group ? pass->n_inputs - first : pass->group;
        multiply_group(rows, n_panels, bits, has_minimum, pass, at, ahead, n, x, sum);
        at += (size_t)n * PANEL_WIDTH * bits / 8;
        ahead += group_steps * n * PANEL_WIDTH * bits / 8;
        add_group(rows, n_panels, has_minimum, pass, at, input_sums, sum);
        at += PANEL_WIDTH * sizeof(uint16_t) * (has_minimum ? 2 : 1);
        input_sums += has_minimum ? pass->n_tile_rows : 0;
        x += (size_t)n / INPUTS_PER_WORD * pass->n_tile_rows;
    }
}

KERNEL_INLINE void run_quantised_pass_of(const uint32_t rows, const uint32_t n_panels, enum weight_type type,
                                         const struct quantised_pass *pass)
{
    if (weight_bits(type) == 8)
        run_quantised_pass(rows, n_panels, 8, false, pass);
    else if (weight_has_minimum(type))
        run_quantised_pass(rows, n_panels, 4, true, pass);
    else
        run_quantised_pass(rows, n_panels, 4, false, pass);
}

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

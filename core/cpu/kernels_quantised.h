/*
 * Part of kernels_body.h: products with weights that stay integers of 4 or 8 bits.
 *
 *     panel    [group 0][group 1] ... [last group, perhaps shorter]
 *     group    [n / per_dword][panel_width] dwords   per_dword = 8 inputs of 4 bits, or 4 of 8 bits
 *              [panel_width] scales in FP16
 *              [panel_width] minima in FP16, if the type has them
 *     dword    one output's inputs k, k+1, ...: 4 bits: input k + i in bits 8i, input k + 4 + i in bits 8i + 4; 8 bits: input
 *              k + i in bits 8i. Types without minima store integers plus an offset (weight_offset), so that none is negative.
 *
 * Inputs are integers too (kernels_fixed.h), so that the sum over a group is exact. An output is a lane here as well, and its value
 * total = 0, then for each group total = sum * (scale of the weights * scale of the inputs) + total, and with minima total = sum of
 * the inputs * minimum + total. No step depends on how many rows go side by side.
 *
 * One row takes one panel after the other: a single stream, which the hardware fetches ahead best.
 *
 * A path defines QUANTISED_ROWS and FOR_EACH_QUANTISED_ROWS (rows of a pass), ints, load_ints, store_ints, load_first_ints,
 * store_first_ints, ints_broadcast, ints_from_floats, ints_to_floats, join_planes, low_nibbles, high_nibbles, multiply_nibbles,
 * multiply_bytes and load_scales beside what kernels_body.h lists.
 */
#ifndef HEARSAY_CPU_KERNELS_QUANTISED_H
#define HEARSAY_CPU_KERNELS_QUANTISED_H

/* Some rows of a tile with one panel. */
struct quantised_pass {
    const char *panel;
    uint32_t group, n_inputs;
    const int32_t *fixed; /* the first row's; words of a row are n_tile_rows apart */
    uint32_t n_tile_rows;
    float *totals;     /* [rows][PANEL_WIDTH] */
    const char *ahead; /* as much as the panel holds, to be asked for while it runs; or NULL */
};

typedef ints group_sums[QUANTISED_ROWS][PANEL_VECS][INPUT_PLANES];

/* One group of n inputs: the exact sums of its integers, plane by plane of the inputs. */
KERNEL_INLINE void multiply_group(const uint32_t rows, const uint32_t bits, const bool asks, const char *at, const char *ahead,
                                  uint32_t n, const int32_t *quads, uint32_t n_tile_rows, group_sums sum)
{
    const size_t vec_bytes = LANES * sizeof(uint32_t);
    for (uint32_t k = 0; k < n; k += 32 / bits, at += PANEL_VECS * vec_bytes) {
        ints low[PANEL_VECS], high[PANEL_VECS];
        UNROLL for (uint32_t v = 0; v < PANEL_VECS; v++)
        {
            const ints raw = load_ints(at + v * vec_bytes);
            low[v] = bits == 4 ? low_nibbles(raw) : raw;
            high[v] = bits == 4 ? high_nibbles(raw) : raw;
        }
        if (asks) {
            UNROLL for (uint32_t line = 0; line < PANEL_VECS * vec_bytes; line += 64) __builtin_prefetch(ahead + line, 0, 2);
            ahead += PANEL_VECS * vec_bytes;
        }
        UNROLL for (uint32_t r = 0; r < rows; r++) UNROLL for (uint32_t j = 0; j < INPUT_PLANES; j++)
        {
            const ints x = ints_broadcast(quads[j * n_tile_rows + r]);
            if (bits == 4) {
                const ints y = ints_broadcast(quads[(INPUT_PLANES + j) * n_tile_rows + r]);
                UNROLL for (uint32_t v = 0; v < PANEL_VECS; v++) sum[r][v][j] =
                    multiply_nibbles(sum[r][v][j], low[v], x, high[v], y);
            } else {
                UNROLL for (uint32_t v = 0; v < PANEL_VECS; v++) sum[r][v][j] = multiply_bytes(sum[r][v][j], low[v], x);
            }
        }
        quads += (bits == 4 ? 2 : 1) * INPUT_PLANES * n_tile_rows;
    }
}

/* Scales a group's sums and adds them to the totals. */
KERNEL_INLINE void add_group(const uint32_t rows, const bool has_minimum, const char *scales, const float *header,
                             uint32_t n_tile_rows, group_sums sum, float *totals)
{
    UNROLL for (uint32_t v = 0; v < PANEL_VECS; v++)
    {
        const char *at = scales + v * LANES * sizeof(uint16_t);
        const vec scale = load_scales(at);
        const vec minimum = has_minimum ? load_scales(at + PANEL_WIDTH * sizeof(uint16_t)) : vec_zero();
        UNROLL for (uint32_t r = 0; r < rows; r++)
        {
            float *total = totals + r * PANEL_WIDTH + v * LANES;
            const vec both = vec_multiply(scale, vec_broadcast(header[r]));
            vec value = vec_multiply_add(join_planes(sum[r][v]), both, vec_load(total));
            if (has_minimum)
                value = vec_multiply_add(vec_broadcast(header[n_tile_rows + r]), minimum, value);
            vec_store(total, value);
        }
    }
}

/* Constant groups leave no loop but that over the groups. */
KERNEL_INLINE void run_quantised_pass(const uint32_t rows, const uint32_t bits, const bool has_minimum, const uint32_t constant_group,
                                      const bool asks, const struct quantised_pass *pass)
{
    const uint32_t group = constant_group ? constant_group : pass->group;
    const char *at = pass->panel, *ahead = pass->ahead;
    const int32_t *fixed = pass->fixed;
    const uint32_t n_tile_rows = pass->n_tile_rows;
    for (uint32_t i = 0; i < rows * PANEL_WIDTH; i += LANES)
        vec_store(pass->totals + i, vec_zero());
    for (uint32_t first = 0, n; first < pass->n_inputs; first += n) {
        group_sums sum;
        n = constant_group || pass->n_inputs - first >= group ? group : pass->n_inputs - first;
        UNROLL for (uint32_t r = 0; r < rows; r++) UNROLL for (uint32_t j = 0; j < INPUT_PLANES; j++)
            UNROLL for (uint32_t v = 0; v < PANEL_VECS; v++) sum[r][v][j] =
                has_minimum ? ints_broadcast(0) : ints_broadcast(fixed[(2 + j) * n_tile_rows + r]);
        multiply_group(rows, bits, asks, at, ahead, n, fixed + HEADER_WORDS * n_tile_rows, n_tile_rows, sum);
        at += (size_t)n * PANEL_WIDTH * bits / 8;
        add_group(rows, has_minimum, at, (const float *)fixed, n_tile_rows, sum, pass->totals);
        at += PANEL_WIDTH * sizeof(uint16_t) * (has_minimum ? 2 : 1);
        ahead = asks ? pass->ahead + (at - pass->panel) : NULL;
        fixed += (size_t)cpu_fixed_group_words(n, INPUT_PLANES) * n_tile_rows;
    }
}

KERNEL_INLINE void run_quantised_pass_of(const uint32_t rows, const bool asks, enum weight_type type,
                                         const struct quantised_pass *pass)
{
    if (weight_bits(type) == 8)
        run_quantised_pass(rows, 8, false, 0, asks, pass);
    else if (type == WEIGHT_W4_G32_MIN) /* Q4_1; inputs come in multiples of 32 */
        run_quantised_pass(rows, 4, true, 32, asks, pass);
    else if (weight_has_minimum(type))
        run_quantised_pass(rows, 4, true, 0, asks, pass);
    else
        run_quantised_pass(rows, 4, false, 0, asks, pass);
}

typedef void quantised_pass_fn(enum weight_type type, const struct quantised_pass *pass);

#define QUANTISED_PASS_FOR(rows)                                                                                                   \
    static void quantised_pass_##rows(enum weight_type type, const struct quantised_pass *pass)                                    \
    {                                                                                                                              \
        run_quantised_pass_of(rows, false, type, pass);                                                                            \
    }                                                                                                                              \
    static void asking_pass_##rows(enum weight_type type, const struct quantised_pass *pass)                                       \
    {                                                                                                                              \
        run_quantised_pass_of(rows, true, type, pass);                                                                             \
    }
FOR_EACH_QUANTISED_ROWS(QUANTISED_PASS_FOR)

/* Of a pass: minima and products of whole bytes need registers, too. */
static uint32_t most_pass_rows(enum weight_type type)
{
    const bool fewer = weight_bits(type) == 8 || weight_has_minimum(type);
    return fewer && QUANTISED_ROWS > 4 ? 4 : QUANTISED_ROWS;
}

/* Many rows go in passes over a panel, which the passes after the first find in cache. Only the first asks for the next panel. */
static void multiply_quantised_panel(const struct matmul *m, struct quantised_pass *pass, const char *ahead)
{
#define QUANTISED_PASS_ENTRY(rows) [rows] = {quantised_pass_##rows, asking_pass_##rows},
    static quantised_pass_fn *const by_rows[QUANTISED_ROWS + 1][2] = {FOR_EACH_QUANTISED_ROWS(QUANTISED_PASS_ENTRY)};
    const uint32_t most = most_pass_rows(m->type), n_passes = (m->n_rows + most - 1) / most;
    float *totals = pass->totals;
    for (uint32_t i = 0, row = 0, rows; i < n_passes; i++, row += rows) {
        rows = m->n_rows / n_passes + (i < m->n_rows % n_passes);
        pass->ahead = i == 0 && m->n_rows > 1 ? ahead : NULL;
        pass->fixed = m->fixed + row;
        pass->totals = totals + (size_t)row * PANEL_WIDTH;
        by_rows[rows][pass->ahead != NULL](m->type, pass);
    }
    pass->totals = totals;
}

static void matmul_quantised(const struct matmul *m)
{
    _Alignas(64) float totals[TILE_ROWS * PANEL_WIDTH];
    const size_t panel_bytes = weight_panel_bytes(m->type, m->n_inputs, PANEL_WIDTH);
    struct quantised_pass pass = {
        .panel = m->panels,
        .group = weight_group(m->type),
        .n_inputs = m->n_inputs,
        .n_tile_rows = m->n_rows,
        .totals = totals,
    };
    hs_assert(m->fixed);
    for (uint32_t p = 0; p < m->n_panels; p++, pass.panel += panel_bytes) {
        const char *ahead = m->ahead && m->ahead_bytes >= panel_bytes ? m->ahead : NULL;
        multiply_quantised_panel(m, &pass, p + 1 < m->n_panels ? pass.panel + panel_bytes : ahead);
        for (uint32_t r = 0; r < m->n_rows; r++) {
            float *out = m->out + r * m->out_stride + p * PANEL_WIDTH;
            for (uint32_t i = 0; i < PANEL_WIDTH; i += LANES) {
                vec value = vec_load(totals + r * PANEL_WIDTH + i);
                vec_store(out + i, m->add ? vec_add(vec_load(out + i), value) : value);
            }
        }
    }
}

#endif

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

#endif

/* Part of kernels_body.h: sums of values and states of attention. Constant counts become registers, as in kernels_products.h. */
#ifndef HEARSAY_CPU_KERNELS_VALUES_H
#define HEARSAY_CPU_KERNELS_VALUES_H

/* What some of the block's queries see, and what all see, in words of keys. */
struct word_ranges {
    uint32_t first, last, common_first, common_last;
};

KERNEL_INLINE struct word_ranges find_words(uint32_t n_queries, const struct key_range *ranges)
{
    struct key_range some = ranges[0], all = ranges[0];
    for (uint32_t q = 1; q < n_queries; q++) {
        some.first = ranges[q].first < some.first ? ranges[q].first : some.first;
        some.last = ranges[q].last > some.last ? ranges[q].last : some.last;
        all.first = ranges[q].first > all.first ? ranges[q].first : all.first;
        all.last = ranges[q].last < all.last ? ranges[q].last : all.last;
    }
    return (struct word_ranges){some.first / INPUTS_PER_WORD, (some.last + INPUTS_PER_WORD - 1) / INPUTS_PER_WORD,
                                (all.first + INPUTS_PER_WORD - 1) / INPUTS_PER_WORD, all.last / INPUTS_PER_WORD};
}

/*
 * The keys of one word for those queries that see them. Where a query sees one key of a pair, the other's value is taken as zero,
 * for it may hold anything.
 */
KERNEL_INLINE void accumulate_seen(const uint32_t n_queries, const uint32_t n_vecs, const float *weights, size_t stride,
                                   const struct key_range *ranges, uint32_t word, const vec *value, vec sum[][WIDE_VECS])
{
    const uint32_t low = word * INPUTS_PER_WORD, high = low + INPUTS_PER_WORD - 1;
    UNROLL for (uint32_t q = 0; q < n_queries; q++)
    {
        bool sees_low = low >= ranges[q].first && low < ranges[q].last;
        bool sees_high = high >= ranges[q].first && high < ranges[q].last;
        if (sees_low || sees_high) {
            vec weight = vec_broadcast(weights[q * stride + word]);
            UNROLL for (uint32_t v = 0; v < n_vecs; v++) sum[q][v] =
                multiply_words(weight, keep_in_pair(value[v], sees_low, sees_high), sum[q][v]);
        }
    }
}

/* n_vecs vectors of values, from value `column` on. */
KERNEL_INLINE void accumulate_columns(const uint32_t n_queries, const uint32_t n_vecs, const float *weights, size_t stride,
                                      const struct key_range *ranges, const struct word_ranges *words, const uint16_t *const *tiles,
                                      const uint16_t *const *ahead, uint32_t n_values, uint32_t column, float *out)
{
    vec sum[TILE_ROWS][WIDE_VECS];
    UNROLL for (uint32_t q = 0; q < n_queries; q++) UNROLL for (uint32_t v = 0; v < n_vecs; v++) sum[q][v] = vec_zero();
    for (uint32_t word = words->first; word < words->last; word++) {
        const uint32_t tile = word / WORDS_PER_TILE;
        const size_t at = ((size_t)(word % WORDS_PER_TILE) * n_values + column) * INPUTS_PER_WORD;
        vec value[WIDE_VECS];
        if (ahead)
            UNROLL for (uint32_t i = 0; i < n_vecs * VEC_SHORTS; i += LINE_SHORTS) ask_for(ahead[tile] + at + i);
        UNROLL for (uint32_t v = 0; v < n_vecs; v++) value[v] = load_stored(tiles[tile] + at + v * VEC_SHORTS);
        if (word < words->common_first || word >= words->common_last) {
            accumulate_seen(n_queries, n_vecs, weights, stride, ranges, word, value, sum);
            continue;
        }
        UNROLL for (uint32_t q = 0; q < n_queries; q++)
        {
            vec weight = vec_broadcast(weights[q * stride + word]);
            UNROLL for (uint32_t v = 0; v < n_vecs; v++) sum[q][v] = multiply_words(weight, value[v], sum[q][v]);
        }
    }
    UNROLL for (uint32_t q = 0; q < n_queries; q++) UNROLL for (uint32_t v = 0; v < n_vecs; v++)
        vec_store(out + (size_t)q * n_values + column + v * LANES, sum[q][v]);
}

KERNEL_INLINE void accumulate_tiles(const uint32_t n_queries, const float *weights, size_t stride, const struct key_range *ranges,
                                    const uint16_t *const *tiles, const uint16_t *const *ahead, uint32_t n_values, float *out)
{
    const uint32_t at_once = n_queries <= FEW_QUERIES ? WIDE_VECS : PANEL_VECS;
    const struct word_ranges words = find_words(n_queries, ranges);
    uint32_t i = 0;
    for (; i + at_once * LANES <= n_values; i += at_once * LANES)
        accumulate_columns(n_queries, at_once, weights, stride, ranges, &words, tiles, ahead, n_values, i, out);
    for (; i < n_values; i += PANEL_WIDTH)
        accumulate_columns(n_queries, PANEL_VECS, weights, stride, ranges, &words, tiles, ahead, n_values, i, out);
}

static void accumulate_values(const float *weights, size_t stride, uint32_t n_queries, const struct key_range *ranges,
                              const uint16_t *const *tiles, const uint16_t *const *ahead, uint32_t n_values, float *out)
{
#define ACCUMULATE_CASE(rows)                                                                                                      \
    case rows:                                                                                                                     \
        accumulate_tiles(rows, weights, stride, ranges, tiles, ahead, n_values, out);                                              \
        return;
    switch (n_queries) {
        FOR_EACH_ROW_COUNT(ACCUMULATE_CASE)
    }
    hs_assert(!"n_queries within tile_rows");
}

/* ---- states ---- */

static void merge_states(uint32_t n_queries, uint32_t n_values, const struct attention_state *part, struct attention_state *total)
{
    float keep[CPU_STATE_QUERIES], add[CPU_STATE_QUERIES];
    for (uint32_t q = 0; q < n_queries; q += LANES) {
        vec a = vec_load(total->maximum + q), b = vec_load(part->maximum + q), highest = vec_max(a, b);
        vec keeps = vec_exp2(vec_subtract(a, highest)), adds = vec_exp2(vec_subtract(b, highest));
        vec_store(keep + q, keeps);
        vec_store(add + q, adds);
        vec_store(total->maximum + q, highest);
        vec_store(total->sum + q, vec_multiply_add(vec_load(total->sum + q), keeps, vec_multiply(vec_load(part->sum + q), adds)));
    }
    for (uint32_t q = 0; q < n_queries; q++) {
        const vec keeps = vec_broadcast(keep[q]), adds = vec_broadcast(add[q]);
        float *to = total->values + (size_t)q * n_values;
        const float *from = part->values + (size_t)q * n_values;
        for (uint32_t i = 0; i < n_values; i += LANES)
            vec_store(to + i, vec_multiply_add(vec_load(to + i), keeps, vec_multiply(vec_load(from + i), adds)));
    }
}

static void finish_states(uint32_t n_queries, uint32_t n_values, struct attention_state *state)
{
    for (uint32_t q = 0; q < n_queries; q++) {
        const vec scale = vec_broadcast(1.0f / state->sum[q]);
        float *values = state->values + (size_t)q * n_values;
        for (uint32_t i = 0; i < n_values; i += LANES)
            vec_store(values + i, vec_multiply(vec_load(values + i), scale));
    }
}

#endif

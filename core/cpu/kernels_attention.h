/*
 * Part of kernels_body.h: exponentials and attention. Constant counts become registers, as in kernels_products.h.
 */
#ifndef HEARSAY_CPU_KERNELS_ATTENTION_H
#define HEARSAY_CPU_KERNELS_ATTENTION_H

/*
 * 2^x = 2^n p(x - n) with n the nearest integer and p a polynomial; exactly 1 at 0. Below 2^-126 paths without an instruction for it
 * give 2^-126. Coefficients: least largest relative error over [-1/2, 1/2] with the constant 1 given, 1.0e-4 for degree 3 (a weight
 * in bfloat16 has 2e-3), 1.6e-7 in float32 for degree 5; by iteratively reweighted least squares over 4,001 points.
 */
KERNEL_INLINE vec vec_exp2(vec x)
{
    static const float degree_3[] = {0x1.c2a22cp-5f, 0x1.f00c5ap-3f, 0x1.62f5fcp-1f};
    static const float degree_5[] = {0x1.5bba1ap-10f, 0x1.3cea8ap-7f, 0x1.c6b752p-5f, 0x1.ebf9bcp-3f, 0x1.62e42ap-1f};
    const float *coefficients = INPUTS_PER_WORD == 2 ? degree_3 : degree_5;
    const uint32_t degree = INPUTS_PER_WORD == 2 ? 3 : 5;
    x = vec_within_exponents(x);
    vec n = vec_round(x), f = vec_subtract(x, n);
    vec y = vec_broadcast(coefficients[0]);
    UNROLL for (uint32_t i = 1; i < degree; i++) y = vec_multiply_add(y, f, vec_broadcast(coefficients[i]));
    return vec_scale_pow2(vec_multiply_add(y, f, vec_broadcast(1.0f)), n);
}

/*
 * e^x for x clamped to [-87, 88]: x = n ln 2 + r with |r| <= ln 2 / 2, then a polynomial of degree 7 in r (coefficients:
 * Moshier, Cephes expf) times 2^n. Relative error below 2e-7; exactly 1 at 0. What becomes bfloat16 does with less.
 */
KERNEL_INLINE vec vec_exp(vec x)
{
    x = vec_min(vec_max(x, vec_broadcast(-87.0f)), vec_broadcast(88.0f));
    if (INPUTS_PER_WORD == 2)
        return vec_exp2(vec_multiply(x, vec_broadcast(1.44269504088896341f)));
    vec n = vec_round(vec_multiply(x, vec_broadcast(1.44269504088896341f)));
    vec r = vec_multiply_add(n, vec_broadcast(-0.693359375f), x);
    r = vec_multiply_add(n, vec_broadcast(2.12194440e-4f), r);
    vec y = vec_broadcast(1.9875691500e-4f);
    y = vec_multiply_add(y, r, vec_broadcast(1.3981999507e-3f));
    y = vec_multiply_add(y, r, vec_broadcast(8.3334519073e-3f));
    y = vec_multiply_add(y, r, vec_broadcast(4.1665795894e-2f));
    y = vec_multiply_add(y, r, vec_broadcast(1.6666665459e-1f));
    y = vec_multiply_add(y, r, vec_broadcast(5.0000001201e-1f));
    y = vec_multiply_add(y, vec_multiply(r, r), r);
    return vec_scale_pow2(vec_add(y, vec_broadcast(1.0f)), n);
}

static void silu_multiply(const float *gate, const float *up, float *out, uint32_t n)
{
    const vec one = vec_broadcast(1.0f);
    for (uint32_t i = 0; i < n; i += LANES) {
        vec g = vec_load(gate + i);
        vec divisor = vec_add(one, vec_exp(vec_multiply(g, vec_broadcast(-1.0f))));
        vec_store(out + i, vec_multiply(vec_divide(g, divisor), vec_load(up + i)));
    }
}

/* ---- attention ---- */

/* With this many queries or fewer, twice as many vectors side by side still fit the registers and hide the chains' latency. */
enum { FEW_QUERIES = TILE_ROWS / 4, WIDE_VECS = 2 * PANEL_VECS };
enum {
    WORDS_PER_TILE = CPU_KEY_TILE / INPUTS_PER_WORD,     /* of slots */
    KEY_ROW_SHORTS = CPU_KEY_TILE * INPUTS_PER_WORD,     /* one word of all keys of a tile */
    LINE_SHORTS = 32,                                    /* in a cache line */
    KEY_ROWS_PER_LINE = LINE_SHORTS / KEY_ROW_SHORTS,    /* words come in even numbers where this is 2 */
};

/*
 * Into the second-level cache: what is asked for the first waits in the few slots of its misses, and 13 GB/s was all that came from
 * scattered pages, against 21 to 28 (Zen 4).
 */
KERNEL_INLINE void ask_for(const uint16_t *line)
{
    __builtin_prefetch(line, 0, 2);
}

/* Scores with n_vecs vectors of keys, from vector `first` of the tiles on. */
KERNEL_INLINE void score_vectors(const uint32_t n_queries, const uint32_t n_vecs, const float *queries, uint32_t n_inputs,
                                 const uint16_t *const *tiles, const uint16_t *const *ahead, uint32_t first, float *out,
                                 size_t stride)
{
    const uint16_t *keys[WIDE_VECS];
    vec sum[TILE_ROWS][WIDE_VECS];
    UNROLL for (uint32_t v = 0; v < n_vecs; v++) keys[v] = tiles[(first + v) / KEY_VECS] + (first + v) % KEY_VECS * VEC_SHORTS;
    UNROLL for (uint32_t q = 0; q < n_queries; q++) UNROLL for (uint32_t v = 0; v < n_vecs; v++) sum[q][v] = vec_zero();
    for (uint32_t line = 0; line < n_inputs / INPUTS_PER_WORD; line += KEY_ROWS_PER_LINE) {
        if (ahead)
            UNROLL for (uint32_t v = 0; v < n_vecs; v += KEY_VECS)
                ask_for(ahead[(first + v) / KEY_VECS] + (size_t)line * KEY_ROW_SHORTS);
        UNROLL for (uint32_t i = line; i < line + KEY_ROWS_PER_LINE; i++)
        {
            vec key[WIDE_VECS];
            UNROLL for (uint32_t v = 0; v < n_vecs; v++) key[v] = load_stored(keys[v] + (size_t)i * KEY_ROW_SHORTS);
            UNROLL for (uint32_t q = 0; q < n_queries; q++)
            {
                vec query = vec_broadcast(queries[(size_t)i * n_queries + q]);
                UNROLL for (uint32_t v = 0; v < n_vecs; v++) sum[q][v] = multiply_words(query, key[v], sum[q][v]);
            }
        }
    }
    UNROLL for (uint32_t q = 0; q < n_queries; q++) UNROLL for (uint32_t v = 0; v < n_vecs; v++)
        vec_store(out + q * stride + (first + v) * LANES, sum[q][v]);
}

KERNEL_INLINE void score_tiles(const uint32_t n_queries, const float *queries, uint32_t n_inputs, const uint16_t *const *tiles,
                               const uint16_t *const *ahead, uint32_t n_tiles, float *out, size_t stride)
{
    const uint32_t at_once = n_queries <= FEW_QUERIES ? WIDE_VECS : PANEL_VECS;
    uint32_t v = 0;
    for (; v + at_once <= n_tiles * KEY_VECS; v += at_once)
        score_vectors(n_queries, at_once, queries, n_inputs, tiles, ahead, v, out, stride);
    for (; v < n_tiles * KEY_VECS; v++)
        score_vectors(n_queries, 1, queries, n_inputs, tiles, ahead, v, out, stride);
}

static void score_keys(const float *queries, uint32_t n_queries, uint32_t n_inputs, const uint16_t *const *tiles, uint32_t n_tiles,
                       const uint16_t *const *ahead, float *out, size_t stride)
{
#define SCORE_CASE(rows)                                                                                                           \
    case rows:                                                                                                                     \
        score_tiles(rows, queries, n_inputs, tiles, ahead, n_tiles, out, stride);                                                  \
        return;
    switch (n_queries) {
        FOR_EACH_ROW_COUNT(SCORE_CASE)
    }
    hs_assert(!"n_queries within tile_rows");
}

/* The vector of scores at key, with `other` in the lanes of keys outside the range. */
KERNEL_INLINE vec keep_range(vec scores, vec other, uint32_t key, struct key_range range)
{
    if (key >= range.first && key + LANES <= range.last)
        return scores;
    return vec_keep(scores, other, (int)range.first - (int)key, (int)range.last - (int)key);
}

/* Vectors go in pairs from even ones on, each with its own maxima and sums. */
static void softmax_segment(float *scores, size_t stride, uint32_t n_queries, const struct key_range *ranges, float *maximum,
                            float *sum)
{
    enum { PAIR = 2 * LANES };
    const vec lowest = vec_broadcast(CPU_NO_SCORE);
    /* All maxima first, so that one query's way through its lanes overlaps with the next one's keys. */
    for (uint32_t q = 0; q < n_queries; q++) {
        const float *row = scores + q * stride;
        const struct key_range range = ranges[q];
        vec low = lowest, high = lowest;
        for (uint32_t i = range.first / PAIR * PAIR; i < range.last; i += PAIR) {
            low = vec_max(keep_range(vec_load(row + i), lowest, i, range), low);
            high = vec_max(keep_range(vec_load(row + i + LANES), lowest, i + LANES, range), high);
        }
        maximum[q] = vec_reduce_max(vec_max(low, high));
    }
    for (uint32_t q = 0; q < n_queries; q++) {
        float *row = scores + q * stride;
        const struct key_range range = ranges[q];
        const vec highest = vec_broadcast(maximum[q]);
        vec low = vec_zero(), high = vec_zero();
        for (uint32_t i = range.first / PAIR * PAIR; i < range.last; i += PAIR) {
            vec a = keep_range(vec_exp2(vec_subtract(vec_load(row + i), highest)), vec_zero(), i, range);
            vec b = keep_range(vec_exp2(vec_subtract(vec_load(row + i + LANES), highest)), vec_zero(), i + LANES, range);
            store_attention_weights(row, i, a, b);
            low = vec_add(low, a);
            high = vec_add(high, b);
        }
        sum[q] = vec_reduce_add(vec_add(low, high));
    }
}

/* ---- values ---- */

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
        vec_store(total->sum + q,
                  vec_multiply_add(vec_load(total->sum + q), keeps, vec_multiply(vec_load(part->sum + q), adds)));
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

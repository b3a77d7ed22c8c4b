/* Part of kernels_body.h: scores of keys and the softmax over them. Constant counts become registers, as in kernels_products.h. */
#ifndef HEARSAY_CPU_KERNELS_SCORES_H
#define HEARSAY_CPU_KERNELS_SCORES_H

/* With this many queries or fewer, twice as many vectors side by side still fit the registers and hide the chains' latency. */
enum { FEW_QUERIES = TILE_ROWS / 4, WIDE_VECS = 2 * PANEL_VECS };
enum {
    WORDS_PER_TILE = CPU_KEY_TILE / INPUTS_PER_WORD,  /* of slots */
    KEY_ROW_SHORTS = CPU_KEY_TILE * INPUTS_PER_WORD,  /* one word of all keys of a tile */
    LINE_SHORTS = 32,                                 /* in a cache line */
    KEY_ROWS_PER_LINE = LINE_SHORTS / KEY_ROW_SHORTS, /* words come in even numbers where this is 2 */
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
    /* Tile after tile is asked for, though they are read side by side: that way the hardware's own requests fit in with them. */
    const uint32_t tile_shorts = n_inputs * CPU_KEY_TILE;
    uint32_t tile = first / KEY_VECS, asked = 0;
    for (uint32_t line = 0; line < n_inputs / INPUTS_PER_WORD; line += KEY_ROWS_PER_LINE) {
        if (ahead) {
            UNROLL for (uint32_t v = 0; v < n_vecs; v += KEY_VECS)
            {
                ask_for(ahead[tile] + asked);
                asked += LINE_SHORTS;
                if (asked >= tile_shorts) {
                    asked = 0;
                    tile++;
                }
            }
        }
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

#endif

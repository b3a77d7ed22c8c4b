/*
 * Part of kernels_body.h: exponentials and attention. Constant counts become registers, as in kernels_products.h.
 */
#ifndef HEARSAY_CPU_KERNELS_ATTENTION_H
#define HEARSAY_CPU_KERNELS_ATTENTION_H

/*
 * e^x for x clamped to [-87, 88]: x = n ln 2 + r with |r| <= ln 2 / 2, then a polynomial of degree 7 in r (coefficients:
 * Moshier, Cephes expf) times 2^n. Relative error below 2e-7; exactly 1 at 0.
 */
KERNEL_INLINE vec vec_exp(vec x)
{
    x = vec_min(vec_max(x, vec_broadcast(-87.0f)), vec_broadcast(88.0f));
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

/* Scores with n_vecs vectors of keys, from vector `first` of the tiles on. */
KERNEL_INLINE void score_vectors(const uint32_t n_queries, const uint32_t n_vecs, const float *queries, uint32_t n_inputs,
                                 const uint16_t *const *tiles, uint32_t first, float *out, size_t stride)
{
    const uint16_t *keys[WIDE_VECS];
    vec sum[TILE_ROWS][WIDE_VECS];
    UNROLL for (uint32_t v = 0; v < n_vecs; v++) keys[v] = tiles[(first + v) / KEY_VECS] + (first + v) % KEY_VECS * VEC_SHORTS;
    UNROLL for (uint32_t q = 0; q < n_queries; q++) UNROLL for (uint32_t v = 0; v < n_vecs; v++) sum[q][v] = vec_zero();
    for (uint32_t i = 0; i < n_inputs / INPUTS_PER_WORD; i++) {
        vec key[WIDE_VECS];
        UNROLL for (uint32_t v = 0; v < n_vecs; v++) key[v] = load_stored(keys[v] + (size_t)i * CPU_KEY_TILE * INPUTS_PER_WORD);
        UNROLL for (uint32_t q = 0; q < n_queries; q++)
        {
            vec query = vec_broadcast(queries[(size_t)i * n_queries + q]);
            UNROLL for (uint32_t v = 0; v < n_vecs; v++) sum[q][v] = multiply_words(query, key[v], sum[q][v]);
        }
    }
    UNROLL for (uint32_t q = 0; q < n_queries; q++) UNROLL for (uint32_t v = 0; v < n_vecs; v++)
        vec_store(out + q * stride + (first + v) * LANES, sum[q][v]);
}

KERNEL_INLINE void score_tiles(const uint32_t n_queries, const float *queries, uint32_t n_inputs, const uint16_t *const *tiles,
                               uint32_t n_tiles, float *out, size_t stride)
{
    const uint32_t at_once = n_queries <= FEW_QUERIES ? WIDE_VECS : PANEL_VECS;
    uint32_t v = 0;
    for (; v + at_once <= n_tiles * KEY_VECS; v += at_once)
        score_vectors(n_queries, at_once, queries, n_inputs, tiles, v, out, stride);
    for (; v < n_tiles * KEY_VECS; v++)
        score_vectors(n_queries, 1, queries, n_inputs, tiles, v, out, stride);
}

static void score_keys(const float *queries, uint32_t n_queries, uint32_t n_inputs, const uint16_t *const *tiles, uint32_t n_tiles,
                       float *out, size_t stride)
{
#define SCORE_CASE(rows)                                                                                                           \
    case rows:                                                                                                                     \
        score_tiles(rows, queries, n_inputs, tiles, n_tiles, out, stride);                                                         \
        return;
    switch (n_queries) {
        FOR_EACH_ROW_COUNT(SCORE_CASE)
    }
    hs_assert(!"n_queries within tile_rows");
}

static void softmax_segment(float *scores, uint32_t first, uint32_t last, float *maximum, float *sum)
{
    const vec lowest = vec_broadcast(-INFINITY);
    uint32_t begin = first / LANES * LANES;
    vec top = lowest, total = vec_zero();
    float lanes[LANES];

    hs_assert(first < last && last <= CPU_KV_SEGMENT);
    for (uint32_t i = begin; i < last; i += LANES) {
        vec s = vec_load(scores + i);
        if (i < first || i + LANES > last)
            s = vec_keep(s, lowest, (int)first - (int)i, (int)last - (int)i);
        top = vec_max(top, s);
    }
    vec_store(lanes, top);
    float highest = lanes[0];
    for (uint32_t i = 1; i < LANES; i++)
        highest = lanes[i] > highest ? lanes[i] : highest;
    const vec shift = vec_broadcast(-highest);
    for (uint32_t i = begin; i < last; i += LANES) {
        vec e = vec_exp(vec_add(vec_load(scores + i), shift));
        if (i < first || i + LANES > last)
            e = vec_keep(e, vec_zero(), (int)first - (int)i, (int)last - (int)i);
        store_attention_weights(scores, i, e);
        total = vec_add(total, e);
    }
    vec_store(lanes, total);
    for (uint32_t half = LANES / 2; half > 0; half /= 2)
        for (uint32_t i = 0; i < half; i++)
            lanes[i] += lanes[i + half];
    *maximum = highest;
    *sum = lanes[0];
}

/* Adds keys first .. last-1 to n_vecs vectors of values, from value `column` on. */
KERNEL_INLINE void accumulate_columns(const uint32_t n_queries, const uint32_t n_vecs, const float *weights, size_t stride,
                                      const uint16_t *const *tiles, uint32_t n_values, uint32_t column, uint32_t first,
                                      uint32_t last, float *out)
{
    enum { WORDS_PER_TILE = CPU_KEY_TILE / INPUTS_PER_WORD };
    vec sum[TILE_ROWS][WIDE_VECS];
    UNROLL for (uint32_t q = 0; q < n_queries; q++) UNROLL for (uint32_t v = 0; v < n_vecs; v++) sum[q][v] =
        vec_load(out + (size_t)q * n_values + column + v * LANES);
    for (uint32_t word = first / INPUTS_PER_WORD; word * INPUTS_PER_WORD < last; word++) {
        const uint16_t *values =
            tiles[word / WORDS_PER_TILE] + ((size_t)(word % WORDS_PER_TILE) * n_values + column) * INPUTS_PER_WORD;
        vec value[WIDE_VECS];
        UNROLL for (uint32_t v = 0; v < n_vecs; v++) value[v] = load_stored(values + v * VEC_SHORTS);
        /* Only one key of a pair may be seen: the other is taken as zero, for it may hold anything. */
        if (INPUTS_PER_WORD == 2 && (word * 2 < first || word * 2 + 1 >= last))
            UNROLL for (uint32_t v = 0; v < n_vecs; v++) value[v] = keep_in_pair(value[v], word * 2 >= first, word * 2 + 1 < last);
        UNROLL for (uint32_t q = 0; q < n_queries; q++)
        {
            vec weight = vec_broadcast(weights[q * stride + word]);
            UNROLL for (uint32_t v = 0; v < n_vecs; v++) sum[q][v] = multiply_words(weight, value[v], sum[q][v]);
        }
    }
    UNROLL for (uint32_t q = 0; q < n_queries; q++) UNROLL for (uint32_t v = 0; v < n_vecs; v++)
        vec_store(out + (size_t)q * n_values + column + v * LANES, sum[q][v]);
}

KERNEL_INLINE void accumulate_tiles(const uint32_t n_queries, const float *weights, size_t stride, const uint16_t *const *tiles,
                                    uint32_t n_values, uint32_t first, uint32_t last, float *out)
{
    const uint32_t at_once = n_queries <= FEW_QUERIES ? WIDE_VECS : PANEL_VECS;
    uint32_t i = 0;
    for (; i + at_once * LANES <= n_values; i += at_once * LANES)
        accumulate_columns(n_queries, at_once, weights, stride, tiles, n_values, i, first, last, out);
    for (; i < n_values; i += PANEL_WIDTH)
        accumulate_columns(n_queries, PANEL_VECS, weights, stride, tiles, n_values, i, first, last, out);
}

static void accumulate_values(const float *weights, size_t stride, uint32_t n_queries, const uint16_t *const *tiles,
                              uint32_t n_values, uint32_t first, uint32_t last, float *out)
{
#define ACCUMULATE_CASE(rows)                                                                                                      \
    case rows:                                                                                                                     \
        accumulate_tiles(rows, weights, stride, tiles, n_values, first, last, out);                                                \
        return;
    switch (n_queries) {
        FOR_EACH_ROW_COUNT(ACCUMULATE_CASE)
    }
    hs_assert(!"n_queries within tile_rows");
}

#endif

/* Part of kernels_body.h: what is done with whole rows. */
#ifndef HEARSAY_CPU_KERNELS_ROWS_H
#define HEARSAY_CPU_KERNELS_ROWS_H

/* Four rows at a time, so that a word of all four is one store. */
static void pack_rows(const float *const *rows, uint32_t n_rows, uint32_t n, float *words, size_t stride)
{
    enum { VEC_INPUTS = LANES * INPUTS_PER_WORD };
    const uint32_t whole = n / VEC_INPUTS * VEC_INPUTS;
    uint32_t r = 0;
    for (; r + 4 <= n_rows; r += 4) {
        const float *a = rows[r], *b = rows[r + 1], *c = rows[r + 2], *d = rows[r + 3];
        for (uint32_t i = 0; i < whole; i += VEC_INPUTS)
            store_four_rows(load_words(a + i), load_words(b + i), load_words(c + i), load_words(d + i),
                            words + (size_t)(i / INPUTS_PER_WORD) * stride + r, stride);
        for (uint32_t j = r; whole < n && j < r + 4; j++)
            pack_inputs(rows[j] + whole, n - whole, words + (size_t)(whole / INPUTS_PER_WORD) * stride + j, stride);
    }
    for (; r < n_rows; r++)
        pack_inputs(rows[r], n, words + r, stride);
}

/* The squares are summed in LANES chains and a fixed tree; what fills no vector goes to the first lanes. */
static void normalize(const float *x, const float *weight, uint32_t n, float epsilon, float *out)
{
    const uint32_t whole = n / LANES * LANES;
    float lanes[LANES];
    vec squares = vec_zero();
    for (uint32_t i = 0; i < whole; i += LANES) {
        vec value = vec_load(x + i);
        squares = vec_multiply_add(value, value, squares);
    }
    vec_store(lanes, squares);
    for (uint32_t i = whole; i < n; i++)
        lanes[i - whole] += x[i] * x[i];
    for (uint32_t half = LANES / 2; half > 0; half /= 2)
        for (uint32_t i = 0; i < half; i++)
            lanes[i] += lanes[i + half];
    const float scale = 1.0f / sqrtf(lanes[0] / (float)n + epsilon);
    for (uint32_t i = 0; i < whole; i += LANES)
        vec_store(out + i, vec_multiply(vec_multiply(vec_load(x + i), vec_broadcast(scale)), vec_load(weight + i)));
    for (uint32_t i = whole; i < n; i++)
        out[i] = x[i] * scale * weight[i];
}

/* Plain C that the compiler makes vectors of: each value has its own operations, so vectors of any width give the same bits. */
static void rotate(enum rope_layout layout, const float *restrict table, uint32_t n, float scale, float *restrict head)
{
    const uint32_t pairs = n / 2;
    const float *cosine = table, *sine = table + pairs;
    if (layout == ROPE_HALF_SPLIT) {
        for (uint32_t i = 0; i < pairs; i++) {
            float a = head[i], b = head[pairs + i];
            head[i] = (a * cosine[i] - b * sine[i]) * scale;
            head[pairs + i] = (b * cosine[i] + a * sine[i]) * scale;
        }
        return;
    }
    for (uint32_t i = 0; i < pairs; i++) {
        float a = head[2 * i], b = head[2 * i + 1];
        head[2 * i] = (a * cosine[i] - b * sine[i]) * scale;
        head[2 * i + 1] = (b * cosine[i] + a * sine[i]) * scale;
    }
}

#endif

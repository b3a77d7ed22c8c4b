#include "tests/unit/cpu/tiny_model.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/panic.h"
#include "core/base/rng.h"

enum { MAX_TENSORS = 256 };

struct tiny_model {
    struct tiny_options options;
    struct model_desc desc;
    struct model_layer *layers;
    float *inv_freq;
    struct rng rng;
    void *blocks[MAX_TENSORS];
    uint32_t n_blocks;
};

/* ---- numbers ---- */

double tiny_round_to_half(double value)
{
    int exponent;
    if (value == 0 || !isfinite(value))
        return value;
    frexp(value, &exponent); /* value = m * 2^exponent, 0.5 <= |m| < 1 */
    int spacing = exponent - 11 < -24 ? -24 : exponent - 11;
    double rounded = ldexp(nearbyint(ldexp(value, -spacing)), spacing);
    return fabs(rounded) > 65504 ? copysign(INFINITY, value) : rounded;
}

double tiny_round_to_bfloat(double value)
{
    int exponent;
    if (value == 0 || !isfinite(value))
        return value;
    frexp(value, &exponent);
    return ldexp(nearbyint(ldexp(value, 8 - exponent)), exponent - 8);
}

static uint16_t half_bits(double value)
{
    double magnitude = fabs(value);
    uint16_t sign = signbit(value) ? 0x8000 : 0;
    int exponent;
    if (magnitude == 0)
        return sign;
    frexp(magnitude, &exponent);
    if (exponent - 1 < -14)
        return (uint16_t)(sign | (uint16_t)ldexp(magnitude, 24));
    uint16_t mantissa = (uint16_t)(ldexp(magnitude, 11 - exponent) - 1024);
    return (uint16_t)(sign | (uint16_t)(exponent - 1 + 15) << 10 | mantissa);
}

static double half_value(uint16_t bits)
{
    int exponent = bits >> 10 & 31;
    double mantissa = bits & 1023;
    double magnitude = exponent ? ldexp(mantissa + 1024, exponent - 25) : ldexp(mantissa, -24);
    return bits & 0x8000 ? -magnitude : magnitude;
}

static float bfloat_value(uint16_t bits)
{
    uint32_t wide = (uint32_t)bits << 16;
    float value;
    memcpy(&value, &wide, sizeof value);
    return value;
}

/* model_desc.dequantize for the three plain formats. */
static void dequantize(const struct tensor_view *t, uint32_t first_row, uint32_t n_rows, float *out)
{
    size_t first = (size_t)first_row * t->cols, n = (size_t)n_rows * t->cols;
    const float *floats = t->data;
    const uint16_t *shorts = t->data;
    for (size_t i = 0; i < n; i++) {
        if (t->type == TENSOR_F32)
            out[i] = floats[first + i];
        else
            out[i] = t->type == TENSOR_F16 ? (float)half_value(shorts[first + i]) : bfloat_value(shorts[first + i]);
    }
}

/* ---- building ---- */

static struct tensor_view random_tensor(struct tiny_model *m, const char *name, uint32_t rows, uint32_t cols, enum tensor_type type,
                                        double scale, double offset)
{
    size_t n = (size_t)rows * cols, width = type == TENSOR_F32 ? 4 : 2;
    void *data = malloc(n * width);
    hs_assert(data && m->n_blocks < MAX_TENSORS);
    m->blocks[m->n_blocks++] = data;
    for (size_t i = 0; i < n; i++) {
        float value = (float)((rng_unit(&m->rng) * 2 - 1) * scale + offset);
        uint32_t bits;
        memcpy(&bits, &value, sizeof bits);
        if (type == TENSOR_F32)
            ((float *)data)[i] = value;
        else
            ((uint16_t *)data)[i] = type == TENSOR_F16 ? half_bits(tiny_round_to_half(value)) : (uint16_t)(bits >> 16);
    }
    return (struct tensor_view){.name = name, .data = data, .bytes = n * width, .type = type, .rows = rows, .cols = cols};
}

static struct tensor_view random_matrix(struct tiny_model *m, const char *name, uint32_t rows, uint32_t cols)
{
    return random_tensor(m, name, rows, cols, m->options.type, sqrt(3.0 / cols), 0);
}

static struct tensor_view random_norm(struct tiny_model *m, uint32_t n)
{
    return random_tensor(m, "norm", 1, n, TENSOR_F32, 0.3, 1);
}

static void build_layer(struct tiny_model *m, struct model_layer *layer)
{
    const struct tiny_options *o = &m->options;
    uint32_t q_size = o->n_heads * o->d_head, kv_size = o->n_kv_heads * o->d_head;
    layer->attn_norm = random_norm(m, o->d_model);
    layer->wq = random_matrix(m, "wq", q_size, o->d_model);
    layer->wk = random_matrix(m, "wk", kv_size, o->d_model);
    layer->wv = random_matrix(m, "wv", kv_size, o->d_model);
    layer->wo = random_matrix(m, "wo", o->d_model, q_size);
    if (o->biases) {
        layer->bq = random_tensor(m, "bq", 1, q_size, TENSOR_F32, 0.5, 0);
        layer->bk = random_tensor(m, "bk", 1, kv_size, TENSOR_F32, 0.5, 0);
        layer->bv = random_tensor(m, "bv", 1, kv_size, TENSOR_F32, 0.5, 0);
    }
    if (o->head_norms) {
        layer->q_norm = random_norm(m, o->d_head);
        layer->k_norm = random_norm(m, o->d_head);
    }
    layer->ffn_norm = random_norm(m, o->d_model);
    layer->w_gate = random_matrix(m, "w_gate", o->d_ff, o->d_model);
    layer->w_up = random_matrix(m, "w_up", o->d_ff, o->d_model);
    layer->w_down = random_matrix(m, "w_down", o->d_model, o->d_ff);
}

struct tiny_model *tiny_model_create(const struct tiny_options *o)
{
    struct tiny_model *m = calloc(1, sizeof *m);
    hs_assert(m);
    m->options = *o;
    rng_seed(&m->rng, o->seed);
    m->layers = calloc(o->n_layers, sizeof *m->layers);
    m->inv_freq = calloc(o->d_head / 2, sizeof *m->inv_freq);
    hs_assert(m->layers && m->inv_freq);
    for (uint32_t i = 0; i < o->d_head / 2; i++)
        m->inv_freq[i] = (float)pow(10000.0, -2.0 * i / o->d_head);
    for (uint32_t i = 0; i < o->n_layers; i++)
        build_layer(m, &m->layers[i]);
    m->desc = (struct model_desc){
        .architecture = "tiny",
        .name = "tiny",
        .n_layers = o->n_layers,
        .d_model = o->d_model,
        .d_ff = o->d_ff,
        .n_heads = o->n_heads,
        .n_kv_heads = o->n_kv_heads,
        .d_head = o->d_head,
        .n_vocab = o->n_vocab,
        .n_context = 4096,
        .sliding_window = o->sliding_window,
        .rms_epsilon = 1e-5f,
        .rope_layout = o->rope_layout,
        .rope_inv_freq = m->inv_freq,
        .rope_magnitude = 1,
        .layers = m->layers,
        .dequantize = dequantize,
    };
    m->desc.token_embedding = random_matrix(m, "token_embedding", o->n_vocab, o->d_model);
    m->desc.output_norm = random_norm(m, o->d_model);
    m->desc.output = o->tied ? m->desc.token_embedding : random_matrix(m, "output", o->n_vocab, o->d_model);
    return m;
}

void tiny_model_destroy(struct tiny_model *m)
{
    for (uint32_t i = 0; i < m->n_blocks; i++)
        free(m->blocks[i]);
    free(m->inv_freq);
    free(m->layers);
    free(m);
}

const struct model_desc *tiny_model_desc(const struct tiny_model *m)
{
    return &m->desc;
}

/* ---- the slow forward pass ---- */

/* A value as the file has it. */
static double stored_value(const struct tensor_view *t, uint32_t row, uint32_t col)
{
    size_t i = (size_t)row * t->cols + col;
    if (t->type == TENSOR_F32)
        return ((const float *)t->data)[i];
    uint16_t bits = ((const uint16_t *)t->data)[i];
    return t->type == TENSOR_BF16 ? bfloat_value(bits) : half_value(bits);
}

static double weight(const struct tiny_model *m, const struct tensor_view *t, uint32_t row, uint32_t col)
{
    double value = stored_value(t, row, col);
    if (m->options.bfloat)
        return tiny_round_to_bfloat(value);
    return t->type == TENSOR_F32 ? tiny_round_to_half(value) : value;
}

/* out = w x (+ bias) */
static void multiply(const struct tiny_model *m, const struct tensor_view *w, const struct tensor_view *bias, const double *x,
                     double *out)
{
    double *inputs = calloc(w->cols, sizeof *inputs);
    hs_assert(inputs);
    for (uint32_t c = 0; c < w->cols; c++)
        inputs[c] = m->options.bfloat ? tiny_round_to_bfloat(x[c]) : x[c];
    for (uint32_t r = 0; r < w->rows; r++) {
        double sum = bias && tensor_present(bias) ? ((const float *)bias->data)[r] : 0;
        for (uint32_t c = 0; c < w->cols; c++)
            sum += weight(m, w, r, c) * inputs[c];
        out[r] = sum;
    }
    free(inputs);
}

static void norm(const struct tensor_view *w, double epsilon, const double *x, double *out)
{
    double squares = 0;
    for (uint32_t i = 0; i < w->cols; i++)
        squares += x[i] * x[i];
    for (uint32_t i = 0; i < w->cols; i++)
        out[i] = x[i] / sqrt(squares / w->cols + epsilon) * ((const float *)w->data)[i];
}

static void rotate(const struct tiny_model *m, uint32_t position, double *head)
{
    uint32_t pairs = m->options.d_head / 2;
    for (uint32_t i = 0; i < pairs; i++) {
        bool split = m->options.rope_layout == ROPE_HALF_SPLIT;
        double *a = split ? &head[i] : &head[2 * i], *b = split ? &head[i + pairs] : &head[2 * i + 1];
        double angle = (float)((float)position * m->inv_freq[i]), x = *a, y = *b;
        *a = x * cos(angle) - y * sin(angle);
        *b = x * sin(angle) + y * cos(angle);
    }
}

/* out[n_heads * d_head]: the row at `position` over keys[position + 1][kv_size] and values. */
static void attend(const struct tiny_model *m, uint32_t position, const double *q, const double *keys, const double *values,
                   double *out)
{
    const struct tiny_options *o = &m->options;
    uint32_t kv_size = o->n_kv_heads * o->d_head;
    uint32_t first = o->sliding_window && position + 1 > o->sliding_window ? position + 1 - o->sliding_window : 0;
    for (uint32_t h = 0; h < o->n_heads; h++) {
        uint32_t kv = h / (o->n_heads / o->n_kv_heads) * o->d_head;
        const double *query = q + (size_t)h * o->d_head;
        double *to = out + (size_t)h * o->d_head, total = 0;
        memset(to, 0, o->d_head * sizeof *to);
        for (uint32_t p = first; p <= position; p++) {
            double score = 0;
            for (uint32_t i = 0; i < o->d_head; i++)
                score += query[i] * keys[(size_t)p * kv_size + kv + i];
            double e = exp(score / sqrt(o->d_head));
            total += e;
            for (uint32_t i = 0; i < o->d_head; i++)
                to[i] += e * values[(size_t)p * kv_size + kv + i];
        }
        for (uint32_t i = 0; i < o->d_head; i++)
            to[i] /= total;
    }
}

struct pass {
    double *h, *q, *a, *gate, *up; /* of one row */
    double *keys, *values;         /* [n_layers][n_tokens][kv_size] */
    uint32_t n_tokens;
};

static void layer_row(const struct tiny_model *m, uint32_t index, uint32_t position, double *x, struct pass *pass)
{
    const struct tiny_options *o = &m->options;
    const struct model_layer *layer = &m->layers[index];
    uint32_t kv_size = o->n_kv_heads * o->d_head;
    double *keys = pass->keys + (size_t)index * pass->n_tokens * kv_size, *k = keys + (size_t)position * kv_size;
    double *values = pass->values + (size_t)index * pass->n_tokens * kv_size, *v = values + (size_t)position * kv_size;
    norm(&layer->attn_norm, m->desc.rms_epsilon, x, pass->h);
    multiply(m, &layer->wq, &layer->bq, pass->h, pass->q);
    multiply(m, &layer->wk, &layer->bk, pass->h, k);
    multiply(m, &layer->wv, &layer->bv, pass->h, v);
    for (uint32_t h = 0; h < o->n_heads + o->n_kv_heads; h++) {
        bool is_q = h < o->n_heads;
        double *head = is_q ? pass->q + (size_t)h * o->d_head : k + (size_t)(h - o->n_heads) * o->d_head;
        if (o->head_norms)
            norm(is_q ? &layer->q_norm : &layer->k_norm, m->desc.rms_epsilon, head, head);
        rotate(m, position, head);
    }
    for (uint32_t i = 0; i < kv_size; i++) {
        k[i] = o->bfloat ? tiny_round_to_bfloat(k[i]) : tiny_round_to_half(k[i]);
        v[i] = o->bfloat ? tiny_round_to_bfloat(v[i]) : tiny_round_to_half(v[i]);
    }
    attend(m, position, pass->q, keys, values, pass->a);
    multiply(m, &layer->wo, NULL, pass->a, pass->h);
    for (uint32_t i = 0; i < o->d_model; i++)
        x[i] += pass->h[i];
    norm(&layer->ffn_norm, m->desc.rms_epsilon, x, pass->h);
    multiply(m, &layer->w_gate, NULL, pass->h, pass->gate);
    multiply(m, &layer->w_up, NULL, pass->h, pass->up);
    for (uint32_t i = 0; i < o->d_ff; i++)
        pass->gate[i] *= pass->up[i] / (1 + exp(-pass->gate[i]));
    multiply(m, &layer->w_down, NULL, pass->gate, pass->h);
    for (uint32_t i = 0; i < o->d_model; i++)
        x[i] += pass->h[i];
}

static double *doubles(size_t n)
{
    double *memory = calloc(n, sizeof *memory);
    hs_assert(memory);
    return memory;
}

void tiny_model_logits(const struct tiny_model *m, const uint32_t *tokens, uint32_t n_tokens, double *logits)
{
    const struct tiny_options *o = &m->options;
    size_t q_size = (size_t)o->n_heads * o->d_head, cache = (size_t)o->n_layers * n_tokens * o->n_kv_heads * o->d_head;
    struct pass pass = {doubles(o->d_model), doubles(q_size), doubles(q_size), doubles(o->d_ff),
                        doubles(o->d_ff),    doubles(cache),  doubles(cache),  n_tokens};
    double *x = doubles(o->d_model);
    for (uint32_t p = 0; p < n_tokens; p++) {
        for (uint32_t i = 0; i < o->d_model; i++)
            x[i] = o->bfloat ? stored_value(&m->desc.token_embedding, tokens[p], i)
                             : weight(m, &m->desc.token_embedding, tokens[p], i);
        for (uint32_t l = 0; l < o->n_layers; l++)
            layer_row(m, l, p, x, &pass);
        norm(&m->desc.output_norm, m->desc.rms_epsilon, x, x);
        multiply(m, &m->desc.output, NULL, x, logits + (size_t)p * o->n_vocab);
    }
    double *all[] = {pass.h, pass.q, pass.a, pass.gate, pass.up, pass.keys, pass.values, x};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        free(all[i]);
}

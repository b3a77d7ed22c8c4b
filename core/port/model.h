/*
 * A model described as data: shapes, tensor views and the few switches in which the Llama family differs.
 *
 * core/model fills it from GGUF files or Hugging Face folders; backends execute it and need nothing else of core/model.
 * One decoder layer computes, for a row x of d_model values (source: Llama 2, arXiv 2307.09288; Qwen2, arXiv 2407.10671;
 * Qwen3, arXiv 2505.09388):
 *
 *     h = rmsnorm(x, attn_norm)
 *     q,k,v = h*wq + bq, h*wk + bk, h*wv + bv      biases may be absent
 *     q,k = rmsnorm per head (q_norm, k_norm)      may be absent (Qwen3)
 *     q,k = rope(q, k, position)
 *     x = x + attention(q, K, V) * wo
 *     h = rmsnorm(x, ffn_norm)
 *     x = x + (silu(h*w_gate) . (h*w_up)) * w_down
 *
 * then logits = rmsnorm(x, output_norm) * output.
 *
 * Ownership: everything pointed to belongs to the loaded model and outlives every backend made from it.
 * Threading: immutable after load; the functions may be called from any thread.
 */
#ifndef HEARSAY_PORT_MODEL_H
#define HEARSAY_PORT_MODEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum tensor_type {
    TENSOR_NONE = 0, /* the tensor is absent */
    TENSOR_F32,
    TENSOR_F16,
    TENSOR_BF16,
    TENSOR_Q8_0,
    TENSOR_Q4_0,
    TENSOR_Q4_1,
    TENSOR_Q5_0,
    TENSOR_Q5_1,
    TENSOR_Q4_K,
    TENSOR_Q5_K,
    TENSOR_Q6_K,
    TENSOR_W4_G32, /* own: 4 bits in groups along the inputs (docs/quantized-weights.md) */
    TENSOR_W4_G64,
    TENSOR_W4_G128,
    TENSOR_W4_G32_MIN, /* the same with a minimum for each group */
    TENSOR_W4_G64_MIN,
    TENSOR_W4_G128_MIN,
};

/* A matrix [rows][cols], cols contiguous (cols = inputs of a product), or a vector with rows == 1. */
struct tensor_view {
    const char *name;
    const void *data; /* in the layout of type; rows are whole numbers of quantisation blocks */
    size_t bytes;
    enum tensor_type type;
    uint32_t rows;
    uint32_t cols;
};

/* How a tensor's values are made of integers: value = integer * scale of its group (+ minimum of its group). */
struct tensor_groups {
    uint32_t bits; /* 8: integers -128..127; 4: -8..7, or 0..15 with a minimum */
    uint32_t size; /* of a group of neighbours in a row; the last may be shorter */
    bool has_minimum;
};

static inline bool tensor_is_w4(enum tensor_type type)
{
    return type >= TENSOR_W4_G32;
}

static inline bool tensor_present(const struct tensor_view *t)
{
    return t->type != TENSOR_NONE;
}

enum rope_layout {
    ROPE_HALF_SPLIT,  /* pairs (i, i + d/2): Hugging Face checkpoints, Qwen's GGUF files */
    ROPE_INTERLEAVED, /* pairs (2i, 2i + 1): Llama-type GGUF files, whose q and k rows are permuted */
};

struct model_layer {
    struct tensor_view attn_norm; /* [d_model] */
    struct tensor_view wq;        /* [n_heads * d_head][d_model] */
    struct tensor_view wk;        /* [n_kv_heads * d_head][d_model] */
    struct tensor_view wv;        /* [n_kv_heads * d_head][d_model] */
    struct tensor_view wo;        /* [d_model][n_heads * d_head] */
    struct tensor_view bq;        /* [n_heads * d_head], may be absent, as the next four */
    struct tensor_view bk;        /* [n_kv_heads * d_head] */
    struct tensor_view bv;        /* [n_kv_heads * d_head] */
    struct tensor_view q_norm;    /* [d_head] */
    struct tensor_view k_norm;    /* [d_head] */
    struct tensor_view ffn_norm;  /* [d_model] */
    struct tensor_view w_gate;    /* [d_ff][d_model] */
    struct tensor_view w_up;      /* [d_ff][d_model] */
    struct tensor_view w_down;    /* [d_model][d_ff] */
};

struct model_desc {
    const char *architecture; /* "llama", "qwen2", "qwen3", ... */
    const char *name;         /* model id: general.name or the file's stem */
    uint32_t n_layers;
    uint32_t d_model;
    uint32_t d_ff;
    uint32_t n_heads;
    uint32_t n_kv_heads;
    uint32_t d_head;
    uint32_t n_vocab;
    uint32_t n_context;      /* longest sequence the model was made for, rope scaling included */
    uint32_t sliding_window; /* 0: none; otherwise a row sees the last sliding_window positions, itself included */
    float rms_epsilon;
    enum rope_layout rope_layout;
    /*
     * Rotation speed of pair i is rope_inv_freq[i] radians per position, i < d_head / 2, scalings (linear, llama3, yarn)
     * already applied; rope_magnitude multiplies sine and cosine (yarn), 1 otherwise.
     */
    const float *rope_inv_freq;
    float rope_magnitude;
    struct tensor_view token_embedding; /* [n_vocab][d_model] */
    struct tensor_view output_norm;     /* [d_model] */
    struct tensor_view output;          /* [n_vocab][d_model]; the same view as token_embedding when tied */
    const struct model_layer *layers;   /* [n_layers] */
    uint8_t fingerprint[32];            /* of description, tokenizer and samples of every tensor */

    /* Writes n_rows rows of t from first_row as floats, exactly as the format defines them: out[n_rows][cols]. */
    void (*dequantize)(const struct tensor_view *t, uint32_t first_row, uint32_t n_rows, float *out);
    /*
     * For backends that multiply integers: whether t is made of groups, and one row of it: integers[cols], and FP16 scales and
     * minima (NULL without), one for each group. Both may be NULL: nothing is. What a format has finer than FP16 (Q4_K, Q6_K) is
     * rounded to it.
     */
    bool (*groups)(const struct tensor_view *t, struct tensor_groups *out);
    void (*read_groups)(const struct tensor_view *t, uint32_t row, int8_t *integers, uint16_t *scales, uint16_t *minima);
};

#endif

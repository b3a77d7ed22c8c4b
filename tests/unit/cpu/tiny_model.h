/*
 * Small random models described as core/port/model.h wants them, in every variation of the family, and a slow forward pass
 * over them in double precision to compare with. The pass is written from the equations at the top of model.h, shares no
 * code with core/cpu, and rounds what the backend promises to hold in 16 bits: weights, keys and values.
 *
 * Ownership: tiny_model_create gives a model to be freed by tiny_model_destroy. Threading: immutable after creation.
 */
#ifndef HEARSAY_TESTS_TINY_MODEL_H
#define HEARSAY_TESTS_TINY_MODEL_H

#include <stdbool.h>
#include <stdint.h>

#include "core/port/model.h"

struct tiny_options {
    uint32_t n_layers, d_model, d_ff, n_heads, n_kv_heads, d_head, n_vocab, sliding_window;
    enum rope_layout rope_layout;
    enum tensor_type type; /* of the matrices: TENSOR_F32, TENSOR_F16 or TENSOR_BF16 */
    bool biases, head_norms, tied;
    bool bfloat; /* the slow pass rounds all that the backend multiplies in bf16, but queries and softmax weights */
    uint64_t seed;
};

struct tiny_model;

struct tiny_model *tiny_model_create(const struct tiny_options *options);
void tiny_model_destroy(struct tiny_model *model);
const struct model_desc *tiny_model_desc(const struct tiny_model *model);

/* logits[n_tokens][n_vocab] of a sequence that starts at position 0. */
void tiny_model_logits(const struct tiny_model *model, const uint32_t *tokens, uint32_t n_tokens, double *logits);

/* Nearest binary16 value, ties to even, by arithmetic on the exponent; the reference for conversions. */
double tiny_round_to_half(double value);
/* The same for bfloat16, of values that are not denormal in it. */
double tiny_round_to_bfloat(double value);

#endif

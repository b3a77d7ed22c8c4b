/*
 * Reader of the reference logits (*.hslv, written by logits_file.py, where the format is described), for tests.
 *
 * Ownership: logits_vectors_load allocates, logits_vectors_free frees. Threading: none of its own.
 */
#ifndef HEARSAY_TESTS_LOGITS_VECTORS_H
#define HEARSAY_TESTS_LOGITS_VECTORS_H

#include <stdint.h>

#include "core/base/error.h"

enum { LOGITS_SKETCH = 64 };

struct logits_position {
    float norm;                  /* of the whole reference row */
    float sketch[LOGITS_SKETCH]; /* its random-sign sums */
    uint32_t *top_ids;           /* [n_top], largest logit first */
    float *top_logits;           /* [n_top] */
};

struct logits_prompt {
    uint32_t n_tokens;
    uint32_t n_greedy;
    uint32_t *tokens;                  /* [n_tokens] */
    uint32_t *greedy;                  /* [n_greedy]: argmax continuation, end-of-text ignored */
    float *gaps;                       /* [n_greedy]: largest minus second largest logit */
    struct logits_position *positions; /* [n_tokens] */
};

struct logits_vectors {
    uint32_t n_vocab;
    uint32_t n_top;
    uint32_t n_prompts;
    uint64_t model_bytes; /* size and SHA-256 of the model file; zeros for generated folders */
    uint8_t model_sha256[32];
    struct logits_prompt *prompts;
};

/* 0 or HS_ERR_IO, HS_ERR_PARSE, HS_ERR_NO_MEMORY. */
int logits_vectors_load(const char *path, struct logits_vectors *out, struct error *err);
void logits_vectors_free(struct logits_vectors *vectors);

/* Cosine between the reference row and row[n_vocab]; the distance behind it is estimated from the sketches (deviation 18 %). */
double logits_cosine(const struct logits_position *reference, const float *row, uint32_t n_vocab);
/* Largest absolute difference over the reference's n_top largest logits. */
double logits_top_difference(const struct logits_position *reference, uint32_t n_top, const float *row);

#endif

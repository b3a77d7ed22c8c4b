/*
 * The null backend's "language model": a chain of states over the tokens, and a distribution that hangs on the state alone.
 *
 *     state(-1) = 0,  state(p) = mix(state(p-1), token at p)
 *     ranks 0 .. 19 are neighbouring ids from an id drawn by the state, rank r of probability 2^-(r+1); all other tokens share
 * 2^-20
 *
 * So logprobs are those of a proper distribution, greedy decoding takes rank 0, and a temperature above 0 draws a rank. Filters,
 * penalties and biases do not act; min_tokens does.
 *
 * Pure; any thread.
 */
#ifndef HEARSAY_NULL_NULL_MODEL_H
#define HEARSAY_NULL_NULL_MODEL_H

#include "core/null/null_backend.h"

enum { NULL_MODEL_RANKS = 20 };

uint64_t null_model_advance(uint64_t state, uint32_t token);
/* The answer's next token, for position `position`, of which n_answer exist. */
uint32_t null_model_choose(const struct null_backend_config *config, const struct sampling_params *sampling, uint64_t state,
                           uint32_t position, uint32_t n_answer);
/* Fills logprob and the alternatives of out->token as sampling asks for them. */
void null_model_score(const struct null_backend_config *config, const struct sampling_params *sampling, uint64_t state,
                      uint32_t n_answer, struct row_result *out);
/* The whole row: natural logarithms of the probabilities. */
void null_model_logits(const struct null_backend_config *config, const struct sampling_params *sampling, uint64_t state,
                       uint32_t n_answer, float *out);

#endif

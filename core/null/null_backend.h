/*
 * A backend without a model: it answers from a fixed function after a modelled time. It measures everything that is not
 * the model, and it is the compute of the simulator.
 *
 * Its KV pool is real book-keeping: each slot stores a chain value, state(p) = mix(state(p-1) read from the page table, token at
 * p). The next token is a pure function of the state at the last row (and of the sampling seed when temperature > 0), so a wrong
 * page table, a page freed too early or a missed copy gives other tokens than a lone node's, and the simulator sees it
 * (null_model.h has the function). Every span checks that the whole past in its pages chains correctly when check_chains is set: a
 * violation panics.
 *
 * Time: a step takes fixed_ns + rows * row_ns + context * context_ns on the env's clock, in order. Its slots are written when it is
 * submitted, its results when it is polled. Threading: as backend.h.
 */
#ifndef HEARSAY_NULL_NULL_BACKEND_H
#define HEARSAY_NULL_NULL_BACKEND_H

#include <stdbool.h>
#include <stdint.h>

#include "core/port/backend.h"
#include "core/port/env.h"

struct null_backend_config {
    uint32_t n_pages;
    uint32_t page_tokens; /* 0: 16 */
    uint32_t n_vocab;     /* 0: 49152; at least 64 */
    uint32_t max_rows;    /* 0: 2048 */
    uint64_t fixed_ns;    /* of a step */
    uint64_t row_ns;      /* of each row */
    uint64_t context_ns;  /* of each position attended to, per span, in 1/1024 ns */
    uint32_t stop_every;  /* a stop id is answered with probability 1/stop_every per token; 0: never */
    uint32_t stop_id;
    bool check_chains;
};

/* NULL when out of memory. env must outlive the backend. */
struct backend *null_backend_create(const struct null_backend_config *config, const struct env *env);
/* What a lone node would answer: continues tokens[n] (n_prompt of them the prompt) by one token. For checkers. */
uint32_t null_backend_next_token(const struct null_backend_config *config, const uint32_t *tokens, uint32_t n, uint32_t n_prompt,
                                 const struct sampling_params *sampling);

#endif

/*
 * Choosing a token from a row of logits (design: sampling).
 *
 * Filters act in this order, each over what the one before left: min_tokens and bias, repetition / presence / frequency
 * penalties, temperature, top-k, top-p, min-p. The token is argmax over the survivors of logit / T + Gumbel noise, equal to
 * sampling from the softmax (the Gumbel-max trick), where the noise is a pure function of (seed, choice, position, token) by
 * Philox; the lowest id wins ties. So the same request gives the same tokens in any batch, on any node. logprobs are natural logs
 * of the softmax over the raw logits.
 *
 * Threading: pure but for the scratch, which belongs to one thread.
 */
#ifndef HEARSAY_CPU_SAMPLE_H
#define HEARSAY_CPU_SAMPLE_H

#include <stdint.h>

#include "core/port/backend.h"

struct sample_scratch;

/* NULL when out of memory. */
struct sample_scratch *sample_scratch_create(uint32_t n_vocab);
void sample_scratch_destroy(struct sample_scratch *scratch);

/*
 * logits: [n_vocab] raw. output_index: which of span's outputs (0 .. n_outputs-1); its row is n_tokens - n_outputs + output_index,
 * and the token chosen is for the position after that row. Takes sampling and targets from span. No allocation.
 */
void sample_row(const float *logits, uint32_t n_vocab, const struct step_span *span, uint32_t output_index, struct row_result *out,
                struct sample_scratch *scratch);

/* The Gumbel noise itself, for tests: -log(-log(u)). */
float sample_noise(uint64_t seed, uint32_t choice, uint32_t position, uint32_t token);

#endif

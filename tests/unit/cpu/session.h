/*
 * Drives a backend through backend.h as the node would, one step at a time, and waits on its event descriptor.
 * Failures end the test through cmocka's assertions.
 */
#ifndef HEARSAY_TESTS_CPU_SESSION_H
#define HEARSAY_TESTS_CPU_SESSION_H

#include <stdint.h>

#include "core/cpu/cpu_backend.h"

/* How backends made from now on hold weights; auto at first. */
extern enum weight_form session_weights;

/* A backend with its defaults but for these; fails the test if it cannot be made. */
struct backend *session_backend(const struct model_desc *model, enum cpu_path path, uint32_t threads, uint32_t n_pages);
/* Submits and waits for the completion. */
void session_run(struct backend *backend, const struct step_span *spans, uint32_t n_spans);
extern const struct sampling_params session_greedy;

/*
 * Prefills tokens[n] in steps of chunk tokens and stores the logits of every position in logits[n][n_vocab]. pages covers n
 */
void session_prefill(struct backend *backend, const uint32_t *tokens, uint32_t n, uint32_t chunk, const uint32_t *pages,
                     uint32_t n_pages, float *logits);

#endif

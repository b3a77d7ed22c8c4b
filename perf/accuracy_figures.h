/*
 * What one next-token distribution says of the token that followed, and how far it is from a reference's.
 *
 * Logits are float32 as the backend gave them; sums and logarithms are double. Threading: pure.
 */
#ifndef HEARSAY_PERF_ACCURACY_FIGURES_H
#define HEARSAY_PERF_ACCURACY_FIGURES_H

#include <stdint.h>

struct distribution {
    const float *logits; /* [n] */
    uint32_t n, top;     /* the most likely token, the lowest id among equals */
    double log_sum;      /* natural log of the sum of exp(logit): log p(i) = logits[i] - log_sum */
};

struct distribution distribution_of(const float *logits, uint32_t n);
/* -log p(token), in nats. */
double distribution_loss(const struct distribution *d, uint32_t token);
/* Kullback-Leibler divergence of d from the reference, sum of p_reference * (log p_reference - log p), in nats. Both have n tokens. */
double distribution_divergence(const struct distribution *d, const struct distribution *reference);
/* Cosine between the logits. */
double distribution_cosine(const struct distribution *d, const struct distribution *reference);

#endif

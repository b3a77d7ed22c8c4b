#include "perf/accuracy_figures.h"

#include <math.h>

struct distribution distribution_of(const float *logits, uint32_t n)
{
    struct distribution d = {.logits = logits, .n = n};
    double sum = 0;
    for (uint32_t i = 1; i < n; i++)
        d.top = logits[i] > logits[d.top] ? i : d.top;
    for (uint32_t i = 0; i < n; i++)
        sum += exp((double)logits[i] - (double)logits[d.top]);
    d.log_sum = (double)logits[d.top] + log(sum);
    return d;
}

double distribution_loss(const struct distribution *d, uint32_t token)
{
    return d->log_sum - (double)d->logits[token];
}

double distribution_divergence(const struct distribution *d, const struct distribution *reference)
{
    double sum = 0;
    for (uint32_t i = 0; i < d->n; i++) {
        double log_p = (double)reference->logits[i] - reference->log_sum;
        sum += exp(log_p) * (log_p - ((double)d->logits[i] - d->log_sum));
    }
    return sum;
}

double distribution_cosine(const struct distribution *d, const struct distribution *reference)
{
    double product = 0, own = 0, other = 0;
    for (uint32_t i = 0; i < d->n; i++) {
        product += (double)d->logits[i] * (double)reference->logits[i];
        own += (double)d->logits[i] * (double)d->logits[i];
        other += (double)reference->logits[i] * (double)reference->logits[i];
    }
    return product / (sqrt(own) * sqrt(other));
}

/*
 * The clients of the serve benchmark: threads that each keep one request under way until all have been taken.
 *
 * Prompts are token ids from the seed: the first shared_prefix of them the same in every request, the others each request's own.
 * Threading: clients_run starts and joins the threads; the results belong to the caller.
 */
#ifndef HEARSAY_PERF_SERVE_CLIENT_H
#define HEARSAY_PERF_SERVE_CLIENT_H

#include "perf/bench.h"

struct serve_results {
    struct samples ttft_ms, gap_ms, e2e_ms, cached_tokens;
    uint64_t n_good, n_failed;
    uint64_t prompt_tokens, completion_tokens;
    double seconds;
    char first_problem[320]; /* of a failed request; "" */
};

/* model: the name to ask for. Failed requests are counted, not an error. */
int clients_run(const struct perf_config *config, const char *model, struct serve_results *results, struct error *err);
void serve_results_fini(struct serve_results *results);
/* The first model that a server names; written to out. */
int client_find_model(const struct perf_config *config, char *out, size_t cap, struct error *err);

#endif

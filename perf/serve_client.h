/*
 * The clients of the serve benchmark: threads that each keep one request under way until all have been taken.
 *
 * Prompts are token ids from the seed: the first shared_prefix of them the same in every request, the others each request's own.
 * Threading: clients_run starts and joins the threads; the results belong to the caller.
 */
#ifndef HEARSAY_PERF_SERVE_CLIENT_H
#define HEARSAY_PERF_SERVE_CLIENT_H

#include "perf/bench.h"

/* Whom the clients talk to. */
struct serve_target {
    const char *const *urls; /* [n_urls], taken in turn */
    uint32_t n_urls;
    const char *model; /* the name to ask for */
};

struct serve_results {
    struct samples ttft_ms, gap_ms, e2e_ms, cached_tokens;
    struct samples beyond_us; /* with --overhead: of each request's time to the first token, what the node's steps did not take */
    uint64_t n_good, n_failed;
    uint64_t prompt_tokens, completion_tokens;
    double seconds;
    char first_problem[640]; /* of a failed request; "" */
};

/* All requests once, with the prompts of `seed`. Failed requests are counted, not an error. */
int clients_run(const struct perf_config *config, const struct serve_target *target, uint64_t seed, struct serve_results *results,
                struct error *err);
/* Adds `more` to sum and empties it; sum's seconds stay. */
void serve_results_merge(struct serve_results *sum, struct serve_results *more);
void serve_results_fini(struct serve_results *results);

#endif

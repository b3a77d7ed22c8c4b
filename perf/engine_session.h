/*
 * A backend and sequences of random tokens in it, driven as the node drives them but with nothing else around: the engine
 * benchmark's workload.
 *
 * Threading: one thread. Ownership: engine_close frees all.
 */
#ifndef HEARSAY_PERF_ENGINE_SESSION_H
#define HEARSAY_PERF_ENGINE_SESSION_H

#include "core/base/rng.h"
#include "core/model/model_weights.h"
#include "core/port/backend.h"
#include "perf/bench.h"

struct engine {
    struct backend *backend;
    struct backend_info info;
    struct model_weights *weights; /* NULL with the null backend */
    struct env env;
    struct rng rng; /* the env's, and of the prompts */
    uint32_t threads;
    uint32_t max_sequences, max_tokens; /* each sequence has pages for max_tokens */
    uint32_t *history;                  /* [max_sequences][max_tokens] */
    uint32_t *pages;                    /* [max_sequences][pages of one sequence] */
    uint32_t pages_each;
    struct step_span *spans;    /* [max_sequences] */
    struct row_result *results; /* [max_sequences] */
    struct sampling_params greedy;
    uint64_t computed_ns; /* of all steps, as the backend says */
};

/* Room for n_sequences of n_tokens each. */
int engine_open(const struct perf_config *config, uint32_t n_sequences, uint32_t n_tokens, struct engine *engine,
                struct error *err);
void engine_close(struct engine *engine);
/* The first n_tokens tokens of a sequence enter the KV pages; the last chooses a token, which becomes the next of its history. */
int engine_prefill(struct engine *engine, uint32_t sequence, uint32_t n_tokens, struct error *err);
/* The same for n_tokens tokens from `position` on, behind what was entered before. */
int engine_extend(struct engine *engine, uint32_t sequence, uint32_t position, uint32_t n_tokens, struct error *err);
/* One token more for each of the first n_sequences, whose last token is at `position`. */
int engine_decode(struct engine *engine, uint32_t n_sequences, uint32_t position, struct error *err);
/*
 * n_tokens tokens of the first sequence from `position` on, which its history must hold, with the logits of each row:
 * results[n_tokens], logits[n_tokens][n_vocab]. At most info.max_rows at once. Chooses nothing for the history.
 */
int engine_read_logits(struct engine *engine, uint32_t position, uint32_t n_tokens, struct row_result *results, float *logits,
                       struct error *err);

#endif

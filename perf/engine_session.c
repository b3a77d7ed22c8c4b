#include "perf/engine_session.h"

#include <poll.h>
#include <sched.h>
#include <stdlib.h>

#include "core/null/null_backend.h"
#include "perf/progress.h"

static uint64_t now_ns(void *self)
{
    return perf_now_ns();
}

static uint64_t random_u64(void *self)
{
    return rng_u64(self);
}

static void on_progress(void *arg, const char *what, double share)
{
    progress_show("loading %s: %.0f %%", what, 100 * share);
}

static int create_backend(const struct perf_config *config, uint32_t n_pages, struct engine *engine, struct error *err)
{
    if (config->backend == PERF_BACKEND_NULL) {
        struct null_backend_config null_config = {.n_pages = n_pages, .fixed_ns = 200000, .row_ns = 20000, .context_ns = 1024};
        engine->backend = null_backend_create(&null_config, &engine->env);
        return engine->backend ? 0 : error_set(err, HS_ERR_NO_MEMORY, "%s", error_name(HS_ERR_NO_MEMORY));
    }
    int rc = model_weights_open(config->model, &engine->weights, err);
    if (rc)
        return rc;
    struct cpu_backend_config cpu_config = {
        .model = &engine->weights->desc,
        .n_pages = n_pages,
        .threads = engine->threads,
        .cpus = config->cpus,
        .n_cpus = config->n_cpus,
        .path = config->path,
        .compute = config->compute,
        .weights = config->weights,
        .env = &engine->env,
        .progress = on_progress,
    };
    return cpu_backend_create(&cpu_config, &engine->backend, err);
}

static uint32_t allowed_cpus(void)
{
    cpu_set_t set;
    return sched_getaffinity(0, sizeof set, &set) == 0 ? (uint32_t)CPU_COUNT(&set) : 1;
}

static int create_sequences(struct engine *engine, struct error *err)
{
    size_t n = engine->max_sequences;
    engine->history = calloc(n * engine->max_tokens, sizeof *engine->history);
    engine->pages = calloc(n * engine->pages_each, sizeof *engine->pages);
    engine->spans = calloc(n, sizeof *engine->spans);
    engine->results = calloc(n, sizeof *engine->results);
    if (!engine->history || !engine->pages || !engine->spans || !engine->results)
        return error_set(err, HS_ERR_NO_MEMORY, "%s", error_name(HS_ERR_NO_MEMORY));
    for (size_t i = 0; i < n * engine->max_tokens; i++)
        engine->history[i] = (uint32_t)rng_below(&engine->rng, engine->info.n_vocab);
    for (size_t i = 0; i < n * engine->pages_each; i++)
        engine->pages[i] = (uint32_t)i;
    return 0;
}

int engine_open(const struct perf_config *config, uint32_t n_sequences, uint32_t n_tokens, struct engine *engine, struct error *err)
{
    *engine = (struct engine){
        .env = {.now_ns = now_ns, .random_u64 = random_u64, .self = &engine->rng},
        .threads = config->threads  ? config->threads
                   : config->n_cpus ? config->n_cpus
                                    : allowed_cpus(),
        .max_sequences = n_sequences,
        .max_tokens = n_tokens,
        .pages_each = (n_tokens + CPU_DEFAULT_PAGE_TOKENS - 1) / CPU_DEFAULT_PAGE_TOKENS,
        .greedy = {.top_p = 1, .repetition_penalty = 1},
    };
    rng_seed(&engine->rng, config->seed);
    int rc = create_backend(config, n_sequences * engine->pages_each, engine, err);
    if (rc == 0) {
        engine->backend->ops->info(engine->backend, &engine->info);
        rc = create_sequences(engine, err);
    }
    if (rc)
        engine_close(engine);
    return rc;
}

void engine_close(struct engine *engine)
{
    if (engine->backend)
        engine->backend->ops->destroy(engine->backend);
    model_weights_close(engine->weights);
    free(engine->history);
    free(engine->pages);
    free(engine->spans);
    free(engine->results);
    *engine = (struct engine){0};
}

static struct step_span span_of(struct engine *engine, uint32_t sequence, uint32_t position, uint32_t n_tokens, uint32_t n_outputs)
{
    return (struct step_span){
        .history = engine->history + (size_t)sequence * engine->max_tokens,
        .position = position,
        .n_tokens = n_tokens,
        .n_prompt = engine->max_tokens,
        .pages = engine->pages + (size_t)sequence * engine->pages_each,
        .n_pages = engine->pages_each,
        .n_outputs = n_outputs,
        .sampling = &engine->greedy,
        .results = &engine->results[sequence],
    };
}

/* Submits engine->spans[n_spans] and waits for them. */
static int run_step(struct engine *engine, uint32_t n_spans, struct error *err)
{
    struct backend *backend = engine->backend;
    struct step step = {.spans = engine->spans, .n_spans = n_spans};
    struct step_completion done = {0};
    int fd = backend->ops->event_fd(backend);
    int rc = backend->ops->submit(backend, &step);
    while (rc == 0 && backend->ops->poll(backend, &done) == 0) {
        if (fd >= 0)
            poll(&(struct pollfd){.fd = fd, .events = POLLIN}, 1, -1);
        else
            sched_yield();
    }
    engine->computed_ns += done.duration_ns;
    if (rc == 0)
        rc = done.status;
    return rc == 0 ? 0 : error_set(err, rc, "a step of %u sequences failed: %s", n_spans, error_name(rc));
}

static void take_tokens(struct engine *engine, uint32_t first, uint32_t n_sequences, uint32_t position)
{
    for (uint32_t i = first; i < first + n_sequences; i++)
        if (position < engine->max_tokens)
            engine->history[(size_t)i * engine->max_tokens + position] = engine->results[i].token;
}

int engine_extend(struct engine *engine, uint32_t sequence, uint32_t position, uint32_t n_tokens, struct error *err)
{
    const uint32_t max_rows = engine->info.max_rows, end = position + n_tokens;
    for (uint32_t at = position; at < end; at += max_rows) {
        uint32_t n = end - at < max_rows ? end - at : max_rows;
        engine->spans[0] = span_of(engine, sequence, at, n, at + n == end);
        int rc = run_step(engine, 1, err);
        if (rc)
            return rc;
    }
    take_tokens(engine, sequence, 1, end);
    return 0;
}

int engine_prefill(struct engine *engine, uint32_t sequence, uint32_t n_tokens, struct error *err)
{
    return engine_extend(engine, sequence, 0, n_tokens, err);
}

int engine_decode(struct engine *engine, uint32_t n_sequences, uint32_t position, struct error *err)
{
    for (uint32_t i = 0; i < n_sequences; i++)
        engine->spans[i] = span_of(engine, i, position, 1, 1);
    int rc = run_step(engine, n_sequences, err);
    if (rc == 0)
        take_tokens(engine, 0, n_sequences, position + 1);
    return rc;
}

int engine_read_logits(struct engine *engine, uint32_t position, uint32_t n_tokens, struct row_result *results, float *logits,
                       struct error *err)
{
    engine->spans[0] = span_of(engine, 0, position, n_tokens, n_tokens);
    engine->spans[0].results = results;
    engine->spans[0].logits = logits;
    return run_step(engine, 1, err);
}

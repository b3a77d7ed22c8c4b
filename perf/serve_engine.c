#include "perf/serve_engine.h"

#include "perf/progress.h"

int serve_engine_open(const struct perf_config *config, struct engine *engine, struct error *err)
{
    return engine_open(config, config->clients, config->prompt_tokens + config->output_tokens + 1, engine, err);
}

static double ms_since(uint64_t start_ns)
{
    return (double)(perf_now_ns() - start_ns) * 1e-6;
}

/* One answer each for the first n sequences. */
static int run_group(const struct perf_config *config, struct engine *engine, uint32_t n, struct serve_results *results,
                     struct error *err)
{
    uint64_t start_ns = perf_now_ns(), computed_ns = engine->computed_ns;
    int rc = 0;
    for (uint32_t i = 0; rc == 0 && i < n; i++) {
        rc = engine_prefill(engine, i, config->prompt_tokens, err);
        double ms = ms_since(start_ns);
        samples_add(&results->ttft_ms, ms);
        if (config->overhead) /* whoever drives the engine is woken for its results, too */
            samples_add(&results->beyond_us, ms * 1e3 - (double)(engine->computed_ns - computed_ns) * 1e-3);
    }
    for (uint32_t token = 1; rc == 0 && token < config->output_tokens; token++) {
        uint64_t step_ns = perf_now_ns();
        rc = engine_decode(engine, n, config->prompt_tokens + token - 1, err);
        double step_ms = ms_since(step_ns);
        for (uint32_t i = 0; i < n; i++)
            samples_add(&results->gap_ms, step_ms);
    }
    for (uint32_t i = 0; i < n; i++)
        samples_add(&results->e2e_ms, ms_since(start_ns));
    return rc;
}

int serve_engine_run(const struct perf_config *config, struct engine *engine, struct serve_results *results, struct error *err)
{
    uint64_t start_ns = perf_now_ns();
    int rc = 0;
    *results = (struct serve_results){0};
    for (uint32_t done = 0; rc == 0 && done < config->requests;) {
        uint32_t n = config->requests - done < config->clients ? config->requests - done : config->clients;
        progress_show("engine: %u of %u requests", done, config->requests);
        rc = run_group(config, engine, n, results, err);
        done += n;
    }
    results->seconds = (double)(perf_now_ns() - start_ns) * 1e-9;
    results->n_good = config->requests;
    results->prompt_tokens = (uint64_t)config->requests * config->prompt_tokens;
    results->completion_tokens = (uint64_t)config->requests * config->output_tokens;
    if (rc)
        serve_results_fini(results);
    return rc;
}

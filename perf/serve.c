/*
 * The serve benchmark: a closed loop of streaming clients, and what they saw. Talks to any OpenAI-compatible server; with --against
 * another server, or the engine alone, does the same in turn, round by round, so that both see the machine in the same mood.
 */
#include <curl/curl.h>
#include <stdio.h>

#include "perf/bench.h"
#include "perf/progress.h"
#include "perf/serve_client.h"
#include "perf/serve_engine.h"
#include "perf/serve_get.h"

enum { OURS, PEER, SIDES };

/* One of the two, and what came of all its rounds. */
struct side {
    struct serve_target target;
    char model[256];
    struct serve_results all;                                        /* of all rounds */
    struct samples gap_p99_ms, requests_per_s, output_per_s, prompt_per_s; /* one of each round */
};

struct serve_run {
    const struct perf_config *config;
    struct report *report;
    struct side sides[SIDES];
    struct engine engine; /* with --against engine */
    bool has_peer;
};

static void note_options(const struct serve_run *run)
{
    const struct perf_config *config = run->config;
    struct report *report = run->report;
    json_t *urls = json_array();
    for (uint32_t i = 0; i < config->n_urls; i++)
        json_array_append_new(urls, json_string(config->urls[i]));
    report_option(report, "url", urls);
    report_option(report, "model", json_string(run->sides[OURS].model));
    report_option(report, "clients", json_integer(config->clients));
    report_option(report, "requests", json_integer(config->requests));
    report_option(report, "rounds", json_integer(config->rounds));
    report_option(report, "prompt_tokens", json_integer(config->prompt_tokens));
    report_option(report, "output_tokens", json_integer(config->output_tokens));
    report_option(report, "shared_prefix", json_integer(config->shared_prefix));
    report_option(report, "seed", json_integer((json_int_t)config->seed));
}

/* ---- rounds ---- */

static int choose_model(const struct perf_config *config, struct side *side, const char *const *urls, uint32_t n_urls,
                        struct error *err)
{
    side->target = (struct serve_target){.urls = urls, .n_urls = n_urls, .model = side->model};
    if (!config->served_model)
        return serve_find_model(config, urls[0], side->model, sizeof side->model, err);
    snprintf(side->model, sizeof side->model, "%s", config->served_model);
    return 0;
}

static void take_round(struct side *side, struct serve_results *round)
{
    struct serve_results *all = &side->all;
    samples_sort(&round->gap_ms);
    if (round->gap_ms.n)
        samples_add(&side->gap_p99_ms, samples_percentile(&round->gap_ms, 0.99));
    samples_add(&side->requests_per_s, (double)round->n_good / round->seconds);
    samples_add(&side->output_per_s, (double)round->completion_tokens / round->seconds);
    samples_add(&side->prompt_per_s, (double)round->prompt_tokens / round->seconds);
    serve_results_merge(all, round);
}

static int run_side(struct serve_run *run, int which, uint64_t seed, struct error *err)
{
    const struct perf_config *config = run->config;
    struct side *side = &run->sides[which];
    struct serve_results round;
    int rc = which == PEER && config->peer == PERF_PEER_ENGINE ? serve_engine_run(config, &run->engine, &round, err)
                                                               : clients_run(config, &side->target, seed, &round, err);
    if (rc == 0)
        take_round(side, &round);
    return rc;
}

/* Both sides get the same prompts, every round new ones. */
static int run_rounds(struct serve_run *run, struct error *err)
{
    int rc = 0;
    for (uint32_t round = 0; rc == 0 && round < run->config->rounds; round++) {
        uint64_t seed = run->config->seed + round * 0x9e3779b9u;
        rc = run_side(run, OURS, seed, err);
        if (rc == 0 && run->has_peer)
            rc = run_side(run, PEER, seed, err);
    }
    progress_clear();
    return rc;
}

/* ---- results ---- */

static const char *peer_name(const struct perf_config *config)
{
    return config->peer == PERF_PEER_ENGINE ? "engine" : config->against;
}

/* A row of ours beside the peer's median, if there is one. */
static void add(struct serve_run *run, const char *metric, const char *unit, struct samples *ours, struct samples *peers,
                bool higher_is_better, bool percentiles)
{
    if (ours->n == 0)
        return;
    struct report_row *row = report_add(run->report, run->report->bench, metric, unit, ours, percentiles);
    if (row && run->has_peer && peers && peers->n) {
        samples_sort(peers);
        report_compare(row, peer_name(run->config), samples_median(peers), higher_is_better);
    }
    if (row)
        report_print_row(run->report, row);
}

static void add_all(struct serve_run *run)
{
    struct side *ours = &run->sides[OURS], *peer = &run->sides[PEER];
    struct samples failed = {0};
    samples_add(&failed, (double)ours->all.n_failed);
    add(run, "time to first token", "ms", &ours->all.ttft_ms, &peer->all.ttft_ms, false, true);
    add(run, "beyond the steps", "us", &ours->all.beyond_us, &peer->all.beyond_us, false, true);
    add(run, "inter-token latency", "ms", &ours->all.gap_ms, &peer->all.gap_ms, false, true);
    add(run, "inter-token, p99", "ms", &ours->gap_p99_ms, &peer->gap_p99_ms, false, false);
    add(run, "end to end", "ms", &ours->all.e2e_ms, &peer->all.e2e_ms, false, true);
    add(run, "request throughput", "requests/s", &ours->requests_per_s, &peer->requests_per_s, true, false);
    add(run, "output throughput", "tokens/s", &ours->output_per_s, &peer->output_per_s, true, false);
    add(run, "prompt throughput", "tokens/s", &ours->prompt_per_s, &peer->prompt_per_s, true, false);
    add(run, "cached tokens", "tokens", &ours->all.cached_tokens, NULL, false, true);
    add(run, "errors", "requests", &failed, NULL, false, false);
    samples_fini(&failed);
}

/* What failed is said; that nothing succeeded is an error. */
static int check_failures(const struct serve_run *run, struct error *err)
{
    for (int i = 0; i < (run->has_peer ? SIDES : OURS + 1); i++) {
        const struct serve_results *all = &run->sides[i].all;
        if (all->n_failed)
            fprintf(stderr, "%llu of %llu requests failed, the first one noted: %s\n", (unsigned long long)all->n_failed,
                    (unsigned long long)(all->n_failed + all->n_good), all->first_problem);
        if (all->n_good == 0)
            return error_set(err, HS_ERR_IO, "no request succeeded");
    }
    return 0;
}

static void close_side(struct side *side)
{
    serve_results_fini(&side->all);
    samples_fini(&side->gap_p99_ms);
    samples_fini(&side->requests_per_s);
    samples_fini(&side->output_per_s);
    samples_fini(&side->prompt_per_s);
}

int bench_serve(const struct perf_config *config, struct report *report, struct error *err)
{
    struct serve_run run = {.config = config, .report = report, .has_peer = config->peer != PERF_PEER_NONE};
    curl_global_init(CURL_GLOBAL_ALL);
    int rc = choose_model(config, &run.sides[OURS], config->urls, config->n_urls, err);
    if (rc == 0 && config->peer == PERF_PEER_SERVER)
        rc = choose_model(config, &run.sides[PEER], &config->against, 1, err);
    if (rc == 0 && config->peer == PERF_PEER_ENGINE)
        rc = serve_engine_open(config, &run.engine, err);
    if (rc == 0)
        note_options(&run);
    if (rc == 0)
        rc = run_rounds(&run, err);
    if (rc == 0) {
        add_all(&run);
        rc = check_failures(&run, err);
    }
    engine_close(&run.engine);
    for (int i = 0; i < SIDES; i++)
        close_side(&run.sides[i]);
    curl_global_cleanup();
    return rc;
}

/* The serve benchmark: a closed loop of streaming clients, and what they saw. Talks to any OpenAI-compatible server. */
#include <curl/curl.h>
#include <stdio.h>

#include "perf/bench.h"
#include "perf/progress.h"
#include "perf/serve_client.h"

static void note_options(const struct perf_config *config, const char *model, struct report *report)
{
    json_t *urls = json_array();
    for (uint32_t i = 0; i < config->n_urls; i++)
        json_array_append_new(urls, json_string(config->urls[i]));
    report_option(report, "url", urls);
    report_option(report, "model", json_string(model));
    report_option(report, "clients", json_integer(config->clients));
    report_option(report, "requests", json_integer(config->requests));
    report_option(report, "prompt_tokens", json_integer(config->prompt_tokens));
    report_option(report, "output_tokens", json_integer(config->output_tokens));
    report_option(report, "shared_prefix", json_integer(config->shared_prefix));
    report_option(report, "seed", json_integer((json_int_t)config->seed));
}

static void add(struct report *report, const char *metric, const char *unit, struct samples *samples)
{
    if (samples->n == 0)
        return;
    const struct report_row *row = report_add(report, report->bench, metric, unit, samples, true);
    if (row)
        report_print_row(report, row);
}

static void add_one(struct report *report, const char *metric, const char *unit, double value)
{
    struct samples one = {0};
    samples_add(&one, value);
    const struct report_row *row = report_add(report, report->bench, metric, unit, &one, false);
    if (row)
        report_print_row(report, row);
    samples_fini(&one);
}

int bench_serve(const struct perf_config *config, struct report *report, struct error *err)
{
    struct serve_results results;
    char model[256];
    int rc = 0;
    curl_global_init(CURL_GLOBAL_ALL);
    if (config->served_model)
        snprintf(model, sizeof model, "%s", config->served_model);
    else
        rc = client_find_model(config, model, sizeof model, err);
    if (rc == 0)
        rc = clients_run(config, model, &results, err);
    if (rc) {
        curl_global_cleanup();
        return rc;
    }
    progress_clear();
    note_options(config, model, report);
    add(report, "time to first token", "ms", &results.ttft_ms);
    add(report, "inter-token latency", "ms", &results.gap_ms);
    add(report, "end to end", "ms", &results.e2e_ms);
    add_one(report, "request throughput", "requests/s", (double)results.n_good / results.seconds);
    add_one(report, "output throughput", "tokens/s", (double)results.completion_tokens / results.seconds);
    add_one(report, "prompt throughput", "tokens/s", (double)results.prompt_tokens / results.seconds);
    add(report, "cached tokens", "tokens", &results.cached_tokens);
    add_one(report, "errors", "requests", (double)results.n_failed);
    if (results.n_failed)
        fprintf(stderr, "%llu of %u requests failed, the first one noted: %s\n", (unsigned long long)results.n_failed,
                config->requests, results.first_problem);
    if (results.n_good == 0)
        rc = error_set(err, HS_ERR_IO, "no request succeeded");
    serve_results_fini(&results);
    curl_global_cleanup();
    return rc;
}

#include "perf/serve_client.h"

#include <math.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/rng.h"
#include "core/base/strbuf.h"
#include "perf/http_client.h"
#include "perf/progress.h"
#include "perf/serve_get.h"
#include "perf/serve_stream.h"

/* Random ids from here up: the ids below are special tokens in some vocabularies. */
enum { FIRST_TOKEN = 512, PROGRESS_MS = 100 };

struct crowd {
    const struct perf_config *config;
    const struct serve_target *target;
    uint64_t seed;
    _Atomic uint32_t next, finished, running;
};

struct client {
    struct crowd *crowd;
    pthread_t thread;
    uint64_t end_ns; /* when it had no more to do */
    bool out_of_memory;
    struct serve_results results;
    struct stream stream;
    struct strbuf body;
    struct http_client *connections; /* one to each server, then one for the metrics */
    struct strbuf metrics;           /* with --overhead: as the server last showed them */
    double step_seconds;             /* and what the steps of the last request took */
};

static void add_tokens(struct strbuf *body, struct rng *rng, uint32_t n, uint32_t vocab)
{
    for (uint32_t i = 0; i < n; i++) {
        bool first = body->data[body->len - 1] == '[';
        strbuf_printf(body, "%s%u", first ? "" : ",", (unsigned)(FIRST_TOKEN + rng_below(rng, vocab - FIRST_TOKEN)));
    }
}

static void write_body(struct strbuf *body, const struct crowd *crowd, uint32_t request)
{
    const struct perf_config *config = crowd->config;
    struct rng shared, own;
    rng_seed(&shared, crowd->seed);
    rng_seed(&own, crowd->seed + ((uint64_t)request + 1) * 0x9e3779b97f4a7c15u);
    strbuf_clear(body);
    strbuf_puts(body, "{\"model\":");
    strbuf_json_string(body, crowd->target->model, strlen(crowd->target->model));
    strbuf_puts(body, ",\"prompt\":[");
    add_tokens(body, &shared, config->shared_prefix, config->vocab);
    add_tokens(body, &own, config->prompt_tokens - config->shared_prefix, config->vocab);
    strbuf_printf(body,
                  "],\"max_tokens\":%u,\"temperature\":0,\"ignore_eos\":true,\"stream\":true,"
                  "\"stream_options\":{\"include_usage\":true}}",
                  config->output_tokens);
}

static bool on_body(void *arg, const char *data, size_t n)
{
    struct client *client = arg;
    return stream_feed(&client->stream, data, n, perf_now_ns());
}

static void note_failure(struct client *client, const char *url, const char *why)
{
    struct serve_results *results = &client->results;
    results->n_failed++;
    if (!results->first_problem[0])
        snprintf(results->first_problem, sizeof results->first_problem, "%.120s: %s", url, why);
}

static void note_success(struct client *client, uint64_t end_ns)
{
    struct serve_results *results = &client->results;
    const struct stream *stream = &client->stream;
    results->n_good++;
    samples_add(&results->ttft_ms, (double)(stream->first_ns - stream->started_ns) * 1e-6);
    samples_add(&results->e2e_ms, (double)(end_ns - stream->started_ns) * 1e-6);
    if (client->crowd->config->overhead)
        samples_add(&results->beyond_us, (double)(stream->first_ns - stream->started_ns) * 1e-3 - 1e6 * client->step_seconds);
    if (stream->has_usage) {
        samples_add(&results->cached_tokens, (double)stream->cached_tokens);
        results->prompt_tokens += stream->prompt_tokens;
        results->completion_tokens += stream->completion_tokens;
    }
}

static void take_answer(struct client *client, const char *url, int rc, int status, const struct error *err, uint64_t end_ns)
{
    const struct stream *stream = &client->stream;
    char why[sizeof err->text];
    if (rc == 0 && status == 200 && stream->done && !stream->failed && stream->first_ns) {
        note_success(client, end_ns);
        return;
    }
    if (rc)
        snprintf(why, sizeof why, "%s", err->text);
    else if (status != 200)
        snprintf(why, sizeof why, "status %d: %.160s%.40s", status, strbuf_text(&stream->other), strbuf_text(&stream->line));
    else
        snprintf(why, sizeof why, "%s", stream->failed ? stream->problem : stream->done ? "no text came" : "the stream broke off");
    note_failure(client, url, why);
}

static void run_request(struct client *client, uint32_t request)
{
    const struct perf_config *config = client->crowd->config;
    const struct serve_target *target = client->crowd->target;
    const uint32_t server = request % target->n_urls;
    struct http_client *metrics = &client->connections[target->n_urls];
    struct error err;
    int status = 0;
    write_body(&client->body, client->crowd, request);
    struct http_request ask = {.url = target->urls[server],
                               .path = "/v1/completions",
                               .api_key = config->api_key,
                               .body = strbuf_text(&client->body),
                               .body_len = client->body.len,
                               .patience_ms = (uint32_t)(config->timeout_ns / 1000000),
                               .on_body = on_body,
                               .arg = client};
    double before_s = config->overhead ? serve_step_seconds(metrics, config, ask.url, &client->metrics) : 0;
    stream_begin(&client->stream, &client->results.gap_ms, perf_now_ns());
    int rc = http_client_ask(&client->connections[server], &ask, &status, &err);
    uint64_t end_ns = perf_now_ns();
    double after_s = config->overhead ? serve_step_seconds(metrics, config, ask.url, &client->metrics) : 0;
    client->step_seconds = after_s - before_s;
    if (isfinite(client->step_seconds))
        take_answer(client, ask.url, rc, status, &err, end_ns);
    else
        note_failure(client, ask.url, "its /metrics has no hearsay_step_seconds_sum, which --overhead needs");
}

static void *client_main(void *arg)
{
    struct client *client = arg;
    struct crowd *crowd = client->crowd;
    const uint32_t n_connections = crowd->target->n_urls + 1;
    client->connections = calloc(n_connections, sizeof *client->connections);
    client->out_of_memory = !client->connections;
    while (!client->out_of_memory) {
        uint32_t request = atomic_fetch_add(&crowd->next, 1);
        if (request >= crowd->config->requests)
            break;
        run_request(client, request);
        client->out_of_memory = client->body.failed || client->stream.line.failed;
        atomic_fetch_add(&crowd->finished, 1);
    }
    for (uint32_t i = 0; client->connections && i < n_connections; i++)
        http_client_fini(&client->connections[i]);
    free(client->connections);
    client->end_ns = perf_now_ns();
    atomic_fetch_sub(&crowd->running, 1);
    return NULL;
}

void serve_results_merge(struct serve_results *sum, struct serve_results *more)
{
    samples_append(&sum->ttft_ms, &more->ttft_ms);
    samples_append(&sum->gap_ms, &more->gap_ms);
    samples_append(&sum->e2e_ms, &more->e2e_ms);
    samples_append(&sum->cached_tokens, &more->cached_tokens);
    samples_append(&sum->beyond_us, &more->beyond_us);
    sum->n_good += more->n_good;
    sum->n_failed += more->n_failed;
    sum->prompt_tokens += more->prompt_tokens;
    sum->completion_tokens += more->completion_tokens;
    if (!sum->first_problem[0])
        snprintf(sum->first_problem, sizeof sum->first_problem, "%s", more->first_problem);
    serve_results_fini(more);
}

static void collect(struct serve_results *sum, struct client *client)
{
    serve_results_merge(sum, &client->results);
    sum->ttft_ms.failed |= client->out_of_memory;
    stream_fini(&client->stream);
    strbuf_fini(&client->metrics);
    strbuf_fini(&client->body);
}

int clients_run(const struct perf_config *config, const struct serve_target *target, uint64_t seed, struct serve_results *results,
                struct error *err)
{
    struct crowd crowd = {.config = config, .target = target, .seed = seed};
    struct client *clients = calloc(config->clients, sizeof *clients);
    uint32_t n_started = 0;
    if (!clients)
        return error_set(err, HS_ERR_NO_MEMORY, "%s", error_name(HS_ERR_NO_MEMORY));
    uint64_t start_ns = perf_now_ns(), end_ns = start_ns;
    for (; n_started < config->clients; n_started++) {
        clients[n_started].crowd = &crowd;
        atomic_fetch_add(&crowd.running, 1);
        if (pthread_create(&clients[n_started].thread, NULL, client_main, &clients[n_started]) != 0)
            break;
    }
    if (n_started < config->clients)
        atomic_store(&crowd.next, config->requests); /* those that run stop after their request */
    while (n_started == config->clients && atomic_load(&crowd.running) > 0) {
        progress_show("serve: %u of %u requests", atomic_load(&crowd.finished), config->requests);
        poll(NULL, 0, PROGRESS_MS);
    }
    *results = (struct serve_results){0};
    for (uint32_t i = 0; i < n_started; i++) {
        pthread_join(clients[i].thread, NULL);
        end_ns = clients[i].end_ns > end_ns ? clients[i].end_ns : end_ns;
        collect(results, &clients[i]);
    }
    results->seconds = (double)(end_ns - start_ns) * 1e-9;
    free(clients);
    if (n_started < config->clients)
        return error_set(err, HS_ERR_LIMIT, "client %u of %u did not start; give fewer --clients", n_started + 1, config->clients);
    return 0;
}

void serve_results_fini(struct serve_results *results)
{
    samples_fini(&results->ttft_ms);
    samples_fini(&results->gap_ms);
    samples_fini(&results->e2e_ms);
    samples_fini(&results->cached_tokens);
    samples_fini(&results->beyond_us);
}

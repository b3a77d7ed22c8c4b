#include "perf/serve_client.h"

#include <curl/curl.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/rng.h"
#include "core/base/strbuf.h"
#include "perf/progress.h"
#include "perf/serve_stream.h"

/* Random ids from here up: the ids below are special tokens in some vocabularies. */
enum { FIRST_TOKEN = 512, PROGRESS_MS = 100 };

struct crowd {
    const struct perf_config *config;
    const char *model;
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
    rng_seed(&shared, config->seed);
    rng_seed(&own, config->seed + ((uint64_t)request + 1) * 0x9e3779b97f4a7c15u);
    strbuf_clear(body);
    strbuf_puts(body, "{\"model\":");
    strbuf_json_string(body, crowd->model, strlen(crowd->model));
    strbuf_puts(body, ",\"prompt\":[");
    add_tokens(body, &shared, config->shared_prefix, config->vocab);
    add_tokens(body, &own, config->prompt_tokens - config->shared_prefix, config->vocab);
    strbuf_printf(body,
                  "],\"max_tokens\":%u,\"temperature\":0,\"ignore_eos\":true,\"stream\":true,"
                  "\"stream_options\":{\"include_usage\":true}}",
                  config->output_tokens);
}

static size_t on_data(char *data, size_t size, size_t n, void *arg)
{
    struct client *client = arg;
    return stream_feed(&client->stream, data, size * n, perf_now_ns()) ? size * n : 0;
}

static void note_failure(struct client *client, const char *url, const char *why)
{
    struct serve_results *results = &client->results;
    results->n_failed++;
    if (!results->first_problem[0])
        snprintf(results->first_problem, sizeof results->first_problem, "%s: %s", url, why);
}

static void note_success(struct client *client, uint64_t end_ns)
{
    struct serve_results *results = &client->results;
    const struct stream *stream = &client->stream;
    results->n_good++;
    samples_add(&results->ttft_ms, (double)(stream->first_ns - stream->started_ns) * 1e-6);
    samples_add(&results->e2e_ms, (double)(end_ns - stream->started_ns) * 1e-6);
    if (stream->has_usage) {
        samples_add(&results->cached_tokens, (double)stream->cached_tokens);
        results->prompt_tokens += stream->prompt_tokens;
        results->completion_tokens += stream->completion_tokens;
    }
}

static void set_common(CURL *curl, const char *address, struct curl_slist *headers)
{
    curl_easy_setopt(curl, CURLOPT_URL, address);
    curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(curl, CURLOPT_NOPROXY, "127.0.0.1,localhost,::1");
    curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT, 10L);
    curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(curl, CURLOPT_HTTPHEADER, headers);
}

static void run_request(struct client *client, CURL *curl, struct curl_slist *headers, uint32_t request)
{
    const struct perf_config *config = client->crowd->config;
    const char *url = config->urls[request % config->n_urls];
    struct stream *stream = &client->stream;
    char address[1024], why[240];
    long status = 0;
    snprintf(address, sizeof address, "%s/v1/completions", url);
    write_body(&client->body, client->crowd, request);
    set_common(curl, address, headers);
    curl_easy_setopt(curl, CURLOPT_POSTFIELDSIZE, (long)client->body.len);
    curl_easy_setopt(curl, CURLOPT_POSTFIELDS, strbuf_text(&client->body));
    curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, on_data);
    curl_easy_setopt(curl, CURLOPT_WRITEDATA, client);
    stream_begin(stream, &client->results.gap_ms, perf_now_ns());
    CURLcode code = curl_easy_perform(curl);
    uint64_t end_ns = perf_now_ns();
    curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &status);
    if (code == CURLE_OK && status == 200 && stream->done && !stream->failed && stream->first_ns)
        return note_success(client, end_ns);
    if (code != CURLE_OK)
        snprintf(why, sizeof why, "%s", curl_easy_strerror(code));
    else if (status != 200)
        snprintf(why, sizeof why, "status %ld: %.160s%.40s", status, strbuf_text(&stream->other), strbuf_text(&stream->line));
    else
        snprintf(why, sizeof why, "%s", stream->failed ? stream->problem : stream->done ? "no text came" : "the stream broke off");
    note_failure(client, url, why);
}

static struct curl_slist *make_headers(const struct perf_config *config)
{
    char line[600];
    struct curl_slist *headers = curl_slist_append(NULL, "Content-Type: application/json");
    struct curl_slist *more = curl_slist_append(headers, "Expect:"); /* no round trip before a long prompt */
    if (more && config->api_key) {
        snprintf(line, sizeof line, "Authorization: Bearer %s", config->api_key);
        more = curl_slist_append(headers, line);
    }
    if (!more) {
        curl_slist_free_all(headers);
        return NULL;
    }
    return headers;
}

static void *client_main(void *arg)
{
    struct client *client = arg;
    struct crowd *crowd = client->crowd;
    CURL *curl = curl_easy_init();
    struct curl_slist *headers = make_headers(crowd->config);
    client->out_of_memory = !curl || !headers;
    while (!client->out_of_memory) {
        uint32_t request = atomic_fetch_add(&crowd->next, 1);
        if (request >= crowd->config->requests)
            break;
        run_request(client, curl, headers, request);
        client->out_of_memory = client->body.failed || client->stream.line.failed;
        atomic_fetch_add(&crowd->finished, 1);
    }
    curl_slist_free_all(headers);
    curl_easy_cleanup(curl);
    client->end_ns = perf_now_ns();
    atomic_fetch_sub(&crowd->running, 1);
    return NULL;
}

static void collect(struct serve_results *sum, struct client *client)
{
    struct serve_results *own = &client->results;
    samples_append(&sum->ttft_ms, &own->ttft_ms);
    samples_append(&sum->gap_ms, &own->gap_ms);
    samples_append(&sum->e2e_ms, &own->e2e_ms);
    samples_append(&sum->cached_tokens, &own->cached_tokens);
    sum->n_good += own->n_good;
    sum->n_failed += own->n_failed;
    sum->prompt_tokens += own->prompt_tokens;
    sum->completion_tokens += own->completion_tokens;
    if (!sum->first_problem[0])
        snprintf(sum->first_problem, sizeof sum->first_problem, "%s", own->first_problem);
    sum->ttft_ms.failed |= client->out_of_memory;
    serve_results_fini(own);
    stream_fini(&client->stream);
    strbuf_fini(&client->body);
}

int clients_run(const struct perf_config *config, const char *model, struct serve_results *results, struct error *err)
{
    struct crowd crowd = {.config = config, .model = model};
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
}

static size_t on_text(char *data, size_t size, size_t n, void *arg)
{
    strbuf_add(arg, data, size * n);
    return ((struct strbuf *)arg)->failed ? 0 : size * n;
}

int client_find_model(const struct perf_config *config, char *out, size_t cap, struct error *err)
{
    struct strbuf body = {0};
    char address[1024];
    long status = 0;
    CURL *curl = curl_easy_init();
    struct curl_slist *headers = make_headers(config);
    if (!curl || !headers) {
        curl_easy_cleanup(curl);
        curl_slist_free_all(headers);
        return error_set(err, HS_ERR_NO_MEMORY, "%s", error_name(HS_ERR_NO_MEMORY));
    }
    snprintf(address, sizeof address, "%s/v1/models", config->urls[0]);
    set_common(curl, address, headers);
    curl_easy_setopt(curl, CURLOPT_TIMEOUT, 30L);
    curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, on_text);
    curl_easy_setopt(curl, CURLOPT_WRITEDATA, &body);
    CURLcode code = curl_easy_perform(curl);
    curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &status);
    json_t *document = code == CURLE_OK && status == 200 ? json_loads(strbuf_text(&body), 0, NULL) : NULL;
    const char *id = json_string_value(json_object_get(json_array_get(json_object_get(document, "data"), 0), "id"));
    int rc = 0;
    if (id && snprintf(out, cap, "%s", id) < (int)cap)
        rc = 0;
    else if (code != CURLE_OK)
        rc = error_set(err, HS_ERR_IO, "%s: %s; does a server run there?", address, curl_easy_strerror(code));
    else
        rc = error_set(err, HS_ERR_IO, "%s names no model (status %ld); give --served-model", address, status);
    json_decref(document);
    strbuf_fini(&body);
    curl_slist_free_all(headers);
    curl_easy_cleanup(curl);
    return rc;
}

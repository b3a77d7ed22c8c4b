#include <stdio.h>

#include "core/serve/http/answer.h"
#include "core/serve/http/server.h"

/* Without advice: the client that hits it is told by its answer. */
static const struct limit_spec limit_specs[API_LIMITS] = {
    [API_LIMIT_CONNECTIONS] = {"http_connections", "http",
                               "further connections are answered 503; raise --max-connections and the limit of open files, or add nodes",
                               true},
    [API_LIMIT_HEADER_BYTES] = {"http_header_bytes", "http", NULL, false},
    [API_LIMIT_BODY_BYTES] = {"http_body_bytes", "http", NULL, false},
    [API_LIMIT_IDLE] = {"http_idle_seconds", "http",
                        "connections were closed because nothing moved on them for so long: clients that stopped sending or reading",
                        false},
    [API_LIMIT_UNREAD_TOKENS] = {"http_unread_tokens", "http", "streams were ended because their clients read too slowly", false},
    [API_LIMIT_INBOX] = {"inbox_requests", "http",
                         "requests come faster than they are taken in and are answered 429; the node loop has too little CPU time", false},
    [API_LIMIT_CONTEXT] = {"context_tokens", "http", NULL, false},
    [API_LIMIT_DEPTH] = {"json_depth", "http", NULL, false},
    [API_LIMIT_CHOICES] = {"choices", "http", NULL, false},
    [API_LIMIT_STOP_STRINGS] = {"stop_strings", "http", NULL, false},
    [API_LIMIT_STOP_BYTES] = {"stop_string_bytes", "http", NULL, false},
    [API_LIMIT_TOP_LOGPROBS] = {"top_logprobs", "http", NULL, false},
    [API_LIMIT_BIAS_ENTRIES] = {"logit_bias_entries", "http", NULL, false},
    [API_LIMIT_SALT_BYTES] = {"cache_salt_bytes", "http", NULL, false},
    [API_LIMIT_TENANT_BYTES] = {"tenant_name_bytes", "http", NULL, false},
};

static struct counter *finished(struct metrics *registry, const char *model_label, const char *reason)
{
    char labels[320];
    snprintf(labels, sizeof labels, "%s,finished_reason=\"%s\"", model_label, reason);
    return metrics_counter(registry, "vllm:request_success_total", labels, "Answers that came to an end, by reason.");
}

static bool register_limits(struct http_metrics *m, const struct http_config *config)
{
    const uint64_t maxima[API_LIMITS] = {
        [API_LIMIT_CONNECTIONS] = config->max_connections,
        [API_LIMIT_HEADER_BYTES] = HTTP_HEADER_BYTES_MAX,
        [API_LIMIT_BODY_BYTES] = config->max_body_bytes,
        [API_LIMIT_IDLE] = config->idle_s,
        [API_LIMIT_UNREAD_TOKENS] = ANSWER_STREAM_TOKENS,
        [API_LIMIT_INBOX] = config->inbox_capacity,
        [API_LIMIT_CONTEXT] = config->n_context,
        [API_LIMIT_DEPTH] = API_DEPTH_MAX,
        [API_LIMIT_CHOICES] = API_CHOICES_MAX,
        [API_LIMIT_STOP_STRINGS] = STOP_STRINGS_MAX,
        [API_LIMIT_STOP_BYTES] = STOP_STRING_BYTES_MAX,
        [API_LIMIT_TOP_LOGPROBS] = BACKEND_MAX_TOP_LOGPROBS,
        [API_LIMIT_BIAS_ENTRIES] = API_LOGIT_BIAS_MAX,
        [API_LIMIT_SALT_BYTES] = API_SALT_BYTES_MAX,
        [API_LIMIT_TENANT_BYTES] = REQUEST_TENANT_BYTES - 1,
    };
    for (int i = API_LIMIT_NONE + 1; i < API_LIMITS; i++) {
        m->limits[i] = metrics_limit(config->metrics, &limit_specs[i], maxima[i]);
        if (!m->limits[i])
            return false;
    }
    return true;
}

int http_metrics_init(struct http_metrics *m, const struct http_config *config, const char *model_id)
{
    struct metrics *registry = config->metrics;
    char label[METRICS_LABEL_BYTES];
    metrics_label(label, "model_name", model_id);
    m->finished_stop = finished(registry, label, "stop");
    m->finished_abort = finished(registry, label, "abort");
    m->finished_error = finished(registry, label, "error");
    m->responses_4xx = metrics_counter(registry, "hearsay_http_responses_total", "class=\"4xx\"", "HTTP responses with an error status.");
    m->responses_5xx = metrics_counter(registry, "hearsay_http_responses_total", "class=\"5xx\"", "HTTP responses with an error status.");
    bool whole = m->finished_stop && m->finished_abort && m->finished_error && m->responses_4xx && m->responses_5xx;
    return whole && register_limits(m, config) ? 0 : HS_ERR_NO_MEMORY;
}

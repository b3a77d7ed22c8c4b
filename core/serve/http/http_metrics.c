#include <stdio.h>

#include "core/serve/http/server.h"

static struct counter *finished(struct metrics *registry, const char *model_label, const char *reason)
{
    char labels[320];
    snprintf(labels, sizeof labels, "%s,finished_reason=\"%s\"", model_label, reason);
    return metrics_counter(registry, "vllm:request_success_total", labels, "Answers that came to an end, by reason.");
}

/* model_name="..." with what the text format wants escaped. */
static void write_model_label(char *out, size_t cap, const char *model_id)
{
    size_t n = (size_t)snprintf(out, cap, "model_name=\"");
    for (; *model_id && n + 4 < cap; model_id++) {
        if (*model_id == '"' || *model_id == '\\')
            out[n++] = '\\';
        out[n++] = *model_id == '\n' ? ' ' : *model_id;
    }
    snprintf(out + n, cap - n, "\"");
}

int http_metrics_init(struct http_metrics *m, struct metrics *registry, const char *model_id)
{
    static const double first_token[] = {0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80};
    static const double between[] = {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 2.5, 5, 10};
    static const double whole[] = {0.05, 0.1, 0.3, 0.5, 0.8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480, 960};
    char label[256];
    write_model_label(label, sizeof label, model_id);
#define LENGTH(a) ((int)(sizeof(a) / sizeof *(a)))
    m->time_to_first_token = metrics_histogram(registry, "vllm:time_to_first_token_seconds", label,
                                               "From a request's arrival to its first token.", first_token, LENGTH(first_token));
    m->inter_token_latency = metrics_histogram(registry, "vllm:inter_token_latency_seconds", label, "Between tokens of an answer.",
                                               between, LENGTH(between));
    m->request_latency = metrics_histogram(registry, "vllm:e2e_request_latency_seconds", label, "From a request's arrival to its end.",
                                           whole, LENGTH(whole));
#undef LENGTH
    m->prompt_tokens = metrics_counter(registry, "vllm:prompt_tokens_total", label, "Prompt tokens of requests that entered here.");
    m->generation_tokens = metrics_counter(registry, "vllm:generation_tokens_total", label, "Answer tokens given to clients here.");
    m->finished_stop = finished(registry, label, "stop");
    m->finished_length = finished(registry, label, "length");
    m->finished_abort = finished(registry, label, "abort");
    m->finished_error = finished(registry, label, "error");
    m->responses_4xx = metrics_counter(registry, "hearsay_http_responses_total", "class=\"4xx\"", "HTTP responses with an error status.");
    m->responses_5xx = metrics_counter(registry, "hearsay_http_responses_total", "class=\"5xx\"", "HTTP responses with an error status.");
    bool whole_set = m->time_to_first_token && m->inter_token_latency && m->request_latency && m->prompt_tokens &&
                     m->generation_tokens && m->finished_stop && m->finished_length && m->finished_abort && m->finished_error &&
                     m->responses_4xx && m->responses_5xx;
    return whole_set ? 0 : HS_ERR_NO_MEMORY;
}

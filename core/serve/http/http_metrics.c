#include <stdio.h>

#include "core/serve/http/server.h"

static struct counter *finished(struct metrics *registry, const char *model_label, const char *reason)
{
    char labels[320];
    snprintf(labels, sizeof labels, "%s,finished_reason=\"%s\"", model_label, reason);
    return metrics_counter(registry, "vllm:request_success_total", labels, "Answers that came to an end, by reason.");
}

int http_metrics_init(struct http_metrics *m, struct metrics *registry, const char *model_id)
{
    char label[METRICS_LABEL_BYTES];
    metrics_label(label, "model_name", model_id);
    m->finished_stop = finished(registry, label, "stop");
    m->finished_abort = finished(registry, label, "abort");
    m->finished_error = finished(registry, label, "error");
    m->responses_4xx = metrics_counter(registry, "hearsay_http_responses_total", "class=\"4xx\"", "HTTP responses with an error status.");
    m->responses_5xx = metrics_counter(registry, "hearsay_http_responses_total", "class=\"5xx\"", "HTTP responses with an error status.");
    bool whole = m->finished_stop && m->finished_abort && m->finished_error && m->responses_4xx && m->responses_5xx;
    return whole ? 0 : HS_ERR_NO_MEMORY;
}

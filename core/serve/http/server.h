/* The inside of the HTTP server, shared by its files. Everything here is fixed after http_server_create. */
#ifndef HEARSAY_SERVE_HTTP_SERVER_H
#define HEARSAY_SERVE_HTTP_SERVER_H

#include <microhttpd.h>
#include <stdatomic.h>

#include "core/serve/http/api_request.h"
#include "core/serve/http/http.h"

struct watcher;

/* What dashboards made for vLLM look for, as far as the entry node knows it. */
struct http_metrics {
    struct histogram *time_to_first_token, *inter_token_latency, *request_latency;
    struct counter *prompt_tokens, *generation_tokens;
    struct counter *finished_stop, *finished_length, *finished_abort, *finished_error;
    struct counter *responses_4xx, *responses_5xx;
};

struct http_server {
    struct http_config config;
    const char *model_id;
    int64_t created; /* the model's, as clients see it: when the server started */
    char fingerprint[24]; /* "hs-" and the beginning of the model's */
    struct api_limits limits;
    struct http_metrics metrics;
    struct MHD_Daemon *daemon;
    struct watcher *watcher;
    int listen_fd;
    uint16_t port;
    _Atomic uint64_t next_id;
    _Atomic uint32_t n_exchanges; /* not yet freed */
    _Atomic bool stopping;
    int freed_fd; /* eventfd, written when an exchange is freed */
};

int http_metrics_init(struct http_metrics *metrics, struct metrics *registry, const char *model_id);

#endif

/* The inside of the HTTP server, shared by its files. Everything here is fixed after http_server_create. */
#ifndef HEARSAY_SERVE_HTTP_SERVER_H
#define HEARSAY_SERVE_HTTP_SERVER_H

#include <microhttpd.h>
#include <stdatomic.h>

#include "core/serve/http/api_request.h"
#include "core/serve/http/http.h"

enum { HTTP_HEADER_BYTES_MAX = 32 << 10 }; /* request line and headers */

struct watcher;

/*
 * What the node cannot know of vllm:request_success_total: answers that a stop string ended (to the node they were canceled),
 * and those that ended badly. All other vllm: metrics are the node's.
 */
struct http_metrics {
    struct counter *finished_stop, *finished_abort, *finished_error;
    struct counter *responses_4xx, *responses_5xx;
    struct limit *limits[API_LIMITS]; /* from API_LIMIT_NONE + 1 on */
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
    _Atomic uint32_t n_connections;
    _Atomic bool stopping;
    int freed_fd; /* eventfd, written when an exchange is freed */
    struct exchange *to_wake; /* the node's thread only: what http_server_wake will wake, each referenced */
};

/* config: with its defaults filled in. */
int http_metrics_init(struct http_metrics *metrics, const struct http_config *config, const char *model_id);

#endif

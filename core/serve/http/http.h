/*
 * The HTTP edge of a node: an OpenAI-style API over libmicrohttpd.
 *
 *     client -- MHD threads: parse, template, tokenize -- node_inbox_submit --> node loop
 *     client <- MHD threads: detokenize, JSON, SSE <-- bounded ring per choice -- on_event
 *
 * A connection that waits for the node is suspended and resumed by the event. One thread more watches the connections'
 * descriptors for clients that leave, whose work is then cancelled.
 *
 * Serves POST /v1/completions, /v1/chat/completions, /tokenize, /detokenize; GET /v1/models, /health, /metrics, /cluster; and
 * from loopback only GET /admin/tree and POST /admin/drain, /admin/undrain, /admin/flush.
 *
 * Threading: create and destroy from one thread; the rest is inside. Destroy while the node loop still runs, or when it has given
 * every request its final event: complete answers still go out (2 s at most), the rest is cancelled and its final events
 * awaited. Errors: a line for the user in err.
 */
#ifndef HEARSAY_SERVE_HTTP_HTTP_H
#define HEARSAY_SERVE_HTTP_HTTP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/error.h"
#include "core/base/metrics.h"
#include "core/model/loaded_model.h"
#include "core/port/env.h"
#include "core/serve/request.h"

struct http_server;

/* Everything pointed to outlives the server. */
struct http_config {
    const char *address;   /* "127.0.0.1:8080", "[::1]:8080"; port 0: any free one */
    const char *node_name; /* x-hearsay-node of answers that need no computing */
    const char *model_id;  /* NULL: the model's own name */
    const struct loaded_model *model;
    uint32_t n_context;    /* longest sequence; 0: the model's */
    bool isolate_tenants;  /* the tenant (header x-tenant-id) becomes part of the cache's namespace */
    uint32_t threads;         /* 0: 2 */
    uint32_t max_connections; /* 0: 8192, or what the limit of open files leaves room for; further ones are a 503 */
    size_t max_body_bytes;    /* 0: 8 MiB; larger ones are a 413 */
    uint32_t idle_s;          /* 0: 30; connections on which nothing moves for so long are closed */
    uint32_t inbox_capacity;  /* for people: of inbox */
    uint32_t deliver_ms;      /* 0: 2000; how long answers that are complete may take to go out when the server stops */
    struct node_inbox *inbox;
    bool wake_by_step; /* the node's thread calls http_server_wake (node_config.after_events); else each event wakes by itself */
    struct metrics *metrics;
    const struct env *env;            /* called from several threads at once */
    int64_t (*unix_time_s)(void *arg); /* wall clock for "created" fields */
    void *unix_time_arg;
};

int http_server_create(const struct http_config *config, struct http_server **out, struct error *err);
void http_server_destroy(struct http_server *server); /* NULL is fine */
/*
 * On the node's thread, with wake_by_step: wakes the connections that something happened to since the last call, each once. So a step's events of
 * one answer leave in one piece, and the node submits its next step before the HTTP threads take CPUs from it.
 */
void http_server_wake(struct http_server *server);
/*
 * On the node's thread: a step is about to end. Where few wait, their connections are woken now and wait awake for what the step brings, a
 * millisecond at most: the thread, the code and the connection's memory are then at hand, which a step's weights had driven out of the caches.
 * Who waits awake goes on at the first event: what else the step brings for the same answer may leave in a second piece.
 */
void http_server_expect(struct http_server *server);
/* The port really bound. */
uint16_t http_server_port(const struct http_server *server);

#endif

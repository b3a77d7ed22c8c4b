/*
 * A small HTTP/1.1 client for streams: one connection, kept open, one request at a time, the body handed on as it arrives.
 *
 * libcurl resolves, connects and does TLS; the messages are read here. Its own reader costs some 30 us for each event of a stream, on
 * CPUs that are the server's too, and would be measured with it.
 *
 * Threading: a client belongs to one thread. Zero-initialised, http_client_fini frees; the connection opens with the first request and
 * again when the server has closed it.
 */
#ifndef HEARSAY_PERF_HTTP_CLIENT_H
#define HEARSAY_PERF_HTTP_CLIENT_H

#include <curl/curl.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/error.h"
#include "core/base/strbuf.h"

struct http_client {
    CURL *curl; /* connected; NULL: not */
    bool tls;
    bool silent;      /* the server took or gave nothing for so long that the request was given up */
    uint32_t patience_ms;
    char host[300];   /* for the Host header */
    char prefix[400]; /* the URL's path, in front of each request's */
    char buffer[16384];
    size_t at, len; /* what of it was not read yet: [at, len) */
    struct strbuf line, request;
};

struct http_request {
    const char *url;     /* "http://127.0.0.1:8080", the same for a client's whole life */
    const char *path;    /* "/v1/models" */
    const char *api_key; /* NULL: none */
    const char *body;    /* NULL: a GET */
    size_t body_len;
    uint32_t patience_ms; /* how long the server may take or give nothing */
    /* A piece of the answer's body; false ends it all. */
    bool (*on_body)(void *arg, const char *data, size_t n);
    void *arg;
};

/* 0 with the status once the whole answer was read; else HS_ERR_IO (also if on_body ended it), HS_ERR_PARSE or HS_ERR_NO_MEMORY. */
int http_client_ask(struct http_client *client, const struct http_request *request, int *status, struct error *err);
void http_client_fini(struct http_client *client);

#endif

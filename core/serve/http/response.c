/* Queueing responses: bodies at once, and streams that libmicrohttpd pulls. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/serve/http/answer.h"
#include "core/serve/http/exchange.h"

static void add_headers(struct exchange *ex, struct MHD_Response *response, const char *content_type, const char *node_name)
{
    MHD_add_response_header(response, "Content-Type", content_type);
    MHD_add_response_header(response, "x-request-id", ex->request_id);
    MHD_add_response_header(response, "x-hearsay-node", node_name && *node_name ? node_name : ex->server->config.node_name);
}

static enum MHD_Result queue(struct exchange *ex, int status, struct MHD_Response *response)
{
    const struct http_metrics *metrics = &ex->server->metrics;
    if (status >= 400)
        counter_add(status >= 500 ? metrics->responses_5xx : metrics->responses_4xx, 1);
    enum MHD_Result rc = MHD_queue_response(ex->connection, (unsigned)status, response);
    MHD_destroy_response(response); /* the queue holds its own reference */
    ex->state = EXCHANGE_ANSWERED;
    return rc;
}

enum MHD_Result exchange_respond(struct exchange *ex, int status, const char *content_type, struct strbuf *text,
                                 const char *node_name, uint32_t retry_after_s)
{
    if (text->failed) { /* out of memory: the client sees a cut connection, never a wrong body */
        strbuf_fini(text);
        return MHD_NO;
    }
    struct MHD_Response *response = text->len ? MHD_create_response_from_buffer(text->len, text->data, MHD_RESPMEM_MUST_FREE)
                                              : MHD_create_response_from_buffer(0, "", MHD_RESPMEM_PERSISTENT);
    if (!response || !text->len)
        strbuf_fini(text);
    *text = (struct strbuf){0};
    if (!response)
        return MHD_NO;
    add_headers(ex, response, content_type, node_name);
    if (retry_after_s) {
        char seconds[16];
        snprintf(seconds, sizeof seconds, "%u", retry_after_s);
        MHD_add_response_header(response, "Retry-After", seconds);
    }
    if (ex->close_after)
        MHD_add_response_header(response, "Connection", "close");
    if (status == 405)
        MHD_add_response_header(response, "Allow", exchange_allowed_method(ex));
    return queue(ex, status, response);
}

enum MHD_Result exchange_respond_error(struct exchange *ex, const struct api_error *error)
{
    struct strbuf text = {0};
    if (error->limit)
        limit_hit(ex->server->metrics.limits[error->limit], 1);
    api_error_write(error, &text);
    return exchange_respond(ex, error->status, "application/json", &text, NULL, error->retry_after_s);
}

static ssize_t read_stream(void *cls, uint64_t position, char *buffer, size_t max)
{
    struct exchange *ex = cls;
    for (;;) {
        size_t left = ex->stream.len - ex->stream_pos;
        if (left) {
            size_t n = left < max ? left : max;
            memcpy(buffer, ex->stream.data + ex->stream_pos, n);
            ex->stream_pos += n;
            return (ssize_t)n;
        }
        if (ex->answer->stream_over)
            return MHD_CONTENT_READER_END_OF_STREAM;
        if (exchange_is_gone(ex))
            return MHD_CONTENT_READER_END_WITH_ERROR;
        strbuf_clear(&ex->stream);
        ex->stream_pos = 0;
        answer_write_stream(ex->answer, &ex->stream);
        if (ex->stream.failed)
            return MHD_CONTENT_READER_END_WITH_ERROR;
        if (ex->answer->stream_over)
            exchange_cork(ex, true); /* until the end of the body, which MHD sends apart */
        if (ex->stream.len)
            continue;
        exchange_cork(ex, false);
        if (exchange_sleep(ex))
            return 0;
    }
}

static void release_stream(void *cls)
{
    exchange_unref(cls);
}

enum MHD_Result exchange_respond_stream(struct exchange *ex, const char *node_name)
{
    exchange_ref(ex);
    struct MHD_Response *response = MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, 16384, read_stream, ex, release_stream);
    if (!response) {
        exchange_unref(ex);
        return MHD_NO;
    }
    add_headers(ex, response, "text/event-stream", node_name);
    MHD_add_response_header(response, "Cache-Control", "no-cache");
    exchange_cork(ex, true); /* until read_stream has nothing more */
    return queue(ex, 200, response);
}

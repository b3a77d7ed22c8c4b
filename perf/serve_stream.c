#include "perf/serve_stream.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

void stream_begin(struct stream *stream, struct samples *gaps_ms, uint64_t now_ns)
{
    struct strbuf line = stream->line, other = stream->other;
    strbuf_clear(&line);
    strbuf_clear(&other);
    *stream = (struct stream){.line = line, .other = other, .gaps_ms = gaps_ms, .started_ns = now_ns};
}

void stream_fini(struct stream *stream)
{
    strbuf_fini(&stream->line);
    strbuf_fini(&stream->other);
}

static void fail(struct stream *stream, const char *why)
{
    if (!stream->failed)
        snprintf(stream->problem, sizeof stream->problem, "%s", why);
    stream->failed = true;
}

static void take_usage(struct stream *stream, const json_t *usage)
{
    if (!json_is_object(usage))
        return;
    stream->has_usage = true;
    stream->prompt_tokens = (uint64_t)json_integer_value(json_object_get(usage, "prompt_tokens"));
    stream->completion_tokens = (uint64_t)json_integer_value(json_object_get(usage, "completion_tokens"));
    const json_t *details = json_object_get(usage, "prompt_tokens_details");
    stream->cached_tokens = (uint64_t)json_integer_value(json_object_get(details, "cached_tokens"));
}

/* An event with text is one step of the answer; one with a finish reason alone ends it, and a short answer may have no more: a part
 * of a character. */
static void take_event(struct stream *stream, const char *text, uint64_t now_ns)
{
    json_t *event = json_loads(text, JSON_ALLOW_NUL, NULL); /* a token of the vocabulary is the character NUL */
    if (!event)
        return fail(stream, "an event of the stream is not JSON");
    const json_t *error = json_object_get(event, "error"), *choice = json_array_get(json_object_get(event, "choices"), 0);
    if (error) {
        const char *message = json_string_value(json_object_get(error, "message"));
        fail(stream, message && message[0] ? message : "the stream ended with an error");
    }
    bool ends = json_is_string(json_object_get(choice, "finish_reason"));
    if (json_string_length(json_object_get(choice, "text")) > 0 || (ends && stream->first_ns == 0)) {
        if (stream->first_ns == 0)
            stream->first_ns = now_ns;
        else
            samples_add(stream->gaps_ms, (double)(now_ns - stream->last_ns) * 1e-6);
        stream->last_ns = now_ns;
    }
    take_usage(stream, json_object_get(event, "usage"));
    json_decref(event);
}

static void take_line(struct stream *stream, uint64_t now_ns)
{
    const char *text = strbuf_text(&stream->line);
    if (strncmp(text, "data:", 5) != 0) {
        strbuf_puts(&stream->other, text);
        return;
    }
    text += 5 + strspn(text + 5, " ");
    if (strcmp(text, "[DONE]") == 0)
        stream->done = true;
    else
        take_event(stream, text, now_ns);
}

bool stream_feed(struct stream *stream, const char *data, size_t n, uint64_t now_ns)
{
    while (n > 0) {
        const char *end = memchr(data, '\n', n);
        size_t len = end ? (size_t)(end - data) : n;
        strbuf_add(&stream->line, data, len);
        if (end) {
            if (stream->line.len && stream->line.data[stream->line.len - 1] == '\r')
                stream->line.data[--stream->line.len] = '\0';
            take_line(stream, now_ns);
            strbuf_clear(&stream->line);
        }
        len += end != NULL;
        data += len;
        n -= len;
    }
    return !stream->line.failed && !stream->other.failed;
}

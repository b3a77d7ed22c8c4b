/*
 * Reads a completion stream (server-sent events) as it arrives and notes when.
 *
 * Fed from libcurl's write callback, in pieces of any size. Threading: belongs to one client. stream_fini frees; stream_begin may
 * be called again for the next request.
 */
#ifndef HEARSAY_PERF_SERVE_STREAM_H
#define HEARSAY_PERF_SERVE_STREAM_H

#include <stdbool.h>
#include <stdint.h>

#include "core/base/strbuf.h"
#include "perf/samples.h"

struct stream {
    struct strbuf line;                     /* the unfinished one */
    struct strbuf other;                    /* what came that is not an event: an error's body */
    struct samples *gaps_ms;                /* between events that carry a choice; borrowed */
    uint64_t started_ns, first_ns, last_ns; /* 0: nothing yet */
    uint64_t prompt_tokens, completion_tokens, cached_tokens;
    bool has_usage, done, failed;
    char problem[200]; /* why it failed */
};

void stream_begin(struct stream *stream, struct samples *gaps_ms, uint64_t now_ns);
/* false when out of memory. */
bool stream_feed(struct stream *stream, const char *data, size_t n, uint64_t now_ns);
void stream_fini(struct stream *stream);

#endif

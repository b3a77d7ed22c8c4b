/*
 * Response bodies of completions and chat completions, whole or as the chunks of a stream. Pure; appends JSON.
 */
#ifndef HEARSAY_SERVE_HTTP_API_RESPONSE_H
#define HEARSAY_SERVE_HTTP_API_RESPONSE_H

#include <stdbool.h>
#include <stdint.h>

#include "core/base/strbuf.h"
#include "core/serve/http/api_error.h"
#include "core/serve/http/api_logprobs.h"

/* What all bodies of one answer share. */
struct api_answer_head {
    bool chat;
    const char *id, *model, *fingerprint;
    int64_t created; /* seconds since 1970 */
    const struct tokenizer *tokenizer;
};

struct api_usage {
    uint64_t prompt_tokens, completion_tokens, cached_tokens;
};

/* A stretch of one choice: a chunk's, or all of it. */
struct api_part {
    uint32_t index;
    const char *text;
    size_t len;
    bool first;       /* of its choice: a chat chunk then carries the role */
    bool logprobs;    /* wanted */
    const struct api_token *tokens;
    size_t n_tokens;
    uint64_t *offset; /* of the tokens in the text, in characters; moved on (completions) */
    const char *finish_reason; /* NULL: not finished */
};

/* One chunk of a stream. show_usage: a usage member is written, null if usage is NULL. */
void api_write_chunk(struct strbuf *out, const struct api_answer_head *head, const struct api_part *part, bool show_usage,
                     const struct api_usage *usage);
/* The last chunk: usage alone. */
void api_write_usage_chunk(struct strbuf *out, const struct api_answer_head *head, const struct api_usage *usage);

/* A whole answer: begin, each choice in order, end. */
void api_write_begin(struct strbuf *out, const struct api_answer_head *head);
void api_write_choice(struct strbuf *out, const struct api_answer_head *head, const struct api_part *part);
void api_write_end(struct strbuf *out, const struct api_usage *usage);

/* Server-sent events: data: {...} and a blank line. */
void sse_begin(struct strbuf *out);
void sse_end(struct strbuf *out);
void sse_write_done(struct strbuf *out);

#endif

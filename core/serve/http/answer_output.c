/* What the events of an answer become: a whole body, or a stream's chunks. */
#include <stdio.h>
#include <string.h>

#include "core/serve/http/answer.h"

void answer_computed_by(struct answer *answer, char out[REQUEST_NODE_NAME_BYTES])
{
    pthread_mutex_lock(&answer->exchange->lock);
    snprintf(out, REQUEST_NODE_NAME_BYTES, "%s", answer->computed_by);
    pthread_mutex_unlock(&answer->exchange->lock);
}

enum answer_progress answer_poll(struct answer *answer, struct api_error *error)
{
    bool any = false, all = true;
    for (uint32_t i = 0; i < answer->n_choices; i++) {
        struct answer_choice *choice = &answer->choices[i];
        if (answer_choice_advance(choice, error)) {
            answer_cancel(answer);
            return ANSWER_FAILED;
        }
        any |= choice->moving;
        all &= choice->complete;
    }
    return (answer->api.stream ? any : all) ? ANSWER_READY : ANSWER_WAITING;
}

static struct api_usage usage_of(struct answer *answer)
{
    struct api_usage usage = {0};
    pthread_mutex_lock(&answer->exchange->lock);
    for (uint32_t i = 0; i < answer->n_choices; i++) {
        const struct answer_choice *choice = &answer->choices[i];
        usage.completion_tokens += choice->n_released;
        if (i % answer->api.n)
            continue; /* a prompt counts once, however many answers it has */
        usage.prompt_tokens += choice->request.n_tokens;
        usage.cached_tokens += choice->cached_tokens;
    }
    pthread_mutex_unlock(&answer->exchange->lock);
    return usage;
}

static const char *finish_reason(const struct answer_choice *choice)
{
    if (!choice->complete)
        return NULL;
    return choice->text.stopped || choice->reason == FINISH_STOP ? "stop" : "length";
}

/* Takes what can be shown of a choice; text holds it until the part was written. */
static struct api_part next_part(struct answer_choice *choice, struct strbuf *text)
{
    const struct api_request *api = &choice->answer->api;
    if (api->echo && !choice->begun)
        strbuf_add(text, choice->prompt->text.data, choice->prompt->text.len);
    size_t released = answer_text_take(&choice->text, text);
    choice->n_released += released;
    size_t n_top = api->sampling.n_top_logprobs;
    for (size_t i = 0; i < choice->n_tokens; i++)
        choice->tokens[i].top = n_top ? choice->tops + i * n_top : NULL;
    return (struct api_part){
        .index = choice->index,
        .text = strbuf_text(text),
        .len = text->len,
        .first = !choice->begun,
        .logprobs = api->logprobs,
        .tokens = choice->tokens,
        .n_tokens = api->logprobs ? choice->n_echo + released : 0,
        .offset = &choice->offset,
        .finish_reason = finish_reason(choice),
    };
}

/* Forgets the tokens of a part that was written. */
static void drop_tokens(struct answer_choice *choice, size_t n)
{
    size_t left = choice->n_tokens - n, n_top = choice->request.sampling.n_top_logprobs;
    if (n && left) {
        memmove(choice->tokens, choice->tokens + n, left * sizeof *choice->tokens);
        if (n_top)
            memmove(choice->tops, choice->tops + n * n_top, left * n_top * sizeof *choice->tops);
    }
    choice->n_tokens = left;
    choice->n_echo = 0;
    choice->begun = true;
}

void answer_write_whole(struct answer *answer, struct strbuf *out)
{
    api_write_begin(out, &answer->head);
    for (uint32_t i = 0; i < answer->n_choices; i++) {
        struct strbuf text = {0};
        struct api_part part = next_part(&answer->choices[i], &text);
        api_write_choice(out, &answer->head, &part);
        out->failed |= text.failed;
        strbuf_fini(&text);
    }
    struct api_usage usage = usage_of(answer);
    api_write_end(out, &usage);
}

static void write_choice_chunk(struct answer_choice *choice, struct strbuf *out)
{
    struct answer *answer = choice->answer;
    struct strbuf text = {0};
    struct api_part part = next_part(choice, &text);
    if (part.len || part.n_tokens || part.finish_reason) {
        struct api_usage usage = usage_of(answer);
        sse_begin(out);
        api_write_chunk(out, &answer->head, &part, answer->api.include_usage, answer->api.continuous_usage ? &usage : NULL);
        sse_end(out);
        drop_tokens(choice, part.n_tokens);
        choice->written = choice->complete;
    }
    out->failed |= text.failed;
    strbuf_fini(&text);
}

static void write_failure(struct answer *answer, const struct api_error *error, struct strbuf *out)
{
    sse_begin(out);
    api_error_write(error, out);
    sse_end(out);
    answer->stream_over = true; /* without [DONE]: it must not look like a clean end */
    answer_cancel(answer);
}

void answer_write_stream(struct answer *answer, struct strbuf *out)
{
    bool all = true;
    for (uint32_t i = 0; i < answer->n_choices; i++) {
        struct answer_choice *choice = &answer->choices[i];
        if (choice->written)
            continue;
        struct api_error error;
        bool failed = answer_choice_advance(choice, &error);
        if (choice->moving)
            write_choice_chunk(choice, out);
        if (failed) {
            write_failure(answer, &error, out);
            return;
        }
        all &= choice->written;
    }
    if (!all)
        return;
    if (answer->api.include_usage) {
        struct api_usage usage = usage_of(answer);
        sse_begin(out);
        api_write_usage_chunk(out, &answer->head, &usage);
        sse_end(out);
    }
    sse_write_done(out);
    answer->stream_over = true;
}

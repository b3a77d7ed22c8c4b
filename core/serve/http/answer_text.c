#include "core/serve/http/answer_text.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/panic.h"
#include "core/base/utf8.h"

void answer_text_init(struct answer_text *text, const struct tokenizer *tokenizer, const struct stop_set *stops)
{
    *text = (struct answer_text){.tokenizer = tokenizer, .matcher = {.set = stops}};
}

void answer_text_fini(struct answer_text *text)
{
    strbuf_fini(&text->pending);
    free(text->token_ends);
    *text = (struct answer_text){0};
}

static void add_waiting(struct answer_text *text, uint64_t end)
{
    if (text->first_waiting + text->n_waiting == text->cap_waiting && text->first_waiting) {
        memmove(text->token_ends, text->token_ends + text->first_waiting, text->n_waiting * sizeof *text->token_ends);
        text->first_waiting = 0;
    }
    if (text->n_waiting == text->cap_waiting) {
        size_t cap = text->cap_waiting ? text->cap_waiting * 2 : 16;
        uint64_t *ends = realloc(text->token_ends, cap * sizeof *ends);
        if (!ends) {
            text->failed = true;
            return;
        }
        text->token_ends = ends;
        text->cap_waiting = cap;
    }
    text->token_ends[text->first_waiting + text->n_waiting++] = end;
}

/* Cuts the stop string of the given length off the end, and the tokens that begin in it. */
static void cut(struct answer_text *text, uint32_t stop_len)
{
    hs_assert(stop_len <= text->pending.len);
    text->pending.len -= stop_len;
    text->pending.data[text->pending.len] = '\0';
    text->stopped = true;
    uint64_t end = text->shown + text->pending.len;
    const uint64_t *ends = text->token_ends + text->first_waiting;
    while (text->n_waiting && (text->n_waiting > 1 ? ends[text->n_waiting - 2] : text->released_end) >= end)
        text->n_waiting--;
}

bool answer_text_push(struct answer_text *text, uint32_t token)
{
    hs_assert(!text->stopped && !text->finished);
    size_t len;
    const char *bytes = tokenizer_token_bytes(text->tokenizer, token, false, false, &len);
    add_waiting(text, text->shown + text->pending.len + len);
    bool checked = !text->n_unchecked;
    text->n_unchecked -= !checked;
    for (size_t i = 0; i < len; i++) {
        strbuf_add(&text->pending, &bytes[i], 1);
        if (text->pending.failed) {
            text->failed = true;
            return false;
        }
        uint32_t stop_len = !checked ? 0 : stop_matcher_feed(&text->matcher, (uint8_t)bytes[i]);
        if (stop_len) {
            cut(text, stop_len);
            return true;
        }
    }
    return false;
}

void answer_text_finish(struct answer_text *text)
{
    text->finished = true;
}

size_t answer_text_take(struct answer_text *text, struct strbuf *out)
{
    bool final = text->stopped || text->finished;
    size_t ready = text->pending.len - (final ? 0 : stop_matcher_held(&text->matcher));
    if (ready)
        ready -= utf8_incomplete_tail(text->pending.data, ready);
    if (ready) {
        strbuf_add(out, text->pending.data, ready);
        memmove(text->pending.data, text->pending.data + ready, text->pending.len - ready + 1);
        text->pending.len -= ready;
        text->shown += ready;
    }
    size_t released = 0;
    while (released < text->n_waiting && (final || text->token_ends[text->first_waiting + released] <= text->shown))
        text->released_end = text->token_ends[text->first_waiting + released++];
    text->first_waiting += released;
    text->n_waiting -= released;
    if (!text->n_waiting)
        text->first_waiting = 0;
    return released;
}

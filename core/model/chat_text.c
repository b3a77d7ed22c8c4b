/* Pieces of a rendering: gathering them, and turning them into tokens. */
#include <stdlib.h>
#include <string.h>

#include "core/model/chat_internal.h"
#include "core/model/unicode.h"

void chat_text_fini(struct chat_text *text)
{
    strbuf_fini(&text->text);
    free(text->pieces);
    *text = (struct chat_text){0};
}

/* Appends to the last piece where it is of the same origin. */
static void add_piece(struct chat_render *chat, const char *bytes, size_t len, bool from_user)
{
    struct chat_text *out = chat->out;
    struct chat_piece *last = out->n_pieces ? &out->pieces[out->n_pieces - 1] : NULL;
    size_t start = out->text.len;
    if (len == 0)
        return;
    strbuf_add(&out->text, bytes, len);
    if (last && last->from_user == from_user) {
        last->len += len;
        return;
    }
    if (out->n_pieces == out->cap_pieces) {
        size_t cap = out->cap_pieces ? out->cap_pieces * 2 : 16;
        struct chat_piece *pieces = reallocarray(out->pieces, cap, sizeof *pieces);
        if (!pieces) {
            chat->failed = true;
            return;
        }
        out->pieces = pieces;
        out->cap_pieces = cap;
    }
    out->pieces[out->n_pieces++] = (struct chat_piece){start, len, from_user};
}

void chat_write(struct chat_render *chat, const char *text)
{
    add_piece(chat, text, strlen(text), false);
}

void chat_write_content(struct chat_render *chat, const char *text, size_t len)
{
    add_piece(chat, text, len, true);
}

void chat_write_message(struct chat_render *chat, const struct chat_message *message)
{
    chat_write_content(chat, message->content, message->len);
}

bool chat_role_is(const struct chat_message *message, const char *role)
{
    return strcmp(message->role, role) == 0;
}

/* str.isspace: White_Space and the four separators U+001C to U+001F. */
static bool is_python_space(uint32_t code)
{
    return unicode_is_space(code) || (code >= 0x1C && code <= 0x1F);
}

struct chat_message chat_trimmed(const struct chat_message *message)
{
    const char *text = message->content;
    size_t start = 0, end = 0; /* of what stays */
    bool broken, seen = false;
    uint32_t code;
    for (size_t at = 0; at < message->len;) {
        size_t n = utf8_read(text + at, message->len - at, &code, &broken);
        if (!is_python_space(code)) {
            start = seen ? start : at;
            end = at + n;
            seen = true;
        }
        at += n;
    }
    return (struct chat_message){message->role, text + start, end - start};
}

int chat_require_turns(struct chat_render *chat, size_t from, const char *alternate, const char *other_role)
{
    for (size_t i = from; i < chat->n_messages; i++) {
        bool users_turn = (i - from) % 2 == 0;
        if (users_turn != chat_role_is(&chat->messages[i], "user"))
            return error_set(chat->err, HS_ERR_INVALID, "%s", alternate);
        if (!users_turn && !chat_role_is(&chat->messages[i], "assistant"))
            return error_set(chat->err, HS_ERR_INVALID, "%s", other_role);
    }
    return 0;
}

int chat_text_tokenize(const struct chat_text *text, const struct tokenizer *tokenizer, struct token_list *out)
{
    size_t before = out->n;
    uint32_t bos = tokenizer_bos(tokenizer);
    struct tokenizer_span *spans = calloc(text->n_pieces + 1, sizeof *spans);
    if (!spans)
        return HS_ERR_NO_MEMORY;
    for (size_t i = 0; i < text->n_pieces; i++) {
        const struct chat_piece *piece = &text->pieces[i];
        spans[i] = (struct tokenizer_span){piece->start, piece->len, !piece->from_user};
    }
    /* With a begin token in front, so that nothing moves; taken back where the template wrote one itself. */
    int rc = tokenizer_encode_spans(tokenizer, strbuf_text(&text->text), spans, text->n_pieces, true, out);
    free(spans);
    if (rc == 0 && tokenizer_adds_bos(tokenizer) && out->n - before >= 2 && out->ids[before] == bos &&
        out->ids[before + 1] == bos) {
        memmove(out->ids + before, out->ids + before + 1, (out->n - before - 1) * sizeof *out->ids);
        out->n--;
    }
    return rc;
}

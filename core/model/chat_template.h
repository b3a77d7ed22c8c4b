/*
 * Chat templates: the family is recognised by the markers in the model's Jinja text and rendered by its own small
 * function, each checked against jinja2 (tests/vectors).
 *
 * The rendering is a list of pieces: text that the template wrote (its control tokens count) and text that came from the
 * user (where "<|im_end|>" is only letters). Threading: pure; any thread.
 */
#ifndef HEARSAY_MODEL_CHAT_TEMPLATE_H
#define HEARSAY_MODEL_CHAT_TEMPLATE_H

#include <stdbool.h>
#include <stddef.h>

#include "core/base/error.h"
#include "core/base/strbuf.h"
#include "core/model/tokenizer.h"

struct chat_template; /* a family; static, never freed */

struct chat_message {
    const char *role;    /* "system", "user", "assistant", "tool", "developer" */
    const char *content; /* UTF-8, len bytes */
    size_t len;
};

struct chat_piece {
    size_t start, len; /* within chat_text.text */
    bool from_user;    /* tokenise without control tokens */
};

/* Zero-initialise; chat_text_fini frees. */
struct chat_text {
    struct strbuf text;
    struct chat_piece *pieces;
    size_t n_pieces, cap_pieces;
};

void chat_text_fini(struct chat_text *text);

/* Recognises a model's Jinja text. HS_ERR_UNSUPPORTED with the list of names when no family fits or jinja is NULL/empty. */
int chat_template_detect(const char *jinja, const struct chat_template **out, struct error *err);
/* By name ("chatml", "llama3", ...). HS_ERR_NOT_FOUND with the list of names. */
int chat_template_by_name(const char *name, const struct chat_template **out, struct error *err);
const char *chat_template_name(const struct chat_template *chat);
/* "chatml, llama2, ..." for help texts. */
const char *chat_template_names(void);

/*
 * Renders a conversation, with the opening of the assistant's turn when add_generation_prompt. A conversation that the
 * family forbids gives HS_ERR_INVALID and the reason.
 */
int chat_template_render(const struct chat_template *chat, const struct chat_message *messages, size_t n_messages,
                         bool add_generation_prompt, struct chat_text *out, struct error *err);

/* Tokenises a rendering: control tokens only from the template's own pieces. BOS as the template and the tokenizer agree (never
 * doubled). 0, HS_ERR_NO_MEMORY, or HS_ERR_LIMIT. */
int chat_text_tokenize(const struct chat_text *text, const struct tokenizer *tokenizer, struct token_list *out);

#endif

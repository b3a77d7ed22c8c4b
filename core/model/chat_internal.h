/*
 * What a family of chat templates is made of. chat_template.c holds the list; chat_chatml.c, chat_header.c (Llama 3,
 * Gemma, Zephyr) and chat_inst.c (Llama 2, Mistral) render.
 */
#ifndef HEARSAY_MODEL_CHAT_INTERNAL_H
#define HEARSAY_MODEL_CHAT_INTERNAL_H

#include "core/model/chat_template.h"

/* A conversation on its way into text. The first failure to get memory stays in failed. */
struct chat_render {
    const void *style; /* the family's, of the type that its function expects */
    const struct chat_message *messages;
    size_t n_messages;
    bool add_generation_prompt;
    struct chat_text *out;
    bool failed;
    struct error *err;
};

struct chat_template {
    const char *name;
    int (*render)(struct chat_render *chat); /* 0 or an error with its text set */
    const void *style;
    /* How the family's Jinja text is told from others: it holds all of these and none of those. */
    const char *holds[6];
    const char *lacks[6];
};

/* Text that the template writes: control tokens count. */
void chat_write(struct chat_render *chat, const char *text);
/* Text from the conversation: only letters. */
void chat_write_content(struct chat_render *chat, const char *text, size_t len);
void chat_write_message(struct chat_render *chat, const struct chat_message *message);

bool chat_role_is(const struct chat_message *message, const char *role);
/* The content without white space at its ends, as Python's str.strip sees white space. */
struct chat_message chat_trimmed(const struct chat_message *message);
/*
 * Messages from the given one on must go user, assistant, user, ...: otherwise HS_ERR_INVALID, with the reason alternate where
 * a user is missing or too many, and other_role where another role stands in the assistant's place.
 */
int chat_require_turns(struct chat_render *chat, size_t from, const char *alternate, const char *other_role);

struct chatml_style {
    const char *default_system; /* where the conversation brings none; NULL: nothing */
    bool wraps_tools;           /* results of tools go into the user's turn (Qwen 2.5 and 3) */
};
int chat_render_chatml(struct chat_render *chat);
int chat_render_qwen3(struct chat_render *chat);

struct llama3_style {
    const char *preamble; /* opens a system turn that is always there; NULL: only the conversation's own */
    bool names_ipython;   /* results of tools are JSON in a turn of this name */
};
int chat_render_llama3(struct chat_render *chat);

struct gemma_style {
    bool joins_system; /* the system prompt goes in front of the first user turn; otherwise it is refused */
};
int chat_render_gemma(struct chat_render *chat);
int chat_render_zephyr(struct chat_render *chat);

enum inst_system { INST_SYSTEM_REFUSED, INST_SYSTEM_FIRST, INST_SYSTEM_LAST, INST_SYSTEM_MARKED };

struct inst_style {
    const char *open, *close;               /* around a user turn */
    const char *answer_open, *answer_close; /* around an assistant turn */
    enum inst_system system;                /* nowhere, before the first or the last user turn, or there within <<SYS>> marks */
    bool bos_each_turn;                     /* the begin token before every user turn instead of once */
    bool trims_user, trims_answer;
    const char *alternate, *other_role; /* reasons to refuse, see chat_require_turns */
};
int chat_render_inst(struct chat_render *chat);

#endif

/* Families whose user turns stand between [INST] and [/INST]: Llama 2 and Mistral. */
#include "core/model/chat_internal.h"

static struct chat_message trimmed_if(bool trims, const struct chat_message *message)
{
    return trims ? chat_trimmed(message) : *message;
}

/*
 * Llama 2 trims system prompt, marks and question as one text: the marks start it, so only its end can lose anything, and
 * with an empty question the blank line after the marks too.
 */
static void write_marked(struct chat_render *chat, const struct chat_message *system, const struct chat_message *question)
{
    struct chat_message trimmed = chat_trimmed(question);
    chat_write(chat, "<<SYS>>\n");
    chat_write_message(chat, system);
    chat_write(chat, "\n<</SYS>>");
    if (trimmed.len) {
        chat_write(chat, "\n\n");
        chat_write_content(chat, question->content, (size_t)(trimmed.content + trimmed.len - question->content));
    }
}

static void write_user(struct chat_render *chat, const struct chat_message *message, const struct chat_message *system)
{
    const struct inst_style *style = chat->style;
    struct chat_message content = trimmed_if(style->trims_user, message);
    if (style->bos_each_turn)
        chat_write(chat, "<s>");
    chat_write(chat, style->open);
    if (system && style->system == INST_SYSTEM_MARKED) {
        write_marked(chat, system, message);
    } else {
        if (system) {
            chat_write_message(chat, system);
            chat_write(chat, "\n\n");
        }
        chat_write_message(chat, &content);
    }
    chat_write(chat, style->close);
}

int chat_render_inst(struct chat_render *chat)
{
    const struct inst_style *style = chat->style;
    const struct chat_message *system = chat_role_is(&chat->messages[0], "system") ? &chat->messages[0] : NULL;
    size_t from = system && style->system != INST_SYSTEM_REFUSED ? 1 : 0;
    int rc = chat_require_turns(chat, from, style->alternate, style->other_role);
    if (rc < 0)
        return rc;
    if (!style->bos_each_turn)
        chat_write(chat, "<s>");
    for (size_t i = from; i < chat->n_messages; i++) {
        size_t holder = style->system == INST_SYSTEM_LAST ? chat->n_messages - 1 : from;
        if ((i - from) % 2 == 0) {
            write_user(chat, &chat->messages[i], i == holder ? system : NULL);
        } else {
            struct chat_message answer = trimmed_if(style->trims_answer, &chat->messages[i]);
            chat_write(chat, style->answer_open);
            chat_write_message(chat, &answer);
            chat_write(chat, style->answer_close);
        }
    }
    return 0;
}

/* Families whose turns open with a header of their own: Llama 3, Gemma, Zephyr. */
#include "core/model/chat_internal.h"

#define ALTERNATE "Conversation roles must alternate user/assistant/user/assistant/..."

static void write_llama3_turn(struct chat_render *chat, const char *role, const char *before, const struct chat_message *content)
{
    chat_write(chat, "<|start_header_id|>");
    chat_write(chat, role);
    chat_write(chat, "<|end_header_id|>\n\n");
    chat_write(chat, before);
    chat_write_message(chat, content);
    chat_write(chat, "<|eot_id|>");
}

static void write_llama3_tool_result(struct chat_render *chat, const struct chat_message *message)
{
    struct strbuf json = {0};
    strbuf_json_string(&json, message->content, message->len);
    struct chat_message written = {message->role, strbuf_text(&json), json.len};
    write_llama3_turn(chat, "ipython", "", &written);
    chat->failed |= json.failed;
    strbuf_fini(&json);
}

int chat_render_llama3(struct chat_render *chat)
{
    const struct llama3_style *style = chat->style;
    size_t i = 0;
    chat_write(chat, "<|begin_of_text|>");
    if (style->preamble) {
        struct chat_message system = {"system", "", 0};
        if (chat_role_is(&chat->messages[0], "system"))
            system = chat_trimmed(&chat->messages[i++]);
        write_llama3_turn(chat, "system", style->preamble, &system);
    }
    for (; i < chat->n_messages; i++) {
        struct chat_message message = chat_trimmed(&chat->messages[i]);
        if (style->names_ipython && chat_role_is(&message, "tool"))
            write_llama3_tool_result(chat, &chat->messages[i]);
        else
            write_llama3_turn(chat, message.role, "", &message);
    }
    if (chat->add_generation_prompt)
        chat_write(chat, "<|start_header_id|>assistant<|end_header_id|>\n\n");
    return 0;
}

int chat_render_gemma(struct chat_render *chat)
{
    const struct gemma_style *style = chat->style;
    const struct chat_message *system = chat_role_is(&chat->messages[0], "system") ? &chat->messages[0] : NULL;
    if (system && !style->joins_system)
        return error_set(chat->err, HS_ERR_INVALID, "System role not supported");
    size_t from = system ? 1 : 0;
    int rc = chat_require_turns(chat, from, ALTERNATE, ALTERNATE);
    if (rc < 0)
        return rc;
    chat_write(chat, "<bos>");
    for (size_t i = from; i < chat->n_messages; i++) {
        struct chat_message message = chat_trimmed(&chat->messages[i]);
        chat_write(chat, chat_role_is(&message, "user") ? "<start_of_turn>user\n" : "<start_of_turn>model\n");
        if (system && i == from) {
            chat_write_message(chat, system);
            chat_write(chat, "\n\n");
        }
        chat_write_message(chat, &message);
        chat_write(chat, "<end_of_turn>\n");
    }
    if (chat->add_generation_prompt)
        chat_write(chat, "<start_of_turn>model\n");
    return 0;
}

int chat_render_zephyr(struct chat_render *chat)
{
    for (size_t i = 0; i < chat->n_messages; i++) {
        if (chat_role_is(&chat->messages[i], "tool"))
            return error_set(chat->err, HS_ERR_INVALID, "Only user, system and assistant roles are supported");
        chat_write(chat, "<|");
        chat_write(chat, chat->messages[i].role);
        chat_write(chat, "|>\n");
        chat_write_message(chat, &chat->messages[i]);
        chat_write(chat, "</s>\n");
    }
    if (chat->add_generation_prompt)
        chat_write(chat, "<|assistant|>\n");
    return 0;
}

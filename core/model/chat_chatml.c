/* ChatML: <|im_start|>role\n ... <|im_end|>\n, as SmolLM2 and Qwen use it. */
#include <string.h>

#include "core/model/chat_internal.h"

static void open_turn(struct chat_render *chat, const char *role)
{
    chat_write(chat, "<|im_start|>");
    chat_write(chat, role);
    chat_write(chat, "\n");
}

static void close_turn(struct chat_render *chat)
{
    chat_write(chat, "<|im_end|>\n");
}

static void write_turn(struct chat_render *chat, const struct chat_message *message)
{
    open_turn(chat, message->role);
    chat_write_message(chat, message);
    close_turn(chat);
}

/* Neighbouring results of tools share one turn of the user. */
static void write_tool_result(struct chat_render *chat, size_t i)
{
    const struct chat_message *messages = chat->messages;
    if (i == 0 || !chat_role_is(&messages[i - 1], "tool"))
        chat_write(chat, "<|im_start|>user");
    chat_write(chat, "\n<tool_response>\n");
    chat_write_message(chat, &messages[i]);
    chat_write(chat, "\n</tool_response>");
    if (i + 1 == chat->n_messages || !chat_role_is(&messages[i + 1], "tool"))
        close_turn(chat);
}

int chat_render_chatml(struct chat_render *chat)
{
    const struct chatml_style *style = chat->style;
    if (style->default_system && !chat_role_is(&chat->messages[0], "system")) {
        open_turn(chat, "system");
        chat_write(chat, style->default_system);
        close_turn(chat);
    }
    for (size_t i = 0; i < chat->n_messages; i++) {
        if (style->wraps_tools && chat_role_is(&chat->messages[i], "tool"))
            write_tool_result(chat, i);
        else
            write_turn(chat, &chat->messages[i]);
    }
    if (chat->add_generation_prompt)
        open_turn(chat, "assistant");
    return 0;
}

struct part {
    const char *text;
    size_t len;
};

static struct part strip_newlines(struct part part, bool left, bool right)
{
    while (left && part.len && part.text[0] == '\n') {
        part.text++;
        part.len--;
    }
    while (right && part.len && part.text[part.len - 1] == '\n')
        part.len--;
    return part;
}

/* The last place of mark in part, or NULL. */
static const char *find_last(struct part part, const char *mark)
{
    const char *found = NULL;
    size_t n = strlen(mark);
    for (const char *at = part.text; (at = memmem(at, part.len - (size_t)(at - part.text), mark, n)); at += n)
        found = at;
    return found;
}

/* Divides an answer at its thinking: "<think>\nreasons\n</think>\n\nanswer". */
static void split_reasoning(const struct chat_message *message, struct part *reasoning, struct part *answer)
{
    struct part whole = {message->content, message->len};
    const char *first = whole.len ? memmem(whole.text, whole.len, "</think>", 8) : NULL;
    *answer = whole;
    *reasoning = (struct part){"", 0};
    if (!first)
        return;
    const char *rest = find_last(whole, "</think>") + 8;
    *answer = strip_newlines((struct part){rest, (size_t)(whole.text + whole.len - rest)}, true, false);
    *reasoning = strip_newlines((struct part){whole.text, (size_t)(first - whole.text)}, false, true);
    const char *opened = reasoning->len ? find_last(*reasoning, "<think>") : NULL;
    if (opened)
        *reasoning = (struct part){opened + 7, (size_t)(reasoning->text + reasoning->len - opened - 7)};
    *reasoning = strip_newlines(*reasoning, true, true);
}

static bool is_tool_response(const struct chat_message *message)
{
    static const char open[] = "<tool_response>", close[] = "</tool_response>";
    return message->len >= sizeof close - 1 && memcmp(message->content, open, sizeof open - 1) == 0 &&
           memcmp(message->content + message->len - (sizeof close - 1), close, sizeof close - 1) == 0;
}

/* The last question that a person asked; answers after it keep their reasoning. */
static size_t find_last_question(const struct chat_render *chat)
{
    for (size_t i = chat->n_messages; i-- > 0;) {
        if (chat_role_is(&chat->messages[i], "user") && !is_tool_response(&chat->messages[i]))
            return i;
    }
    return chat->n_messages - 1;
}

static void write_answer(struct chat_render *chat, size_t i, size_t last_question)
{
    struct part reasoning, answer;
    split_reasoning(&chat->messages[i], &reasoning, &answer);
    open_turn(chat, "assistant");
    if (i > last_question && (i + 1 == chat->n_messages || reasoning.len)) {
        chat_write(chat, "<think>\n");
        chat_write_content(chat, reasoning.text, reasoning.len);
        chat_write(chat, "\n</think>\n\n");
        answer = strip_newlines(answer, true, false);
    }
    chat_write_content(chat, answer.text, answer.len);
    close_turn(chat);
}

int chat_render_qwen3(struct chat_render *chat)
{
    size_t last_question = find_last_question(chat);
    for (size_t i = 0; i < chat->n_messages; i++) {
        if (chat_role_is(&chat->messages[i], "assistant"))
            write_answer(chat, i, last_question);
        else if (chat_role_is(&chat->messages[i], "tool"))
            write_tool_result(chat, i);
        else
            write_turn(chat, &chat->messages[i]);
    }
    if (chat->add_generation_prompt)
        open_turn(chat, "assistant");
    return 0;
}

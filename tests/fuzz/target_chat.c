/*
 * A chat template and a conversation: byte 0 chooses (0: the Jinja text that follows up to a NUL is recognised, otherwise a
 * family by number), byte 1 the tokenizer and whether the answer is opened; then messages, each a role byte and a text up to
 * a NUL. The pieces of a rendering must tile its text, and what the user wrote must be found in it as it was or cut at its ends.
 */
#include <stdlib.h>
#include <string.h>

#include "tests/fuzz/fuzz.h"

enum { MAX_MESSAGES = 16 };

static const struct chat_template *choose(struct reader *in)
{
    const struct chat_template *chat = NULL;
    struct error err = {0};
    uint8_t number = read_u8(in);
    if (number == 0) {
        char *jinja = fuzz_next_text(in);
        int rc = chat_template_detect(jinja, &chat, &err);
        hs_assert(rc == 0 || err.text[0]);
        free(jinja);
        return chat;
    }
    char *names = fuzz_cstring(chat_template_names(), strlen(chat_template_names()));
    char *rest = names;
    for (const char *name = strsep(&rest, ","); name && !chat; name = strsep(&rest, ",")) {
        if (--number == 0 || !rest) {
            hs_assert(chat_template_by_name(name + (*name == ' '), &chat, &err) == 0);
            hs_assert(strcmp(chat_template_name(chat), name + (*name == ' ')) == 0);
        }
    }
    free(names);
    return chat;
}

static void check_pieces(const struct chat_text *text)
{
    size_t at = 0;
    for (size_t i = 0; i < text->n_pieces; i++) {
        hs_assert(text->pieces[i].start == at);
        at += text->pieces[i].len;
    }
    hs_assert(at == text->text.len);
}

int fuzz_chat(const uint8_t *data, size_t len)
{
    static const char *const roles[] = {"user", "assistant", "system", "tool", "developer", "nobody", ""};
    struct chat_message messages[MAX_MESSAGES];
    size_t n = 0;
    struct reader in;
    reader_init(&in, data, len);
    const struct chat_template *chat = choose(&in);
    uint8_t flags = read_u8(&in);
    while (chat && n < MAX_MESSAGES && reader_left(&in)) {
        const char *role = roles[read_u8(&in) % (sizeof roles / sizeof roles[0])];
        char *content = fuzz_next_text(&in);
        messages[n++] = (struct chat_message){.role = role, .content = content, .len = strlen(content)};
    }
    struct chat_text text = {0};
    struct token_list list = {0};
    struct error err = {0};
    if (chat) {
        int rc = chat_template_render(chat, messages, n, flags & 1, &text, &err);
        hs_assert(rc == 0 || err.text[0]);
        if (rc == 0) {
            check_pieces(&text);
            hs_assert(chat_text_tokenize(&text, fuzz_tiny_tokenizer(flags >> 1), &list) == 0);
        }
    }
    token_list_fini(&list);
    chat_text_fini(&text);
    for (size_t i = 0; i < n; i++)
        free((char *)messages[i].content);
    return 0;
}

/*
 * Renderings against jinja2's of the families' templates (tests/vectors/chat.json, written by make_chat_vectors.py), and
 * what must not depend on any template: pieces, refusals, control tokens out of a user's hand.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <jansson.h>

#include "core/model/chat_template.h"

static json_t *vectors;

static size_t read_conversation(const json_t *conversation, struct chat_message *out, size_t cap)
{
    size_t i;
    const json_t *message;
    assert_true(json_array_size(conversation) <= cap);
    json_array_foreach(conversation, i, message)
    {
        const json_t *content = json_object_get(message, "content");
        out[i] = (struct chat_message){json_string_value(json_object_get(message, "role")), json_string_value(content),
                                       json_string_length(content)};
    }
    return json_array_size(conversation);
}

/* Pieces follow each other without gap to the end of the text. */
static void check_pieces(const struct chat_text *text)
{
    size_t at = 0;
    for (size_t i = 0; i < text->n_pieces; i++) {
        assert_int_equal(text->pieces[i].start, at);
        assert_true(text->pieces[i].len > 0);
        at += text->pieces[i].len;
    }
    assert_int_equal(at, text->text.len);
}

static void check_rendering(const struct chat_template *chat, const json_t *conversation, bool prompt, const json_t *expected)
{
    struct chat_message messages[16];
    struct chat_text text = {0};
    struct error err = {0};
    size_t n = read_conversation(conversation, messages, 16);
    int rc = chat_template_render(chat, messages, n, prompt, &text, &err);
    const char *reason = json_string_value(json_object_get(expected, "error"));
    if (reason) {
        assert_int_equal(rc, HS_ERR_INVALID);
        assert_string_equal(err.text, reason);
        assert_null(text.text.data);
        return;
    }
    if (rc < 0 || strcmp(strbuf_text(&text.text), json_string_value(expected)) != 0)
        printf("%s: %s\n", chat_template_name(chat), err.text);
    assert_int_equal(rc, 0);
    assert_string_equal(strbuf_text(&text.text), json_string_value(expected));
    check_pieces(&text);
    chat_text_fini(&text);
}

static void test_renderings_equal_jinja(void **state)
{
    (void)state;
    const json_t *conversations = json_object_get(vectors, "conversations"), *families = json_object_get(vectors, "families");
    size_t f, c, checked = 0;
    const json_t *family, *outputs;
    json_array_foreach(families, f, family)
    {
        const struct chat_template *chat;
        assert_int_equal(chat_template_by_name(json_string_value(json_object_get(family, "name")), &chat, NULL), 0);
        json_array_foreach(json_object_get(family, "outputs"), c, outputs)
        {
            for (size_t prompt = 0; prompt < json_array_size(outputs); prompt++, checked++)
                check_rendering(chat, json_array_get(conversations, c), prompt, json_array_get(outputs, prompt));
        }
    }
    printf("%zu renderings of %zu families equal jinja2's\n", checked, json_array_size(families));
    assert_true(checked >= 700);
}

static void test_families_are_recognised(void **state)
{
    (void)state;
    const json_t *families = json_object_get(vectors, "families"), *family;
    struct strbuf names = {0};
    size_t f;
    json_array_foreach(families, f, family)
    {
        const char *name = json_string_value(json_object_get(family, "name"));
        const struct chat_template *chat = NULL;
        struct error err = {0};
        assert_int_equal(chat_template_detect(json_string_value(json_object_get(family, "template")), &chat, &err), 0);
        assert_string_equal(chat_template_name(chat), name);
        strbuf_clear(&names);
        strbuf_printf(&names, "%s", chat_template_names());
        assert_non_null(strstr(names.data, name));
    }
    /* Every name in the list is one. */
    char *rest = names.data;
    for (char *name; (name = strtok_r(rest, ", ", &rest));) {
        const struct chat_template *chat;
        assert_int_equal(chat_template_by_name(name, &chat, NULL), 0);
    }
    strbuf_fini(&names);
}

static void test_unknown_template_lists_the_names(void **state)
{
    (void)state;
    static const char *const texts[] = {
        NULL,
        "",
        "{{ messages }}",
        "{% for m in messages %}{{ '<|im_start|>' + m.role + m.content|trim + '<|im_end|>' }}{% endfor %}",
        "{{ '<|im_start|>system\nYou are Bob.<|im_end|>' }}",
    };
    const struct chat_template *chat = NULL;
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        struct error err = {0};
        assert_int_equal(chat_template_detect(texts[i], &chat, &err), HS_ERR_UNSUPPORTED);
        assert_non_null(strstr(err.text, "--chat-template"));
        assert_non_null(strstr(err.text, chat_template_names()));
    }
    struct error err = {0};
    assert_int_equal(chat_template_by_name("llama9", &chat, &err), HS_ERR_NOT_FOUND);
    assert_non_null(strstr(err.text, "\"llama9\""));
    assert_non_null(strstr(err.text, chat_template_names()));
    assert_null(chat);
}

static void test_roles(void **state)
{
    (void)state;
    const struct chat_template *chat;
    struct chat_text text = {0};
    struct error err = {0};
    assert_int_equal(chat_template_by_name("chatml", &chat, NULL), 0);
    struct chat_message developer[] = {{"developer", "Be brief.", 9}, {"user", NULL, 0}};
    assert_int_equal(chat_template_render(chat, developer, 2, false, &text, &err), 0);
    assert_string_equal(text.text.data, "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\n<|im_end|>\n");
    struct chat_message unknown = {"root", "x", 1};
    assert_int_equal(chat_template_render(chat, &unknown, 1, false, &text, &err), HS_ERR_INVALID);
    assert_non_null(strstr(err.text, "\"root\""));
    assert_int_equal(chat_template_render(chat, NULL, 0, true, &text, &err), HS_ERR_INVALID);
    assert_int_equal(text.n_pieces, 3); /* as the one success left it */
    chat_text_fini(&text);
}

static void test_what_a_person_wrote_is_marked(void **state)
{
    (void)state;
    const json_t *families = json_object_get(vectors, "families"), *family;
    static const char content[] = "a<|im_end|>b";
    struct chat_message message = {"user", content, sizeof content - 1};
    size_t f;
    json_array_foreach(families, f, family)
    {
        const struct chat_template *chat;
        struct chat_text text = {0};
        size_t from_user = 0;
        assert_int_equal(chat_template_by_name(json_string_value(json_object_get(family, "name")), &chat, NULL), 0);
        assert_int_equal(chat_template_render(chat, &message, 1, true, &text, NULL), 0);
        for (size_t i = 0; i < text.n_pieces; i++) {
            if (!text.pieces[i].from_user)
                continue;
            from_user++;
            assert_int_equal(text.pieces[i].len, message.len);
            assert_memory_equal(text.text.data + text.pieces[i].start, content, message.len);
        }
        assert_int_equal(from_user, 1);
        chat_text_fini(&text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_renderings_equal_jinja),           cmocka_unit_test(test_families_are_recognised),
        cmocka_unit_test(test_unknown_template_lists_the_names), cmocka_unit_test(test_roles),
        cmocka_unit_test(test_what_a_person_wrote_is_marked),
    };
    json_error_t why;
    vectors = json_load_file("tests/vectors/chat.json", JSON_ALLOW_NUL, &why);
    if (!vectors) {
        fprintf(stderr, "tests/vectors/chat.json: %s\n", why.text);
        return 1;
    }
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    json_decref(vectors);
    return failed;
}

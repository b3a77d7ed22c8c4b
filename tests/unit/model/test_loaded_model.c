/* Whole models: description, tokenizer, chat template and fingerprint together. */
#include "tests/unit/model/check.h"

#include <unistd.h>

#include "core/base/rng.h"
#include "core/model/loaded_model.h"
#include "tests/unit/model/folder.h"

enum { DAMAGE_ROUNDS = 1000, METADATA_BYTES = 7000 }; /* the tiny files' tensors begin behind that */

static struct loaded_model *open_model(const char *path, const char *chat)
{
    struct loaded_model *model;
    struct error err = {0};
    if (model_open(path, chat, &model, &err) < 0)
        fail_msg("%s: %s", path, err.text);
    return model;
}

static void refuse(const char *path, const char *chat, int code, const char *text)
{
    struct loaded_model *model;
    struct error err = {0};
    int rc = model_open(path, chat, &model, &err);
    if (rc != code)
        fail_msg("%s: returned %d (%s)", path, rc, err.text);
    assert_text_contains(err.text, text);
}

static void check_ids(const struct loaded_model *model)
{
    static const char text[] = "<|im_start|>the";
    struct token_list ids = {0};
    assert_ok(tokenizer_encode(model->tokenizer, text, sizeof text - 1, TOKENIZE_PARSE_SPECIAL, &ids));
    assert_true(ids.n >= 2);
    assert_int_equal(ids.ids[0], 262); /* 256 bytes, 5 merges, <|endoftext|>, <|im_start|> */
    token_list_fini(&ids);
}

static void test_tiny_models(void **state)
{
    static const char *const names[] = {"llama3", "llama_linear", "mistral", "qwen2", "qwen2_yarn", "qwen3"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        for (int form = 0; form < 2; form++) {
            char path[128];
            uint8_t zero[32] = {0};
            snprintf(path, sizeof path, "tests/vectors/tiny/%s%s", names[i], form ? ".gguf" : "");
            struct loaded_model *model = open_model(path, NULL), *again = open_model(path, NULL);
            assert_int_equal(tokenizer_vocab_size(model->tokenizer), model->desc->n_vocab);
            assert_string_equal(chat_template_name(model->chat), "chatml");
            check_ids(model);
            assert_memory_not_equal(model->desc->fingerprint, zero, 32);
            assert_memory_equal(model->desc->fingerprint, again->desc->fingerprint, 32);
            model_close(model);
            model_close(again);
        }
    }
}

/* The template may stand in three places of a folder, or nowhere. */
static void test_templates(void **state)
{
    struct folder f;
    struct loaded_model *model;
    folder_copy(&f, "tests/vectors/tiny/qwen2");

    folder_update_json(&f, "tokenizer_config.json", "{\"chat_template\":null}");
    model = open_model(f.path, NULL);
    assert_null(model->chat);
    assert_text_contains(model->chat_missing, "has no chat template; name one with --chat-template (");
    model_close(model);
    model = open_model(f.path, "chatml");
    assert_string_equal(chat_template_name(model->chat), "chatml");
    model_close(model);
    refuse(f.path, "klingon", HS_ERR_NOT_FOUND, "chatml");

    folder_update_json(
        &f, "tokenizer_config.json",
        "{\"chat_template\":[{\"name\":\"tool_use\",\"template\":\"?\"},{\"name\":\"default\",\"template\":"
        "\"{% for message in messages %}{{'<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n'}}"
        "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}\"}]}");
    model = open_model(f.path, NULL);
    assert_string_equal(chat_template_name(model->chat), "chatml");
    model_close(model);

    folder_write_text(&f, "chat_template.jinja", "{{ messages }} in a way that nobody knows");
    refuse(f.path, NULL, HS_ERR_UNSUPPORTED, "chatml");
    model = open_model(f.path, "chatml");
    model_close(model);
    folder_remove(&f);
}

/* More tokens than embeddings cannot be served. */
static void test_vocabulary_too_large(void **state)
{
    struct folder f;
    folder_copy(&f, "tests/vectors/tiny/qwen2");
    json_t *tokenizer = json_load_file(folder_file(&f, "tokenizer.json"), 0, NULL);
    assert_non_null(tokenizer);
    json_t *added = json_object_get(tokenizer, "added_tokens");
    json_t *token = json_deep_copy(json_array_get(added, 0));
    json_object_set_new(token, "id", json_integer(264));
    json_object_set_new(token, "content", json_string("<|extra|>"));
    json_array_append_new(added, token);
    assert_int_equal(json_dump_file(tokenizer, folder_file(&f, "tokenizer.json"), 0), 0);
    json_decref(tokenizer);
    refuse(f.path, NULL, HS_ERR_PARSE, "has 265 tokens but embeddings for 264");

    folder_delete(&f, "tokenizer.json");
    refuse(f.path, NULL, HS_ERR_NOT_FOUND, "tokenizer.json");
    folder_remove(&f);
}

/* Reads all weights and a text, as a backend and a server would. */
static void use_model(const struct loaded_model *model)
{
    const struct model_desc *desc = model->desc;
    const struct tensor_view *t = &desc->token_embedding;
    float *values = calloc((size_t)t->rows * t->cols, sizeof *values);
    struct token_list ids = {0};
    assert_non_null(values);
    desc->dequantize(t, 0, t->rows, values);
    for (uint32_t i = 0; i < desc->n_layers; i++) {
        t = &desc->layers[i].w_down;
        desc->dequantize(t, 0, 1, values);
    }
    free(values);
    assert_ok(tokenizer_encode(model->tokenizer, "the inner text", 14, 0, &ids));
    for (size_t i = 0; i < ids.n; i++)
        assert_true(ids.ids[i] < desc->n_vocab);
    token_list_fini(&ids);
}

/* A damaged file is refused with a reason, or read for what it says; it never does harm. */
static void test_damaged_files(void **state)
{
    static uint8_t clean[1 << 17], damaged[1 << 17];
    struct rng rng;
    struct folder f;
    FILE *file = fopen("tests/vectors/tiny/qwen2.gguf", "rb");
    assert_non_null(file);
    size_t len = fread(clean, 1, sizeof clean, file), refused = 0;
    fclose(file);
    folder_create(&f);
    rng_seed(&rng, 11);
    for (int round = 0; round < DAMAGE_ROUNDS; round++) {
        struct loaded_model *model;
        struct error err = {0};
        memcpy(damaged, clean, len);
        for (uint64_t n = 1 + rng_below(&rng, 4); n; n--)
            damaged[rng_below(&rng, METADATA_BYTES)] ^= (uint8_t)(1u << rng_below(&rng, 8));
        folder_write(&f, "damaged.gguf", damaged, len);
        if (model_open(folder_file(&f, "damaged.gguf"), NULL, &model, &err) < 0) {
            assert_true(err.text[0]);
            refused++;
            continue;
        }
        use_model(model);
        model_close(model);
    }
    assert_true(refused > DAMAGE_ROUNDS / 10);
    folder_remove(&f);
}

/* The default model, where it has been fetched. */
static void test_smollm2(void **state)
{
    char path[512];
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    snprintf(path, sizeof path, "%s%s/hearsay/SmolLM2-135M-Instruct.Q4_1.gguf",
             cache  ? cache
             : home ? home
                    : "",
             cache ? "" : "/.cache");
    if (access(path, R_OK) != 0) {
        print_message("%s is not there: ./tests/run fetches it\n", path);
        skip();
    }
    struct loaded_model *model = open_model(path, NULL);
    assert_int_equal(model->desc->n_layers, 30);
    assert_int_equal(model->desc->d_model, 576);
    assert_int_equal(model->desc->n_vocab, 49152);
    assert_int_equal(tokenizer_vocab_size(model->tokenizer), 49152);
    assert_int_equal(model->desc->rope_layout, ROPE_INTERLEAVED);
    assert_ptr_equal(model->desc->output.data, model->desc->token_embedding.data);
    assert_non_null(model->chat);
    model_close(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tiny_models),   cmocka_unit_test(test_templates), cmocka_unit_test(test_vocabulary_too_large),
        cmocka_unit_test(test_damaged_files), cmocka_unit_test(test_smollm2),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Hugging Face folders: what the files beside tokenizer.json settle, and refusals that name the part. Ids:
 * test_tokenizer_vectors.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "core/model/tokenizer.h"

static char folder[] = "/tmp/hearsay-tokenizer-XXXXXX";
static const char *const files[] = {"tokenizer.json", "tokenizer_config.json", "generation_config.json", "config.json"};

static void path_of(const char *name, char out[256])
{
    snprintf(out, 256, "%s/%s", folder, name);
}

static void write_file(const char *name, const char *text)
{
    char path[256];
    path_of(name, path);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(text, file);
    assert_int_equal(fclose(file), 0);
}

static int make_folder(void **state)
{
    (void)state;
    return mkdtemp(folder) ? 0 : -1;
}

static int empty_folder(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        char path[256];
        path_of(files[i], path);
        unlink(path);
    }
    return 0;
}

static int remove_folder(void **state)
{
    (void)state;
    return rmdir(folder);
}

#define MODEL "\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1,\"ab\":2},\"merges\":[\"a b\"]}"
#define ADDED                                                                                                                      \
    "\"added_tokens\":[{\"id\":3,\"content\":\"<s>\",\"special\":true},{\"id\":4,\"content\":\"</s>\",\"special\":true},"          \
    "{\"id\":5,\"content\":\"<|im_end|>\",\"special\":false},{\"id\":7,\"content\":\"<t>\",\"special\":false}]"
#define BYTE_LEVEL "\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":false}"
#define TEMPLATE                                                                                                                   \
    "\"post_processor\":{\"type\":\"Sequence\",\"processors\":[{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{"   \
    "\"id\":\"<s>\"}},{\"Sequence\":{\"id\":\"A\"}}]}]}"

static struct tokenizer *load(void)
{
    struct tokenizer *tokenizer = NULL;
    struct error err = {0};
    int rc = tokenizer_from_folder(folder, &tokenizer, &err);
    if (rc < 0)
        print_error("%s\n", err.text);
    assert_int_equal(rc, 0);
    return tokenizer;
}

static void test_tokenizer_json_alone(void **state)
{
    (void)state;
    size_t n;
    write_file("tokenizer.json", "{" MODEL "," ADDED "," BYTE_LEVEL "," TEMPLATE "}");
    struct tokenizer *tokenizer = load();
    assert_int_equal(tokenizer_vocab_size(tokenizer), 8);
    assert_true(tokenizer_adds_bos(tokenizer));
    assert_int_equal(tokenizer_bos(tokenizer), 3);
    assert_int_equal(tokenizer_eos(tokenizer), UINT32_MAX);
    assert_true(tokenizer_is_special(tokenizer, 5)); /* ends turns, whatever the file says */
    assert_false(tokenizer_is_special(tokenizer, 7));
    const uint32_t *stops = tokenizer_stop_ids(tokenizer, &n);
    assert_int_equal(n, 1);
    assert_int_equal(stops[0], 5);
    assert_string_equal(tokenizer_token_bytes(tokenizer, 6, true, false, &n), ""); /* a hole between ids */
    struct token_list ids = {0};
    assert_int_equal(tokenizer_encode(tokenizer, "ab<t>b", 6, TOKENIZE_ADD_BOS, &ids), 0);
    assert_int_equal(ids.n, 4);
    assert_memory_equal(ids.ids, ((uint32_t[]){3, 2, 7, 1}), 16);
    token_list_fini(&ids);
    tokenizer_destroy(tokenizer);
}

static void test_files_beside_it(void **state)
{
    (void)state;
    size_t n;
    write_file("tokenizer.json", "{" MODEL "," ADDED "," BYTE_LEVEL "," TEMPLATE "}");
    write_file("tokenizer_config.json", "{\"add_bos_token\":false,\"bos_token\":\"<s>\",\"eos_token\":{\"content\":\"</"
                                        "s>\"},\"tokenizer_class\":\"LlamaTokenizer\"}");
    write_file("generation_config.json", "{\"eos_token_id\":[4,7,999]}");
    struct tokenizer *tokenizer = load();
    assert_false(tokenizer_adds_bos(tokenizer));
    assert_int_equal(tokenizer_eos(tokenizer), 4);
    const uint32_t *stops = tokenizer_stop_ids(tokenizer, &n);
    assert_int_equal(n, 3);
    assert_memory_equal(stops, ((uint32_t[]){5, 4, 7}), 12);
    tokenizer_destroy(tokenizer);

    /* The class that reads tokenizer.json alone does not listen to add_bos_token. */
    write_file("tokenizer_config.json", "{\"add_bos_token\":false,\"tokenizer_class\":\"PreTrainedTokenizerFast\"}");
    write_file("generation_config.json", "{\"eos_token_id\":4}");
    tokenizer = load();
    assert_true(tokenizer_adds_bos(tokenizer));
    assert_int_equal(tokenizer_eos(tokenizer), 4);
    tokenizer_destroy(tokenizer);
}

static void check_refused(const char *json, int code, const char *part)
{
    struct tokenizer *tokenizer = NULL;
    struct error err = {0};
    write_file("tokenizer.json", json);
    assert_int_equal(tokenizer_from_folder(folder, &tokenizer, &err), code);
    assert_null(tokenizer);
    if (!strstr(err.text, part))
        print_error("%s\n", err.text);
    assert_non_null(strstr(err.text, part));
}

static void test_refusals(void **state)
{
    (void)state;
    check_refused("{", HS_ERR_PARSE, "line 1");
    check_refused("[]", HS_ERR_UNSUPPORTED, "BPE");
    check_refused("{\"model\":{\"type\":\"Unigram\",\"vocab\":[]}}", HS_ERR_UNSUPPORTED, "Unigram");
    check_refused("{\"model\":{\"vocab\":{\"a\":-1},\"merges\":[]}}", HS_ERR_PARSE, "\"a\"");
    check_refused("{\"model\":{\"vocab\":{\"a\":1e99},\"merges\":[]}}", HS_ERR_PARSE, "\"a\"");
    check_refused("{\"model\":{\"vocab\":{\"a\":99999999},\"merges\":[]}}", HS_ERR_PARSE, "\"a\"");
    check_refused("{\"model\":{\"vocab\":{\"a\":0},\"merges\":[\"aa\"]}}", HS_ERR_PARSE, "merge number 0");
    check_refused("{\"model\":{\"vocab\":{\"a\":0},\"merges\":[[\"a\",\"a\"]]}}", HS_ERR_PARSE, "not in the vocabulary");
    check_refused("{\"model\":{\"vocab\":{\"a\":0},\"merges\":[7]}}", HS_ERR_PARSE, "merge number 0");
    check_refused("{\"model\":{\"vocab\":{\"a\":0},\"merges\":[],\"end_of_word_suffix\":\"</w>\"}}", HS_ERR_UNSUPPORTED,
                  "end_of_word_suffix");
    check_refused("{" MODEL ",\"added_tokens\":[{\"id\":1}]}", HS_ERR_PARSE, "added token number 0");
    check_refused("{" MODEL
                  ",\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"NFC\"},{\"type\":\"Lowercase\"}]}}",
                  HS_ERR_UNSUPPORTED, "Lowercase");
    check_refused("{" MODEL ",\"pre_tokenizer\":{\"type\":\"Whitespace\"}}", HS_ERR_UNSUPPORTED, "Whitespace");
    check_refused("{" MODEL ",\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":true}}", HS_ERR_UNSUPPORTED,
                  "add_prefix_space");
    check_refused("{" MODEL ",\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Split\",\"pattern\":{"
                  "\"Regex\":\"(\"},\"behavior\":"
                  "\"Isolated\"},{\"type\":\"ByteLevel\"}]}}",
                  HS_ERR_UNSUPPORTED, "\"(\"");
    check_refused("{" MODEL ",\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Split\",\"pattern\":{"
                  "\"String\":\"a\"},\"behavior\":"
                  "\"Removed\"},{\"type\":\"ByteLevel\"}]}}",
                  HS_ERR_UNSUPPORTED, "Removed");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_tokenizer_json_alone, empty_folder),
        cmocka_unit_test_teardown(test_files_beside_it, empty_folder),
        cmocka_unit_test_teardown(test_refusals, empty_folder),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}

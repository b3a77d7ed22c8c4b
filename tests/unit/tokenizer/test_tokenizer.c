/* A vocabulary small enough to know every id by heart, and properties on longer texts. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "core/base/rng.h"
#include "core/model/chat_template.h"
#include "core/model/tokenizer.h"
#include "core/model/unicode.h"
#include "tests/unit/tokenizer/tiny_gguf.h"

enum { H, E, L, O, SPACE, LL, HE, HELL, SPACE_H, END, START, END_OF_TEXT, TOOL, N_BYTE_LEVEL };
static const char *const byte_level_tokens[N_BYTE_LEVEL] = {
    "h", "e", "l", "o", "\xC4\xA0", "ll", "he", "hell", "\xC4\xA0h", "<|im_end|>", "<|im_start|>", "<|endoftext|>", "<tool>"};
/* <|im_end|> is wrongly a user's token here, as some files have it: it must be a control token all the same. */
static const int32_t byte_level_types[N_BYTE_LEVEL] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 4, 3, 3, 4};
static const char *const byte_level_merges[] = {"l l", "h e", "he ll", "\xC4\xA0 h", "x y"};

static void write_byte_level(struct tiny_gguf *t, const char *pre)
{
    tiny_gguf_string(t, "tokenizer.ggml.model", "gpt2");
    tiny_gguf_string(t, "tokenizer.ggml.pre", pre);
    tiny_gguf_strings(t, "tokenizer.ggml.tokens", byte_level_tokens, N_BYTE_LEVEL);
    tiny_gguf_i32s(t, "tokenizer.ggml.token_type", byte_level_types, N_BYTE_LEVEL);
    tiny_gguf_strings(t, "tokenizer.ggml.merges", byte_level_merges, 5);
    tiny_gguf_u32(t, "tokenizer.ggml.bos_token_id", START);
    tiny_gguf_u32(t, "tokenizer.ggml.eos_token_id", END_OF_TEXT);
}

static struct tokenizer *load(struct tiny_gguf *t)
{
    struct tokenizer *tokenizer = NULL;
    struct error err = {0};
    struct gguf *gguf = tiny_gguf_open(t);
    int rc = tokenizer_from_gguf(gguf, &tokenizer, &err);
    gguf_close(gguf);
    tiny_gguf_fini(t); /* strings are copied */
    if (rc < 0)
        print_error("%s\n", err.text);
    assert_int_equal(rc, 0);
    return tokenizer;
}

static struct tokenizer *load_byte_level(bool add_bos)
{
    struct tiny_gguf t = {0};
    write_byte_level(&t, "gpt-2");
    tiny_gguf_bool(&t, "tokenizer.ggml.add_bos_token", add_bos);
    return load(&t);
}

static void check_ids(const struct token_list *list, const uint32_t *ids, size_t n)
{
    assert_int_equal(list->n, n);
    if (n)
        assert_memory_equal(list->ids, ids, n * sizeof *ids);
}

#define CHECK_IDS(list, ...)                                                                                                       \
    check_ids(list, (const uint32_t[]){__VA_ARGS__}, sizeof((const uint32_t[]){__VA_ARGS__}) / sizeof(uint32_t))
#define CHECK_ENCODE(tokenizer, text, flags, ...)                                                                                  \
    do {                                                                                                                           \
        struct token_list list = {0};                                                                                              \
        assert_int_equal(tokenizer_encode(tokenizer, text, sizeof(text) - 1, flags, &list), 0);                                    \
        CHECK_IDS(&list, __VA_ARGS__);                                                                                             \
        token_list_fini(&list);                                                                                                    \
    } while (0)

static void test_byte_level(void **state)
{
    (void)state;
    struct tokenizer *tokenizer = load_byte_level(false);
    CHECK_ENCODE(tokenizer, "hello hello", 0, HELL, O, SPACE, HELL, O); /* "he" ranks before " h" */
    CHECK_ENCODE(tokenizer, "o ho", 0, O, SPACE_H, O);
    CHECK_ENCODE(tokenizer, "ehe", 0, E, HE);
    CHECK_ENCODE(tokenizer, "oxo", 0, O, O); /* no token for x */
    CHECK_ENCODE(tokenizer, "o<|im_end|>o<tool>", TOKENIZE_PARSE_SPECIAL, O, END, O, TOOL);
    CHECK_ENCODE(tokenizer, "o<|im_end|>o<tool>", 0, O, E, O, TOOL); /* of the letters only e has a token */
    struct token_list empty = {0};
    assert_int_equal(tokenizer_encode(tokenizer, "", 0, TOKENIZE_ADD_BOS, &empty), 0);
    assert_int_equal(empty.n, 0);
    token_list_fini(&empty);
    tokenizer_destroy(tokenizer);
}

static void test_look_ups(void **state)
{
    (void)state;
    struct tokenizer *tokenizer = load_byte_level(true);
    size_t n;
    assert_int_equal(tokenizer_vocab_size(tokenizer), N_BYTE_LEVEL);
    assert_int_equal(tokenizer_bos(tokenizer), START);
    assert_int_equal(tokenizer_eos(tokenizer), END_OF_TEXT);
    assert_true(tokenizer_adds_bos(tokenizer));
    assert_int_equal(tokenizer_find_special(tokenizer, "<tool>"), TOOL);
    assert_int_equal(tokenizer_find_special(tokenizer, "hell"), UINT32_MAX);
    assert_true(tokenizer_is_special(tokenizer, END) && tokenizer_is_special(tokenizer, START));
    assert_false(tokenizer_is_special(tokenizer, TOOL) || tokenizer_is_special(tokenizer, H) ||
                 tokenizer_is_special(tokenizer, 99));
    const uint32_t *stops = tokenizer_stop_ids(tokenizer, &n);
    assert_int_equal(n, 2);
    assert_true((stops[0] == END && stops[1] == END_OF_TEXT) || (stops[1] == END && stops[0] == END_OF_TEXT));

    const char *bytes = tokenizer_token_bytes(tokenizer, SPACE_H, false, true, &n);
    assert_int_equal(n, 2);
    assert_memory_equal(bytes, " h", 2);
    bytes = tokenizer_token_bytes(tokenizer, TOOL, false, false, &n);
    assert_int_equal(n, 6);
    assert_memory_equal(bytes, "<tool>", 6);
    assert_string_equal(tokenizer_token_bytes(tokenizer, END, false, false, &n), "");
    assert_int_equal(n, 0);
    bytes = tokenizer_token_bytes(tokenizer, END, true, false, &n);
    assert_int_equal(n, 10);
    assert_memory_equal(bytes, "<|im_end|>", 10);
    assert_string_equal(tokenizer_token_bytes(tokenizer, UINT32_MAX, true, false, &n), "");
    assert_int_equal(n, 0);
    CHECK_ENCODE(tokenizer, "o", TOKENIZE_ADD_BOS, START, O);
    CHECK_ENCODE(tokenizer, "o", 0, O);
    tokenizer_destroy(tokenizer);
}

static void test_spans(void **state)
{
    (void)state;
    struct tokenizer *tokenizer = load_byte_level(false);
    static const char text[] = "<|im_start|>he<|im_end|>llo\xF0\x9F<|im_end|>";
    const struct tokenizer_span spans[] = {{0, 13, true}, {13, 11, false}, {24, 1, true}, {25, 4, false}, {29, 10, true}};
    struct token_list out = {0};
    assert_int_equal(tokenizer_encode_spans(tokenizer, text, spans, 5, false, &out), 0);
    /* "h" + "e<|im_end|>" join over the border of spans; the first <|im_end|> is the person's, the last the template's. */
    CHECK_IDS(&out, START, HE, E, LL, O, END);
    token_list_fini(&out);
    tokenizer_destroy(tokenizer);
}

static void test_chat_never_doubles_bos_nor_obeys_users(void **state)
{
    (void)state;
    const struct chat_template *chat;
    struct chat_text text = {0};
    struct token_list out = {0};
    struct chat_message message = {"user", "hello<|im_end|>", 15};
    assert_int_equal(chat_template_by_name("chatml", &chat, NULL), 0);
    assert_int_equal(chat_template_render(chat, &message, 1, false, &text, NULL), 0);
    for (int add_bos = 0; add_bos < 2; add_bos++) {
        struct tokenizer *tokenizer = load_byte_level(add_bos);
        out.n = 0;
        assert_int_equal(chat_text_tokenize(&text, tokenizer, &out), 0);
        /* BOS is <|im_start|> in this vocabulary: the template wrote it. Of "user" only e has a token. */
        CHECK_IDS(&out, START, E, HELL, O, E, END);
        tokenizer_destroy(tokenizer);
    }
    struct tokenizer *tokenizer = load_byte_level(true);
    chat_text_fini(&text);
    assert_int_equal(chat_template_by_name("zephyr", &chat, NULL), 0);
    assert_int_equal(chat_template_render(chat, &message, 1, false, &text, NULL), 0);
    out.n = 0;
    assert_int_equal(chat_text_tokenize(&text, tokenizer, &out), 0);
    CHECK_IDS(&out, START, E, HELL, O, E); /* this template writes none */
    tokenizer_destroy(tokenizer);
    chat_text_fini(&text);
    token_list_fini(&out);
}

enum { UNK, BOS, EOS, BYTE_C3, BYTE_A9, S_SPACE, A, B, SPACE_A, AB, SPACE_AB, BA, TABLE, N_SENTENCEPIECE };

static struct tokenizer *load_sentencepiece(bool add_space_prefix)
{
    static const char *const tokens[N_SENTENCEPIECE] = {"<unk>",
                                                        "<s>",
                                                        "</s>",
                                                        "<0xC3>",
                                                        "<0xA9>",
                                                        "\xE2\x96\x81",
                                                        "a",
                                                        "b",
                                                        "\xE2\x96\x81"
                                                        "a",
                                                        "ab",
                                                        "\xE2\x96\x81"
                                                        "ab",
                                                        "ba",
                                                        "<table>"};
    static const int32_t types[N_SENTENCEPIECE] = {2, 3, 3, 6, 6, 1, 1, 1, 1, 1, 1, 1, 4};
    /* "▁a" and "ab" share a score: the leftmost joins first. */
    static const float scores[N_SENTENCEPIECE] = {0, 0, 0, 0, 0, -9, -8, -7, -1, -1, -3, -2, 0};
    struct tiny_gguf t = {0};
    tiny_gguf_string(&t, "tokenizer.ggml.model", "llama");
    tiny_gguf_strings(&t, "tokenizer.ggml.tokens", tokens, N_SENTENCEPIECE);
    tiny_gguf_i32s(&t, "tokenizer.ggml.token_type", types, N_SENTENCEPIECE);
    tiny_gguf_f32s(&t, "tokenizer.ggml.scores", scores, N_SENTENCEPIECE);
    tiny_gguf_u32(&t, "tokenizer.ggml.bos_token_id", BOS);
    tiny_gguf_u32(&t, "tokenizer.ggml.eos_token_id", EOS);
    tiny_gguf_u32(&t, "tokenizer.ggml.unknown_token_id", UNK);
    tiny_gguf_bool(&t, "tokenizer.ggml.add_space_prefix", add_space_prefix);
    return load(&t);
}

static void test_sentencepiece(void **state)
{
    (void)state;
    struct tokenizer *tokenizer = load_sentencepiece(false);
    size_t n;
    assert_true(tokenizer_adds_bos(tokenizer));
    CHECK_ENCODE(tokenizer, "ab ab", TOKENIZE_ADD_BOS, BOS, AB, SPACE_AB);
    CHECK_ENCODE(tokenizer, "bab", 0, B, AB); /* ab scores above ba */
    CHECK_ENCODE(tokenizer,
                 "ab\xE2\x96\x81"
                 "a",
                 0, AB, SPACE_A); /* the mark itself is a space */
    CHECK_ENCODE(tokenizer, "a\xC3\xA9", 0, A, BYTE_C3, BYTE_A9);
    CHECK_ENCODE(tokenizer, "zz", 0, UNK, UNK);
    CHECK_ENCODE(tokenizer, "a<table></s>", 0, A, TABLE, UNK, UNK, UNK, UNK);
    CHECK_ENCODE(tokenizer, "a</s> a", TOKENIZE_PARSE_SPECIAL, A, EOS, SPACE_A);
    assert_memory_equal(tokenizer_token_bytes(tokenizer, SPACE_AB, false, true, &n), " ab", 3);
    assert_int_equal(n, 3); /* no space was added, so none is taken */
    assert_memory_equal(tokenizer_token_bytes(tokenizer, BYTE_C3, false, false, &n), "\xC3", 1);
    assert_int_equal(n, 1);
    tokenizer_destroy(tokenizer);

    tokenizer = load_sentencepiece(true);
    CHECK_ENCODE(tokenizer, "ab</s>a", TOKENIZE_PARSE_SPECIAL, SPACE_AB, EOS, SPACE_A);
    CHECK_ENCODE(tokenizer, " a", 0, S_SPACE, SPACE_A);
    assert_memory_equal(tokenizer_token_bytes(tokenizer, SPACE_AB, false, true, &n), "ab", 2);
    assert_int_equal(n, 2);
    assert_memory_equal(tokenizer_token_bytes(tokenizer, SPACE_AB, false, false, &n), " ab", 3);
    tokenizer_destroy(tokenizer);
}

static void test_digest(void **state)
{
    (void)state;
    uint8_t digests[5][32];
    struct tiny_gguf t = {0};
    struct tokenizer *tokenizers[5] = {load_byte_level(false), load_byte_level(false), load_byte_level(true),
                                       load_sentencepiece(false)};
    write_byte_level(&t, "smollm");
    tokenizers[4] = load(&t);
    for (int i = 0; i < 5; i++) {
        tokenizer_digest(tokenizers[i], digests[i]);
        tokenizer_destroy(tokenizers[i]);
    }
    assert_memory_equal(digests[0], digests[1], 32);
    for (int i = 1; i < 5; i++) {
        for (int j = i + 1; j < 5; j++)
            assert_memory_not_equal(digests[i], digests[j], 32);
    }
}

static void check_refused(struct tiny_gguf *t, int code, const char *part)
{
    struct gguf *gguf = tiny_gguf_open(t);
    struct tokenizer *tokenizer = NULL;
    struct error err = {0};
    assert_int_equal(tokenizer_from_gguf(gguf, &tokenizer, &err), code);
    assert_null(tokenizer);
    assert_non_null(strstr(err.text, part));
    gguf_close(gguf);
    tiny_gguf_fini(t);
}

static void test_broken_files(void **state)
{
    (void)state;
    static const char *const unsplit[] = {"l l", "hell"};
    struct tiny_gguf t = {0};
    check_refused(&t, HS_ERR_NOT_FOUND, "tokenizer.ggml.model");
    tiny_gguf_string(&t, "tokenizer.ggml.model", "gpt2");
    check_refused(&t, HS_ERR_NOT_FOUND, "tokenizer.ggml.tokens");
    tiny_gguf_string(&t, "tokenizer.ggml.model", "bert");
    tiny_gguf_strings(&t, "tokenizer.ggml.tokens", byte_level_tokens, 3);
    check_refused(&t, HS_ERR_UNSUPPORTED, "\"bert\"");
    write_byte_level(&t, "martian");
    check_refused(&t, HS_ERR_UNSUPPORTED, "\"martian\"");
    tiny_gguf_string(&t, "tokenizer.ggml.model", "gpt2");
    tiny_gguf_strings(&t, "tokenizer.ggml.tokens", byte_level_tokens, 3);
    tiny_gguf_i32s(&t, "tokenizer.ggml.token_type", byte_level_types, 4);
    check_refused(&t, HS_ERR_PARSE, "token_type");
    tiny_gguf_string(&t, "tokenizer.ggml.model", "gpt2");
    tiny_gguf_strings(&t, "tokenizer.ggml.tokens", byte_level_tokens, 3);
    tiny_gguf_strings(&t, "tokenizer.ggml.merges", unsplit, 2);
    check_refused(&t, HS_ERR_PARSE, "merges");
    tiny_gguf_string(&t, "tokenizer.ggml.model", "llama");
    tiny_gguf_strings(&t, "tokenizer.ggml.tokens", byte_level_tokens, 3);
    tiny_gguf_f32s(&t, "tokenizer.ggml.scores", (const float[]){0, 1}, 2);
    check_refused(&t, HS_ERR_PARSE, "scores");

    struct tokenizer *tokenizer = NULL;
    struct error err = {0};
    assert_int_equal(tokenizer_from_folder("tests/vectors", &tokenizer, &err), HS_ERR_NOT_FOUND);
    assert_non_null(strstr(err.text, "tokenizer.json"));
    assert_null(tokenizer);
}

/* A text of any scalar values, each script's share of them about equal to that of its length in bytes. */
static void make_text(struct rng *rng, struct strbuf *out)
{
    static const uint32_t limits[] = {0x80, 0x80, 0x800, 0x10000, 0x110000};
    size_t n = rng_below(rng, 200);
    strbuf_clear(out);
    strbuf_puts(out, "");
    for (size_t i = 0; i < n; i++) {
        uint32_t code = (uint32_t)rng_below(rng, limits[rng_below(rng, 5)]);
        char bytes[4];
        if (code >= 0xD800 && code < 0xE000)
            code = ' ';
        strbuf_add(out, bytes, utf8_write(code, bytes));
    }
}

static void check_round_trip(const struct tokenizer *tokenizer, const char *text, size_t len)
{
    struct token_list ids = {0};
    struct strbuf back = {0};
    assert_int_equal(tokenizer_encode(tokenizer, text, len, 0, &ids), 0);
    for (size_t i = 0; i < ids.n; i++) {
        size_t n;
        const char *bytes = tokenizer_token_bytes(tokenizer, ids.ids[i], false, i == 0, &n);
        strbuf_add(&back, bytes, n);
    }
    assert_int_equal(back.len, len);
    if (len)
        assert_memory_equal(back.data, text, len);
    token_list_fini(&ids);
    strbuf_fini(&back);
}

/* Vocabularies that have every byte; NFC and replaced spaces would not come back, so those folders are left out. */
static void test_round_trip(void **state)
{
    (void)state;
    static const char *const folders[] = {"tests/vectors/tokenizer_tiny_llama3", "tests/vectors/tokenizer_tiny_llama2",
                                          "tests/vectors/tokenizer_tiny_gemma"};
    const uint64_t seed = 11;
    for (size_t f = 0; f < 3; f++) {
        struct tokenizer *tokenizer;
        struct strbuf text = {0};
        struct rng rng;
        rng_seed(&rng, seed);
        assert_int_equal(tokenizer_from_folder(folders[f], &tokenizer, NULL), 0);
        for (int i = 0; i < 500; i++) {
            make_text(&rng, &text);
            check_round_trip(tokenizer, text.data, text.len);
        }
        strbuf_fini(&text);
        tokenizer_destroy(tokenizer);
    }
}

/* Texts on which quadratic work would take hours; the test's time limit holds it. */
static void test_long_runs(void **state)
{
    (void)state;
    static const char *const folders[] = {"tests/vectors/tokenizer_tiny_llama3", "tests/vectors/tokenizer_tiny_llama2"};
    const size_t n = 1u << 20;
    char *text = malloc(n);
    assert_non_null(text);
    for (size_t f = 0; f < 2; f++) {
        struct tokenizer *tokenizer;
        assert_int_equal(tokenizer_from_folder(folders[f], &tokenizer, NULL), 0);
        for (const char *fill = "o \n<"; *fill; fill++) {
            memset(text, *fill, n);
            check_round_trip(tokenizer, text, n);
        }
        tokenizer_destroy(tokenizer);
    }
    free(text);
}

struct worker {
    pthread_t thread;
    const struct tokenizer *tokenizer;
    const struct strbuf *texts; /* [50] */
    struct token_list ids[50];
};

static void *encode_all(void *arg)
{
    struct worker *worker = arg;
    for (int i = 0; i < 50; i++) {
        if (tokenizer_encode(worker->tokenizer, worker->texts[i].data, worker->texts[i].len, 0, &worker->ids[i]) < 0)
            return NULL;
    }
    return worker;
}

static void test_threads_share_a_tokenizer(void **state)
{
    (void)state;
    struct tokenizer *tokenizer;
    struct strbuf texts[50] = {0};
    struct worker workers[4] = {0};
    struct rng rng;
    rng_seed(&rng, 13);
    for (int i = 0; i < 50; i++)
        make_text(&rng, &texts[i]);
    assert_int_equal(tokenizer_from_folder("tests/vectors/tokenizer_tiny_llama3", &tokenizer, NULL), 0);
    for (int w = 0; w < 4; w++) {
        workers[w].tokenizer = tokenizer;
        workers[w].texts = texts;
        assert_int_equal(pthread_create(&workers[w].thread, NULL, encode_all, &workers[w]), 0);
    }
    for (int w = 0; w < 4; w++) {
        void *finished;
        assert_int_equal(pthread_join(workers[w].thread, &finished), 0);
        assert_non_null(finished);
    }
    for (int i = 0; i < 50; i++) {
        for (int w = 1; w < 4; w++)
            check_ids(&workers[w].ids[i], workers[0].ids[i].ids, workers[0].ids[i].n);
        for (int w = 0; w < 4; w++)
            token_list_fini(&workers[w].ids[i]);
        strbuf_fini(&texts[i]);
    }
    tokenizer_destroy(tokenizer);
}

static void test_limit(void **state)
{
    (void)state;
    struct tokenizer *tokenizer = load_byte_level(false);
    struct token_list out = {0};
    const struct tokenizer_span spans[] = {{0, TOKENIZER_MAX_BYTES, false}, {0, 1, false}};
    assert_int_equal(tokenizer_encode(tokenizer, "", TOKENIZER_MAX_BYTES + 1, 0, &out), HS_ERR_LIMIT);
    assert_int_equal(tokenizer_encode_spans(tokenizer, "", spans, 2, false, &out), HS_ERR_LIMIT);
    assert_int_equal(out.n, 0);
    token_list_fini(&out);
    tokenizer_destroy(tokenizer);
}

/* A list with a bound takes that many ids and no more, and text far beyond it is not worked through. */
static void test_bounded_lists(void **state)
{
    static char letters[8 << 20]; /* one word: joined whole it takes seconds */
    static const char text[] = "hello<|im_end|>hell hello";
    struct tokenizer *tokenizer = load_byte_level(true);
    struct token_list all = {0};
    assert_int_equal(tokenizer_encode(tokenizer, text, sizeof text - 1, TOKENIZE_PARSE_SPECIAL, &all), 0);
    for (size_t max = 1; max <= all.n + 1; max++) {
        struct token_list list = {.max = max};
        int rc = tokenizer_encode(tokenizer, text, sizeof text - 1, TOKENIZE_PARSE_SPECIAL, &list);
        assert_int_equal(rc, max < all.n ? HS_ERR_RANGE : 0);
        assert_int_equal(list.n, max < all.n ? 0 : all.n);
        token_list_fini(&list);
    }
    memset(letters, 'l', sizeof letters);
    struct token_list list = {.max = 1000};
    clock_t before = clock();
    assert_int_equal(tokenizer_encode(tokenizer, letters, sizeof letters, 0, &list), HS_ERR_RANGE);
    assert_true(clock() - before < CLOCKS_PER_SEC);
    token_list_fini(&list);
    token_list_fini(&all);
    tokenizer_destroy(tokenizer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_byte_level),    cmocka_unit_test(test_look_ups),
        cmocka_unit_test(test_spans),         cmocka_unit_test(test_chat_never_doubles_bos_nor_obeys_users),
        cmocka_unit_test(test_sentencepiece), cmocka_unit_test(test_digest),
        cmocka_unit_test(test_broken_files),  cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_long_runs),     cmocka_unit_test(test_threads_share_a_tokenizer),
        cmocka_unit_test(test_limit),         cmocka_unit_test(test_bounded_lists),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

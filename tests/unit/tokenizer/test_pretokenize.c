/* Cuts as Hugging Face's pre-tokenizers make them; whole vocabularies are compared in test_tokenizer_vectors.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/base/strbuf.h"
#include "core/model/pretokenize.h"

static void check(const struct pretokenizer *pre, const char *text, const char *expected)
{
    struct pretokenize_scratch scratch = {0};
    struct strbuf out = {0};
    size_t start = 0;
    assert_int_equal(pretokenize(pre, text, strlen(text), &scratch), 0);
    for (size_t i = 0; i < scratch.n_ends; i++) {
        assert_true(scratch.ends[i] > start);
        strbuf_printf(&out, "[%.*s]", (int)(scratch.ends[i] - start), text + start);
        start = scratch.ends[i];
    }
    assert_int_equal(start, strlen(text));
    assert_string_equal(strbuf_text(&out), expected);
    strbuf_fini(&out);
    pretokenize_scratch_fini(&scratch);
}

static void check_family(const char *name, const char *text, const char *expected)
{
    struct pretokenizer pre = {0};
    assert_int_equal(pretokenizer_add_family(&pre, name, strlen(name), NULL), 0);
    check(&pre, text, expected);
    pretokenizer_fini(&pre);
}

static void test_families(void **state)
{
    (void)state;
    const char *text = "I'm 1234  X's\n\n  ok\xE1\xA0\x8E!?\n";
    check_family("gpt-2", text, "[I]['m][ 1234][ ][ X]['s][\n\n ][ ok][\xE1\xA0\x8E!?][\n]");
    check_family("smollm", text, "[I]['m][ ][1][2][3][4][ ][ X]['s][\n\n ][ ok][\xE1\xA0\x8E!?][\n]");
    check_family("qwen2", text, "[I]['m][ ][1][2][3][4][ ][ X]['s][\n\n][ ][ ok][\xE1\xA0\x8E!?\n]");
    check_family("llama-bpe", text, "[I]['m][ ][123][4][ ][ X]['s][\n\n][ ][ ok][\xE1\xA0\x8E!?\n]");
}

static void test_cuts(void **state)
{
    (void)state;
    static const char *const expected[] = {[CUT_BOTH] = "[a][,][,][b]", [CUT_BEFORE] = "[a][,][,b]", [CUT_AFTER] = "[a,][,][b]"};
    for (int cut = CUT_BOTH; cut <= CUT_AFTER; cut++) {
        struct pretokenizer pre = {0};
        assert_int_equal(pretokenizer_add(&pre, ",", 1, cut, NULL), 0);
        check(&pre, "a,,b", expected[cut]);
        pretokenizer_fini(&pre);
    }
    struct pretokenizer none = {0};
    check(&none, "a b", "[a b]");
}

static void test_refusals(void **state)
{
    (void)state;
    struct pretokenizer pre = {0};
    struct error err = {0};
    assert_int_equal(pretokenizer_add_family(&pre, "martian", 7, &err), HS_ERR_UNSUPPORTED);
    assert_non_null(strstr(err.text, "\"martian\""));
    assert_non_null(strstr(err.text, "smollm"));
    assert_int_equal(pretokenizer_add(&pre, "(", 1, CUT_BOTH, &err), HS_ERR_UNSUPPORTED);
    assert_non_null(strstr(err.text, "\"(\""));
    assert_int_equal(pre.n_steps, 0);
    for (size_t i = 0; i < PRETOKENIZE_MAX_STEPS; i++)
        assert_int_equal(pretokenizer_add(&pre, "a", 1, CUT_BOTH, &err), 0);
    assert_int_equal(pretokenizer_add(&pre, "a", 1, CUT_BOTH, &err), HS_ERR_UNSUPPORTED);
    pretokenizer_fini(&pre);
}

/* A group within a repetition needs stack for every turn: more than the thread's own 32 KiB here, and more than there is. */
static void test_deep_expressions(void **state)
{
    (void)state;
    struct pretokenizer pre = {0};
    struct pretokenize_scratch scratch = {0};
    const size_t n = 16u << 20, some = 10000;
    char *text = malloc(n);
    assert_non_null(text);
    memset(text, 'a', n);
    assert_int_equal(pretokenizer_add(&pre, "(?:(a)|b)+c", 11, CUT_BOTH, NULL), 0);
    assert_int_equal(pretokenize(&pre, text, some, &scratch), 0);
    assert_int_equal(scratch.n_ends, 1);
    assert_int_equal(pretokenize(&pre, text, n, &scratch), HS_ERR_LIMIT);
    pretokenize_scratch_fini(&scratch);
    pretokenizer_fini(&pre);
    free(text);
}

/* Look-ahead and optional parts must not walk back over and over: the test's time limit holds it. */
static void test_long_runs(void **state)
{
    (void)state;
    static const char *const families[] = {"gpt-2", "smollm", "qwen2", "llama-bpe"};
    const size_t n = 4u << 20;
    char *text = malloc(n);
    assert_non_null(text);
    for (size_t f = 0; f < 4; f++) {
        for (const char *fill = "a \n1!\t"; *fill; fill++) {
            struct pretokenizer pre = {0};
            struct pretokenize_scratch scratch = {0};
            memset(text, *fill, n);
            assert_int_equal(pretokenizer_add_family(&pre, families[f], strlen(families[f]), NULL), 0);
            assert_int_equal(pretokenize(&pre, text, n, &scratch), 0);
            assert_int_equal(scratch.ends[scratch.n_ends - 1], n);
            pretokenize_scratch_fini(&scratch);
            pretokenizer_fini(&pre);
        }
    }
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_families),         cmocka_unit_test(test_cuts),      cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_deep_expressions), cmocka_unit_test(test_long_runs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

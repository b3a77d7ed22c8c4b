#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/base/rng.h"
#include "core/base/utf8.h"
#include "core/serve/http/answer_text.h"
#include "tests/unit/http/fixture.h"

struct outcome {
    struct strbuf text;
    size_t released;
    bool stopped;
};

/* Pushes the tokens of text one by one and takes after each `every`-th; checks that each taken piece is whole UTF-8. */
static struct outcome run(const char *input, const char *const *stops, size_t n_stops, size_t every)
{
    struct stop_set set = {0};
    for (size_t i = 0; i < n_stops; i++)
        assert_int_equal(stop_set_add(&set, stops[i], strlen(stops[i])), 0);
    struct token_list tokens = fixture_tokens(input, strlen(input));
    struct answer_text text;
    struct outcome outcome = {0};
    answer_text_init(&text, fixture_model()->tokenizer, &set);
    for (size_t i = 0; i < tokens.n && !outcome.stopped; i++) {
        outcome.stopped = answer_text_push(&text, tokens.ids[i]);
        if (i % every)
            continue;
        size_t before = outcome.text.len;
        outcome.released += answer_text_take(&text, &outcome.text);
        assert_true(utf8_is_clean(strbuf_text(&outcome.text) + before, outcome.text.len - before));
    }
    if (!outcome.stopped)
        answer_text_finish(&text);
    outcome.released += answer_text_take(&text, &outcome.text);
    assert_int_equal(text.n_waiting, 0);
    assert_false(text.failed || outcome.text.failed);
    answer_text_fini(&text);
    token_list_fini(&tokens);
    stop_set_fini(&set);
    return outcome;
}

static void expect(const char *input, const char *const *stops, size_t n_stops, const char *shown, size_t n_tokens)
{
    for (size_t every = 1; every <= 3; every++) {
        struct outcome outcome = run(input, stops, n_stops, every);
        assert_string_equal(strbuf_text(&outcome.text), shown);
        assert_int_equal(outcome.released, n_tokens);
        strbuf_fini(&outcome.text);
    }
}

static void test_characters_over_several_tokens_come_whole(void **unused)
{
    /* One token for each byte: 1 + 2 + 3 + 4. */
    expect("a\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80", NULL, 0, "a\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80", 10);
}

static void test_a_cut_character_is_dropped_at_the_end(void **unused)
{
    struct answer_text text;
    struct stop_set none = {0};
    struct strbuf out = {0};
    struct token_list tokens = fixture_tokens("x\xe2\x82\xac", 4);
    answer_text_init(&text, fixture_model()->tokenizer, &none);
    for (size_t i = 0; i + 1 < tokens.n; i++)
        answer_text_push(&text, tokens.ids[i]);
    assert_int_equal(answer_text_take(&text, &out), 1);
    assert_string_equal(strbuf_text(&out), "x");
    answer_text_finish(&text);
    assert_int_equal(answer_text_take(&text, &out), 2); /* they still count */
    assert_string_equal(strbuf_text(&out), "x");
    answer_text_fini(&text);
    token_list_fini(&tokens);
    strbuf_fini(&out);
}

static void test_stop_strings_never_leak(void **unused)
{
    const char *user[] = {"\nUser:"};
    expect("Hello\nUser: x", user, 1, "Hello", 5);
    expect("Hello\nUse it", user, 1, "Hello\nUse it", 12);
    expect("\nUser:", user, 1, "", 0);
    const char *several[] = {"abc", "b"}; /* "b" is complete first */
    expect("xabc", several, 2, "xa", 2);
    const char *ending[] = {"bc", "abc"}; /* both end at one byte: the longer one */
    expect("xabc", ending, 2, "x", 1);
    const char *accent[] = {"\xa9"}; /* the second byte of an accented e, so its first one has nothing to show */
    expect("a\xc3\xa9", accent, 1, "a", 2);
}

/* A token that begins before the stop string and ends in it counts, those wholly inside do not. */
static void test_tokens_are_cut_with_the_text(void **unused)
{
    const char *stop[] = {"e"}; /* the token "he" ends with it */
    expect("the", stop, 1, "th", 2);
    const char *split[] = {"eX"};
    expect("heX", split, 1, "h", 1);
    struct outcome outcome = run("heX", split, 1, 1);
    assert_true(outcome.stopped);
    strbuf_fini(&outcome.text);
}

/* What is shown does not depend on when it was taken, and equals a search in the whole text. */
static void test_random_texts(void **unused)
{
    struct rng rng;
    rng_seed(&rng, 5);
    static const char *const letters[] = {"h", "e", "\xc3\xa9", "t", " ", "\xe2\x82\xac"};
    const char *stops[] = {"e\xc3\xa9", "tt", "\xe2\x82\xac h"};
    for (int round = 0; round < 500; round++) {
        char input[128] = "";
        for (int i = 0; i < 20; i++)
            strcat(input, letters[rng_below(&rng, 6)]);
        size_t cut = strlen(input), end = SIZE_MAX;
        for (size_t i = 0; i < 3; i++) {
            const char *found = strstr(input, stops[i]);
            size_t found_end = found ? (size_t)(found - input) + strlen(stops[i]) : SIZE_MAX;
            if (found_end < end) {
                end = found_end;
                cut = (size_t)(found - input);
            }
        }
        struct outcome outcome = run(input, stops, 3, 1 + rng_below(&rng, 4));
        assert_int_equal(outcome.text.len, cut);
        assert_memory_equal(strbuf_text(&outcome.text), input, cut);
        strbuf_fini(&outcome.text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_characters_over_several_tokens_come_whole),
        cmocka_unit_test(test_a_cut_character_is_dropped_at_the_end),
        cmocka_unit_test(test_stop_strings_never_leak),
        cmocka_unit_test(test_tokens_are_cut_with_the_text),
        cmocka_unit_test(test_random_texts),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    fixture_close();
    return failed;
}

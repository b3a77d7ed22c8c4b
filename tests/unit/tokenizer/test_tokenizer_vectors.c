/*
 * Ids against Hugging Face's `tokenizers`, as tests/vectors/make_tokenizer_vectors.py wrote them.
 *
 *     test_tokenizer_vectors FAMILY FILE.gguf [STEP]   the file in ${XDG_CACHE_HOME:-~/.cache}/hearsay, or in tests/ below it
 *     test_tokenizer_vectors FAMILY FOLDER [STEP]      a Hugging Face folder, as named
 *
 * STEP: vectors exist for every STEP-th text only.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

#include "core/base/strbuf.h"
#include "core/model/tokenizer.h"
#include "tests/unit/tokenizer/find_model.h"

#define VECTORS "tests/vectors/"
#define SHOWN   10 /* disagreements printed in full */

static const char *family;
static size_t step = 1, min_texts = 2000;
static struct tokenizer *tokenizer;

/* The text of a line: "\xNN" is one byte. */
static void unescape(const char *line, struct strbuf *out)
{
    strbuf_clear(out);
    while (*line && *line != '\n') {
        char byte = *line;
        if (line[0] == '\\' && line[1] == 'x') {
            byte = (char)strtoul((char[]){line[2], line[3], 0}, NULL, 16);
            line += 4;
        } else {
            line++;
        }
        strbuf_add(out, &byte, 1);
    }
}

static void read_ids(const char **at, struct token_list *out)
{
    out->n = 0;
    while (**at >= '0' && **at <= '9') {
        char *end;
        assert_int_equal(token_list_add(out, (uint32_t)strtoul(*at, &end, 10)), 0);
        *at = end + (*end == ' ');
    }
}

static bool agrees(const char *line, const struct strbuf *text, unsigned flags, const struct token_list *expected)
{
    struct token_list got = {0};
    assert_int_equal(tokenizer_encode(tokenizer, strbuf_text(text), text->len, flags, &got), 0);
    bool same = got.n == expected->n && (got.n == 0 || memcmp(got.ids, expected->ids, got.n * sizeof *got.ids) == 0);
    static int shown;
    if (!same && shown++ < SHOWN) {
        printf("%s, control tokens %s: %s", family, flags ? "parsed" : "as letters", line);
        printf("  expected");
        for (size_t i = 0; i < expected->n; i++)
            printf(" %u", expected->ids[i]);
        printf("\n  got     ");
        for (size_t i = 0; i < got.n; i++)
            printf(" %u", got.ids[i]);
        printf("\n");
    }
    token_list_fini(&got);
    return same;
}

static void test_ids_equal_the_reference(void **state)
{
    (void)state;
    char ids_path[128], *line = NULL, *ids_line = NULL;
    size_t cap = 0, ids_cap = 0, n = 0, equal = 0, line_number = 0;
    struct strbuf text = {0};
    struct token_list parsed = {0}, literal = {0};
    snprintf(ids_path, sizeof ids_path, VECTORS "tokenizer_%s.ids", family);
    FILE *texts = fopen(VECTORS "tokenizer_texts.txt", "r"), *ids = fopen(ids_path, "r");
    assert_non_null(texts);
    assert_non_null(ids);
    while (getline(&line, &cap, texts) > 0) {
        if (line_number++ % step != 0)
            continue;
        assert_true(getline(&ids_line, &ids_cap, ids) > 0);
        const char *at = ids_line;
        unescape(line, &text);
        read_ids(&at, &parsed);
        bool differs = *at == '|';
        at += differs;
        read_ids(&at, &literal);
        bool same = agrees(line, &text, TOKENIZE_PARSE_SPECIAL, &parsed);
        same &= agrees(line, &text, 0, differs ? &literal : &parsed);
        equal += same;
        n++;
    }
    printf("%s: ids of %zu of %zu strings equal the reference's\n", family, equal, n);
    assert_true(n >= min_texts / step);
    assert_int_equal(equal, n);
    assert_true(getline(&ids_line, &ids_cap, ids) < 0);
    fclose(texts);
    fclose(ids);
    free(line);
    free(ids_line);
    strbuf_fini(&text);
    token_list_fini(&parsed);
    token_list_fini(&literal);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_ids_equal_the_reference)};
    char path[1024];
    struct stat status;
    struct error err = {0};
    if (argc < 3 || argc > 4) {
        fprintf(stderr, "usage: test_tokenizer_vectors FAMILY FILE.gguf|FOLDER [STEP]\n");
        return 2;
    }
    family = argv[1];
    step = argc > 3 ? strtoul(argv[3], NULL, 10) : 1;
    int rc = 0;
    if (stat(argv[2], &status) == 0 && S_ISDIR(status.st_mode)) {
        rc = tokenizer_from_folder(argv[2], &tokenizer, &err);
    } else if (find_model(argv[2], path, sizeof path)) {
        rc = load_tokenizer(path, &tokenizer, &err);
    } else {
        printf("skipped: %s is in neither cache folder (last tried: %s)\n", argv[2], path);
        return 77;
    }
    if (rc < 0) {
        fprintf(stderr, "%s\n", err.text);
        return 1;
    }
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    tokenizer_destroy(tokenizer);
    return failed;
}

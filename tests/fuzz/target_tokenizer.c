/* Texts with a NUL between them: tokenizer.json, tokenizer_config.json, generation_config.json; what is left over is text. */
#include <stdlib.h>
#include <string.h>

#include "tests/fuzz/fuzz.h"

static void use(const struct tokenizer *tokenizer, const char *text)
{
    struct token_list list = {0};
    size_t bytes;
    int rc = tokenizer_encode(tokenizer, text, strlen(text), TOKENIZE_ADD_BOS | TOKENIZE_PARSE_SPECIAL, &list);
    for (size_t i = 0; rc == 0 && i < list.n; i++) {
        hs_assert(list.ids[i] < tokenizer_vocab_size(tokenizer));
        tokenizer_token_bytes(tokenizer, list.ids[i], true, i == 0, &bytes);
    }
    token_list_fini(&list);
}

int fuzz_tokenizer(const uint8_t *data, size_t len)
{
    static const char *const names[] = {"tokenizer.json", "tokenizer_config.json", "generation_config.json"};
    struct reader in;
    reader_init(&in, data, len);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char *text = fuzz_next_text(&in);
        fuzz_write_file("tokenizer", names[i], *text || i == 0 ? text : NULL, strlen(text));
        free(text);
    }
    struct tokenizer *tokenizer;
    struct error err = {0};
    char path[FUZZ_PATH_BYTES];
    int rc = tokenizer_from_folder(fuzz_path("tokenizer", "", path), &tokenizer, &err);
    if (rc < 0) {
        hs_assert(err.code == rc && err.text[0]);
        return 0;
    }
    char *text = fuzz_next_text(&in);
    use(tokenizer, text);
    use(tokenizer, "Hello, w\xC3\xB6rld 123\n\xF0\x9F\x98\x80 \xFF");
    free(text);
    tokenizer_destroy(tokenizer);
    return 0;
}

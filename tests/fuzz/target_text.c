/*
 * Text through the tokenizers: byte 0 chooses the tokenizer, byte 1 the flags, bytes 2 and 3 where the text is cut into spans.
 * Ids must be in range; a cut changes nothing; without PARSE_SPECIAL no control token comes out; a byte-level vocabulary
 * gives clean text back as it was.
 */
#include <stdlib.h>
#include <string.h>

#include "core/base/utf8.h"
#include "core/serve/http/prompt.h"
#include "tests/fuzz/fuzz.h"

/* The first border of characters (or of broken pieces of them, which are repaired span by span) at or behind wanted. */
static size_t border(const char *text, size_t len, size_t wanted)
{
    size_t at = 0;
    bool valid;
    while (at < len && at < wanted)
        at += utf8_next(text + at, len - at, &valid);
    return at;
}

static void check_spans(const struct tokenizer *tokenizer, const char *text, size_t len, const uint8_t cuts[2], bool special,
                        const struct token_list *whole)
{
    size_t first = border(text, len, cuts[0]), second = border(text, len, cuts[1]);
    if (second < first)
        second = first;
    const struct tokenizer_span spans[] = {{0, first, special}, {first, second - first, special}, {second, len - second, special}};
    struct token_list list = {0};
    hs_assert(tokenizer_encode_spans(tokenizer, text, spans, 3, false, &list) == 0);
    hs_assert(list.n == whole->n && (list.n == 0 || memcmp(list.ids, whole->ids, list.n * sizeof *list.ids) == 0));
    token_list_fini(&list);
}

static void check_ids(const struct tokenizer *tokenizer, const struct token_list *list, bool special)
{
    for (size_t i = 0; i < list->n; i++) {
        hs_assert(list->ids[i] < tokenizer_vocab_size(tokenizer));
        hs_assert(special || !tokenizer_is_special(tokenizer, list->ids[i]));
    }
}

static void check_text(const struct tokenizer *tokenizer, const struct token_list *list, const char *text, size_t len)
{
    struct strbuf back = {0};
    prompt_detokenize(tokenizer, list->ids, list->n, true, &back);
    hs_assert(!back.failed);
    hs_assert(back.len == len && (len == 0 || memcmp(back.data, text, len) == 0));
    strbuf_fini(&back);
}

int fuzz_text(const uint8_t *data, size_t len)
{
    struct reader in;
    uint8_t head[4];
    reader_init(&in, data, len);
    read_bytes(&in, head, sizeof head);
    if (in.failed)
        return 0;
    size_t n = reader_left(&in);
    char *text = fuzz_copy(data + sizeof head, n);
    const struct tokenizer *tokenizer = fuzz_tiny_tokenizer(head[0]);
    bool special = head[1] & TOKENIZE_PARSE_SPECIAL;
    struct token_list list = {0};
    hs_assert(tokenizer_encode(tokenizer, text, n, special ? TOKENIZE_PARSE_SPECIAL : 0, &list) == 0);
    check_ids(tokenizer, &list, special);
    check_spans(tokenizer, text, n, head + 2, special, &list);
    bool lossless = head[0] % FUZZ_TOKENIZERS == FUZZ_TOKENIZER_BYTE_LEVEL && !special; /* control tokens may take spaces along */
    if (lossless && utf8_is_clean(text, n))
        check_text(tokenizer, &list, text, n);
    token_list_fini(&list);
    if (head[1] & TOKENIZE_ADD_BOS) {
        hs_assert(tokenizer_encode(tokenizer, text, n, head[1] & 3, &list) == 0);
        hs_assert(!tokenizer_adds_bos(tokenizer) || (list.n > 0 && list.ids[0] == tokenizer_bos(tokenizer)));
        token_list_fini(&list);
    }
    free(text);
    return 0;
}

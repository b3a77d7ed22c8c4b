/* The tokenizer of a GGUF file: the keys tokenizer.ggml.* (https://github.com/ggml-org/ggml/blob/master/docs/gguf.md). */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/model/gguf.h"
#include "core/model/tokenizer_internal.h"

/* tokenizer.ggml.token_type */
enum { TYPE_NORMAL = 1, TYPE_UNKNOWN, TYPE_CONTROL, TYPE_USER_DEFINED, TYPE_UNUSED, TYPE_BYTE };

struct gguf_vocab {
    const struct gguf_value *tokens;
    const struct gguf_value *types; /* NULL: all normal */
};

static int64_t type_of(const struct gguf_vocab *vocab, uint32_t id)
{
    return vocab->types ? gguf_value_i64(vocab->types, id) : TYPE_NORMAL;
}

static bool is_control(const struct gguf_vocab *vocab, uint32_t id, struct gguf_string token)
{
    int64_t type = type_of(vocab, id);
    return type == TYPE_CONTROL || type == TYPE_UNKNOWN || tokenizer_is_turn_mark(token.text, token.len);
}

/* Adds one token, in the bytes that it shows. */
static int add_token(struct tokenizer *tokenizer, const struct gguf_vocab *vocab, uint32_t id, struct gguf_string token,
                     struct strbuf *bytes)
{
    enum vocab_kind kind = VOCAB_NORMAL;
    strbuf_clear(bytes);
    if (is_control(vocab, id, token))
        kind = VOCAB_CONTROL;
    else if (type_of(vocab, id) == TYPE_USER_DEFINED)
        kind = VOCAB_ADDED;
    else if (type_of(vocab, id) == TYPE_UNUSED)
        kind = VOCAB_ABSENT;
    else if (type_of(vocab, id) == TYPE_BYTE && byte_token_value(token.text, token.len) >= 0)
        kind = VOCAB_BYTE;

    if (kind == VOCAB_BYTE) {
        char byte = (char)byte_token_value(token.text, token.len);
        strbuf_add(bytes, &byte, 1);
    } else if (kind != VOCAB_NORMAL) {
        strbuf_add(bytes, token.text, token.len);
    } else if (tokenizer->kind == TOKENIZER_SENTENCEPIECE) {
        sentencepiece_plain_spaces(token.text, token.len, bytes);
    } else if (!byte_level_decode(token.text, token.len, bytes)) {
        strbuf_add(bytes, token.text, token.len);
    }
    if (bytes->failed)
        return HS_ERR_NO_MEMORY;
    return tokenizer_vocab_add(&tokenizer->vocab, id, bytes->data, bytes->len, kind);
}

static int add_tokens(struct tokenizer *tokenizer, const struct gguf_vocab *vocab)
{
    struct strbuf bytes = {0};
    struct gguf_cursor cursor = gguf_cursor_start(vocab->tokens);
    struct gguf_string token;
    int rc = 0;
    for (uint32_t id = 0; rc == 0 && gguf_cursor_next(&cursor, &token); id++)
        rc = add_token(tokenizer, vocab, id, token, &bytes);
    strbuf_fini(&bytes);

    cursor = gguf_cursor_start(vocab->tokens);
    for (uint32_t id = 0; rc == 0 && gguf_cursor_next(&cursor, &token); id++) {
        if (is_control(vocab, id, token))
            rc = tokenizer_add_special(tokenizer, id, token.text, token.len, SPECIAL_CONTROL);
        else if (type_of(vocab, id) == TYPE_USER_DEFINED)
            rc = tokenizer_add_special(tokenizer, id, token.text, token.len, 0);
    }
    return rc < 0 ? rc : tokenizer_index(tokenizer);
}

/* The token of one half of a merge, written in visible characters. */
static uint32_t find_written(const struct tokenizer *tokenizer, const char *text, size_t len, struct strbuf *bytes)
{
    strbuf_clear(bytes);
    if (!byte_level_decode(text, len, bytes) || bytes->failed)
        return VOCAB_NO_ID;
    return tokenizer_vocab_find(&tokenizer->vocab, strbuf_text(bytes), bytes->len);
}

/* A merge is "left right"; one whose tokens are not all in the vocabulary can never apply. */
static int add_merge(struct tokenizer *tokenizer, struct gguf_string merge, uint32_t rank, struct strbuf *left,
                     struct strbuf *right)
{
    const char *space = merge.len ? memchr(merge.text + 1, ' ', merge.len - 1) : NULL;
    if (!space)
        return HS_ERR_PARSE;
    uint32_t a = find_written(tokenizer, merge.text, (size_t)(space - merge.text), left);
    uint32_t b = find_written(tokenizer, space + 1, (size_t)(merge.text + merge.len - space - 1), right);
    if (left->failed || right->failed)
        return HS_ERR_NO_MEMORY;
    if (a == VOCAB_NO_ID || b == VOCAB_NO_ID)
        return 0;
    strbuf_add(left, right->data, right->len);
    if (left->failed)
        return HS_ERR_NO_MEMORY;
    uint32_t joined = tokenizer_vocab_find(&tokenizer->vocab, left->data, left->len);
    return joined == VOCAB_NO_ID ? 0 : bpe_table_put(&tokenizer->pairs, a, b, rank, joined);
}

static int load_byte_level(struct tokenizer *tokenizer, const struct gguf *gguf, struct error *err)
{
    const struct gguf_value *merges;
    struct gguf_string merge, pre = {"default", 7};
    struct strbuf left = {0}, right = {0};
    int rc = gguf_get_array(gguf, "tokenizer.ggml.merges", GGUF_STRING, &merges, err);
    if (rc < 0)
        return rc;
    (void)gguf_get_string(gguf, "tokenizer.ggml.pre", &pre, NULL);
    rc = pretokenizer_add_family(&tokenizer->pre, pre.text, pre.len, err);
    if (rc < 0)
        return rc;
    tokenizer->composes = gguf_string_equals(pre, "qwen2") || gguf_string_equals(pre, "deepseek-r1-qwen");
    /* Llama 3 takes a piece that is a token as it is (its tokenizer.json: "ignore_merges"), and begins texts with BOS. */
    tokenizer->ignore_merges =
        gguf_string_equals(pre, "llama-bpe") || gguf_string_equals(pre, "llama3") || gguf_string_equals(pre, "llama-v3");
    tokenizer->adds_bos = tokenizer->ignore_merges;

    if (merges->count > UINT32_MAX || bpe_table_reserve(&tokenizer->pairs, (size_t)merges->count) < 0)
        return error_set(err, HS_ERR_NO_MEMORY, "out of memory for the tokenizer's merges");
    struct gguf_cursor cursor = gguf_cursor_start(merges);
    for (uint32_t rank = 0; rc == 0 && gguf_cursor_next(&cursor, &merge); rank++)
        rc = add_merge(tokenizer, merge, rank, &left, &right);
    if (rc < 0)
        error_set(err, rc, "tokenizer.ggml.merges: %s",
                  rc == HS_ERR_PARSE ? "a merge is not two tokens with a space between" : "out of memory");
    strbuf_fini(&left);
    strbuf_fini(&right);
    return rc;
}

static int load_sentencepiece(struct tokenizer *tokenizer, const struct gguf *gguf, struct error *err)
{
    const struct gguf_value *scores;
    uint32_t n = tokenizer->vocab.n, unknown = 0;
    bool add_space_prefix = true;
    int rc = gguf_get_array(gguf, "tokenizer.ggml.scores", GGUF_F64, &scores, err);
    if (rc < 0)
        return rc;
    if (scores->count != n)
        return error_set(err, HS_ERR_PARSE, "tokenizer.ggml.scores has %llu members for %u tokens",
                         (unsigned long long)scores->count, n);
    float *copy = reallocarray(NULL, n, sizeof *copy);
    if (!copy)
        return error_set(err, HS_ERR_NO_MEMORY, "out of memory for the tokenizer's scores");
    for (uint32_t id = 0; id < n; id++) {
        double score = gguf_value_f64(scores, id);
        copy[id] = isnan(score) ? -INFINITY : (float)score;
    }
    rc = sentencepiece_pairs(tokenizer, copy);
    free(copy);
    if (rc < 0)
        return error_set(err, rc, "out of memory for the tokenizer's pairs");

    (void)gguf_get_bool(gguf, "tokenizer.ggml.add_space_prefix", &add_space_prefix, NULL);
    (void)gguf_get_u32(gguf, "tokenizer.ggml.unknown_token_id", &unknown, NULL);
    tokenizer->prefix = add_space_prefix ? PREFIX_EVERY : PREFIX_NEVER;
    tokenizer->unknown = unknown < n ? unknown : VOCAB_NO_ID;
    tokenizer->adds_bos = true;
    return 0;
}

static int read_vocab(const struct gguf *gguf, struct gguf_vocab *vocab, struct error *err)
{
    int rc = gguf_get_array(gguf, "tokenizer.ggml.tokens", GGUF_STRING, &vocab->tokens, err);
    if (rc < 0)
        return rc;
    if (vocab->tokens->count == 0 || vocab->tokens->count > VOCAB_MAX_TOKENS)
        return error_set(err, HS_ERR_PARSE, "tokenizer.ggml.tokens has %llu members", (unsigned long long)vocab->tokens->count);
    vocab->types = NULL;
    if (!gguf_find(gguf, "tokenizer.ggml.token_type"))
        return 0;
    rc = gguf_get_array(gguf, "tokenizer.ggml.token_type", GGUF_I64, &vocab->types, err);
    if (rc == 0 && vocab->types->count != vocab->tokens->count)
        rc = error_set(err, HS_ERR_PARSE, "tokenizer.ggml.token_type has %llu members for %llu tokens",
                       (unsigned long long)vocab->types->count, (unsigned long long)vocab->tokens->count);
    return rc;
}

static void read_ids(struct tokenizer *tokenizer, const struct gguf *gguf)
{
    static const char *const stops[] = {"tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id"};
    uint32_t id;
    if (gguf_get_u32(gguf, "tokenizer.ggml.bos_token_id", &id, NULL) == 0 && id < tokenizer->vocab.n)
        tokenizer->bos = id;
    if (gguf_get_u32(gguf, "tokenizer.ggml.eos_token_id", &id, NULL) == 0 && id < tokenizer->vocab.n)
        tokenizer->eos = id;
    tokenizer_add_stop(tokenizer, tokenizer->eos);
    for (size_t i = 0; i < sizeof stops / sizeof stops[0]; i++) {
        if (gguf_get_u32(gguf, stops[i], &id, NULL) == 0)
            tokenizer_add_stop(tokenizer, id);
    }
    (void)gguf_get_bool(gguf, "tokenizer.ggml.add_bos_token", &tokenizer->adds_bos, NULL);
}

int tokenizer_from_gguf(const struct gguf *gguf, struct tokenizer **out, struct error *err)
{
    struct gguf_vocab vocab;
    struct gguf_string model;
    struct tokenizer *tokenizer = tokenizer_create();
    int rc = tokenizer ? 0 : error_set(err, HS_ERR_NO_MEMORY, "out of memory for the tokenizer");
    if (rc == 0)
        rc = gguf_get_string(gguf, "tokenizer.ggml.model", &model, err);
    if (rc == 0)
        rc = read_vocab(gguf, &vocab, err);
    if (rc < 0)
        goto fail;
    if (gguf_string_equals(model, "gpt2")) {
        tokenizer->kind = TOKENIZER_BYTE_LEVEL;
    } else if (gguf_string_equals(model, "llama")) {
        tokenizer->kind = TOKENIZER_SENTENCEPIECE;
    } else {
        rc =
            error_set(err, HS_ERR_UNSUPPORTED, "%s: tokenizer \"%.*s\" (tokenizer.ggml.model) is not supported; gpt2 and llama are",
                      gguf_path(gguf), (int)(model.len < 64 ? model.len : 64), model.text);
        goto fail;
    }
    rc = add_tokens(tokenizer, &vocab);
    if (rc < 0) {
        error_set(err, rc, "out of memory for the vocabulary");
        goto fail;
    }
    rc = tokenizer->kind == TOKENIZER_BYTE_LEVEL ? load_byte_level(tokenizer, gguf, err) : load_sentencepiece(tokenizer, gguf, err);
    if (rc < 0)
        goto fail;
    read_ids(tokenizer, gguf);
    tokenizer_compute_digest(tokenizer);
    *out = tokenizer;
    return 0;
fail:
    tokenizer_destroy(tokenizer);
    return rc;
}

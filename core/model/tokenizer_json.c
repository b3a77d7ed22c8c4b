/*
 * The tokenizer of a Hugging Face folder: tokenizer.json, and what the files beside it say about begin and end tokens.
 *
 * Added tokens are looked for in the text as it came, whatever their "normalized" says: the normalizers that are understood
 * leave the families' added tokens as they are.
 */
#include "core/model/tokenizer_json.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/strbuf.h"
#include "core/model/model_file.h"
#include "core/model/model_json.h"

/* Sets *out to the parsed file, or NULL where it does not exist. */
static int read_json(const char *folder, const char *name, json_t **out, struct error *err)
{
    struct model_file file;
    json_error_t why;
    bool no_memory;
    char *path = model_file_join(folder, name);
    if (!path)
        return error_set(err, HS_ERR_NO_MEMORY, "out of memory for the tokenizer");
    *out = NULL;
    int rc = model_file_map(path, &file, err);
    if (rc == 0) {
        *out = model_json_load((const char *)file.data, file.len, JSON_ALLOW_NUL, &no_memory, &why);
        if (no_memory)
            rc = error_set(err, HS_ERR_NO_MEMORY, "%s: out of memory", path);
        else if (!*out)
            rc = error_set(err, HS_ERR_PARSE, "%s: line %d: %s", path, why.line, why.text);
        model_file_unmap(&file);
    }
    free(path);
    return rc == HS_ERR_NOT_FOUND ? 0 : rc;
}

/* *out receives an id as the files write it; false for anything else. */
static bool read_id(const json_t *value, uint32_t *out)
{
    if (!json_is_integer(value) || json_integer_value(value) < 0 || json_integer_value(value) >= VOCAB_MAX_TOKENS)
        return false;
    *out = (uint32_t)json_integer_value(value);
    return true;
}

/* Appends the bytes that an ordinary token shows. */
static void write_shown(const struct tokenizer *tokenizer, const char *text, size_t len, struct strbuf *out)
{
    if (tokenizer->kind == TOKENIZER_SENTENCEPIECE)
        sentencepiece_plain_spaces(text, len, out);
    else if (!byte_level_decode(text, len, out))
        strbuf_add(out, text, len);
}

static int add_ordinary(struct tokenizer *tokenizer, const json_t *model, struct error *err)
{
    bool byte_fallback = json_is_true(json_object_get(model, "byte_fallback"));
    struct strbuf shown = {0};
    const char *text;
    size_t len;
    json_t *value;
    int rc = 0;
    json_object_keylen_foreach(json_object_get(model, "vocab"), text, len, value)
    {
        uint32_t id;
        int byte = byte_fallback ? byte_token_value(text, len) : -1;
        char c = (char)byte;
        strbuf_clear(&shown);
        if (byte >= 0)
            strbuf_add(&shown, &c, 1);
        else
            write_shown(tokenizer, text, len, &shown);
        if (!read_id(value, &id))
            rc = error_set(err, HS_ERR_PARSE, "tokenizer.json: the id of \"%.40s\" is no token id", text);
        else if (shown.failed || tokenizer_vocab_add(&tokenizer->vocab, id, strbuf_text(&shown), shown.len,
                                                     byte >= 0 ? VOCAB_BYTE : VOCAB_NORMAL) < 0)
            rc = error_set(err, HS_ERR_NO_MEMORY, "out of memory for the vocabulary");
        if (rc < 0)
            break;
    }
    strbuf_fini(&shown);
    return rc;
}

static unsigned special_flags_of(const json_t *token, const char *text, size_t len)
{
    unsigned flags = 0;
    if (json_is_true(json_object_get(token, "special")) || tokenizer_is_turn_mark(text, len))
        flags |= SPECIAL_CONTROL;
    if (json_is_true(json_object_get(token, "lstrip")))
        flags |= SPECIAL_STRIP_LEFT;
    if (json_is_true(json_object_get(token, "rstrip")))
        flags |= SPECIAL_STRIP_RIGHT;
    if (json_is_true(json_object_get(token, "single_word")))
        flags |= SPECIAL_WHOLE_WORD;
    return flags;
}

/* Puts an added token into the vocabulary, or among the texts to look for. */
static int add_added_token(struct tokenizer *tokenizer, const json_t *token, bool to_vocabulary)
{
    const json_t *content = json_object_get(token, "content");
    const char *text = json_string_value(content);
    size_t len = json_string_length(content);
    struct strbuf shown = {0};
    uint32_t id;
    if (!read_id(json_object_get(token, "id"), &id) || len == 0)
        return HS_ERR_PARSE;
    unsigned flags = special_flags_of(token, text, len);
    if (!to_vocabulary)
        return tokenizer_add_special(tokenizer, id, text, len, flags);
    if (tokenizer->kind == TOKENIZER_SENTENCEPIECE)
        sentencepiece_plain_spaces(text, len, &shown);
    else
        strbuf_add(&shown, text, len);
    int rc = HS_ERR_NO_MEMORY;
    if (!shown.failed)
        rc = tokenizer_vocab_add(&tokenizer->vocab, id, shown.data, shown.len,
                                 flags & SPECIAL_CONTROL ? VOCAB_CONTROL : VOCAB_ADDED);
    strbuf_fini(&shown);
    return rc;
}

/* Into the vocabulary first, so that stops among them can be checked against its size. */
static int add_added(struct tokenizer *tokenizer, const json_t *added, struct error *err)
{
    const json_t *token;
    size_t i;
    for (int pass = 0; pass < 2; pass++) {
        json_array_foreach(added, i, token)
        {
            int rc = add_added_token(tokenizer, token, pass == 0);
            if (rc == HS_ERR_PARSE)
                return error_set(err, rc, "tokenizer.json: added token number %zu lacks its id or content", i);
            if (rc < 0)
                return error_set(err, rc, "out of memory for the added tokens");
        }
    }
    return 0;
}

/* A merge is "left right" or ["left", "right"]. */
static bool read_merge(const json_t *merge, const char **left, size_t *left_len, const char **right, size_t *right_len)
{
    if (json_is_array(merge) && json_array_size(merge) == 2) {
        *left = json_string_value(json_array_get(merge, 0));
        *left_len = json_string_length(json_array_get(merge, 0));
        *right = json_string_value(json_array_get(merge, 1));
        *right_len = json_string_length(json_array_get(merge, 1));
        return *left && *right;
    }
    const char *text = json_string_value(merge);
    const char *space = text ? strchr(text, ' ') : NULL;
    if (!space)
        return false;
    *left = text;
    *left_len = (size_t)(space - text);
    *right = space + 1;
    *right_len = json_string_length(merge) - *left_len - 1;
    return true;
}

static int add_merges(struct tokenizer *tokenizer, const json_t *model, struct error *err)
{
    const json_t *vocab = json_object_get(model, "vocab"), *merges = json_object_get(model, "merges"), *merge;
    struct strbuf both = {0};
    size_t i;
    int rc = bpe_table_reserve(&tokenizer->pairs, json_array_size(merges));
    if (rc < 0)
        return error_set(err, rc, "out of memory for the tokenizer's merges");
    json_array_foreach(merges, i, merge)
    {
        const char *left, *right;
        size_t left_len, right_len;
        uint32_t a, b, joined;
        if (!read_merge(merge, &left, &left_len, &right, &right_len)) {
            rc = error_set(err, HS_ERR_PARSE, "tokenizer.json: merge number %zu is not a pair of tokens", i);
            break;
        }
        strbuf_clear(&both);
        strbuf_add(&both, left, left_len);
        strbuf_add(&both, right, right_len);
        if (both.failed) {
            rc = error_set(err, HS_ERR_NO_MEMORY, "out of memory for the tokenizer's merges");
            break;
        }
        if (!read_id(json_object_getn(vocab, left, left_len), &a) ||
            !read_id(json_object_getn(vocab, right, right_len), &b) ||
            !read_id(json_object_getn(vocab, strbuf_text(&both), both.len), &joined)) {
            rc = error_set(err, HS_ERR_PARSE, "tokenizer.json: merge number %zu names a token that is not in the vocabulary", i);
            break;
        }
        rc = bpe_table_put(&tokenizer->pairs, a, b, (uint32_t)i, joined);
        if (rc < 0) {
            error_set(err, rc, "out of memory for the tokenizer's merges");
            break;
        }
    }
    strbuf_fini(&both);
    return rc;
}

static int load_model(struct tokenizer *tokenizer, const json_t *root, struct error *err)
{
    static const char *const affixes[] = {"continuing_subword_prefix", "end_of_word_suffix"};
    const json_t *model = json_object_get(root, "model");
    const json_t *type = json_object_get(model, "type");
    uint32_t id;
    if ((type && strcmp(json_string_value(type) ? json_string_value(type) : "", "BPE") != 0) ||
        !json_is_array(json_object_get(model, "merges")) || !json_is_object(json_object_get(model, "vocab")))
        return error_set(err, HS_ERR_UNSUPPORTED,
                         "tokenizer.json: the model is of type %.40s; BPE with vocab and merges is supported",
                         json_string_value(type) ? json_string_value(type) : "(none)");
    for (size_t i = 0; i < 2; i++) {
        if (json_string_length(json_object_get(model, affixes[i])))
            return error_set(err, HS_ERR_UNSUPPORTED, "tokenizer.json: a model with %s is not supported", affixes[i]);
    }
    bool byte_level = json_find_part(json_object_get(root, "pre_tokenizer"), "pretokenizers", "ByteLevel") != NULL;
    tokenizer->kind = byte_level ? TOKENIZER_BYTE_LEVEL : TOKENIZER_SENTENCEPIECE;
    tokenizer->ignore_merges = json_is_true(json_object_get(model, "ignore_merges"));
    tokenizer->fuses_unknown = json_is_true(json_object_get(model, "fuse_unk"));

    int rc = add_ordinary(tokenizer, model, err);
    if (rc == 0)
        rc = add_added(tokenizer, json_object_get(root, "added_tokens"), err);
    if (rc == 0 && tokenizer_index(tokenizer) < 0)
        rc = error_set(err, HS_ERR_NO_MEMORY, "out of memory for the vocabulary");
    if (rc == 0)
        rc = add_merges(tokenizer, model, err);
    const char *unknown = json_string_value(json_object_get(model, "unk_token"));
    if (rc == 0 && unknown && read_id(json_object_get(json_object_get(model, "vocab"), unknown), &id))
        tokenizer->unknown = id;
    return rc;
}

/* The text of a token in tokenizer_config.json: a string, or an object with its content. */
static const char *token_text(const json_t *config, const char *key)
{
    const json_t *token = json_object_get(config, key);
    return json_string_value(json_is_object(token) ? json_object_get(token, "content") : token);
}

static uint32_t find_token(const struct tokenizer *tokenizer, const char *text)
{
    uint32_t id = text ? tokenizer_find_special(tokenizer, text) : VOCAB_NO_ID;
    return id == VOCAB_NO_ID && text ? tokenizer_vocab_find(&tokenizer->vocab, text, strlen(text)) : id;
}

/* eos_token_id is a number or a list of them. */
static void read_stops(struct tokenizer *tokenizer, const json_t *config)
{
    const json_t *stops = json_object_get(config, "eos_token_id");
    uint32_t id;
    if (read_id(stops, &id)) {
        tokenizer_add_stop(tokenizer, id);
        if (tokenizer->eos == VOCAB_NO_ID && id < tokenizer->vocab.n)
            tokenizer->eos = id;
    }
    for (size_t i = 0; i < json_array_size(stops); i++) {
        if (read_id(json_array_get(stops, i), &id))
            tokenizer_add_stop(tokenizer, id);
    }
    if (tokenizer->bos == VOCAB_NO_ID && read_id(json_object_get(config, "bos_token_id"), &id) && id < tokenizer->vocab.n)
        tokenizer->bos = id;
}

static int read_settings(struct tokenizer *tokenizer, const char *folder, const json_t *root, struct error *err)
{
    static const char *const others[] = {"generation_config.json", "config.json"};
    const char *leading = tokenizer_json_leading_token(json_object_get(root, "post_processor"));
    json_t *config;
    int rc = read_json(folder, "tokenizer_config.json", &config, err);
    if (rc < 0)
        return rc;
    tokenizer->bos = find_token(tokenizer, leading ? leading : token_text(config, "bos_token"));
    tokenizer->eos = find_token(tokenizer, token_text(config, "eos_token"));
    tokenizer->adds_bos = leading != NULL;
    /* transformers lets this setting rule the post-processor, except in the class that knows nothing but tokenizer.json. */
    const json_t *add_bos = json_object_get(config, "add_bos_token");
    const char *class = token_text(config, "tokenizer_class");
    if (json_is_boolean(add_bos) && !(class && strcmp(class, "PreTrainedTokenizerFast") == 0))
        tokenizer->adds_bos = json_is_true(add_bos) && tokenizer->bos != VOCAB_NO_ID;
    tokenizer_add_stop(tokenizer, tokenizer->eos);
    json_decref(config);
    for (size_t i = 0; i < sizeof others / sizeof others[0] && rc == 0; i++) {
        rc = read_json(folder, others[i], &config, err);
        if (rc == 0) {
            read_stops(tokenizer, config);
            json_decref(config);
        }
    }
    return rc;
}

int tokenizer_from_folder(const char *folder, struct tokenizer **out, struct error *err)
{
    json_t *root = NULL;
    struct tokenizer *tokenizer = tokenizer_create();
    int rc = tokenizer ? read_json(folder, "tokenizer.json", &root, err)
                       : error_set(err, HS_ERR_NO_MEMORY, "out of memory for the tokenizer");
    if (rc == 0 && !root)
        rc =
            error_set(err, HS_ERR_NOT_FOUND,
                      "%s: no tokenizer.json that can be read; the folder needs one (tokenizer.model alone is not enough)", folder);
    if (rc == 0)
        rc = load_model(tokenizer, root, err);
    if (rc == 0)
        rc = tokenizer_json_normalizer(tokenizer, json_object_get(root, "normalizer"), err);
    if (rc == 0)
        rc = tokenizer_json_pre_tokenizer(tokenizer, json_object_get(root, "pre_tokenizer"), err);
    if (rc == 0)
        rc = read_settings(tokenizer, folder, root, err);
    json_decref(root);
    if (rc < 0) {
        tokenizer_destroy(tokenizer);
        return rc;
    }
    tokenizer_compute_digest(tokenizer);
    *out = tokenizer;
    return 0;
}

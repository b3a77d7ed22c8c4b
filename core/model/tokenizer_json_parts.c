#include "core/model/tokenizer_json.h"

#include <stdlib.h>
#include <string.h>

#define SPACE_MARK "\xE2\x96\x81"

static const char *text_of(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    return text ? text : "";
}

bool json_type_is(const json_t *part, const char *type)
{
    return strcmp(text_of(part, "type"), type) == 0;
}

const json_t *json_find_part(const json_t *part, const char *members, const char *type)
{
    size_t i;
    const json_t *member;
    if (json_type_is(part, type))
        return part;
    json_array_foreach(json_object_get(part, members), i, member)
    {
        const json_t *found = json_find_part(member, members, type);
        if (found)
            return found;
    }
    return NULL;
}

static int unsupported(struct error *err, const char *what, const json_t *part)
{
    char *text = json_dumps(part, JSON_COMPACT);
    error_set(err, HS_ERR_UNSUPPORTED, "tokenizer.json: the %s %.200s is not supported", what, text ? text : text_of(part, "type"));
    free(text);
    return HS_ERR_UNSUPPORTED;
}

int tokenizer_json_normalizer(struct tokenizer *tokenizer, const json_t *normalizer, struct error *err)
{
    bool sentencepiece = tokenizer->kind == TOKENIZER_SENTENCEPIECE;
    const json_t *pattern = json_object_get(normalizer, "pattern");
    if (!normalizer || json_is_null(normalizer))
        return 0;
    if (json_type_is(normalizer, "NFC")) {
        tokenizer->composes = true;
        return 0;
    }
    if (json_type_is(normalizer, "Prepend") && sentencepiece && strcmp(text_of(normalizer, "prepend"), SPACE_MARK) == 0) {
        tokenizer->prefix = PREFIX_EVERY;
        return 0;
    }
    if (json_type_is(normalizer, "Replace") && sentencepiece && strcmp(text_of(pattern, "String"), " ") == 0 &&
        strcmp(text_of(normalizer, "content"), SPACE_MARK) == 0)
        return 0;
    if (json_type_is(normalizer, "Sequence")) {
        size_t i;
        const json_t *member;
        int rc = 0;
        json_array_foreach(json_object_get(normalizer, "normalizers"), i, member)
        {
            rc = tokenizer_json_normalizer(tokenizer, member, err);
            if (rc < 0)
                break;
        }
        return rc;
    }
    return unsupported(err, "normalizer", normalizer);
}

/* A plain string as an expression: \Q...\E, with a \E inside broken up. */
static int quote(const char *text, struct strbuf *out)
{
    strbuf_puts(out, "\\Q");
    for (const char *end; (end = strstr(text, "\\E")); text = end + 2) {
        strbuf_add(out, text, (size_t)(end - text));
        strbuf_puts(out, "\\E\\\\E\\Q");
    }
    strbuf_puts(out, text);
    strbuf_puts(out, "\\E");
    return out->failed ? HS_ERR_NO_MEMORY : 0;
}

static int add_split(struct tokenizer *tokenizer, const json_t *split, struct error *err)
{
    const json_t *pattern = json_object_get(split, "pattern");
    const char *expression = json_string_value(json_object_get(pattern, "Regex"));
    const char *plain = json_string_value(json_object_get(pattern, "String"));
    const char *behavior = text_of(split, "behavior");
    bool invert = json_is_true(json_object_get(split, "invert"));
    enum pretokenize_cut cut = CUT_BOTH;
    struct strbuf quoted = {0};

    if (tokenizer->kind == TOKENIZER_SENTENCEPIECE) {
        /* Gemma splits at spaces after it replaced them all: nothing is left to split. */
        return plain && strcmp(plain, " ") == 0 ? 0 : unsupported(err, "pre-tokenizer", split);
    }
    /* Cutting around the matches and cutting around what lies between them is the same. */
    if (strcmp(behavior, "MergedWithPrevious") == 0 && !invert)
        cut = CUT_AFTER;
    else if (strcmp(behavior, "MergedWithNext") == 0 && !invert)
        cut = CUT_BEFORE;
    else if (strcmp(behavior, "Isolated") != 0)
        return unsupported(err, "pre-tokenizer", split);
    if (expression)
        return pretokenizer_add(&tokenizer->pre, expression, strlen(expression), cut, err);
    if (!plain)
        return unsupported(err, "pre-tokenizer", split);
    int rc = quote(plain, &quoted);
    if (rc == 0)
        rc = pretokenizer_add(&tokenizer->pre, quoted.data, quoted.len, cut, err);
    strbuf_fini(&quoted);
    return rc;
}

static int add_metaspace(struct tokenizer *tokenizer, const json_t *metaspace, struct error *err)
{
    const char *scheme = text_of(metaspace, "prepend_scheme");
    const json_t *split = json_object_get(metaspace, "split");
    if (tokenizer->kind != TOKENIZER_SENTENCEPIECE || strcmp(text_of(metaspace, "replacement"), SPACE_MARK) != 0)
        return unsupported(err, "pre-tokenizer", metaspace);
    if (*scheme == '\0')
        scheme = json_is_false(json_object_get(metaspace, "add_prefix_space")) ? "never" : "always";
    if (strcmp(scheme, "never") == 0)
        tokenizer->prefix = PREFIX_NEVER;
    else
        tokenizer->prefix = strcmp(scheme, "first") == 0 ? PREFIX_FIRST : PREFIX_EVERY_UNLESS_THERE;
    if (!json_is_false(split)) /* cut in front of every space */
        memset(tokenizer->joins_space, 0, sizeof tokenizer->joins_space);
    return 0;
}

int tokenizer_json_pre_tokenizer(struct tokenizer *tokenizer, const json_t *pre, struct error *err)
{
    size_t i;
    const json_t *member;
    int rc = 0;
    if (!pre || json_is_null(pre))
        return 0;
    if (json_type_is(pre, "Split"))
        return add_split(tokenizer, pre, err);
    if (json_type_is(pre, "Metaspace"))
        return add_metaspace(tokenizer, pre, err);
    if (json_type_is(pre, "Digits") && tokenizer->kind == TOKENIZER_BYTE_LEVEL) {
        const char *digits = json_is_true(json_object_get(pre, "individual_digits")) ? "\\p{N}" : "\\p{N}+";
        return pretokenizer_add(&tokenizer->pre, digits, strlen(digits), CUT_BOTH, err);
    }
    if (json_type_is(pre, "ByteLevel") && !json_is_true(json_object_get(pre, "add_prefix_space")))
        return json_is_false(json_object_get(pre, "use_regex")) ? 0 : pretokenizer_add_gpt2(&tokenizer->pre, err);
    if (!json_type_is(pre, "Sequence"))
        return unsupported(err, "pre-tokenizer", pre);
    json_array_foreach(json_object_get(pre, "pretokenizers"), i, member)
    {
        rc = tokenizer_json_pre_tokenizer(tokenizer, member, err);
        if (rc < 0)
            break;
    }
    return rc;
}

const char *tokenizer_json_leading_token(const json_t *post_processor)
{
    const json_t *template = json_find_part(post_processor, "processors", "TemplateProcessing");
    const json_t *first = json_array_get(json_object_get(template, "single"), 0);
    return json_string_value(json_object_get(json_object_get(first, "SpecialToken"), "id"));
}

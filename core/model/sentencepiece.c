/*
 * SentencePiece's BPE (https://arxiv.org/abs/1808.06226; Kudo's sentencepiece 0.2 is the reference of behaviour): symbols are
 * characters, neighbours join when their texts together are a token, the best score first. A character without a token
 * becomes its bytes' tokens, or the unknown token.
 *
 * Model files write the space as U+2581, and the two are one character to the method. Here both are a plain space, in the
 * vocabulary from loading on, so that a token's bytes are what it shows. (Only runs of U+2581 that a text really has differ from
 * SentencePiece's own: they do not become the user-defined tokens of Gemma that stand for runs of spaces.)
 */
#include <stdlib.h>
#include <string.h>

#include "core/model/tokenizer_internal.h"
#include "core/model/unicode.h"

#define SPACE_MARK      "\xE2\x96\x81"
#define SPACE_MARK_CODE 0x2581u

struct scored {
    float score;
    uint32_t id;
};

static int compare_scores(const void *left, const void *right)
{
    const struct scored *a = left, *b = right;
    if (a->score != b->score)
        return a->score > b->score ? -1 : 1;
    return (a->id > b->id) - (a->id < b->id);
}

/* Every way to split a token into two tokens. */
static int add_splits(struct tokenizer *tokenizer, uint32_t id, uint32_t rank)
{
    const struct tokenizer_vocab *vocab = &tokenizer->vocab;
    const char *bytes = tokenizer_vocab_bytes(vocab, id);
    size_t len = vocab->entries[id].len;
    int rc = 0;
    for (size_t cut = 1; cut < len && rc == 0; cut++) {
        if (((unsigned char)bytes[cut] & 0xC0) == 0x80)
            continue;
        uint32_t left = tokenizer_vocab_find(vocab, bytes, cut);
        uint32_t right = left == VOCAB_NO_ID ? left : tokenizer_vocab_find(vocab, bytes + cut, len - cut);
        if (right != VOCAB_NO_ID)
            rc = bpe_table_put(&tokenizer->pairs, left, right, rank, id);
    }
    return rc;
}

int sentencepiece_pairs(struct tokenizer *tokenizer, const float *scores)
{
    const struct tokenizer_vocab *vocab = &tokenizer->vocab;
    size_t n = 0;
    int rc = 0;
    struct scored *order = reallocarray(NULL, vocab->n ? vocab->n : 1, sizeof *order);
    if (!order)
        return HS_ERR_NO_MEMORY;
    for (uint32_t id = 0; id < vocab->n; id++) {
        if (vocab->entries[id].kind == VOCAB_NORMAL)
            order[n++] = (struct scored){scores[id], id};
    }
    qsort(order, n, sizeof *order, compare_scores);
    uint32_t rank = 0; /* equal scores share a rank: then the leftmost pair joins first */
    for (size_t i = 0; i < n && rc == 0; i++) {
        if (i && order[i].score != order[i - 1].score)
            rank++;
        rc = add_splits(tokenizer, order[i].id, rank);
    }
    free(order);
    return rc;
}

static bool starts_with_space(const char *text, size_t len)
{
    return text[0] == ' ' || (len >= 3 && memcmp(text, SPACE_MARK, 3) == 0);
}

static bool wants_prefix(const struct tokenizer *tokenizer, const char *text, size_t len, bool first)
{
    switch (tokenizer->prefix) {
    case PREFIX_FIRST:
        return first && !starts_with_space(text, len);
    case PREFIX_EVERY:
        return true;
    case PREFIX_EVERY_UNLESS_THERE:
        return !starts_with_space(text, len);
    default:
        return false;
    }
}

void sentencepiece_plain_spaces(const char *text, size_t len, struct strbuf *out)
{
    size_t from = 0;
    for (size_t at = 0; at + 3 <= len; at++) {
        if (memcmp(text + at, SPACE_MARK, 3) != 0)
            continue;
        strbuf_add(out, text + from, at - from);
        strbuf_add(out, " ", 1);
        from = at + 3;
    }
    strbuf_add(out, text + from, len - from);
}

static int add_unknown(struct encode_job *job, const char *character, size_t n, bool after_unknown)
{
    const struct tokenizer *tokenizer = job->tokenizer;
    bool has_bytes = true;
    int rc = 0;
    for (size_t i = 0; i < n; i++)
        has_bytes &= tokenizer->byte_ids[(unsigned char)character[i]] != VOCAB_NO_ID;
    if (!has_bytes) {
        if (tokenizer->unknown == VOCAB_NO_ID || (after_unknown && tokenizer->fuses_unknown))
            return 0;
        return bpe_add_symbol(&job->bpe, tokenizer->unknown);
    }
    for (size_t i = 0; i < n && rc == 0; i++)
        rc = bpe_add_symbol(&job->bpe, tokenizer->byte_ids[(unsigned char)character[i]]);
    return rc;
}

static int add_character(struct encode_job *job, const char *character, size_t n, bool *after_unknown)
{
    uint32_t id = tokenizer_vocab_find(&job->tokenizer->vocab, character, n);
    int rc = id != VOCAB_NO_ID ? bpe_add_symbol(&job->bpe, id) : add_unknown(job, character, n, *after_unknown);
    *after_unknown = id == VOCAB_NO_ID;
    return rc;
}

int sentencepiece_encode(struct encode_job *job, const char *text, size_t len, bool first)
{
    const struct tokenizer *tokenizer = job->tokenizer;
    bool after_unknown = false;
    unsigned char last = ' '; /* byte before the character at hand */
    int rc = 0;
    if (wants_prefix(tokenizer, text, len, first))
        rc = add_character(job, " ", 1, &after_unknown);
    for (size_t at = 0; at < len && rc == 0;) {
        uint32_t code;
        bool broken;
        size_t n = utf8_read(text + at, len - at, &code, &broken);
        bool is_space = code == ' ' || code == SPACE_MARK_CODE;
        /* No token reaches over this place: what is gathered so far can be joined alone, in little memory. */
        if (is_space && !tokenizer->joins_space[last])
            rc = tokenizer_join_symbols(job);
        if (rc == 0)
            rc = is_space ? add_character(job, " ", 1, &after_unknown) : add_character(job, text + at, n, &after_unknown);
        at += n;
        last = is_space ? ' ' : (unsigned char)text[at - 1];
    }
    return rc < 0 ? rc : tokenizer_join_symbols(job);
}

#include "core/model/tokenizer.h"

#include <stdlib.h>
#include <string.h>

#include "core/model/tokenizer_internal.h"
#include "core/model/unicode.h"

int token_list_add(struct token_list *list, uint32_t id)
{
    if (list->max && list->n >= list->max)
        return HS_ERR_RANGE;
    if (list->n == list->cap) {
        size_t cap = list->cap ? list->cap * 2 : 64;
        uint32_t *ids = reallocarray(list->ids, cap, sizeof *ids);
        if (!ids)
            return HS_ERR_NO_MEMORY;
        list->ids = ids;
        list->cap = cap;
    }
    list->ids[list->n++] = id;
    return 0;
}

void token_list_fini(struct token_list *list)
{
    free(list->ids);
    *list = (struct token_list){0};
}

int tokenizer_join_symbols(struct encode_job *job)
{
    size_t least = job->bpe.n_symbols / job->tokenizer->longest_token; /* a symbol is a byte or more */
    if (job->out->max && least > job->out->max - job->out->n)
        return HS_ERR_RANGE;
    return bpe_join(&job->bpe, &job->tokenizer->pairs, job->out);
}

static int encode_piece(struct encode_job *job, const char *piece, size_t len)
{
    const struct tokenizer *tokenizer = job->tokenizer;
    int rc = 0;
    if (tokenizer->ignore_merges) {
        uint32_t id = tokenizer_vocab_find(&tokenizer->vocab, piece, len);
        if (id != VOCAB_NO_ID)
            return token_list_add(job->out, id);
    }
    /* A byte that the vocabulary lacks leaves no token, as in Hugging Face's without an unknown token. */
    for (size_t i = 0; i < len && rc == 0; i++) {
        uint32_t id = tokenizer->byte_ids[(unsigned char)piece[i]];
        if (id == VOCAB_NO_ID)
            id = tokenizer->unknown;
        if (id != VOCAB_NO_ID)
            rc = bpe_add_symbol(&job->bpe, id);
    }
    return rc < 0 ? rc : tokenizer_join_symbols(job);
}

static int byte_level_encode(struct encode_job *job, const char *text, size_t len)
{
    int rc = pretokenize(&job->tokenizer->pre, text, len, &job->pieces);
    size_t start = 0;
    for (size_t i = 0; rc == 0 && i < job->pieces.n_ends; i++) {
        rc = encode_piece(job, text + start, job->pieces.ends[i] - start);
        start = job->pieces.ends[i];
    }
    return rc;
}

/* Ordinary text between special tokens. */
static int encode_ordinary(struct encode_job *job, const char *text, size_t len, bool first)
{
    if (len == 0)
        return 0;
    if (job->tokenizer->composes && !unicode_is_plainly_composed(text, len)) {
        strbuf_clear(&job->composed);
        int rc = unicode_compose(text, len, &job->composed);
        if (rc < 0)
            return rc;
        text = job->composed.data;
        len = job->composed.len;
    }
    if (job->tokenizer->kind == TOKENIZER_SENTENCEPIECE)
        return sentencepiece_encode(job, text, len, first);
    return byte_level_encode(job, text, len);
}

/* Valid UTF-8 text, in which control tokens count inside the ranges. */
static int encode_valid(struct encode_job *job, const char *text, size_t len, const struct special_range *control, size_t n_control)
{
    struct special_search search = {
        .set = &job->tokenizer->special, .text = text, .len = len, .control = control, .n_control = n_control};
    struct special_match match;
    size_t from = 0;
    int rc = 0;
    while (rc == 0 && special_search_next(&search, &match)) {
        rc = encode_ordinary(job, text + from, match.start - from, from == 0);
        if (rc == 0)
            rc = token_list_add(job->out, match.token->id);
        from = match.start + match.len;
    }
    return rc < 0 ? rc : encode_ordinary(job, text + from, len - from, from == 0);
}

/* Copies the spans one behind the other with broken UTF-8 replaced, and notes where control tokens count. */
static int gather_spans(const char *text, const struct tokenizer_span *spans, size_t n, struct strbuf *whole,
                        struct special_range *control, size_t *n_control)
{
    *n_control = 0;
    for (size_t i = 0; i < n; i++) {
        size_t start = whole->len;
        utf8_repair(text + spans[i].start, spans[i].len, whole);
        if (!spans[i].parse_special || whole->len == start)
            continue;
        if (*n_control && control[*n_control - 1].end == start)
            control[*n_control - 1].end = whole->len;
        else
            control[(*n_control)++] = (struct special_range){start, whole->len};
    }
    return whole->failed ? HS_ERR_NO_MEMORY : 0;
}

int tokenizer_encode_spans(const struct tokenizer *tokenizer, const char *text, const struct tokenizer_span *spans, size_t n,
                           bool add_bos, struct token_list *out)
{
    struct encode_job job = {.tokenizer = tokenizer, .out = out};
    struct strbuf whole = {0};
    size_t before = out->n, n_control, len = 0;
    int rc = 0;
    for (size_t i = 0; i < n; i++) {
        if (spans[i].len > TOKENIZER_MAX_BYTES - len)
            return HS_ERR_LIMIT;
        len += spans[i].len;
    }
    struct special_range *control = calloc(n + 1, sizeof *control);
    if (!control)
        return HS_ERR_NO_MEMORY;
    if (add_bos && tokenizer->adds_bos && tokenizer->bos != VOCAB_NO_ID)
        rc = token_list_add(out, tokenizer->bos);
    if (rc == 0)
        rc = gather_spans(text, spans, n, &whole, control, &n_control);
    if (rc == 0)
        rc = encode_valid(&job, strbuf_text(&whole), whole.len, control, n_control);
    if (rc < 0)
        out->n = before;
    bpe_scratch_fini(&job.bpe);
    pretokenize_scratch_fini(&job.pieces);
    strbuf_fini(&job.composed);
    strbuf_fini(&whole);
    free(control);
    return rc;
}

int tokenizer_encode(const struct tokenizer *tokenizer, const char *text, size_t len, unsigned flags, struct token_list *out)
{
    struct tokenizer_span span = {.len = len, .parse_special = flags & TOKENIZE_PARSE_SPECIAL};
    return tokenizer_encode_spans(tokenizer, text, &span, 1, flags & TOKENIZE_ADD_BOS, out);
}

const char *tokenizer_token_bytes(const struct tokenizer *tokenizer, uint32_t id, bool show_special, bool first, size_t *len)
{
    *len = 0;
    if (id >= tokenizer->vocab.n)
        return "";
    const struct vocab_entry *entry = &tokenizer->vocab.entries[id];
    if (entry->kind == VOCAB_ABSENT || (entry->kind == VOCAB_CONTROL && !show_special))
        return "";
    const char *bytes = tokenizer_vocab_bytes(&tokenizer->vocab, id);
    *len = entry->len;
    if (first && tokenizer->prefix != PREFIX_NEVER && entry->len && bytes[0] == ' ') {
        (*len)--;
        return bytes + 1;
    }
    return bytes;
}

uint32_t tokenizer_vocab_size(const struct tokenizer *tokenizer)
{
    return tokenizer->vocab.n;
}

bool tokenizer_is_special(const struct tokenizer *tokenizer, uint32_t id)
{
    return id < tokenizer->vocab.n && tokenizer->vocab.entries[id].kind == VOCAB_CONTROL;
}

uint32_t tokenizer_find_special(const struct tokenizer *tokenizer, const char *text)
{
    const struct special_token *token = special_tokens_get(&tokenizer->special, text, strlen(text));
    return token ? token->id : VOCAB_NO_ID;
}

uint32_t tokenizer_bos(const struct tokenizer *tokenizer)
{
    return tokenizer->bos;
}

uint32_t tokenizer_eos(const struct tokenizer *tokenizer)
{
    return tokenizer->eos;
}

bool tokenizer_adds_bos(const struct tokenizer *tokenizer)
{
    return tokenizer->adds_bos;
}

const uint32_t *tokenizer_stop_ids(const struct tokenizer *tokenizer, size_t *n)
{
    *n = tokenizer->n_stop_ids;
    return tokenizer->stop_ids;
}

void tokenizer_digest(const struct tokenizer *tokenizer, uint8_t out[32])
{
    memcpy(out, tokenizer->digest, 32);
}

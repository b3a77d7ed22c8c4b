/* What both loaders share: special tokens, stops, byte tokens, the digest. */
#include <sodium.h>
#include <stdlib.h>
#include <string.h>

#include "core/model/tokenizer_internal.h"
#include "core/model/unicode.h"

struct tokenizer *tokenizer_create(void)
{
    struct tokenizer *tokenizer = calloc(1, sizeof *tokenizer);
    if (!tokenizer)
        return NULL;
    tokenizer->bos = tokenizer->eos = tokenizer->unknown = VOCAB_NO_ID;
    memset(tokenizer->byte_ids, 0xFF, sizeof tokenizer->byte_ids);
    return tokenizer;
}

void tokenizer_destroy(struct tokenizer *tokenizer)
{
    if (!tokenizer)
        return;
    tokenizer_vocab_fini(&tokenizer->vocab);
    special_tokens_fini(&tokenizer->special);
    bpe_table_fini(&tokenizer->pairs);
    pretokenizer_fini(&tokenizer->pre);
    free(tokenizer);
}

static bool is_one_of(const char *const *names, size_t n, const char *text, size_t len)
{
    for (size_t i = 0; i < n; i++) {
        if (strlen(names[i]) == len && memcmp(names[i], text, len) == 0)
            return true;
    }
    return false;
}

static const char *const answer_ends[] = {"<|im_end|>",      "<|eot_id|>",    "<|eom_id|>",      "<|endoftext|>",
                                          "<|end_of_text|>", "<end_of_turn>", "<|end_of_turn|>", "<|end|>"};
static const char *const turn_starts[] = {"<|im_start|>", "<|start_header_id|>", "<|end_header_id|>", "<start_of_turn>",
                                          "<|begin_of_text|>"};

bool tokenizer_is_turn_mark(const char *text, size_t len)
{
    return is_one_of(turn_starts, sizeof turn_starts / sizeof turn_starts[0], text, len) ||
           is_one_of(answer_ends, sizeof answer_ends / sizeof answer_ends[0], text, len);
}

void tokenizer_add_stop(struct tokenizer *tokenizer, uint32_t id)
{
    if (id >= tokenizer->vocab.n || tokenizer->n_stop_ids == sizeof tokenizer->stop_ids / sizeof tokenizer->stop_ids[0])
        return;
    for (size_t i = 0; i < tokenizer->n_stop_ids; i++) {
        if (tokenizer->stop_ids[i] == id)
            return;
    }
    tokenizer->stop_ids[tokenizer->n_stop_ids++] = id;
}

int tokenizer_add_special(struct tokenizer *tokenizer, uint32_t id, const char *text, size_t len, unsigned flags)
{
    if (len == 0 || len > UINT32_MAX)
        return 0;
    if ((flags & SPECIAL_CONTROL) && is_one_of(answer_ends, sizeof answer_ends / sizeof answer_ends[0], text, len))
        tokenizer_add_stop(tokenizer, id);
    return special_tokens_add(&tokenizer->special, id, text, (uint32_t)len, flags);
}

/*
 * Byte-level vocabularies write each byte as a visible character (GPT-2's bytes_to_unicode): printable Latin-1 as itself, the
 * other 68 bytes as U+0100 and up, in order.
 */
static bool byte_is_itself(unsigned byte)
{
    return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

static int byte_of_code(uint32_t code)
{
    if (code < 0x100)
        return byte_is_itself(code) ? (int)code : -1;
    uint32_t shifted = 0x100;
    for (unsigned byte = 0; byte < 0x100; byte++) {
        if (!byte_is_itself(byte) && shifted++ == code)
            return (int)byte;
    }
    return -1;
}

bool byte_level_decode(const char *text, size_t len, struct strbuf *out)
{
    size_t before = out->len;
    for (size_t at = 0; at < len;) {
        uint32_t code;
        bool broken;
        at += utf8_read(text + at, len - at, &code, &broken);
        int byte = broken ? -1 : byte_of_code(code);
        if (byte < 0) {
            out->len = before;
            return false;
        }
        char c = (char)byte;
        strbuf_add(out, &c, 1);
    }
    return true;
}

int byte_token_value(const char *text, size_t len)
{
    int value = 0;
    if (len != 6 || memcmp(text, "<0x", 3) != 0 || text[5] != '>')
        return -1;
    for (int i = 3; i < 5; i++) {
        char c = text[i];
        int digit = c >= '0' && c <= '9' ? c - '0' : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
        if (digit < 0)
            return -1;
        value = value * 16 + digit;
    }
    return value;
}

int tokenizer_index(struct tokenizer *tokenizer)
{
    const struct tokenizer_vocab *vocab = &tokenizer->vocab;
    int rc = tokenizer_vocab_index(&tokenizer->vocab);
    if (rc < 0)
        return rc;
    special_tokens_sort(&tokenizer->special);
    tokenizer->longest_token = 1;
    for (uint32_t id = 0; id < vocab->n; id++)
        if (vocab->entries[id].len > tokenizer->longest_token)
            tokenizer->longest_token = vocab->entries[id].len;
    for (uint32_t id = 0; id < vocab->n && tokenizer->kind == TOKENIZER_SENTENCEPIECE; id++) {
        const unsigned char *bytes = (const unsigned char *)tokenizer_vocab_bytes(vocab, id);
        if (vocab->entries[id].kind == VOCAB_BYTE)
            tokenizer->byte_ids[bytes[0]] = id;
        for (uint32_t i = 1; i < vocab->entries[id].len; i++)
            tokenizer->joins_space[bytes[i - 1]] |= bytes[i] == ' ';
    }
    for (unsigned byte = 0; byte < 256 && tokenizer->kind == TOKENIZER_BYTE_LEVEL; byte++) {
        char c = (char)byte;
        tokenizer->byte_ids[byte] = tokenizer_vocab_find(vocab, &c, 1);
    }
    return 0;
}

static void hash_u64(crypto_generichash_state *state, uint64_t value)
{
    crypto_generichash_update(state, (const unsigned char *)&value, sizeof value);
}

/* The table's order of slots depends on how it grew, so pairs enter as a sum. */
static uint64_t sum_pairs(const struct bpe_table *pairs)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < pairs->cap; i++) {
        const struct bpe_pair *pair = &pairs->slots[i];
        if (pair->key == UINT64_MAX)
            continue;
        uint64_t value = pair->key * 0x9e3779b97f4a7c15ULL + ((uint64_t)pair->rank << 32 | pair->joined);
        value = (value ^ value >> 32) * 0xd6e8feb86659fd93ULL;
        sum += value ^ value >> 32;
    }
    return sum;
}

void tokenizer_compute_digest(struct tokenizer *tokenizer)
{
    const struct tokenizer_vocab *vocab = &tokenizer->vocab;
    crypto_generichash_state state;
    crypto_generichash_init(&state, NULL, 0, sizeof tokenizer->digest);
    hash_u64(&state, tokenizer->kind);
    hash_u64(&state, tokenizer->prefix);
    hash_u64(&state,
             tokenizer->composes | tokenizer->ignore_merges << 1 | tokenizer->fuses_unknown << 2 | tokenizer->adds_bos << 3);
    hash_u64(&state, (uint64_t)tokenizer->bos << 32 | tokenizer->eos);
    hash_u64(&state, tokenizer->unknown);
    crypto_generichash_update(&state, (const unsigned char *)tokenizer->joins_space, sizeof tokenizer->joins_space);
    for (uint32_t id = 0; id < vocab->n; id++) {
        hash_u64(&state, (uint64_t)vocab->entries[id].kind << 32 | vocab->entries[id].len);
        crypto_generichash_update(&state, (const unsigned char *)tokenizer_vocab_bytes(vocab, id), vocab->entries[id].len);
    }
    for (size_t i = 0; i < tokenizer->special.n; i++) {
        const struct special_token *token = &tokenizer->special.tokens[i];
        hash_u64(&state, (uint64_t)token->flags << 32 | token->id);
        crypto_generichash_update(&state, (const unsigned char *)token->text, token->len);
    }
    hash_u64(&state, tokenizer->pairs.n);
    hash_u64(&state, sum_pairs(&tokenizer->pairs));
    hash_u64(&state, tokenizer->pre.digest);
    crypto_generichash_final(&state, tokenizer->digest, sizeof tokenizer->digest);
}

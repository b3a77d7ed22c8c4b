#include "core/model/tokenizer_vocab.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"

static int reserve(struct tokenizer_vocab *vocab, uint32_t n)
{
    uint32_t cap = vocab->cap ? vocab->cap : 1024;
    if (n > VOCAB_MAX_TOKENS)
        return HS_ERR_LIMIT;
    while (cap < n)
        cap *= 2;
    if (cap == vocab->cap)
        return 0;
    struct vocab_entry *entries = reallocarray(vocab->entries, cap, sizeof *entries);
    if (!entries)
        return HS_ERR_NO_MEMORY;
    memset(entries + vocab->cap, 0, (cap - vocab->cap) * sizeof *entries);
    vocab->entries = entries;
    vocab->cap = cap;
    return 0;
}

int tokenizer_vocab_add(struct tokenizer_vocab *vocab, uint32_t id, const char *bytes, size_t len, enum vocab_kind kind)
{
    if (id >= VOCAB_MAX_TOKENS || len > UINT32_MAX - vocab->bytes.len)
        return HS_ERR_LIMIT;
    int rc = reserve(vocab, id + 1);
    if (rc < 0)
        return rc;
    struct vocab_entry entry = {(uint32_t)vocab->bytes.len, (uint32_t)len, kind};
    strbuf_add(&vocab->bytes, bytes, len);
    if (vocab->bytes.failed)
        return HS_ERR_NO_MEMORY;
    vocab->entries[id] = entry;
    if (id >= vocab->n)
        vocab->n = id + 1;
    return 0;
}

/* FNV-1a, folded: tokens are short. */
static size_t hash_bytes(const char *bytes, size_t len)
{
    uint64_t hash = 0xcbf29ce484222325ULL;
    for (size_t i = 0; i < len; i++)
        hash = (hash ^ (unsigned char)bytes[i]) * 0x100000001b3ULL;
    return (size_t)(hash ^ hash >> 29);
}

/* The place of these bytes in the index: taken, or empty where they belong. */
static uint32_t *find_place(const struct tokenizer_vocab *vocab, const char *bytes, size_t len)
{
    size_t at = hash_bytes(bytes, len) & (vocab->index_cap - 1);
    for (;; at = (at + 1) & (vocab->index_cap - 1)) {
        uint32_t id = vocab->index[at];
        if (id == VOCAB_NO_ID || (vocab->entries[id].len == len && memcmp(tokenizer_vocab_bytes(vocab, id), bytes, len) == 0))
            return &vocab->index[at];
    }
}

int tokenizer_vocab_index(struct tokenizer_vocab *vocab)
{
    size_t cap = 16;
    while (cap / 2 < vocab->n)
        cap *= 2;
    vocab->index = malloc(cap * sizeof *vocab->index);
    if (!vocab->index)
        return HS_ERR_NO_MEMORY;
    memset(vocab->index, 0xFF, cap * sizeof *vocab->index);
    vocab->index_cap = cap;
    for (uint32_t id = 0; id < vocab->n; id++) {
        const struct vocab_entry *entry = &vocab->entries[id];
        if (entry->kind != VOCAB_NORMAL || entry->len == 0)
            continue;
        uint32_t *place = find_place(vocab, tokenizer_vocab_bytes(vocab, id), entry->len);
        if (*place == VOCAB_NO_ID)
            *place = id;
    }
    return 0;
}

void tokenizer_vocab_fini(struct tokenizer_vocab *vocab)
{
    strbuf_fini(&vocab->bytes);
    free(vocab->entries);
    free(vocab->index);
    *vocab = (struct tokenizer_vocab){0};
}

uint32_t tokenizer_vocab_find(const struct tokenizer_vocab *vocab, const char *bytes, size_t len)
{
    return vocab->index_cap ? *find_place(vocab, bytes, len) : VOCAB_NO_ID;
}

/*
 * The vocabulary: the bytes that each token stands for, and ids by bytes.
 *
 *     bytes   | t h e | Ġ...decoded | < | i m _ s t a r t | ...       one block
 *     entries   [offset, len, kind]  by id
 *     index     hash of bytes -> id, of ordinary tokens only
 *
 * Filled by tokenizer_vocab_add, then indexed once. Threading: immutable afterwards. Errors: HS_ERR_NO_MEMORY, HS_ERR_LIMIT.
 */
#ifndef HEARSAY_MODEL_TOKENIZER_VOCAB_H
#define HEARSAY_MODEL_TOKENIZER_VOCAB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/strbuf.h"

#define VOCAB_NO_ID UINT32_MAX
/* Ids above this are taken for a damaged file (the largest vocabularies have 300,000). */
#define VOCAB_MAX_TOKENS (1u << 24)

enum vocab_kind {
    VOCAB_ABSENT,  /* a hole between ids */
    VOCAB_NORMAL,  /* made by joining */
    VOCAB_BYTE,    /* SentencePiece's stand-in for one byte, "<0x0A>" */
    VOCAB_ADDED,   /* found in text as a whole, shown as text */
    VOCAB_CONTROL, /* found where control tokens are wanted, not shown */
};

struct vocab_entry {
    uint32_t offset, len; /* in bytes */
    uint8_t kind;         /* enum vocab_kind */
};

/* Zero-initialise. */
struct tokenizer_vocab {
    struct strbuf bytes;
    struct vocab_entry *entries;
    uint32_t n, cap;
    uint32_t *index; /* open addressing, VOCAB_NO_ID: empty */
    size_t index_cap;
};

/* Sets token id, which may leave holes below it; a later call for the same id replaces the earlier one. */
int tokenizer_vocab_add(struct tokenizer_vocab *vocab, uint32_t id, const char *bytes, size_t len, enum vocab_kind kind);
/* Indexes the VOCAB_NORMAL tokens with len > 0; the lowest id stays where two have the same bytes. */
int tokenizer_vocab_index(struct tokenizer_vocab *vocab);
void tokenizer_vocab_fini(struct tokenizer_vocab *vocab);

/* The ordinary token with these bytes, or VOCAB_NO_ID. */
uint32_t tokenizer_vocab_find(const struct tokenizer_vocab *vocab, const char *bytes, size_t len);

static inline const char *tokenizer_vocab_bytes(const struct tokenizer_vocab *vocab, uint32_t id)
{
    return vocab->bytes.data + vocab->entries[id].offset;
}

#endif

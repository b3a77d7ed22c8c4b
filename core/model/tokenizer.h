/*
 * Text to token ids and back: byte-level BPE with the families' pre-tokenizers, and SentencePiece-style BPE.
 *
 * Immutable and thread-safe after load. Broken UTF-8 in text counts as U+FFFD for each maximal subpart (Unicode 15,
 * section 3.9). Ids equal those of Hugging Face `tokenizers` (tests/vectors).
 */
#ifndef HEARSAY_MODEL_TOKENIZER_H
#define HEARSAY_MODEL_TOKENIZER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/error.h"

struct tokenizer;
struct gguf;

/* A growable list of token ids; zero-initialise, token_list_fini frees. */
struct token_list {
    uint32_t *ids;
    size_t n, cap;
    size_t max; /* most that it takes; 0: no bound */
};

int token_list_add(struct token_list *list, uint32_t id); /* 0, HS_ERR_NO_MEMORY, or HS_ERR_RANGE (beyond max) */
void token_list_fini(struct token_list *list);

enum tokenizer_flags {
    TOKENIZE_ADD_BOS = 1,       /* put the begin token in front where the model's settings say so */
    TOKENIZE_PARSE_SPECIAL = 2, /* control tokens written out in the text ("<|im_end|>") become those tokens */
};

/* From a GGUF file's metadata; strings are copied. *out is freed with tokenizer_destroy. */
int tokenizer_from_gguf(const struct gguf *gguf, struct tokenizer **out, struct error *err);
/* From a Hugging Face folder: tokenizer.json, and tokenizer_config.json / generation_config.json where present. */
int tokenizer_from_folder(const char *folder, struct tokenizer **out, struct error *err);
void tokenizer_destroy(struct tokenizer *tokenizer);

/*
 * Appends the ids of text[len] to out. 0, HS_ERR_NO_MEMORY, HS_ERR_LIMIT (text above 64 MiB), or HS_ERR_RANGE (more than out->max
 * ids; found out early, so a bound also bounds the time).
 */
int tokenizer_encode(const struct tokenizer *tokenizer, const char *text, size_t len, unsigned flags, struct token_list *out);

#define TOKENIZER_MAX_BYTES ((size_t)64 << 20)

/* A part of a text: where control tokens count, or where they are only letters. */
struct tokenizer_span {
    size_t start, len;
    bool parse_special;
};

/*
 * The same for the concatenation of text's n spans: tokens may reach across the borders of spans, as if the text had been in
 * one piece; a control token counts only where it lies wholly in spans with parse_special.
 */
int tokenizer_encode_spans(const struct tokenizer *tokenizer, const char *text, const struct tokenizer_span *spans, size_t n,
                           bool add_bos, struct token_list *out);

/*
 * The bytes of one token, not NUL-terminated, valid as long as the tokenizer; "" and *len 0 for ids out of range and, unless
 * show_special, for control tokens. One character's bytes may span several tokens. first: no token went before it
 * (SentencePiece drops the leading space it added).
 */
const char *tokenizer_token_bytes(const struct tokenizer *tokenizer, uint32_t id, bool show_special, bool first, size_t *len);

uint32_t tokenizer_vocab_size(const struct tokenizer *tokenizer);
bool tokenizer_is_special(const struct tokenizer *tokenizer, uint32_t id);
/* The id of a special token by its text, or UINT32_MAX. */
uint32_t tokenizer_find_special(const struct tokenizer *tokenizer, const char *text);
uint32_t tokenizer_bos(const struct tokenizer *tokenizer); /* UINT32_MAX: none */
uint32_t tokenizer_eos(const struct tokenizer *tokenizer);
bool tokenizer_adds_bos(const struct tokenizer *tokenizer);
/* Every token that ends an answer (end of text, end of turn, ...): pointer to n ids owned by the tokenizer. */
const uint32_t *tokenizer_stop_ids(const struct tokenizer *tokenizer, size_t *n);
/* 32 bytes over vocabulary, merges and settings: part of the model's fingerprint. */
void tokenizer_digest(const struct tokenizer *tokenizer, uint8_t out[32]);

#endif

/*
 * The tokenizer as its loaders fill it (tokenizer_gguf.c, tokenizer_json.c) and encoding uses it (tokenizer.c).
 *
 * A loader creates an empty one, fills vocabulary and special tokens, calls tokenizer_index, adds pairs and settings, and calls
 * tokenizer_compute_digest.
 */
#ifndef HEARSAY_MODEL_TOKENIZER_INTERNAL_H
#define HEARSAY_MODEL_TOKENIZER_INTERNAL_H

#include "core/model/bpe.h"
#include "core/model/pretokenize.h"
#include "core/model/special_tokens.h"
#include "core/model/tokenizer.h"
#include "core/model/tokenizer_vocab.h"

enum tokenizer_kind {
    TOKENIZER_BYTE_LEVEL,    /* symbols are bytes; text is cut by a pre-tokenizer */
    TOKENIZER_SENTENCEPIECE, /* symbols are characters */
};

/* Where a space is put in front of text that does not bring one. */
enum tokenizer_prefix {
    PREFIX_NEVER,
    PREFIX_FIRST,             /* at the very start */
    PREFIX_EVERY,             /* at the start and after every special token */
    PREFIX_EVERY_UNLESS_THERE /* the same, unless a space stands there already */
};

struct tokenizer {
    enum tokenizer_kind kind;
    struct tokenizer_vocab vocab;
    struct special_tokens special;
    struct bpe_table pairs;
    struct pretokenizer pre;
    uint32_t byte_ids[256]; /* token of a byte, or VOCAB_NO_ID */
    uint32_t longest_token; /* bytes, at least 1 */
    bool joins_space[256];  /* SentencePiece: some token has this byte and a space behind it */
    enum tokenizer_prefix prefix;
    bool composes;       /* NFC first */
    bool ignore_merges;  /* a piece that is a token is taken as it is */
    bool fuses_unknown;  /* neighbouring unknown characters give one unknown token */
    bool adds_bos;
    uint32_t bos, eos; /* VOCAB_NO_ID: none */
    uint32_t unknown;  /* for symbols without a token; VOCAB_NO_ID: they are dropped */
    uint32_t stop_ids[32];
    size_t n_stop_ids;
    uint8_t digest[32];
};

struct tokenizer *tokenizer_create(void); /* NULL without memory */

/* Adds a token found in text as a whole; the vocabulary must be complete. Control tokens that are known to end answers become
 * stops. */
int tokenizer_add_special(struct tokenizer *tokenizer, uint32_t id, const char *text, size_t len, unsigned flags);
/* An id that ends an answer; VOCAB_NO_ID, unknown and repeated ones are ignored. */
void tokenizer_add_stop(struct tokenizer *tokenizer, uint32_t id);
/* Texts that open or end turns in one family or another: control tokens, whatever a file says of their kind. */
bool tokenizer_is_turn_mark(const char *text, size_t len);
/* Indexes vocabulary and special tokens and finds the tokens of single bytes: after the last token, before the first look-up. */
int tokenizer_index(struct tokenizer *tokenizer);
/* The last step. */
void tokenizer_compute_digest(struct tokenizer *tokenizer);

/* Turns a byte-level token's text ("Ġthe") into its bytes (" the"): appends to out; false, with out unchanged, if a character
 * stands for no byte. */
bool byte_level_decode(const char *text, size_t len, struct strbuf *out);
/* The value of SentencePiece's "<0x0A>", or -1. */
int byte_token_value(const char *text, size_t len);

/* Everything that one call of encode works with. */
struct encode_job {
    const struct tokenizer *tokenizer;
    struct token_list *out;
    struct bpe_scratch bpe;
    struct pretokenize_scratch pieces;
    struct strbuf composed; /* text in NFC */
};

/* Joins the symbols gathered in job->bpe and appends their ids; not even tried where out->max cannot hold them. */
int tokenizer_join_symbols(struct encode_job *job);
/* Appends the ids of ordinary text[len], len > 0. first: nothing precedes it. */
int sentencepiece_encode(struct encode_job *job, const char *text, size_t len, bool first);
/* Appends text[len] with U+2581 written as a plain space, as the vocabulary keeps it. */
void sentencepiece_plain_spaces(const char *text, size_t len, struct strbuf *out);
/* Derives the pairs from scores: two tokens join when their texts together are a token, the best score first. scores[vocab.n]. */
int sentencepiece_pairs(struct tokenizer *tokenizer, const float *scores);

#endif

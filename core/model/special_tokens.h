/*
 * The texts that stand for one token wherever they occur: control tokens ("<|im_end|>") and other added tokens, found in
 * text before anything else happens to it. The leftmost match wins, the longest among those that start there.
 *
 * Texts are kept sorted, and a search narrows the range of those that agree with the text byte by byte: no tree, little
 * memory, and a bound of (longest text) x log(number of texts) per position.
 *
 * Ownership: the set keeps its own copies of the texts. Threading: immutable after special_tokens_sort.
 */
#ifndef HEARSAY_MODEL_SPECIAL_TOKENS_H
#define HEARSAY_MODEL_SPECIAL_TOKENS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum special_flags {
    SPECIAL_CONTROL = 1,     /* counts only where control tokens are wanted */
    SPECIAL_STRIP_LEFT = 2,  /* takes white space before it along */
    SPECIAL_STRIP_RIGHT = 4, /* and after it */
    SPECIAL_WHOLE_WORD = 8,  /* not inside a word */
};

struct special_token {
    char *text;
    uint32_t len;
    uint32_t id;
    unsigned flags; /* enum special_flags */
};

/* Zero-initialise. */
struct special_tokens {
    struct special_token *tokens;
    size_t n, cap;
    bool starts[256]; /* first bytes */
};

/* len > 0. 0 or HS_ERR_NO_MEMORY. */
int special_tokens_add(struct special_tokens *set, uint32_t id, const char *text, uint32_t len, unsigned flags);
/* To be called once, after the last addition; of two with one text the lower id stays. */
void special_tokens_sort(struct special_tokens *set);
void special_tokens_fini(struct special_tokens *set);
/* By its whole text, or NULL. */
const struct special_token *special_tokens_get(const struct special_tokens *set, const char *text, size_t len);

struct special_match {
    const struct special_token *token;
    size_t start, len; /* in the text, stripped white space included */
};

/* Where control tokens count: [start, end). */
struct special_range {
    size_t start, end;
};

/* A walk over the matches in a text. Fill the first group, zero the rest. */
struct special_search {
    const struct special_tokens *set;
    const char *text; /* valid UTF-8 */
    size_t len;
    const struct special_range *control; /* ascending, apart from each other */
    size_t n_control;

    size_t at; /* everything before it was handed out */
    size_t range;
};

/* The next match: false at the end. Text between the matches is ordinary. */
bool special_search_next(struct special_search *search, struct special_match *out);

#endif

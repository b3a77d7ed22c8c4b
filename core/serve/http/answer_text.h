/*
 * Tokens to text as it may be shown: whole UTF-8 characters only, nothing of a stop string, nothing after it.
 *
 *     tokens   |Hel|lo\n|\nUs|er:|            stop "\nUser:"
 *     bytes    H e l l o \n \n U s e r :
 *     shown    H e l l o \n|<---- held --->   then, at ":", dropped: the answer is "Hello\n"
 *
 * A token is released when the last of its bytes is shown. When a stop string ends the text, the tokens that lie wholly in
 * it, or behind it, do not count: text, logprobs and usage are cut alike.
 *
 * Ownership: tokenizer and stop set are borrowed. Threading: belongs to one thread. Errors: running out of memory is sticky
 * in `failed`.
 */
#ifndef HEARSAY_SERVE_HTTP_ANSWER_TEXT_H
#define HEARSAY_SERVE_HTTP_ANSWER_TEXT_H

#include <stdbool.h>
#include <stdint.h>

#include "core/base/strbuf.h"
#include "core/model/tokenizer.h"
#include "core/serve/http/stop_strings.h"

struct answer_text {
    const struct tokenizer *tokenizer;
    struct stop_matcher matcher;
    uint32_t n_unchecked;  /* so many further tokens are not searched for stop strings (min_tokens); set after init */
    struct strbuf pending; /* bytes not shown yet */
    uint64_t shown;        /* bytes shown so far: pending begins there */
    uint64_t *token_ends;  /* where each waiting token's bytes end in the answer's text */
    size_t first_waiting, n_waiting, cap_waiting;
    uint64_t released_end; /* where the last released token ended, and so where the first waiting one begins */
    bool stopped; /* a stop string was completed */
    bool finished;
    bool failed;
};

void answer_text_init(struct answer_text *text, const struct tokenizer *tokenizer, const struct stop_set *stops);
void answer_text_fini(struct answer_text *text);

/* Takes the answer's next token. True when it completes a stop string; no more may follow then. */
bool answer_text_push(struct answer_text *text, uint32_t token);
/* No more tokens follow: nothing needs to be held any longer. The beginning of a character that never came is dropped. */
void answer_text_finish(struct answer_text *text);
/* Appends what may be shown now to out and returns how many further tokens, in order, were released. */
size_t answer_text_take(struct answer_text *text, struct strbuf *out);

#endif

/* Log probabilities in the two shapes of the API. Pure; appends JSON. */
#ifndef HEARSAY_SERVE_HTTP_API_LOGPROBS_H
#define HEARSAY_SERVE_HTTP_API_LOGPROBS_H

#include <stdbool.h>
#include <stdint.h>

#include "core/base/strbuf.h"
#include "core/model/tokenizer.h"
#include "core/port/backend.h"

struct api_token {
    uint32_t token;
    float logprob;
    bool scored; /* false for a prompt's first token, which nothing precedes: null */
    uint32_t n_top;
    const struct token_logprob *top;
};

/* {"content":[...]} as chat completions have it. */
void api_logprobs_write_chat(struct strbuf *out, const struct tokenizer *tokenizer, const struct api_token *tokens, size_t n);
/*
 * {"tokens":[...],"token_logprobs":...} as completions have it. *offset: where the first token begins in the answer's text, in
 * characters; moved behind the last.
 */
void api_logprobs_write_completion(struct strbuf *out, const struct tokenizer *tokenizer, const struct api_token *tokens, size_t n,
                                   uint64_t *offset);

#endif

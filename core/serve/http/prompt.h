/*
 * From a checked request to token ids. Pure over the immutable model; any thread.
 */
#ifndef HEARSAY_SERVE_HTTP_PROMPT_H
#define HEARSAY_SERVE_HTTP_PROMPT_H

#include "core/model/loaded_model.h"
#include "core/serve/http/api_request.h"

/* How many prompts the request has (a conversation is one). */
size_t prompt_count(const struct api_request *request);

/*
 * Appends the ids of prompt index. Control tokens count in the text of /v1/completions and /tokenize, where the client writes
 * the whole prompt, and never in what a chat message says. 0, or -1 with error filled. A prompt that is clearly longer than
 * n_context tokens is refused before much time goes into it; 0: none is.
 */
int prompt_tokenize(const struct api_request *request, size_t index, const struct loaded_model *model, uint32_t n_context,
                    struct token_list *out, struct api_error *error);

/* The text of n tokens: control tokens shown or not. */
void prompt_detokenize(const struct tokenizer *tokenizer, const uint32_t *ids, size_t n, bool show_special, struct strbuf *out);

/*
 * The cache namespace of a request: BLAKE2b-256 over the model's fingerprint (which covers the tokenizer), the tenant and the
 * salt, each behind its length. tenant NULL: tenants share.
 */
void prompt_namespace(const uint8_t fingerprint[32], const char *tenant, const char *salt, size_t salt_len, uint8_t out[32]);

#endif

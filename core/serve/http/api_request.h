/*
 * A request body of the API, read and checked: JSON in, plain struct out. Knows nothing of HTTP or of tokenizers.
 *
 * Unknown fields are ignored; known ones of a wrong type or range, and features that are not there, are a 400 that names
 * the field. Ownership: texts point into the JSON tree, which the struct keeps; api_request_fini frees all.
 * Threading: belongs to one thread.
 */
#ifndef HEARSAY_SERVE_HTTP_API_REQUEST_H
#define HEARSAY_SERVE_HTTP_API_REQUEST_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "core/model/chat_template.h"
#include "core/port/backend.h"
#include "core/serve/http/api_error.h"
#include "core/serve/http/stop_strings.h"

enum {
    API_CHOICES_MAX = 128,     /* prompts x n */
    API_DEPTH_MAX = 64,        /* nesting of a body */
    API_LOGIT_BIAS_MAX = 1024, /* entries */
    API_SALT_BYTES_MAX = 1024,
};

enum api_endpoint { API_COMPLETIONS, API_CHAT, API_TOKENIZE, API_DETOKENIZE };

struct api_limits {
    const char *model_id; /* another model in a request is a 404 */
    uint32_t n_vocab;
    uint32_t n_context;
};

/* Text, or token ids when text is NULL. */
struct api_prompt {
    const char *text;
    size_t len;
    uint32_t *ids;
    size_t n_ids;
};

struct api_request {
    enum api_endpoint endpoint;
    json_t *root;
    json_t *kept; /* texts put together from parts */
    struct api_prompt *prompts; /* completions, tokenize, detokenize */
    size_t n_prompts;
    struct chat_message *messages; /* chat, tokenize */
    size_t n_messages;
    uint32_t n;
    bool has_max_tokens;
    uint32_t max_tokens;
    bool stream, include_usage, continuous_usage;
    bool logprobs, echo, ignore_eos;
    bool has_seed;
    bool add_special_tokens, add_generation_prompt; /* tokenize */
    int32_t priority;
    struct sampling_params sampling; /* choice, seed and stop_ids are left to the caller */
    struct logit_bias *bias;         /* what sampling.bias points to */
    struct stop_set stops;
    const char *cache_salt;
    size_t cache_salt_len;
};

/* 0, or -1 with error filled and nothing to free. */
int api_request_parse(struct api_request *out, enum api_endpoint endpoint, const char *body, size_t len,
                      const struct api_limits *limits, struct api_error *error);
void api_request_fini(struct api_request *request);

#endif

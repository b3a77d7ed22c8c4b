/* Making an answer: prompts to tokens, a node request for each choice. */
#include "core/serve/http/answer.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/serve/http/prompt.h"

static int check_length(const struct answer *answer, size_t n_tokens, struct api_error *error)
{
    const struct api_request *api = &answer->api;
    const char *param = api->n_messages ? "messages" : "prompt";
    uint64_t room = answer->exchange->server->limits.n_context;
    if (!n_tokens)
        return api_error_set(error, 400, param, "invalid_value", "The prompt is empty: it has no tokens.");
    uint64_t wanted = api->has_max_tokens ? api->max_tokens : 1;
    if (n_tokens + wanted <= room)
        return 0;
    return api_error_set_limit(error, API_LIMIT_CONTEXT, 400, n_tokens < room ? "max_tokens" : param, "context_length_exceeded",
                         "The model's context has %llu tokens, but %llu were asked for: %zu in the prompt and %llu for the answer.",
                         (unsigned long long)room, (unsigned long long)(n_tokens + wanted), n_tokens, (unsigned long long)wanted);
}

static int make_prompt(struct answer *answer, size_t index, struct api_error *error)
{
    struct answer_prompt *prompt = &answer->prompts[index];
    const struct loaded_model *model = answer->exchange->server->config.model;
    uint32_t n_context = answer->exchange->server->limits.n_context;
    if (prompt_tokenize(&answer->api, index, model, n_context, &prompt->tokens, error) ||
        check_length(answer, prompt->tokens.n, error))
        return -1;
    if (!answer->api.echo)
        return 0;
    const struct api_prompt *given = &answer->api.prompts[index];
    if (given->text)
        strbuf_add(&prompt->text, given->text, given->len);
    else
        prompt_detokenize(model->tokenizer, given->ids, given->n_ids, false, &prompt->text);
    return prompt->text.failed ? api_error_set(error, 500, NULL, NULL, "Out of memory.") : 0;
}

/* The tenant of the request: header x-tenant-id, else "default". */
static int read_tenant(struct exchange *ex, char out[REQUEST_TENANT_BYTES], struct api_error *error)
{
    const char *given = MHD_lookup_connection_value(ex->connection, MHD_HEADER_KIND, "x-tenant-id");
    if (!given || !*given)
        given = "default";
    bool fit = strlen(given) < REQUEST_TENANT_BYTES;
    for (const char *c = given; fit && *c; c++)
        fit = isgraph((unsigned char)*c);
    if (!fit)
        return api_error_set_limit(error, strlen(given) < REQUEST_TENANT_BYTES ? API_LIMIT_NONE : API_LIMIT_TENANT_BYTES, 400,
                                   "x-tenant-id", "invalid_value",
                                   "The header x-tenant-id must have at most %d visible ASCII characters.", REQUEST_TENANT_BYTES - 1);
    snprintf(out, REQUEST_TENANT_BYTES, "%s", given);
    return 0;
}

static int make_choice(struct answer *answer, uint32_t index, const struct request *pattern)
{
    const struct api_request *api = &answer->api;
    struct answer_choice *choice = &answer->choices[index];
    choice->answer = answer;
    choice->index = index;
    choice->prompt = &answer->prompts[index / api->n];
    struct request *request = &choice->request;
    *request = *pattern;
    request->tokens = choice->prompt->tokens.ids;
    request->n_tokens = (uint32_t)choice->prompt->tokens.n;
    if (!api->has_max_tokens)
        request->max_tokens = answer->exchange->server->limits.n_context - request->n_tokens;
    if (request->sampling.min_tokens > request->max_tokens)
        request->sampling.min_tokens = request->max_tokens;
    request->sampling.choice = index % api->n;
    request->user = choice;
    answer_text_init(&choice->text, answer->head.tokenizer, &api->stops);
    choice->text.n_unchecked = request->sampling.min_tokens;
    uint32_t room = request->max_tokens;
    if (api->stream && room > ANSWER_STREAM_TOKENS)
        room = ANSWER_STREAM_TOKENS;
    uint32_t n_top = api->sampling.n_top_logprobs;
    int rc = token_ring_init(&choice->ring, room, n_top);
    if (!rc && request->score_prompt)
        rc = token_ring_init(&choice->scored, request->n_tokens, n_top);
    return rc;
}

/* What all choices' requests have in common. */
static int make_pattern(struct answer *answer, struct request *pattern, struct api_error *error)
{
    const struct api_request *api = &answer->api;
    const struct http_config *config = &answer->exchange->server->config;
    *pattern = (struct request){
        .max_tokens = api->max_tokens,
        .ignore_eos = api->ignore_eos,
        .score_prompt = api->echo && api->logprobs,
        .priority = api->priority,
        .sampling = api->sampling,
        .on_event = answer_on_event,
    };
    if (read_tenant(answer->exchange, pattern->tenant, error))
        return -1;
    if (!api->has_seed)
        pattern->sampling.seed = env_random_u64(config->env);
    size_t n_stop_ids;
    pattern->sampling.stop_ids = tokenizer_stop_ids(config->model->tokenizer, &n_stop_ids);
    pattern->sampling.n_stop_ids = (uint32_t)n_stop_ids;
    prompt_namespace(config->model->desc->fingerprint, config->isolate_tenants ? pattern->tenant : NULL, api->cache_salt,
                     api->cache_salt_len, pattern->namespace_id);
    return 0;
}

static void make_head(struct answer *answer)
{
    const struct http_server *server = answer->exchange->server;
    const struct http_config *config = &server->config;
    bool chat = answer->api.endpoint == API_CHAT;
    snprintf(answer->id, sizeof answer->id, "%s-%016llx", chat ? "chatcmpl" : "cmpl", (unsigned long long)env_random_u64(config->env));
    answer->head = (struct api_answer_head){
        .chat = chat,
        .id = answer->id,
        .model = server->model_id,
        .fingerprint = server->fingerprint,
        .created = config->unix_time_s(config->unix_time_arg),
        .tokenizer = config->model->tokenizer,
    };
}

int answer_create(struct exchange *ex, struct api_request *api, struct answer **out, struct api_error *error)
{
    struct answer *answer = calloc(1, sizeof *answer);
    if (!answer) {
        api_request_fini(api);
        return api_error_set(error, 500, NULL, NULL, "Out of memory.");
    }
    answer->exchange = ex;
    answer->api = *api;
    *api = (struct api_request){0};
    answer->wake_each = answer->api.stream || answer->api.stops.n;
    make_head(answer);
    answer->n_prompts = prompt_count(&answer->api);
    answer->n_choices = (uint32_t)answer->n_prompts * answer->api.n;
    answer->prompts = calloc(answer->n_prompts, sizeof *answer->prompts);
    answer->choices = calloc(answer->n_choices, sizeof *answer->choices);
    if (!answer->prompts || !answer->choices)
        goto no_memory;
    for (size_t i = 0; i < answer->n_prompts; i++)
        if (make_prompt(answer, i, error))
            goto fail;
    struct request pattern;
    if (make_pattern(answer, &pattern, error))
        goto fail;
    for (uint32_t i = 0; i < answer->n_choices; i++)
        if (make_choice(answer, i, &pattern))
            goto no_memory;
    *out = answer;
    return 0;
no_memory:
    api_error_set(error, 500, NULL, NULL, "Out of memory.");
fail:
    answer_destroy(answer);
    return -1;
}

void answer_destroy(struct answer *answer)
{
    if (!answer)
        return;
    for (uint32_t i = 0; answer->choices && i < answer->n_choices; i++) {
        struct answer_choice *choice = &answer->choices[i];
        token_ring_fini(&choice->ring);
        token_ring_fini(&choice->scored);
        answer_text_fini(&choice->text);
        free(choice->tokens);
        free(choice->tops);
    }
    for (size_t i = 0; answer->prompts && i < answer->n_prompts; i++) {
        token_list_fini(&answer->prompts[i].tokens);
        strbuf_fini(&answer->prompts[i].text);
    }
    free(answer->choices);
    free(answer->prompts);
    api_request_fini(&answer->api);
    free(answer);
}

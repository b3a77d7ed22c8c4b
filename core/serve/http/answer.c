#include "core/serve/http/answer.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/serve/http/prompt.h"

/* ---- making ---- */

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
    return api_error_set(error, 400, n_tokens < room ? "max_tokens" : param, "context_length_exceeded",
                         "The model's context has %llu tokens, but %llu were asked for: %zu in the prompt and %llu for the answer.",
                         (unsigned long long)room, (unsigned long long)(n_tokens + wanted), n_tokens, (unsigned long long)wanted);
}

static int make_prompt(struct answer *answer, size_t index, struct api_error *error)
{
    struct answer_prompt *prompt = &answer->prompts[index];
    const struct loaded_model *model = answer->exchange->server->config.model;
    if (prompt_tokenize(&answer->api, index, model, &prompt->tokens, error) || check_length(answer, prompt->tokens.n, error))
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
        return api_error_set(error, 400, "x-tenant-id", "invalid_value",
                             "The header x-tenant-id must have fewer than %d visible ASCII characters.", REQUEST_TENANT_BYTES);
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

/* ---- to the node ---- */

void answer_submit(struct answer *answer)
{
    struct exchange *ex = answer->exchange;
    for (uint32_t i = 0; i < answer->n_choices; i++) {
        struct answer_choice *choice = &answer->choices[i];
        exchange_ref(ex); /* the request's, until its last event */
        pthread_mutex_lock(&ex->lock);
        choice->submitted = true;
        pthread_mutex_unlock(&ex->lock);
        int rc = node_inbox_submit(ex->server->config.inbox, &choice->request);
        if (!rc)
            continue;
        pthread_mutex_lock(&ex->lock);
        choice->submitted = false;
        choice->ended = true;
        choice->status = rc;
        choice->retry_after_s = 1;
        snprintf(choice->failure, sizeof choice->failure, "%s",
                 rc == HS_ERR_BUSY ? "Too many requests are waiting; try again." : "This node is draining; use another one.");
        ex->news = true;
        pthread_mutex_unlock(&ex->lock);
        exchange_unref(ex);
        break;
    }
}

static void cancel_choice(struct answer_choice *choice)
{
    struct exchange *ex = choice->answer->exchange;
    pthread_mutex_lock(&ex->lock);
    bool under_way = choice->submitted && !choice->ended && !choice->canceled;
    choice->canceled |= under_way;
    pthread_mutex_unlock(&ex->lock);
    if (under_way)
        node_inbox_cancel(ex->server->config.inbox, &choice->request);
}

void answer_cancel(struct answer *answer)
{
    for (uint32_t i = 0; answer && i < answer->n_choices; i++)
        cancel_choice(&answer->choices[i]);
}

/* ---- from the node ---- */

static void count_failure(struct answer_choice *choice, bool canceled, bool stopped)
{
    const struct http_metrics *metrics = &choice->answer->exchange->server->metrics;
    counter_add(!canceled ? metrics->finished_error : stopped ? metrics->finished_stop : metrics->finished_abort, 1);
}

/* Takes an event in under the lock. False: no room. */
static bool take_event(struct answer_choice *choice, const struct request_event *event)
{
    struct answer *answer = choice->answer;
    bool room = true;
    switch (event->kind) {
    case REQUEST_STARTED:
        if (!choice->started)
            choice->cached_tokens = event->cached_tokens;
        choice->started = true;
        if (!answer->computed_by[0] && event->computed_by)
            snprintf(answer->computed_by, sizeof answer->computed_by, "%s", event->computed_by);
        break;
    case REQUEST_SCORED:
        for (uint32_t i = 0; i < event->n_results && !choice->canceled; i++)
            room &= token_ring_push(&choice->scored, &event->results[i]);
        break;
    case REQUEST_TOKENS:
        for (uint32_t i = 0; i < event->n_results && !choice->canceled && room; i++)
            room = token_ring_push(&choice->ring, &event->results[i]);
        break;
    case REQUEST_FINISHED:
        choice->ended = true;
        choice->reason = event->reason;
        break;
    case REQUEST_FAILED:
        choice->ended = true;
        choice->status = event->status ? event->status : HS_ERR_IO;
        choice->retry_after_s = event->retry_after_s;
        snprintf(choice->failure, sizeof choice->failure, "%s", event->text ? event->text : "");
        break;
    }
    choice->overflowed |= !room;
    return room;
}

bool answer_on_event(void *user, struct request *request, const struct request_event *event)
{
    struct answer_choice *choice = user;
    struct exchange *ex = choice->answer->exchange;
    bool final = event->kind == REQUEST_FINISHED || event->kind == REQUEST_FAILED;
    pthread_mutex_lock(&ex->lock);
    bool room = take_event(choice, event);
    bool canceled = choice->canceled, stopped = choice->stop_found;
    if (final || (event->kind == REQUEST_TOKENS && choice->answer->wake_each))
        exchange_wake_locked(ex);
    pthread_mutex_unlock(&ex->lock);
    if (event->kind == REQUEST_FAILED)
        count_failure(choice, canceled, stopped);
    if (final)
        exchange_unref(ex);
    return room;
}

/* ---- tokens to text ---- */

/* Remembers a token for the logprobs of a later part. */
static bool remember(struct answer_choice *choice, const struct api_token *token)
{
    size_t n_top = choice->request.sampling.n_top_logprobs;
    if (choice->n_tokens == choice->cap_tokens) {
        size_t cap = choice->cap_tokens ? choice->cap_tokens * 2 : 16;
        struct api_token *tokens = realloc(choice->tokens, cap * sizeof *tokens);
        if (!tokens)
            return false;
        choice->tokens = tokens;
        if (n_top) {
            struct token_logprob *tops = realloc(choice->tops, cap * n_top * sizeof *tops);
            if (!tops)
                return false;
            choice->tops = tops;
        }
        choice->cap_tokens = cap;
    }
    if (token->n_top)
        memcpy(choice->tops + choice->n_tokens * n_top, token->top, token->n_top * sizeof *token->top);
    choice->tokens[choice->n_tokens++] = *token;
    return true;
}

/* The prompt's own tokens go in front, once: the first unscored, the others as the node scored them. */
static bool remember_prompt(struct answer_choice *choice)
{
    const struct token_list *tokens = &choice->prompt->tokens;
    if (!remember(choice, &(struct api_token){.token = tokens->ids[0]}))
        return false;
    struct exchange *ex = choice->answer->exchange;
    bool good = true;
    pthread_mutex_lock(&ex->lock);
    for (size_t i = 1; i < tokens->n && good; i++) {
        struct token_logprob chosen, top[BACKEND_MAX_TOP_LOGPROBS];
        struct api_token token = {.token = tokens->ids[i], .top = top};
        token.scored = token_ring_pop(&choice->scored, &chosen, top, &token.n_top);
        if (token.scored)
            token.logprob = chosen.logprob;
        good = remember(choice, &token);
    }
    pthread_mutex_unlock(&ex->lock);
    choice->n_echo = tokens->n;
    return good;
}

struct taken {
    bool token; /* there was one */
    struct token_logprob chosen;
    struct token_logprob top[BACKEND_MAX_TOP_LOGPROBS];
    uint32_t n_top;
    bool ended; /* and nothing is left */
};

static void take(struct answer_choice *choice, struct taken *taken)
{
    struct exchange *ex = choice->answer->exchange;
    pthread_mutex_lock(&ex->lock);
    taken->n_top = 0;
    taken->token = token_ring_pop(&choice->ring, &taken->chosen, taken->top, &taken->n_top);
    taken->ended = !taken->token && choice->ended;
    pthread_mutex_unlock(&ex->lock);
}

/* One token into text and memory. False: out of memory. */
static bool add_token(struct answer_choice *choice, const struct taken *taken)
{
    if (choice->answer->api.logprobs) {
        struct api_token token = {taken->chosen.token, taken->chosen.logprob, true, taken->n_top, taken->top};
        if (!remember(choice, &token))
            return false;
    }
    if (answer_text_push(&choice->text, taken->chosen.token)) {
        struct exchange *ex = choice->answer->exchange;
        choice->complete = true;
        pthread_mutex_lock(&ex->lock);
        choice->stop_found = true;
        pthread_mutex_unlock(&ex->lock);
        cancel_choice(choice);
    }
    return !choice->text.failed;
}

static bool fail_with(const struct answer_choice *choice, struct api_error *error)
{
    int http = 500;
    const char *code = NULL, *text = choice->failure[0] ? choice->failure : error_name(choice->status);
    if (choice->overflowed) {
        http = 503;
        text = "The stream was read too slowly and was ended.";
    } else if (choice->status == HS_ERR_BUSY) {
        http = 429;
        code = "overloaded";
    } else if (choice->status == HS_ERR_LIMIT || choice->status == HS_ERR_INVALID || choice->status == HS_ERR_RANGE) {
        http = 400;
        code = "request_too_large";
    } else if (choice->status == HS_ERR_CLOSED || choice->status == HS_ERR_CANCELED || choice->status == HS_ERR_TIMEOUT) {
        http = 503;
    }
    api_error_set(error, http, NULL, code, "%s", text);
    if (http == 429)
        error->retry_after_s = choice->retry_after_s ? choice->retry_after_s : 1;
    return true;
}

bool answer_choice_advance(struct answer_choice *choice, struct api_error *error)
{
    while (!choice->complete) {
        struct taken taken;
        take(choice, &taken);
        if (!taken.token && !taken.ended)
            return false;
        if (taken.ended && choice->status) /* fixed once ended */
            return fail_with(choice, error);
        bool good = true;
        if (!choice->moving && choice->request.score_prompt)
            good = remember_prompt(choice);
        choice->moving = true;
        if (taken.ended) {
            answer_text_finish(&choice->text);
            choice->complete = true;
        } else {
            good = good && add_token(choice, &taken);
        }
        if (!good) {
            api_error_set(error, 500, NULL, NULL, "Out of memory.");
            return true;
        }
    }
    return false;
}

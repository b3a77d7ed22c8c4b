/* From the node's tokens to the text of a choice. */
#include "core/serve/http/answer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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
        answer_choice_cancel(choice);
    }
    return !choice->text.failed;
}

static bool fail_with(const struct answer_choice *choice, struct api_error *error)
{
    int http = 500;
    char slow[120];
    const char *code = NULL, *text = choice->failure[0] ? choice->failure : error_name(choice->status);
    if (choice->overflowed) {
        http = 503;
        snprintf(slow, sizeof slow, "The stream was read too slowly and was ended: at most %d tokens wait for a reader.",
                 ANSWER_STREAM_TOKENS);
        text = slow;
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

#include "core/null/null_model.h"

#include <math.h>

#include "core/base/rng.h"

#define LN2 0.69314718055994530942

uint64_t null_model_advance(uint64_t state, uint32_t token)
{
    uint64_t x = state * 0xd1342543de82ef95u + token + 1; /* token 0 counts, too */
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

static bool is_stop(const struct null_backend_config *config, const struct sampling_params *sampling, uint32_t token)
{
    if (config->stop_every > 0 && token == config->stop_id)
        return true;
    for (uint32_t i = 0; i < sampling->n_stop_ids; i++)
        if (sampling->stop_ids[i] == token)
            return true;
    return false;
}

/* The first n ranks' tokens. Stop tokens occur where the state says so and nowhere else. */
static void rank_tokens(const struct null_backend_config *config, const struct sampling_params *sampling, uint64_t state,
                        uint32_t n_answer, uint32_t n, uint32_t *out)
{
    uint64_t drawn = null_model_advance(state, UINT32_MAX - 1);
    uint32_t token = (uint32_t)(drawn % config->n_vocab), rank = 0;
    if (config->stop_every > 0 && (drawn >> 32) % config->stop_every == 0 && n_answer >= sampling->min_tokens)
        out[rank++] = config->stop_id;
    for (; rank < n; token = token + 1 < config->n_vocab ? token + 1 : 0)
        if (!is_stop(config, sampling, token))
            out[rank++] = token;
}

uint32_t null_model_choose(const struct null_backend_config *config, const struct sampling_params *sampling, uint64_t state,
                           uint32_t position, uint32_t n_answer)
{
    uint32_t tokens[NULL_MODEL_RANKS], rank = 0;
    rank_tokens(config, sampling, state, n_answer, NULL_MODEL_RANKS, tokens);
    if (sampling->temperature > 0.0f) {
        const uint32_t key[2] = {(uint32_t)sampling->seed, (uint32_t)(sampling->seed >> 32)};
        const uint32_t counter[4] = {position, sampling->choice, (uint32_t)state, (uint32_t)(state >> 32)};
        uint32_t bits[4];
        philox4x32(key, counter, bits);
        rank = bits[0] ? (uint32_t)__builtin_clz(bits[0]) : 31; /* r zeros in front have probability 2^-(r+1) */
        if (rank >= NULL_MODEL_RANKS)
            rank = NULL_MODEL_RANKS - 1;
    }
    return tokens[rank];
}

static float rank_logprob(uint32_t rank)
{
    return (float)(-LN2 * (rank + 1));
}

static float rest_logprob(const struct null_backend_config *config)
{
    return (float)(-LN2 * NULL_MODEL_RANKS - log((double)(config->n_vocab - NULL_MODEL_RANKS)));
}

void null_model_score(const struct null_backend_config *config, const struct sampling_params *sampling, uint64_t state,
                      uint32_t n_answer, struct row_result *out)
{
    uint32_t tokens[NULL_MODEL_RANKS];
    out->logprob = 0;
    out->n_top = 0;
    if (!sampling->logprobs)
        return;
    rank_tokens(config, sampling, state, n_answer, NULL_MODEL_RANKS, tokens);
    out->logprob = rest_logprob(config);
    for (uint32_t rank = 0; rank < NULL_MODEL_RANKS; rank++) {
        if (tokens[rank] == out->token)
            out->logprob = rank_logprob(rank);
        if (rank < sampling->n_top_logprobs)
            out->top[out->n_top++] = (struct token_logprob){.token = tokens[rank], .logprob = rank_logprob(rank)};
    }
}

void null_model_logits(const struct null_backend_config *config, const struct sampling_params *sampling, uint64_t state,
                       uint32_t n_answer, float *out)
{
    uint32_t tokens[NULL_MODEL_RANKS];
    rank_tokens(config, sampling, state, n_answer, NULL_MODEL_RANKS, tokens);
    for (uint32_t token = 0; token < config->n_vocab; token++)
        out[token] = rest_logprob(config);
    for (uint32_t rank = 0; rank < NULL_MODEL_RANKS; rank++)
        out[tokens[rank]] = rank_logprob(rank);
}

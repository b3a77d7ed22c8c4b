#include "core/cpu/sample.h"

#include <math.h>
#include <stdlib.h>

#include "core/base/panic.h"
#include "core/base/rng.h"
#include "core/cpu/sample_math.h"
#include "core/cpu/sample_scratch.h"

struct choice {
    uint32_t token;
    double score;
};

struct sample_scratch *sample_scratch_create(uint32_t n_vocab)
{
    struct sample_scratch *scratch = calloc(1, sizeof *scratch);
    if (!scratch)
        return NULL;
    scratch->n_vocab = n_vocab;
    scratch->kernels = sample_kernels_best();
    scratch->adjusted = calloc(n_vocab, sizeof *scratch->adjusted);
    scratch->counts = calloc(n_vocab, sizeof *scratch->counts);
    scratch->keys = calloc(n_vocab, sizeof *scratch->keys);
    scratch->sorting = calloc(n_vocab, sizeof *scratch->sorting);
    if (!scratch->adjusted || !scratch->counts || !scratch->keys || !scratch->sorting) {
        sample_scratch_destroy(scratch);
        return NULL;
    }
    return scratch;
}

void sample_scratch_destroy(struct sample_scratch *scratch)
{
    if (!scratch)
        return;
    free(scratch->adjusted);
    free(scratch->counts);
    free(scratch->keys);
    free(scratch->sorting);
    free(scratch);
}

static void noise_bits(uint64_t seed, uint32_t choice, uint32_t position, uint32_t token, uint32_t out[SAMPLE_TOKENS_PER_CALL])
{
    const uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    const uint32_t counter[4] = {token / SAMPLE_TOKENS_PER_CALL, position, choice, 0};
    philox4x32(key, counter, out);
}

static float gumbel(uint32_t bits)
{
    double u = ((double)bits + 0.5) * 0x1p-32; /* inside (0, 1) */
    return (float)-sample_log(-sample_log(u));
}

float sample_noise(uint64_t seed, uint32_t choice, uint32_t position, uint32_t token)
{
    uint32_t bits[SAMPLE_TOKENS_PER_CALL];
    noise_bits(seed, choice, position, token, bits);
    return gumbel(bits[token % SAMPLE_TOKENS_PER_CALL]);
}

static void consider(struct choice *best, uint32_t token, double score)
{
    if (score > best->score || (score == best->score && token < best->token)) {
        best->token = token;
        best->score = score;
    }
}

static double score_of(const struct sampling_params *sampling, uint32_t position, uint32_t token, float logit)
{
    return (double)logit + (double)sampling->temperature * (double)sample_noise(sampling->seed, sampling->choice, position, token);
}

/*
 * Among all tokens. The likeliest one's score comes first; then few blocks hold a logit that any noise could lift above it, of
 * those few a token whose own noise might, and only such a token's logarithms are computed.
 */
static uint32_t choose_among_all(const float *logits, uint32_t n_vocab, uint32_t likeliest, uint32_t position,
                                 const struct sampling_params *sampling, const struct sample_kernels *kernels)
{
    const struct sample_noise_key key = {.seed = sampling->seed, .choice = sampling->choice, .position = position};
    const double temperature = sampling->temperature, most = temperature * SAMPLE_NOISE_RANGE;
    struct choice best = {.token = likeliest, .score = score_of(sampling, position, likeliest, logits[likeliest])};
    const double rounding = 1e-5 * (fabs(best.score) + most); /* of the bounds, which are floats */
    for (uint32_t first = 0; first < n_vocab; first += SAMPLE_BLOCK) {
        float padded[SAMPLE_BLOCK], upper[SAMPLE_BLOCK];
        uint32_t bits[SAMPLE_BLOCK];
        const float *x = logits + first;
        if (n_vocab - first < SAMPLE_BLOCK) {
            for (uint32_t i = 0; i < SAMPLE_BLOCK; i++)
                padded[i] = i < n_vocab - first ? x[i] : -INFINITY;
            x = padded;
        }
        if ((double)kernels->max_block(x) + most < best.score)
            continue;
        if ((double)kernels->bound_block(x, sampling->temperature, &key, first, bits, upper) + rounding < best.score)
            continue;
        for (uint32_t i = 0; i < SAMPLE_BLOCK; i++)
            if ((double)upper[i] + rounding >= best.score)
                consider(&best, first + i, (double)x[i] + temperature * (double)gumbel(bits[i]));
    }
    return best.token;
}

static uint32_t choose_among_keys(const struct sample_scratch *scratch, uint32_t n, uint32_t position,
                                  const struct sampling_params *sampling)
{
    struct choice best = {.token = UINT32_MAX, .score = -INFINITY};
    for (uint32_t i = 0; i < n; i++) {
        uint32_t token = sample_key_token(scratch->keys[i]);
        consider(&best, token, score_of(sampling, position, token, sample_key_logit(scratch->keys[i])));
    }
    return best.token;
}

/* position: of the token to choose. */
static uint32_t choose(const float *logits, uint32_t n_vocab, uint32_t position, const struct sampling_params *sampling,
                       struct sample_scratch *scratch)
{
    uint32_t likeliest = scratch->kernels->argmax(logits, n_vocab);
    double max = logits[likeliest];
    if (!(sampling->temperature > 0.0f) || !isfinite(max))
        return likeliest;
    if (sampling->top_k == 0 && sampling->top_p >= 1.0f && sampling->min_p <= 0.0f)
        return choose_among_all(logits, n_vocab, likeliest, position, sampling, scratch->kernels);
    return choose_among_keys(scratch, sample_filter(logits, max, sampling, scratch), position, sampling);
}

/* The n_wanted largest logits, best first; a later id loses against an equal earlier one. */
static uint32_t find_top(const float *logits, uint32_t n_vocab, uint32_t n_wanted, struct token_logprob *top)
{
    uint32_t n = 0;
    for (uint32_t token = 0; token < n_vocab; token++) {
        float logit = logits[token];
        if (n == n_wanted && !(logit > top[n - 1].logprob))
            continue;
        uint32_t at = n < n_wanted ? n++ : n - 1;
        for (; at > 0 && logit > top[at - 1].logprob; at--)
            top[at] = top[at - 1];
        top[at] = (struct token_logprob){.token = token, .logprob = logit};
    }
    return n;
}

static void fill_logprobs(const float *logits, uint32_t n_vocab, const struct sampling_params *sampling, struct row_result *out,
                          const struct sample_scratch *scratch)
{
    double max = logits[scratch->kernels->argmax(logits, n_vocab)];
    double log_sum = sample_log(scratch->kernels->sum_exp(logits, n_vocab, max, 1.0));
    uint32_t n_wanted = sampling->n_top_logprobs < BACKEND_MAX_TOP_LOGPROBS ? sampling->n_top_logprobs : BACKEND_MAX_TOP_LOGPROBS;
    out->logprob = (float)((double)logits[out->token] - max - log_sum);
    if (n_wanted == 0)
        return;
    out->n_top = find_top(logits, n_vocab, n_wanted, out->top);
    for (uint32_t i = 0; i < out->n_top; i++)
        out->top[i].logprob = (float)((double)out->top[i].logprob - max - log_sum);
}

void sample_row(const float *logits, uint32_t n_vocab, const struct step_span *span, uint32_t output_index, struct row_result *out,
                struct sample_scratch *scratch)
{
    hs_assert(n_vocab == scratch->n_vocab && output_index < span->n_outputs && span->n_outputs <= span->n_tokens);
    uint32_t position = span->position + span->n_tokens - span->n_outputs + output_index;
    out->logprob = 0;
    out->n_top = 0;
    if (span->targets)
        out->token = span->targets[output_index];
    else
        out->token = choose(sample_adjust(logits, span, position, scratch), n_vocab, position + 1, span->sampling, scratch);
    hs_assert(out->token < n_vocab);
    if (span->sampling->logprobs)
        fill_logprobs(logits, n_vocab, span->sampling, out, scratch);
}

#include <math.h>
#include <string.h>

#include "core/cpu/sample_math.h"
#include "core/cpu/sample_scratch.h"

/* Temperatures below the best within which most filters find all they keep. */
#define FIRST_RANGE 6.0

/* Bits per pass of the radix sort; three passes cover a float. */
enum { RADIX_BITS = 11, RADIX = 1 << RADIX_BITS, FEW_KEYS = 32 };

/* Floats as unsigned numbers in descending order; both zeros are one value. */
static uint64_t key_of(float logit, uint32_t token)
{
    float x = logit + 0.0f;
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    bits ^= bits >> 31 ? UINT32_MAX : 0x80000000u;
    return (uint64_t)~bits << 32 | token;
}

float sample_key_logit(uint64_t key)
{
    uint32_t bits = ~(uint32_t)(key >> 32);
    bits ^= bits >> 31 ? 0x80000000u : UINT32_MAX;
    float logit;
    memcpy(&logit, &bits, sizeof logit);
    return logit;
}

static bool has_penalties(const struct sampling_params *sampling)
{
    return sampling->repetition_penalty != 1.0f || sampling->presence_penalty != 0.0f || sampling->frequency_penalty != 0.0f;
}

static void penalise(float *logit, uint32_t n_in_answer, const struct sampling_params *sampling)
{
    *logit = *logit > 0.0f ? *logit / sampling->repetition_penalty : *logit * sampling->repetition_penalty;
    if (n_in_answer > 0)
        *logit -= sampling->presence_penalty + (float)n_in_answer * sampling->frequency_penalty;
}

/* counts[token] is 1 + its number in the answer while it waits for its turn, 0 once it had it: so each token is treated once. */
static void apply_penalties(float *adjusted, const struct step_span *span, uint32_t position, struct sample_scratch *scratch)
{
    uint32_t n_history = position + 1;
    for (uint32_t i = 0; i < n_history; i++) {
        uint32_t token = span->history[i];
        if (token < scratch->n_vocab) {
            uint32_t *count = &scratch->counts[token];
            *count = (*count ? *count : 1) + (i >= span->n_prompt);
        }
    }
    for (uint32_t i = 0; i < n_history; i++) {
        uint32_t token = span->history[i];
        if (token < scratch->n_vocab && scratch->counts[token]) {
            penalise(&adjusted[token], scratch->counts[token] - 1, span->sampling);
            scratch->counts[token] = 0;
        }
    }
}

const float *sample_adjust(const float *logits, const struct step_span *span, uint32_t position, struct sample_scratch *scratch)
{
    const struct sampling_params *sampling = span->sampling;
    uint32_t n_answer = position + 1 > span->n_prompt ? position + 1 - span->n_prompt : 0;
    bool bar_stop = sampling->n_stop_ids > 0 && n_answer < sampling->min_tokens;
    if (!bar_stop && sampling->n_bias == 0 && !has_penalties(sampling))
        return logits;
    float *adjusted = scratch->adjusted;
    memcpy(adjusted, logits, scratch->n_vocab * sizeof *adjusted);
    for (uint32_t i = 0; i < sampling->n_bias; i++)
        if (sampling->bias[i].token < scratch->n_vocab)
            adjusted[sampling->bias[i].token] += sampling->bias[i].bias;
    for (uint32_t i = 0; bar_stop && i < sampling->n_stop_ids; i++)
        if (sampling->stop_ids[i] < scratch->n_vocab)
            adjusted[sampling->stop_ids[i]] = -INFINITY;
    if (has_penalties(sampling))
        apply_penalties(adjusted, span, position, scratch);
    return adjusted;
}

/* Keys of all logits from `threshold` up, ids ascending. */
static uint32_t gather(const float *logits, double threshold, struct sample_scratch *scratch)
{
    uint32_t n = 0;
    for (uint32_t token = 0; token < scratch->n_vocab; token++)
        if ((double)logits[token] >= threshold)
            scratch->keys[n++] = key_of(logits[token], token);
    return n;
}

/* Sorts scratch->keys[n], whose ids ascend: a stable sort by logit leaves them so among equals. */
static void sort_keys(struct sample_scratch *scratch, uint32_t n)
{
    if (n <= FEW_KEYS) {
        for (uint32_t i = 1; i < n; i++) {
            uint64_t key = scratch->keys[i];
            uint32_t at = i;
            for (; at > 0 && scratch->keys[at - 1] > key; at--)
                scratch->keys[at] = scratch->keys[at - 1];
            scratch->keys[at] = key;
        }
        return;
    }
    for (uint32_t shift = 32; shift < 64; shift += RADIX_BITS) {
        uint32_t starts[RADIX] = {0}, sum = 0;
        for (uint32_t i = 0; i < n; i++)
            starts[scratch->keys[i] >> shift & (RADIX - 1)]++;
        for (uint32_t digit = 0; digit < RADIX; digit++) {
            uint32_t count = starts[digit];
            starts[digit] = sum;
            sum += count;
        }
        for (uint32_t i = 0; i < n; i++)
            scratch->sorting[starts[scratch->keys[i] >> shift & (RADIX - 1)]++] = scratch->keys[i];
        uint64_t *sorted = scratch->sorting;
        scratch->sorting = scratch->keys;
        scratch->keys = sorted;
    }
}

static double weight(uint64_t key, double max, double scale)
{
    return sample_exp(((double)sample_key_logit(key) - max) * scale);
}

static double weight_of(const struct sample_scratch *scratch, uint32_t n, double max, double scale)
{
    double sum = 0;
    for (uint32_t i = 0; i < n; i++)
        sum += weight(scratch->keys[i], max, scale);
    return sum;
}

/* How many of the sorted keys[n] hold the share top_p of `total`. */
static uint32_t cut_top_p(const struct sample_scratch *scratch, uint32_t n, double max, double scale, double wanted)
{
    double sum = 0;
    for (uint32_t i = 0; i < n; i++) {
        sum += weight(scratch->keys[i], max, scale);
        if (sum >= wanted)
            return i + 1;
    }
    return n;
}

uint32_t sample_filter(const float *logits, double max, const struct sampling_params *sampling, struct sample_scratch *scratch)
{
    const double temperature = sampling->temperature, scale = 1.0 / temperature, top_p = sampling->top_p;
    /* Below this many temperatures under the maximum, min-p bars a token. */
    double min_p_range = sampling->min_p > 0.0f ? -sample_log(sampling->min_p) : INFINITY;
    double range = min_p_range < SAMPLE_NOISE_RANGE ? min_p_range : SAMPLE_NOISE_RANGE;
    bool by_count = sampling->top_k > 0, by_mass = top_p < 1.0;
    if (!by_count && !by_mass)
        return gather(logits, max - range * temperature, scratch);

    double total = by_count ? 0 : scratch->kernels->sum_exp(logits, scratch->n_vocab, max, scale);
    double wanted = top_p * total;
    /* Sort no more than is needed: first only the tokens near the best. */
    uint32_t n = 0;
    for (double near = FIRST_RANGE; near < SAMPLE_NOISE_RANGE; near *= 1.5) {
        n = gather(logits, max - near * temperature, scratch);
        if (by_count ? n >= sampling->top_k : weight_of(scratch, n, max, scale) >= wanted)
            break;
        n = 0;
    }
    if (n == 0)
        n = gather(logits, max - SAMPLE_NOISE_RANGE * temperature, scratch);
    sort_keys(scratch, n);
    if (by_count && n > sampling->top_k)
        n = sampling->top_k;
    if (by_count)
        wanted = top_p * weight_of(scratch, n, max, scale);
    if (by_mass)
        n = cut_top_p(scratch, n, max, scale, wanted);
    while (n > 1 && max - (double)sample_key_logit(scratch->keys[n - 1]) > range * temperature)
        n--;
    return n;
}

#include "core/model/rope_frequencies.h"

#include <math.h>

void rope_config_init(struct rope_config *rope)
{
    *rope = (struct rope_config){
        .theta = 10000,
        .scaling = ROPE_SCALING_NONE,
        .factor = 1,
        .low_freq_factor = 1,
        .high_freq_factor = 4,
        .beta_fast = 32,
        .beta_slow = 1,
    };
}

static int check(const struct rope_config *rope, struct error *err)
{
    bool by_parts = rope->scaling == ROPE_SCALING_LLAMA3 || rope->scaling == ROPE_SCALING_YARN;
    if (!(rope->theta > 1 && rope->theta < 1e30))
        return error_set(err, HS_ERR_PARSE, "rope theta is %g, not a number above 1", rope->theta);
    if (rope->scaling != ROPE_SCALING_NONE && !(rope->factor >= 1 && rope->factor < 1e6))
        return error_set(err, HS_ERR_PARSE, "rope scaling factor is %g, not a number from 1 to 1000000", rope->factor);
    if (by_parts && !(rope->original_context >= 1 && rope->original_context < 1e12))
        return error_set(err, HS_ERR_PARSE, "rope scaling lacks the original context length");
    if (rope->scaling == ROPE_SCALING_LLAMA3 && !(rope->low_freq_factor > 0 && rope->high_freq_factor > rope->low_freq_factor))
        return error_set(err, HS_ERR_PARSE, "rope scaling needs 0 < low_freq_factor < high_freq_factor, not %g and %g",
                         rope->low_freq_factor, rope->high_freq_factor);
    if (rope->scaling == ROPE_SCALING_YARN && !(rope->beta_slow > 0 && rope->beta_fast >= rope->beta_slow))
        return error_set(err, HS_ERR_PARSE, "rope scaling needs 0 < beta_slow <= beta_fast, not %g and %g", rope->beta_slow,
                         rope->beta_fast);
    if (rope->scaling == ROPE_SCALING_YARN && !(rope->attention_factor >= 0 && rope->attention_factor < 1e6))
        return error_set(err, HS_ERR_PARSE, "rope attention factor is %g, not a positive number", rope->attention_factor);
    return 0;
}

static double clamp_unit(double x)
{
    return x < 0 ? 0 : x > 1 ? 1 : x;
}

/* Pairs that turn often within the original context keep their speed, slow ones are stretched, those between are mixed. */
static double llama3_speed(const struct rope_config *rope, double speed)
{
    double turns = rope->original_context * speed / (2 * M_PI);
    double keep = clamp_unit((turns - rope->low_freq_factor) / (rope->high_freq_factor - rope->low_freq_factor));
    return (1 - keep) * speed / rope->factor + keep * speed;
}

/* The pair, as a real number, that turns so many times within the original context. */
static double yarn_pair_turning(const struct rope_config *rope, uint32_t d_head, double turns)
{
    return d_head * log(rope->original_context / (turns * 2 * M_PI)) / (2 * log(rope->theta));
}

/* Share of stretching for a pair: 0 for fast pairs, 1 for slow ones. */
static double yarn_ramp(const struct rope_config *rope, uint32_t d_head, uint32_t pair)
{
    double low = yarn_pair_turning(rope, d_head, rope->beta_fast);
    double high = yarn_pair_turning(rope, d_head, rope->beta_slow);
    if (!rope->untruncated) {
        low = floor(low);
        high = ceil(high);
    }
    low = fmax(low, 0);
    high = fmin(high, d_head - 1);
    return clamp_unit((pair - low) / fmax(high - low, 0.001));
}

static double yarn_scale(double factor, double mscale)
{
    return factor <= 1 ? 1 : 0.1 * mscale * log(factor) + 1;
}

static double yarn_magnitude(const struct rope_config *rope)
{
    if (rope->attention_factor > 0)
        return rope->attention_factor;
    if (rope->mscale != 0 && rope->mscale_all_dim != 0)
        return yarn_scale(rope->factor, rope->mscale) / yarn_scale(rope->factor, rope->mscale_all_dim);
    return yarn_scale(rope->factor, 1);
}

static double scaled_speed(const struct rope_config *rope, uint32_t d_head, uint32_t pair)
{
    double speed = pow(rope->theta, -2.0 * pair / d_head), ramp;

    switch (rope->scaling) {
    case ROPE_SCALING_LINEAR:
        return speed / rope->factor;
    case ROPE_SCALING_LLAMA3:
        return llama3_speed(rope, speed);
    case ROPE_SCALING_YARN:
        ramp = yarn_ramp(rope, d_head, pair);
        return speed * (1 - ramp) + speed / rope->factor * ramp;
    case ROPE_SCALING_NONE:
        break;
    }
    return speed;
}

int rope_frequencies_compute(const struct rope_config *rope, uint32_t d_head, const float *freq_factors, float *inv_freq,
                             float *magnitude, struct error *err)
{
    int rc = check(rope, err);
    if (rc < 0)
        return rc;
    for (uint32_t pair = 0; pair < d_head / 2; pair++) {
        double speed = scaled_speed(rope, d_head, pair);
        if (freq_factors && !(freq_factors[pair] > 0 && freq_factors[pair] < 1e9f))
            return error_set(err, HS_ERR_PARSE, "rope frequency factor %u is %g, not a positive number", pair,
                             (double)freq_factors[pair]);
        inv_freq[pair] = (float)(freq_factors ? speed / freq_factors[pair] : speed);
    }
    *magnitude = rope->scaling == ROPE_SCALING_YARN ? (float)yarn_magnitude(rope) : 1;
    return 0;
}

#include "core/serve/scheduler_roofline.h"

#include <stdbool.h>
#include <string.h>

static const double FORGET = 0.99;         /* of the fit: about the last hundred steps count */
static const double WORTH_DOUBLING = 0.9;  /* a row must cost less than this much of before for twice as many to be worth it */
static const double PATIENCE = 2;          /* times the decodes alone that a step with decodes may take */
static const double FIRST_WAIT_NS = 25e6;  /* and where so many decodes were never measured */
static const double LONGEST_STEP_NS = 2e8; /* others' tokens wait for a step: no longer than this, cheaper rows or not */
enum { SAMPLES_NEEDED = 3, FIRST_BUDGET = 64, FIRST_PREFILL_CLASS = 3 /* 8 rows and more */ };

void roofline_init(struct roofline *roofline, uint32_t max_rows, uint32_t fixed_budget)
{
    memset(roofline, 0, sizeof *roofline);
    roofline->max_rows = max_rows;
    roofline->fixed_budget = fixed_budget;
    roofline->budget = FIRST_BUDGET < max_rows ? FIRST_BUDGET : max_rows;
    for (int i = 0; i < 3; i++)
        roofline->covariance[i][i] = 1e6;
}

static uint32_t class_of(uint32_t rows)
{
    uint32_t c = 31 - (uint32_t)__builtin_clz(rows | 1);
    return c < ROOFLINE_CLASSES ? c : ROOFLINE_CLASSES - 1;
}

static void fit(struct roofline *roofline, double rows, double context, double duration_us)
{
    const double x[3] = {1, rows, context / 1024};
    double px[3], denominator = FORGET, error = duration_us;
    for (int i = 0; i < 3; i++) {
        px[i] = 0;
        for (int j = 0; j < 3; j++)
            px[i] += roofline->covariance[i][j] * x[j];
        denominator += x[i] * px[i];
        error -= roofline->weight[i] * x[i];
    }
    for (int i = 0; i < 3; i++)
        roofline->weight[i] += px[i] / denominator * error;
    for (int i = 0; i < 3; i++)
        for (int j = 0; j < 3; j++) {
            double p = (roofline->covariance[i][j] - px[i] * px[j] / denominator) / FORGET;
            /* Forgetting without news inflates the covariance; a bound keeps it finite. */
            roofline->covariance[i][j] = p > 1e9 ? 1e9 : p < -1e9 ? -1e9 : p;
        }
}

static void halve_budget(struct roofline *roofline)
{
    if (roofline->budget / 2 >= ROOFLINE_LEAST_BUDGET)
        roofline->budget /= 2;
}

/* The budget moves by one class at a time, so one odd measurement costs little. */
static void move_budget(struct roofline *roofline)
{
    uint32_t c = class_of(roofline->budget);
    if (c == 0 || roofline->samples[c] < SAMPLES_NEEDED)
        return;
    double here = roofline->row_ns[c], step_ns = here * roofline->budget;
    if (step_ns > LONGEST_STEP_NS) {
        halve_budget(roofline);
        return;
    }
    if (roofline->budget > ROOFLINE_MIN_BUDGET && roofline->samples[c - 1] >= SAMPLES_NEEDED &&
        here > WORTH_DOUBLING * roofline->row_ns[c - 1]) {
        halve_budget(roofline);
        return;
    }
    if (c + 1 >= ROOFLINE_CLASSES || roofline->budget * 2 > roofline->max_rows)
        return;
    if (roofline->budget < ROOFLINE_MIN_BUDGET) { /* the machine was slow; is it still? */
        if (2.5 * step_ns <= LONGEST_STEP_NS)
            roofline->budget *= 2;
        return;
    }
    /* Where nothing is known of twice the rows they take at most twice the time. */
    bool known = roofline->samples[c + 1] >= SAMPLES_NEEDED;
    double next = known ? roofline->row_ns[c + 1] : here;
    if (next * 2 * roofline->budget <= LONGEST_STEP_NS && (!known || next < WORTH_DOUBLING * here))
        roofline->budget *= 2;
}

void roofline_observe(struct roofline *roofline, const struct roofline_sample *sample)
{
    uint32_t rows = sample->prefill_rows + sample->decode_rows;
    if (!rows || !sample->duration_ns)
        return;
    double duration = (double)sample->duration_ns;
    uint32_t c = class_of(rows);
    double share = roofline->samples[c] < 8 ? 1.0 / (roofline->samples[c] + 1) : 0.125;
    fit(roofline, rows, (double)sample->context, duration / 1e3);
    roofline->row_ns[c] += share * (duration / rows - roofline->row_ns[c]);
    roofline->samples[c]++;
    roofline->steps++;
    if (sample->prefill_rows)
        move_budget(roofline);
    else
        roofline->decode_ns += (roofline->decode_ns > 0 ? 0.1 : 1) * (duration - roofline->decode_ns);
}

uint32_t roofline_budget(const struct roofline *roofline)
{
    uint32_t budget = roofline->fixed_budget ? roofline->fixed_budget : roofline->budget;
    return budget < roofline->max_rows ? budget : roofline->max_rows;
}

/* Of a class, or of the nearest that is measured; 0: none is. */
static double row_cost_ns(const struct roofline *roofline, uint32_t c)
{
    for (uint32_t up = c; up < ROOFLINE_CLASSES; up++)
        if (roofline->samples[up])
            return roofline->row_ns[up];
    while (c-- > 0)
        if (roofline->samples[c])
            return roofline->row_ns[c];
    return 0;
}

uint32_t roofline_budget_beside(const struct roofline *roofline, uint32_t n_decodes)
{
    uint32_t budget = roofline_budget(roofline), c = class_of(n_decodes), rows = n_decodes;
    double row_ns = row_cost_ns(roofline, c), limit_ns = FIRST_WAIT_NS;
    if (roofline->fixed_budget || !n_decodes || row_ns <= 0)
        return budget;
    if (roofline->samples[c])
        limit_ns = PATIENCE * n_decodes * row_ns < LONGEST_STEP_NS ? PATIENCE * n_decodes * row_ns : LONGEST_STEP_NS;
    uint32_t most = budget > PATIENCE * n_decodes ? budget : (uint32_t)(PATIENCE * n_decodes);
    /* Class by class: where one is not measured its rows cost at most what those of the one below do. */
    for (; c < ROOFLINE_CLASSES && rows < most; c++) {
        if (roofline->samples[c])
            row_ns = roofline->row_ns[c];
        uint32_t last = (2u << c) - 1;
        double affordable = limit_ns / row_ns;
        if (affordable >= (double)(1u << c))
            rows = affordable < last ? (uint32_t)affordable : last;
        if (affordable < last)
            break;
    }
    rows = rows < most ? rows : most;
    rows = rows < roofline->max_rows ? rows : roofline->max_rows;
    return rows > n_decodes ? rows : n_decodes;
}

uint64_t roofline_predict_ns(const struct roofline *roofline, uint32_t rows, uint64_t context)
{
    if (!roofline->steps)
        return 0;
    double us = roofline->weight[0] + roofline->weight[1] * rows + roofline->weight[2] * (double)context / 1024;
    return us > 1 ? (uint64_t)(us * 1e3) : 1000;
}

float roofline_prefill_tokens_per_s(const struct roofline *roofline)
{
    for (uint32_t c = class_of(roofline_budget(roofline)); c >= FIRST_PREFILL_CLASS; c--)
        if (roofline->samples[c])
            return (float)(1e9 / roofline->row_ns[c]);
    return 0;
}

float roofline_decode_step_s(const struct roofline *roofline)
{
    return (float)(roofline->decode_ns / 1e9);
}

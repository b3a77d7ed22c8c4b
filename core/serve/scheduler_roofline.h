/*
 * The backend's measured roofline: how long a step takes as a function of its rows and of the context they attend to, and the
 * number of rows beyond which a larger step only takes longer without doing more per second.
 *
 *     time                     /       Each power-of-two class of row counts keeps the mean cost of a row. The batch
 *     of a        _____knee___/        grows while doubling it makes rows noticeably cheaper; where it no longer does is the
 *     step   ____/                     knee, and the budget stays there. A step that takes 0.2 s is long enough in any case:
 *               rows                   everybody's next token waits for it.
 *
 * Prediction is a least-squares fit of time over (1, rows, context), recursive with forgetting (Plackett 1950; Haykin, Adaptive
 * Filter Theory, RLS), so it follows a machine whose speed changes. Pure arithmetic; node loop only.
 */
#ifndef HEARSAY_SERVE_SCHEDULER_ROOFLINE_H
#define HEARSAY_SERVE_SCHEDULER_ROOFLINE_H

#include <stdint.h>

enum { ROOFLINE_CLASSES = 16, ROOFLINE_MIN_BUDGET = 64, ROOFLINE_LEAST_BUDGET = 16 /* on a machine too slow for that */ };

struct roofline {
    uint32_t fixed_budget; /* 0: measured */
    uint32_t max_rows;
    uint32_t budget;
    double row_ns[ROOFLINE_CLASSES]; /* mean time per row, class c holds 2^c .. 2^(c+1)-1 rows */
    uint32_t samples[ROOFLINE_CLASSES];
    double weight[3], covariance[3][3]; /* of the fit, in microseconds over (1, rows, context / 1024) */
    uint64_t steps;
    double decode_ns; /* mean of pure decode steps, 0: none yet */
};

struct roofline_sample {
    uint32_t prefill_rows, decode_rows;
    uint64_t context; /* positions attended to, summed over the rows */
    uint64_t duration_ns;
};

void roofline_init(struct roofline *roofline, uint32_t max_rows, uint32_t fixed_budget);
void roofline_observe(struct roofline *roofline, const struct roofline_sample *sample);
uint32_t roofline_budget(const struct roofline *roofline);
/*
 * The same for a step in which n sequences decode: so many rows that it takes at most twice as long as their decodes alone, since their
 * next tokens wait for it. Many decodes may have as many rows of prompts beside them, whatever the budget. Never less than n; a fixed budget
 * stays as it is.
 */
uint32_t roofline_budget_beside(const struct roofline *roofline, uint32_t n_decodes);
/* Predicted duration of a step; 0 before anything was measured. */
uint64_t roofline_predict_ns(const struct roofline *roofline, uint32_t rows, uint64_t context);
/* Of steps as large as the budget, or as the largest seen below it: short tails of cached prompts say little of long ones. 0: not
 * measured. */
float roofline_prefill_tokens_per_s(const struct roofline *roofline);
float roofline_decode_step_s(const struct roofline *roofline); /* 0: not measured */

#endif

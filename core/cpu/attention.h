/*
 * The attention stage of a forward pass (forward.h). Threading: attention_plan and attention_start by whoever begins a step or a stage,
 * the rest by the workers.
 */
#ifndef HEARSAY_CPU_ATTENTION_H
#define HEARSAY_CPU_ATTENTION_H

#include <stdbool.h>
#include <stdint.h>

struct forward;

/* Plans the tasks of the step's rows, or of those that are left of them. */
void attention_plan(struct forward *forward);
/* Whether each head's keys and values are used by one task only, which can finish and store them itself: decodes, drafts. */
bool attention_may_rotate(const struct forward *forward);
/* Shares the tasks out; returns the stage's chunks, one for each worker, which attends until nothing is left. */
uint32_t attention_start(struct forward *forward);
void attention_run(struct forward *forward, uint32_t worker);
/* Asks memory for the keys that this worker will need first. */
void attention_ask(const struct forward *forward, uint32_t worker);

#endif

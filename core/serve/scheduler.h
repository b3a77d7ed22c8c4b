/*
 * Iteration-level batching: every step takes one row of each sequence that decodes and fills the rest of the row budget with
 * prefill chunks, shared fairly between tenants.
 *
 *     submit -> [waiting, per tenant] -> admit (match the radix tree, share its pages) -> running -> finished
 *                        ^                                                                  |
 *                        +------------ preempted: out of pages, recompute later -----------+
 *
 * Pages: free ones first, then the tree's least worthy, then those of the youngest running sequence, which waits again in its old
 * place. The oldest always gets what it needs, and no sequence may need more than the pool, so there is always progress. Work
 * for peers has no privilege: it is preempted like any other, so two nodes never wait for each other.
 * A waiting sequence whose next uncached block a running one is just computing waits for it, so a new head is computed once.
 *
 * Threading: node loop only. No allocation after create. Errors: HS_ERR_BUSY when the queue is full.
 */
#ifndef HEARSAY_SERVE_SCHEDULER_H
#define HEARSAY_SERVE_SCHEDULER_H

#include <stdbool.h>
#include <stdint.h>

#include "core/base/error.h"
#include "core/cache/page_pool.h"
#include "core/cache/radix_tree.h"
#include "core/port/backend.h"
#include "core/serve/sequence.h"

struct node_metrics;
struct scheduler;

struct scheduler_config {
    struct backend *backend;
    struct page_pool *pool;
    struct radix_tree *tree;
    struct node_metrics *metrics; /* may be NULL */
    uint32_t max_sequences, max_waiting, max_batch_tokens;
};

/* What is queued and how fast it goes. Who only waits for a prefix that is being computed here counts as running: it waits for no
 * room. */
struct scheduler_load {
    uint32_t waiting, running;
    uint64_t prefill_tokens; /* not yet computed */
    uint64_t decode_tokens;  /* expected still */
    float prefill_tokens_per_s, decode_step_s;
    uint32_t budget_rows;
    uint64_t step_started_ns; /* of the step under way, 0: none */
};

/* NULL when out of memory. Borrows everything in config. */
struct scheduler *scheduler_create(const struct scheduler_config *config);
/* Fails what is left with HS_ERR_CLOSED and waits for nothing: the backend is destroyed by its owner afterwards. */
void scheduler_destroy(struct scheduler *scheduler);

/* Queues a sequence whose blocks are named. force: beyond max_waiting too (an answer already begun). 0 or HS_ERR_BUSY. */
int scheduler_submit(struct scheduler *scheduler, struct sequence *sequence, bool force, uint64_t now_ns);
/* Ends a submitted sequence without a word to its sink and destroys it, now or when the step that reads it is done. */
void scheduler_drop(struct scheduler *scheduler, struct sequence *sequence, uint64_t now_ns);

/* Takes completed steps; true if there was one. */
bool scheduler_poll(struct scheduler *scheduler, uint64_t now_ns);
/* Admits, forms a step and submits it if the backend is free; true if it did. */
bool scheduler_run(struct scheduler *scheduler, uint64_t now_ns);

bool scheduler_in_step(const struct scheduler *scheduler); /* one is under way */

/* As admission_set_weight. */
int scheduler_set_weight(struct scheduler *scheduler, const char *tenant, float weight);
void scheduler_load(const struct scheduler *scheduler, struct scheduler_load *out);
/* Tokens of answer to expect of a request that may get so many: the mean of late, capped. */
uint32_t scheduler_expected_output(const struct scheduler *scheduler, uint32_t at_most);
/* Rough time until a request of n tokens would begin to run. */
uint64_t scheduler_predict_wait_ns(const struct scheduler *scheduler);
/* No more can wait. */
bool scheduler_is_full(const struct scheduler *scheduler);
uint64_t scheduler_preemptions(const struct scheduler *scheduler);
/* How many run at most. */
uint32_t scheduler_max_sequences(const struct scheduler *scheduler);
/* Tenants with a sequence here, and sequences that shared an account for want of one of their own. */
void scheduler_tenants(const struct scheduler *scheduler, uint32_t *n, uint64_t *lumped);

#endif

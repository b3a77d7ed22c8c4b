/*
 * A world whose nodes compute, in a simple way: one queue of prefills in order of arrival at a fixed rate, decodes beside it with
 * steps that grow with the rows, a prefix cache without eviction that feeds the digest. Requests are routed by the cluster under
 * test, travel over the world's link and are answered; the fleet counts who computed what and when it was done.
 */
#ifndef HEARSAY_TESTS_UNIT_CLUSTER_FLEET_H
#define HEARSAY_TESTS_UNIT_CLUSTER_FLEET_H

#include "core/base/u64_map.h"
#include "tests/unit/cluster/world.h"

enum { FLEET_BLOCKS_MAX = 160, FLEET_QUEUE_MAX = 4096, PAGE = 16 };

struct fleet;

struct job {
    struct fleet *fleet;
    uint32_t entry, node;
    uint64_t blocks[FLEET_BLOCKS_MAX];
    uint32_t n_blocks, n_tokens, output_tokens;
    uint32_t cached_tokens, exclude;
    struct route_query query;
    struct route_ticket ticket;
    uint64_t sent_ns, done_ns;
};

struct fleet_node {
    struct fleet *fleet;
    struct job *queue[FLEET_QUEUE_MAX]; /* waiting, in order */
    uint32_t n_waiting, decoding;
    struct job *prefilling;
    uint64_t decode_tokens;
    struct u64_map cache;
    uint32_t computed;         /* requests */
    uint64_t prefilled_tokens; /* really computed */
};

struct fleet {
    struct world world;
    struct fleet_node nodes[WORLD_NODES_MAX];
    double prefill_tokens_per_s, step_s;
    uint32_t n_done;
    void (*on_done)(struct fleet *fleet, struct job *job); /* NULL: nobody wants to know */
    double total_latency_s;
    uint64_t total_cached_tokens;
};

void fleet_start(struct fleet *fleet, uint32_t n, uint64_t seed, const struct cluster_config *config,
                 const struct world_link *link);
void fleet_stop(struct fleet *fleet);
/* head_blocks of head `head`, then tail_tokens of tail `tail` (whole blocks are named). */
void fleet_prompt(struct job *job, uint64_t head, uint32_t head_blocks, uint64_t tail, uint32_t tail_tokens,
                  uint32_t output_tokens);
/* Submits the job at a time (absolute) at an entry. The job stays the caller's. */
void fleet_submit(struct fleet *fleet, struct job *job, uint32_t entry, uint64_t at_ns);
/* Until n_done jobs are done. */
bool fleet_finish(struct fleet *fleet, uint32_t n_done, uint64_t for_ns);
/* Fills the job's query from its prompt and what the entry has cached. */
void fleet_query(struct fleet *fleet, struct job *job, uint32_t entry);
/* As if the node had computed the job's prompt before. */
void fleet_warm(struct fleet *fleet, uint32_t node, const struct job *job);
void fleet_tell_load(struct fleet *fleet, uint32_t node);

#endif

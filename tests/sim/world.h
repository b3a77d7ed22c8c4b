/*
 * A simulated world: unmodified nodes with null backends, joined by the real reliable transport over a simulated wire, in
 * virtual time, everything drawn from one seed. Clients send random requests with shared heads; faults are planned ahead.
 *
 *     clients --node_submit--> node 0..n-1 --transport (tapped)--> reliable + seal --> sim carrier --> simulated wire
 *                                   |
 *                                   +--> backend (shadowed) --> null backend           each node has a clock of its own
 *
 * A node is stepped only when a datagram waits for it or the time it asked for has come, so a deadline that it forgets to name
 * is found as a hang. After the planned requests every answer is asked for again, prompt and answer as the new prompt, so that
 * anything wrong in a prefix cache shows; then the world waits until it is quiet and compares what nodes believe of each other.
 *
 * What is checked, and where: docs/simulator.md. A fault is a broken promise of a node, a trouble is what the world does to it.
 *
 * Threading: one thread, and one world at a time is printed; worlds share nothing. Ownership: the world owns all it makes.
 * Errors: broken promises are counted in the result and the first few printed with the seed.
 */
#ifndef HEARSAY_TESTS_SIM_WORLD_H
#define HEARSAY_TESTS_SIM_WORLD_H

#include <stdbool.h>
#include <stdint.h>

enum { WORLD_MAX_NODES = 64 };

/* All numbers are uint32_t, all times uint64_t nanoseconds, all shares double: world_options.h lists them with their bounds. */
struct world_config {
    uint64_t seed;
    uint32_t nodes, requests;
    double rate;           /* requests per second of virtual time */
    uint32_t pages;        /* of each node, in 16 tokens */
    uint32_t small_pools;  /* nodes with a quarter of that */
    uint32_t sequences;    /* in a batch */
    uint32_t queue;        /* requests that may wait at a node, 0: the node's default; then nobody may be refused */
    uint32_t push_back;    /* depth, 0: the node's default */
    uint32_t context;      /* tokens of the longest sequence */
    uint32_t head_tokens;  /* of the longest shared head */
    uint32_t tree_bytes, advertised, replicas; /* caps, 0: the node's defaults */
    const char *route;     /* cost, longest, none, mixed */
    uint64_t gossip_ns;    /* interval */
    uint32_t gossip_bytes; /* a second, to each peer */
    double cancel, score;  /* shares of requests that are canceled midway, and that want their prompt scored */

    uint64_t delay_ns, jitter_ns; /* of the wire, one way */
    double loss, duplicate, reorder, corrupt;

    uint32_t crash, leave, drain, flush;     /* of nodes: times that it happens */
    uint32_t stop, jump;                     /* not stepped for a while; its clock jumps ahead */
    uint32_t cut, one_way, split;            /* of links: a pair, one direction, the group in two */
    uint64_t trouble_ns;                     /* the longest that one of these lasts */
    uint32_t blind;                          /* of nodes' memory: times that it cannot be read for a while */
    uint32_t slow, slowness;                 /* nodes whose backend takes slowness times as long */
    uint64_t step_ns, row_ns;                /* what a backend's step takes, and each row of it */
    uint32_t liars;                          /* nodes that lie about their load */
    uint32_t models, page_sizes, classes;    /* kinds of each in the group, 1: all alike */
    double drift;                            /* clocks run by up to this share too fast or too slow */
    double fail;                             /* share of backend steps that fail */
    uint32_t miscounts;                      /* nodes whose digests state wrong counts */

    uint32_t one_sided, unpublished;  /* nodes that read peers' digests and are read; those that cannot be read for want of memory */
    uint64_t read_ns, read_jitter_ns; /* of a read, one way */
    double torn, read_fail, read_lost; /* lost: ends only when the device gives it up, or its connection does */

    bool verbose;
};

struct world_result {
    uint32_t failures;    /* broken promises; 0: all is well */
    uint32_t answered, canceled, timed_out, crashed, refused, too_slow, too_long, broke;
    uint32_t forwarded;   /* FORWARD messages sent */
    uint64_t tokens, cached_tokens, prompt_tokens;
    uint64_t preemptions, takeovers;
    uint64_t reads, reads_failed; /* one-sided ones that ended, and those of them that brought nothing */
    uint64_t virtual_ns;
    uint64_t steps;
    uint64_t trace;       /* hash of every client event with its time, and of the wire's counts: equal seeds give equal traces */
};

void world_defaults(struct world_config *config);
/* Random sizes and troubles, from the seed alone. */
void world_draw(struct world_config *config, uint64_t seed);
/* 0 or HS_ERR_NO_MEMORY, HS_ERR_INVALID; broken promises are in result->failures. */
int world_run(const struct world_config *config, struct world_result *result);

#endif

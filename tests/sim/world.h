/*
 * A simulated world: unmodified nodes with null backends, joined by the real reliable transport over a simulated wire, in
 * virtual time, everything drawn from one seed. Clients send random requests with shared heads; every event is checked at once.
 *
 *     clients --node_submit--> node 0..n-1 --transport (tapped)--> reliable + seal --> sim carrier --> simulated wire
 *
 * What is checked: every request ends exactly once; its tokens are those that a lone null backend gives, also across crashes;
 * nobody fails without a reason that the world made (a cancel, a deadline, a reader too slow, its entry's crash); a request is
 * forwarded by its entry alone (one hop); pages are conserved; when all is answered every gauge is zero and free pages and the
 * tree's make the pool; and finally every answer is asked for again, so that anything wrong in a prefix cache would show (the null
 * backend checks its chains).
 *
 * Threading: one thread. Ownership: the world owns all it makes. Failures are counted and the first few printed with the seed.
 */
#ifndef HEARSAY_TESTS_SIM_WORLD_H
#define HEARSAY_TESTS_SIM_WORLD_H

#include <stdbool.h>
#include <stdint.h>

struct world_config {
    uint64_t seed;
    uint32_t n_nodes; /* 1 .. 16 */
    uint32_t n_requests;
    uint32_t crashes; /* nodes killed without a word, each restarted after a while */
    uint32_t drains;  /* nodes drained and opened again */
    uint32_t cuts;    /* pairs of nodes that lose sight of each other for a while */
    double loss;      /* of datagrams */
    double duplicate, reorder;
    uint64_t delay_ns, jitter_ns;
    uint32_t n_pages; /* of each node */
    uint32_t max_sequences;
    double rate_per_s; /* arrival of requests */
    const char *route; /* "cost", "longest", "none" */
    bool verbose;
};

struct world_result {
    uint32_t failures; /* broken promises; 0: all is well */
    uint32_t answered, canceled, timed_out, crashed, refused, too_slow;
    uint32_t forwarded; /* FORWARD messages sent */
    uint64_t tokens, cached_tokens, prompt_tokens;
    uint64_t preemptions, takeovers;
    uint64_t virtual_ns;
    uint64_t steps;
    uint64_t trace; /* hash of every client event with its time: equal seeds give equal traces */
};

void world_defaults(struct world_config *config);
/* 0 or HS_ERR_NO_MEMORY, HS_ERR_INVALID; broken promises are in result->failures. */
int world_run(const struct world_config *config, struct world_result *result);

#endif

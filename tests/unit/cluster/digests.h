/*
 * A world whose nodes' trees are known to the test: what each holds, and whether all replicas agree with it. One at a time; seeds are
 * printed. Threading: none.
 */
#ifndef HEARSAY_TESTS_UNIT_CLUSTER_DIGESTS_H
#define HEARSAY_TESTS_UNIT_CLUSTER_DIGESTS_H

#include "core/base/u64_map.h"
#include "tests/unit/cluster/world.h"

struct digests {
    struct world world;
    struct u64_map held[WORLD_NODES_MAX]; /* the truth: names in each node's tree */
    struct rng rng;
};

extern struct digests digests;

/* n nodes, all routable. */
void digests_start(uint32_t n, uint64_t seed, const struct world_link *link);
void digests_start_with(uint32_t n, uint64_t seed, const struct world_link *link, const struct cluster_config *config);
void digests_stop(void);
/* At most 256 new names, behind one parent. */
void digests_add(uint32_t node, uint32_t n);
void digests_drop(uint32_t node, uint32_t n);
/* Nothing is in its tree any more: the test has crashed or flushed it. */
void digests_forget(uint32_t node);
/* Steps until every replica equals its origin's tree, or fails after at_most_ns; how long it took. */
uint64_t digests_until_equal(uint64_t at_most_ns);

#endif

/*
 * A node's cluster that has been told of many peers: what a router decides upon, without the peers.
 *
 * The peers exist in messages only: each says HELLO and then digests with the blocks that it holds, encoded and decoded as on the
 * wire. What the cluster sends is counted and dropped. Its clock is set by the caller and its random numbers come from a seed, so
 * that the same calls execute the same instructions. Threading: one thread.
 */
#ifndef HEARSAY_PERF_ROUTE_GROUP_H
#define HEARSAY_PERF_ROUTE_GROUP_H

#include "core/base/error.h"
#include "core/base/rng.h"
#include "core/cluster/cluster.h"
#include "core/port/env.h"
#include "core/port/transport.h"

struct route_group {
    struct transport transport; /* first: what the cluster is given */
    struct env env;
    struct rng rng;
    uint64_t now_ns;
    uint64_t sent_messages;
    struct cluster *cluster;
    uint32_t page_tokens;
};

/* Peers 0 to n_peers - 1, each with an empty set. The group must stay where it is until route_group_fini. */
int route_group_init(struct route_group *group, uint32_t n_peers, uint32_t page_tokens, uint32_t max_blocks, uint64_t seed,
                     struct error *err);
void route_group_fini(struct route_group *group);
/* The peer's set: names[n], no name twice. Once for each peer. 0 or HS_ERR_PROTOCOL when the cluster did not take it. */
int route_group_tell(struct route_group *group, uint32_t peer, const uint64_t *names, uint32_t n, struct error *err);

#endif

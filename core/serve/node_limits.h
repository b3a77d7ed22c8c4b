/*
 * The bounds of a node that are not the HTTP edge's or the group's: what each is, where it stands, how often it was hit
 * (docs/limits.md). Some are hit where they are enforced (limit_hit), the others are read from their owners now and then.
 *
 * Threading: node loop only. Errors: HS_ERR_NO_MEMORY.
 */
#ifndef HEARSAY_SERVE_NODE_LIMITS_H
#define HEARSAY_SERVE_NODE_LIMITS_H

#include <stdint.h>

#include "core/base/metrics.h"

struct node;

enum node_limit {
    NODE_LIMIT_WAITING,
    NODE_LIMIT_RUNNING,
    NODE_LIMIT_ENTRIES,
    NODE_LIMIT_SERVICES,
    NODE_LIMIT_PUSH_BACK,
    NODE_LIMIT_TENANTS,
    NODE_LIMIT_KV_PAGES,
    NODE_LIMIT_TREE_BYTES,
    NODE_LIMIT_OUTBOX_BYTES,
    NODE_LIMIT_MESSAGE_BYTES,
    NODE_LIMIT_FIRST_WORD,
    NODE_LIMIT_SILENCE,
    NODE_LIMIT_STEP,
    NODE_LIMIT_METRIC_PEERS,
    NODE_LIMIT_LOG_LINES,
    NODE_LIMIT_FABRIC_PEERS,
    NODE_LIMIT_FABRIC_HALF_OPEN,
    NODE_LIMIT_FABRIC_SEND_BYTES,
    NODE_LIMIT_FABRIC_UNRELIABLE_BYTES,
    NODE_LIMIT_FABRIC_RECEIVE_BYTES,
    NODE_LIMIT_FABRIC_STRANGERS,
    NODE_LIMITS,
};

struct node_limits {
    struct limit *of[NODE_LIMITS]; /* NULL: a node alone has no fabric, and some fabrics lack a bound */
    uint64_t next_ns;              /* of the next look */
};

int node_limits_init(struct node *node);
/* Brings levels and totals up to date, if it is time, and tells the log of limits that were hit. */
void node_limits_update(struct node *node, uint64_t now_ns);

static inline void node_limit_hit(struct node_limits *limits, enum node_limit which)
{
    if (limits->of[which])
        limit_hit(limits->of[which], 1);
}

#endif

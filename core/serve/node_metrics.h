/*
 * The node's own metrics: the names that dashboards for inference servers know (vllm:*), and hearsay_* for what is ours.
 *
 * The registry owns them. Registered once; changed by the node loop, read by whoever writes the registry out. Errors:
 * HS_ERR_NO_MEMORY.
 */
#ifndef HEARSAY_SERVE_NODE_METRICS_H
#define HEARSAY_SERVE_NODE_METRICS_H

#include "core/base/metrics.h"
#include "core/cluster/cluster.h"
#include "core/serve/request.h"

enum { NODE_METRICS_REASONS = ROUTE_REASON_FALLBACK + 1, NODE_METRICS_PEERS = 64 };

struct node_metrics {
    struct metrics *registry; /* NULL: of its own, below */
    struct metrics *own;
    char model_label[METRICS_LABEL_BYTES]; /* model_name="..." */

    struct gauge *running, *waiting, *cache_usage;
    struct counter *prefix_queries, *prefix_hits;      /* tokens */
    struct counter *prompt_tokens, *generation_tokens; /* computed here */
    struct counter *success_stop, *success_length, *failed, *canceled;
    struct histogram *first_token, *inter_token, *end_to_end, *queue_time; /* of requests that entered here; queue: computed here */

    struct gauge *forwarded, *computing_for_peers, *pages_free, *pages_in_tree, *budget_rows;
    struct counter *routes[NODE_METRICS_REASONS];
    struct counter *refusals;  /* that we gave */
    struct counter *refused;   /* that we got */
    struct counter *takeovers; /* answers continued after a node was lost, late or refused mid-way */
    struct counter *preemptions, *evicted_pages, *malformed;
    struct counter *step_rows;
    struct histogram *step_time;
    struct gauge *fabric_retransmits, *fabric_rejected, *fabric_missed; /* set with the limits */

    struct {
        uint32_t peer;
        struct counter *forwards;
    } peers[NODE_METRICS_PEERS]; /* forwards by peer; the first so many peers */
    uint32_t n_peers;
    struct counter *other_forwards; /* to further peers */
};

/* registry may be NULL: then nobody sees them. */
int node_metrics_init(struct node_metrics *metrics, struct metrics *registry, const char *model_name);
void node_metrics_fini(struct node_metrics *metrics);
/* One request was forwarded to the peer called so. */
void node_metrics_forward(struct node_metrics *metrics, uint32_t peer, const char *name);

#endif

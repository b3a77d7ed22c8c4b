#include "core/serve/node_limits.h"

#include "core/base/error.h"
#include "core/base/log.h"
#include "core/serve/admission.h"
#include "core/serve/node_internal.h"

static const uint64_t PERIOD_NS = 200000000;

/* Without advice: whoever hits it is told by an answer, or it is nothing to be mended. */
static const struct limit_spec specs[NODE_LIMITS] = {
    [NODE_LIMIT_WAITING] = {"waiting_requests", "serve", "further requests are answered 429; add nodes, or raise --max-waiting", true},
    [NODE_LIMIT_RUNNING] = {"running_sequences", "serve", NULL, true},
    [NODE_LIMIT_ENTRIES] = {"requests_under_way", "serve",
                            "further requests are answered 429; add nodes, or raise --max-waiting or --max-sequences", true},
    [NODE_LIMIT_SERVICES] = {"requests_for_peers", "serve", "further requests of peers are refused and go elsewhere", true},
    [NODE_LIMIT_PUSH_BACK] = {"push_back_depth", "serve", NULL, true},
    [NODE_LIMIT_TENANTS] = {"tenants", "serve", "more tenants at once: those beyond it share one account, so shares are not fair", true},
    [NODE_LIMIT_KV_PAGES] = {"kv_pages", "serve",
                             "answers made room for older ones and are computed again; raise --kv-memory or lower --max-sequences", true},
    [NODE_LIMIT_TREE_BYTES] = {"tree_bytes", "serve", "cached pages were forgotten; raise --tree-memory", true},
    [NODE_LIMIT_OUTBOX_BYTES] = {"forward_outbox_bytes", "serve",
                                 "messages to peers were given up; the network or a peer is too slow", true},
    [NODE_LIMIT_MESSAGE_BYTES] = {"forward_message_bytes", "serve", NULL, false},
    [NODE_LIMIT_FIRST_WORD] = {"forward_answer_seconds", "serve",
                               "peers did not answer for so long and requests moved on; their loops or the network are too slow", false},
    [NODE_LIMIT_SILENCE] = {"forward_silence_seconds", "serve",
                            "peers fell silent for so long and requests moved on; their backends or the network are stuck", false},
    [NODE_LIMIT_STEP] = {"step_seconds", "serve",
                         "a step takes longer, so peers are no longer told to wait for it; the backend is stuck or too slow", false},
    [NODE_LIMIT_METRIC_PEERS] = {"metric_peers", "serve", NULL, true},
    [NODE_LIMIT_LOG_LINES] = {"log_lines_per_second", "serve", NULL, false},
    [NODE_LIMIT_FABRIC_PEERS] = {"fabric_peers", "net", "further peers are not connected", true},
    [NODE_LIMIT_FABRIC_HALF_OPEN] = {"fabric_half_open", "net",
                                     "handshakes were put off or dropped; they are tried again, but somebody begins too many", true},
    [NODE_LIMIT_FABRIC_SEND_BYTES] = {"fabric_send_bytes", "net", NULL, true},
    [NODE_LIMIT_FABRIC_UNRELIABLE_BYTES] = {"fabric_unreliable_bytes", "net", NULL, false},
    [NODE_LIMIT_FABRIC_RECEIVE_BYTES] = {"fabric_receive_bytes", "net",
                                         "datagrams were dropped and will be sent again; the node loop has too little CPU time", true},
    [NODE_LIMIT_FABRIC_STRANGERS] = {"fabric_strangers", "net", NULL, true},
};

/* The transport's bounds, in the order of the enum from NODE_LIMIT_FABRIC_PEERS on. */
enum { FABRIC_BOUNDS = NODE_LIMITS - NODE_LIMIT_FABRIC_PEERS };

static void fabric_bounds(const struct transport_stats *stats, struct transport_bound out[FABRIC_BOUNDS])
{
    const struct transport_bound bounds[FABRIC_BOUNDS] = {stats->peers,            stats->half_open,     stats->send_bytes,
                                                          stats->unreliable_bytes, stats->receive_bytes, stats->strangers};
    for (int i = 0; i < FABRIC_BOUNDS; i++)
        out[i] = bounds[i];
}

static uint64_t maximum(const struct node *node, enum node_limit which)
{
    struct radix_stats tree;
    switch (which) {
    case NODE_LIMIT_WAITING:
        return node->config.max_waiting;
    case NODE_LIMIT_RUNNING:
        return scheduler_max_sequences(node->scheduler);
    case NODE_LIMIT_ENTRIES:
        return node->max_entries;
    case NODE_LIMIT_SERVICES:
        return node->max_services;
    case NODE_LIMIT_PUSH_BACK:
        return node->config.push_back_depth;
    case NODE_LIMIT_TENANTS:
        return ADMISSION_TENANTS;
    case NODE_LIMIT_KV_PAGES:
        return node->backend_info.n_pages;
    case NODE_LIMIT_TREE_BYTES:
        radix_stats(node->tree, &tree);
        return tree.max_bytes;
    case NODE_LIMIT_OUTBOX_BYTES:
        return FORWARD_OUTBOX_BYTES;
    case NODE_LIMIT_MESSAGE_BYTES:
        return node->max_message_bytes;
    case NODE_LIMIT_FIRST_WORD:
        return node->config.forward_timeout_ns / 1000000000u;
    case NODE_LIMIT_SILENCE:
        return FORWARD_SILENCE_S;
    case NODE_LIMIT_STEP:
        return FORWARD_STUCK_S;
    case NODE_LIMIT_METRIC_PEERS:
        return NODE_METRICS_PEERS;
    case NODE_LIMIT_LOG_LINES:
        return LOG_LINES_PER_S;
    default:
        return 0;
    }
}

int node_limits_init(struct node *node)
{
    struct node_limits *limits = &node->limits;
    struct transport_stats stats = {0};
    struct transport_bound bounds[FABRIC_BOUNDS];
    if (node->transport)
        node->transport->ops->stats(node->transport, &stats);
    fabric_bounds(&stats, bounds);
    for (int i = 0; i < NODE_LIMITS; i++) {
        uint64_t max = i < NODE_LIMIT_FABRIC_PEERS ? maximum(node, i) : bounds[i - NODE_LIMIT_FABRIC_PEERS].max;
        if (max == 0)
            continue;
        limits->of[i] = metrics_limit(node->metrics.registry, &specs[i], max);
        if (!limits->of[i])
            return HS_ERR_NO_MEMORY;
    }
    return 0;
}

static void update_fabric(struct node *node)
{
    struct transport_stats stats;
    struct transport_bound bounds[FABRIC_BOUNDS];
    node->transport->ops->stats(node->transport, &stats);
    gauge_set(node->metrics.fabric_retransmits, (int64_t)stats.retransmits);
    gauge_set(node->metrics.fabric_missed, (int64_t)stats.missed);
    gauge_set(node->metrics.fabric_rejected, (int64_t)stats.rejected);
    fabric_bounds(&stats, bounds);
    for (int i = 0; i < FABRIC_BOUNDS; i++) {
        struct limit *limit = node->limits.of[NODE_LIMIT_FABRIC_PEERS + i];
        if (!limit)
            continue;
        limit_set_hits(limit, bounds[i].hits);
        if (limit->used)
            limit_use(limit, bounds[i].used);
    }
}

void node_limits_update(struct node *node, uint64_t now_ns)
{
    struct limit **of = node->limits.of;
    if (now_ns < node->limits.next_ns)
        return;
    node->limits.next_ns = now_ns + PERIOD_NS;
    struct radix_stats tree;
    uint32_t n_tenants;
    uint64_t lumped;
    radix_stats(node->tree, &tree);
    scheduler_tenants(node->scheduler, &n_tenants, &lumped);
    limit_use(of[NODE_LIMIT_WAITING], node->load.waiting);
    limit_use(of[NODE_LIMIT_RUNNING], node->load.running);
    limit_use(of[NODE_LIMIT_ENTRIES], node->n_entries);
    limit_use(of[NODE_LIMIT_SERVICES], node->n_services);
    limit_use(of[NODE_LIMIT_PUSH_BACK], node->load.waiting);
    limit_use(of[NODE_LIMIT_TENANTS], n_tenants);
    limit_set_hits(of[NODE_LIMIT_TENANTS], lumped);
    limit_use(of[NODE_LIMIT_KV_PAGES], node->backend_info.n_pages - page_pool_free_pages(node->pool));
    limit_set_hits(of[NODE_LIMIT_KV_PAGES], scheduler_preemptions(node->scheduler));
    limit_use(of[NODE_LIMIT_TREE_BYTES], tree.bytes);
    limit_set_hits(of[NODE_LIMIT_TREE_BYTES], tree.capped_pages);
    limit_use(of[NODE_LIMIT_OUTBOX_BYTES], node->outbox.bytes);
    limit_set_hits(of[NODE_LIMIT_OUTBOX_BYTES], node->outbox.refused);
    limit_use(of[NODE_LIMIT_METRIC_PEERS], node->metrics.n_peers);
    limit_set_hits(of[NODE_LIMIT_METRIC_PEERS], counter_get(node->metrics.other_forwards));
    limit_set_hits(of[NODE_LIMIT_LOG_LINES], log_lines_left_out());
    if (node->transport)
        update_fabric(node);
    metrics_tell_limits(node->metrics.registry, now_ns);
}

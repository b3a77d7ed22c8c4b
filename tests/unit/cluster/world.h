/*
 * Several clusters in virtual time over a made-up network: delay, jitter, loss, duplication (thus reordering), partitions, crashes,
 * all from one seed. The transport keeps transport.h's promises (reliable messages in order, PEER_DOWN after silence, a new boot id
 * after a restart) and nothing more. Threading: none.
 */
#ifndef HEARSAY_TESTS_UNIT_CLUSTER_WORLD_H
#define HEARSAY_TESTS_UNIT_CLUSTER_WORLD_H

#include "core/base/rng.h"
#include "core/cluster/cluster.h"

enum { WORLD_NODES_MAX = 64 };

#define MS     UINT64_C(1000000)
#define SECOND UINT64_C(1000000000)

struct world;

struct world_link {
    uint64_t delay_ns, jitter_ns;
    double loss, duplication;
    bool reads_pages; /* the transport has one-sided reads */
    double torn;      /* of the looks at a page find it half written */
};

/* A region as its origin has published it. */
struct world_pages {
    struct world_page {
        uint8_t *data;
        uint32_t len;
        uint64_t version;
    } *pages; /* NULL: not published */
    uint32_t n, page_bytes;
};

struct world_node {
    struct transport transport; /* first */
    struct world *world;
    uint32_t id;
    struct env env;
    struct cluster_config config;
    struct cluster *cluster; /* NULL: down */
    struct radix_listener digest;
    struct metrics *metrics;
    uint64_t boot_id, wake_ns;
    uint32_t alive_calls, gone_calls; /* of the listener */
    struct world_pages regions[TRANSPORT_REGIONS];
    uint64_t reads, torn_reads;       /* of pages of others */
    bool is_slow;                     /* steps and receives only every slow_ns */
    uint64_t slow_ns;
    /* Peers: number = id of the other node, which keeps tests readable. */
    struct world_peer {
        bool wanted, up;
        uint64_t boot_id, silent_since_ns, last_delivery_ns;
    } peers[WORLD_NODES_MAX];
};

struct world_event;

struct world {
    uint32_t n;
    struct world_node nodes[WORLD_NODES_MAX];
    struct world_link link;
    bool cut[WORLD_NODES_MAX][WORLD_NODES_MAX];
    uint64_t now_ns, next_dial_ns, down_after_ns;
    struct rng rng;
    struct world_event *heap;
    size_t n_events, cap_events;
    uint64_t event_number;
    uint64_t kind_messages[256], kind_bytes[256]; /* sent, by first byte */
    uint64_t gossip_bytes[WORLD_NODES_MAX][WORLD_NODES_MAX];
    /* A test's own lies about pages: may change what a read brings, and its status; above 0: it never ends. */
    int (*spoil)(struct world *world, uint32_t reader, uint32_t origin, uint32_t region, uint32_t page, uint8_t *data, uint32_t *len);
    bool (*is_dropped)(struct world *world, uint32_t from, uint32_t to, const uint8_t *data, size_t len); /* a test's own loss */
};

/* n nodes, all started, every one joined to node 0; config is the template. */
void world_start(struct world *world, uint32_t n, uint64_t seed, const struct cluster_config *config,
                 const struct world_link *link);
void world_stop(struct world *world);
void world_run(struct world *world, uint64_t for_ns);
/* Runs until the condition holds, at most for_ns; whether it held. */
bool world_run_until(struct world *world, bool (*condition)(struct world *world), uint64_t for_ns);
void world_crash(struct world *world, uint32_t node);
void world_boot(struct world *world, uint32_t node, const struct cluster_config *config);
/* Cuts (or mends) every link between nodes below `split` and the rest. */
void world_partition(struct world *world, uint32_t split, bool is_cut);
/* Calls act(arg) at a time. */
void world_at(struct world *world, uint64_t at_ns, void (*act)(void *arg), void *arg);
/* The node did something outside of the world's events: step it soon. */
void world_kick(struct world_node *node);
struct cluster_config world_config(void);
/* What `node` says of `other`; state DEAD and not routable if it is unknown. */
struct cluster_peer_info world_view(struct world *world, uint32_t node, uint32_t other);
bool world_all_routable(struct world *world);
double world_metric(struct world_node *node, const char *line_start);

#endif

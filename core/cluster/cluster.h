/*
 * The group as one node sees it: who is alive (SWIM with Lifeguard), what each says it has cached and how busy it is
 * (anti-entropy over block sets), and where a request would finish first (the router).
 *
 * It sits between the node and the transport: the node hands it every transport event first and calls cluster_step; it
 * sends its own messages (first byte below CLUSTER_MESSAGE_LIMIT; larger first bytes are the serve layer's). What it knows
 * of peers is hearsay: out of date it costs time, never a wrong answer.
 *
 * Sources: SWIM (Das et al., DSN 2002), Lifeguard (Dadgar et al., arXiv 1707.00788), rendezvous hashing (Thaler & Ravishankar 1998),
 * consistent hashing with bounded loads (Mirrokni et al., SODA 2018), longest-prefix push-back routing (SkyWalker / GORGO,
 * mode `longest`).
 *
 * Threading: node loop only. Time and randomness come from env.
 */
#ifndef HEARSAY_CLUSTER_CLUSTER_H
#define HEARSAY_CLUSTER_CLUSTER_H

#include <stdbool.h>
#include <stdint.h>

#include "core/base/error.h"
#include "core/base/metrics.h"
#include "core/base/strbuf.h"
#include "core/cache/radix_tree.h"
#include "core/port/env.h"
#include "core/port/transport.h"

enum {
    CLUSTER_MESSAGE_LIMIT = 0x40,
    CLUSTER_NAME_BYTES = 64,
    CLUSTER_TENANT_BYTES = 64,
    CLUSTER_WEIGHTS_MAX = 64,
    CLUSTER_MOST_ADVERTISED_BLOCKS = 1 << 20, /* a page of names stays a message of ordinary size */
    ROUTE_SELF = UINT32_MAX, /* "peer" of a decision to compute here */
};

enum route_mode {
    ROUTE_COST,    /* lowest predicted completion time */
    ROUTE_LONGEST, /* longest estimated match, else local, push-back at a queue depth: the published scheme */
    ROUTE_NONE,    /* always local */
};

struct cluster_config {
    char name[CLUSTER_NAME_BYTES];
    char http_address[TRANSPORT_ADDRESS_TEXT]; /* told to peers for people and tools */
    uint8_t fingerprint[32];                   /* of the model; a peer with another is never routed to */
    uint32_t page_tokens;                      /* likewise */
    char arithmetic[48];                       /* arithmetic class */
    bool same_bits;                            /* forward only within the class */
    enum route_mode mode;
    uint64_t gossip_interval_ns;
    uint64_t gossip_bytes_per_s; /* cap towards each peer, 0: default */
    uint32_t push_back_depth;    /* waiting requests at which a peer is left alone (mode longest and the flag) */
    uint32_t max_replica_blocks; /* over all peers, of which one may have half; 0: default */
    uint32_t max_advertised_blocks; /* of our own, 0: default */
};

/* The share of a tenant, above 0; those not named have 1. */
struct cluster_weight {
    char tenant[CLUSTER_TENANT_BYTES];
    float weight;
};

/* Our own state, as every digest header carries it. */
struct cluster_load {
    uint32_t waiting, running;         /* requests */
    uint64_t prefill_tokens;           /* queued or under way, not yet computed */
    uint64_t decode_tokens;            /* still expected of running and waiting answers */
    float prefill_tokens_per_s;        /* measured; 0: not yet */
    float decode_step_s;               /* measured time of one decode step at the present batch; 0: not yet */
    uint32_t free_pages, total_pages;  /* free counts evictable pages too */
    uint32_t draft_capacity;           /* 0 */
    bool push_back, draining;
};

enum cluster_peer_state { CLUSTER_PEER_JOINING, CLUSTER_PEER_ALIVE, CLUSTER_PEER_SUSPECT, CLUSTER_PEER_DEAD, CLUSTER_PEER_LEFT };

struct cluster_peer_info {
    uint32_t peer; /* the transport's number */
    char name[CLUSTER_NAME_BYTES];
    char address[TRANSPORT_ADDRESS_TEXT];
    char http_address[TRANSPORT_ADDRESS_TEXT];
    enum cluster_peer_state state;
    bool routable;              /* alive, same model, page size (and class, with same_bits) */
    struct cluster_load load;   /* as last gossiped */
    uint64_t load_age_ns;
    uint64_t rtt_ns, rtt_variance_ns;
    uint32_t replica_blocks;
    uint64_t replica_sequence, replica_age_ns;
    uint32_t in_flight;         /* requests that we sent there and are not finished */
    char arithmetic[48];
};

struct route_query {
    const uint64_t *blocks; /* [n_blocks] names of the prompt's whole blocks, in order */
    uint32_t n_blocks;
    uint32_t n_tokens;             /* of the prompt (and of the answer so far, at a takeover) */
    uint32_t local_cached_tokens;  /* from the exact tree */
    uint32_t expected_output_tokens;
    const uint32_t *exclude; /* [n_exclude] peers that refused or failed this request; ROUTE_SELF may be among them */
    uint32_t n_exclude;
};

enum route_reason { ROUTE_REASON_LOCAL_ONLY, ROUTE_REASON_CACHED, ROUTE_REASON_IDLE, ROUTE_REASON_COLD_HASH, ROUTE_REASON_HOT_COPY, ROUTE_REASON_FALLBACK };

/* A decision and, until it is finished, its trace in the books (in-flight counts, placement intent). Owned by the caller. */
struct route_ticket {
    uint32_t peer; /* or ROUTE_SELF */
    enum route_reason reason;
    uint64_t predicted_ns; /* time to completion */
    uint32_t estimated_cached_tokens;
    uint32_t uncached_tokens; /* booked as in flight towards peer */
    uint32_t expected_output_tokens;
    uint64_t decided_ns;
    uint64_t intent_id;
    bool open;
};

enum route_outcome { ROUTE_DONE, ROUTE_REFUSED, ROUTE_FAILED, ROUTE_CANCELED, ROUTE_CLIENT_ERROR /* never blamed on the peer */ };

struct cluster;

/* Called from within cluster_on_event or cluster_step. */
struct cluster_listener {
    void (*peer_alive)(void *self, uint32_t peer); /* routable from now on */
    void (*peer_gone)(void *self, uint32_t peer);  /* dead, left, or restarted: whatever it computed for us is lost */
    void *self;
};

int cluster_create(const struct cluster_config *config, const struct env *env, struct transport *transport, struct metrics *metrics,
                   const struct cluster_listener *listener, struct cluster **out);
void cluster_destroy(struct cluster *cluster);
/* Adds a seed address to try for ever with back-off. 0 or the transport's error. */
int cluster_join(struct cluster *cluster, const char *address, struct error *err);
/* Of a tenant, before peers are met: they are told, and warn where theirs is another, as we do. 0 or HS_ERR_LIMIT. */
int cluster_set_weight(struct cluster *cluster, const char *tenant, float weight);
/* Tells everyone that we go. */
void cluster_leave(struct cluster *cluster);

/* true: it was the cluster's and is dealt with. PEER_UP, PEER_DOWN and READ_DONE always are. */
bool cluster_on_event(struct cluster *cluster, const struct transport_event *event, uint64_t now_ns);
/* Runs timers; returns when it wants to be called again. */
uint64_t cluster_step(struct cluster *cluster, uint64_t now_ns);

void cluster_set_load(struct cluster *cluster, const struct cluster_load *load);
/* What the radix tree reports to: adds and removes advertised blocks, answers held_elsewhere. */
struct radix_listener cluster_radix_listener(struct cluster *cluster);
/* Everything advertised is gone (flush): a new epoch. */
void cluster_new_epoch(struct cluster *cluster);

/* Decides, books and (when the blocks are not there yet) announces the placement. Always succeeds unless everything is excluded (HS_ERR_BUSY). */
int cluster_route(struct cluster *cluster, const struct route_query *query, struct route_ticket *ticket);
/* The computing node found so many tokens in its cache: corrects the replica. blocks as in the query. */
void cluster_route_started(struct cluster *cluster, struct route_ticket *ticket, const struct route_query *query, uint32_t cached_tokens);
/* Closes the books of a ticket; refused_depth with ROUTE_REFUSED. Idempotent. */
void cluster_route_finished(struct cluster *cluster, struct route_ticket *ticket, enum route_outcome outcome, uint32_t refused_depth);

uint32_t cluster_peers(const struct cluster *cluster); /* known, any state */
int cluster_peer(const struct cluster *cluster, uint32_t index, struct cluster_peer_info *out);
/* Every alive peer says that it is full or draining. */
bool cluster_all_full(const struct cluster *cluster);
/* The state behind /cluster: a JSON object. */
void cluster_json(const struct cluster *cluster, struct strbuf *out);

#endif

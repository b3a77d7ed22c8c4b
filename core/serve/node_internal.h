/*
 * What the node's files share.
 *
 *     node.c          create, destroy, step, submit, cancel, drain, flush
 *     node_entry.c    requests that entered here: routing, local or remote, take-over, events
 *     forward.c       requests of peers that are computed here, and the messages of both sides
 *     node_json.c     status
 *     node_limits.c   bounds in the metrics
 */
#ifndef HEARSAY_SERVE_NODE_INTERNAL_H
#define HEARSAY_SERVE_NODE_INTERNAL_H

#include "core/serve/forward_message.h"
#include "core/serve/forward_outbox.h"
#include "core/serve/node.h"
#include "core/serve/node_limits.h"
#include "core/serve/node_metrics.h"
#include "core/serve/scheduler.h"

enum { ENTRY_MAX_EXCLUDED = 16 }; /* peers tried for one request; then it is computed here */
enum {
    FORWARD_SILENCE_S = 10, /* after a first word: a living peer says ALIVE every second */
    FORWARD_STUCK_S = 30,   /* a step that takes longer: the entry had better go elsewhere */
};

enum entry_state { ENTRY_FREE, ENTRY_ROUTE, ENTRY_LOCAL, ENTRY_REMOTE };

/* A request that entered here. Its sequence holds prompt and answer so far, wherever that is computed. */
struct entry {
    struct node *node;
    uint64_t id; /* low 16 bits: its slot */
    enum entry_state state;
    struct request *request;
    struct sequence *sequence;
    struct route_ticket ticket;
    uint32_t attempt;
    uint32_t exclude[ENTRY_MAX_EXCLUDED + 1];
    uint32_t n_exclude;
    bool lost;              /* the peer is gone: route again */
    bool heard;             /* the peer that computes it now has said something */
    bool told_started;      /* REQUEST_STARTED was delivered */
    uint32_t cached_tokens; /* found by the node that computes now */
    uint64_t submitted_ns, last_token_ns;
    uint64_t timeout_ns; /* of the peer's silence */
    struct entry *next_free;
};

/* A request of a peer that is computed here. */
struct service {
    struct node *node;
    struct sequence *sequence; /* NULL: slot free */
    uint32_t peer, attempt;
    uint64_t id; /* the peer's */
    bool lost;   /* the peer is gone: cancel */
    uint64_t deadline_ns, last_sent_ns;
};

struct node {
    struct node_config config;
    struct env env;
    struct transport *transport; /* NULL: alone */
    struct backend *backend;
    struct backend_info backend_info;
    uint32_t max_message_bytes;
    struct block_hash_key hash_key;
    struct page_pool *pool;
    struct radix_tree *tree;
    struct cluster *cluster; /* NULL: alone */
    struct scheduler *scheduler;
    struct node_metrics metrics;
    struct node_limits limits;

    struct entry *entries; /* [max_entries] */
    uint32_t max_entries, n_entries, n_forwarded;
    struct entry *free_entry;
    uint64_t next_id;
    uint32_t n_routing; /* entries in ENTRY_ROUTE */

    struct service *services; /* [max_services] */
    uint32_t max_services, n_services;

    struct forward_outbox outbox;
    struct forward_scratch scratch;
    uint8_t *encoded; /* [max_message_bytes] */

    bool busy, draining, push_back, any_lost;
    uint64_t check_ns; /* when deadlines and silences are looked at next */
    uint64_t started_ns;
    struct cluster_load load;
    uint64_t evicted_seen;
};

/* node_entry.c */
void entry_submit(struct node *node, struct request *request, uint64_t now_ns);
void entry_abort(struct entry *entry, int status, const char *text, uint64_t now_ns);
void entry_route(struct entry *entry, uint64_t now_ns);
/* The peer cannot or did not: the books are closed with `outcome` and the request is routed again, without that peer. */
void entry_retry(struct entry *entry, enum route_outcome outcome, uint32_t refused_depth, uint64_t now_ns);
struct entry *entry_find(struct node *node, uint64_t id);
/* An answer of the peer that computes an entry. */
void entry_message(struct entry *entry, const struct forward_message *message, uint64_t now_ns);
uint64_t entry_check(struct entry *entry, uint64_t now_ns); /* deadline and silence; when to look again */

/* forward.c */
int forward_send(struct node *node, uint32_t peer, const struct forward_message *message);
int forward_send_request(struct entry *entry, uint64_t now_ns);
void forward_send_cancel(struct node *node, uint32_t peer, uint64_t id, uint32_t attempt);
void forward_on_message(struct node *node, uint32_t peer, const uint8_t *data, size_t len, uint64_t now_ns);
void forward_peer_lost(struct node *node, uint32_t peer);
void service_cancel(struct service *service, uint64_t now_ns);
void service_abandon(struct service *service, int status, const char *text, uint64_t now_ns); /* and says so */
uint64_t service_check(struct service *service, uint64_t now_ns);

/* node.c */
bool node_find_peer(const struct node *node, uint32_t peer, struct cluster_peer_info *out);
void node_look_at(struct node *node, uint64_t when_ns);

#endif

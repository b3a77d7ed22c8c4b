/*
 * The node: a state machine that routes, schedules, forwards and answers requests, without I/O, threads, clocks or
 * randomness of its own. Time, random bits, transport and backend come in through core/port, so that the same code runs in
 * production and in the simulator.
 *
 *   request --> route --+--> local: wait -> prefill (chunks) -> decode -> events
 *                       +--> forward to peer -> its tokens -> events; refused, late or dead: route again, then self
 *
 * Threading: one thread (the loop, node_loop.h) calls everything here. Other threads use the inbox (request.h).
 */
#ifndef HEARSAY_SERVE_NODE_H
#define HEARSAY_SERVE_NODE_H

#include <stdbool.h>
#include <stdint.h>

#include "core/base/error.h"
#include "core/base/metrics.h"
#include "core/base/strbuf.h"
#include "core/cluster/cluster.h"
#include "core/port/backend.h"
#include "core/port/env.h"
#include "core/port/transport.h"
#include "core/serve/request.h"

struct node;

enum { NODE_MAX_WAITING = 32767, NODE_MAX_SEQUENCES = 4096 };

struct node_config {
    struct cluster_config cluster; /* page_tokens and arithmetic are taken from the backend */
    uint8_t group_key[32];
    const char *model_name;      /* label of metrics */
    uint32_t n_context;          /* longest sequence */
    uint32_t max_sequences;      /* running at once, 0: 64; at most NODE_MAX_SEQUENCES */
    uint32_t max_waiting;        /* queue; more are refused, 0: 1024; at most NODE_MAX_WAITING */
    uint32_t max_batch_tokens;   /* rows of a step, 0: grown from the measured roofline */
    uint32_t push_back_depth;    /* 0: 8 */
    uint64_t tree_bytes;         /* cap of the radix tree, 0: default */
    uint64_t forward_timeout_ns; /* to the first sign of life of a forwarded request, 0: default */
    /* Called by node_step whenever requests may have had events, once it has submitted the next step: whoever reads them can be woken here, not
     * event by event, while the node still had work to hand out. NULL: nothing. */
    void (*after_events)(void *arg);
    void *after_events_arg;
};

/* env, transport, backend and metrics outlive the node. transport NULL: a node alone. */
int node_create(const struct node_config *config, const struct env *env, struct transport *transport, struct backend *backend,
                struct metrics *metrics, struct node **out, struct error *err);
/* Every request in it gets its final event first (HS_ERR_CLOSED). */
void node_destroy(struct node *node);

int node_join(struct node *node, const char *address, struct error *err);

/* Does all the work that is due: polls transport and backend, gossip, routing, scheduling. Returns when it must run again if nothing happens. */
uint64_t node_step(struct node *node, uint64_t now_ns);
/* Whether the last step found anything to do: a busy loop spins on, an idle one may sleep. */
bool node_was_busy(const struct node *node);
bool node_is_computing(const struct node *node); /* a step is under way */

/* Takes a request; its events follow. Never fails: a refusal is the final event. */
void node_submit(struct node *node, struct request *request);
void node_cancel(struct node *node, struct request *request);
/* Cancels every request whose cancel_wanted is set. */
void node_cancel_wanted(struct node *node);
/* Weighted fair share of a tenant, 1 for all others. 0, HS_ERR_LIMIT (64 tenants have one) or HS_ERR_RANGE (not above 0). */
int node_set_tenant_weight(struct node *node, const char *tenant, float weight);

/* drain: finish what runs, refuse new work (503 at the edge), and have peers send none; until turned off. The group is left at node_destroy. */
void node_drain(struct node *node, bool on);
bool node_draining(const struct node *node);
bool node_drained(const struct node *node);
/* Empties the prefix cache and starts a new epoch. */
void node_flush(struct node *node);

/* JSON objects for status, /cluster and hearsay-ctl. */
void node_status_json(const struct node *node, struct strbuf *out);
void node_tree_json(const struct node *node, struct strbuf *out);

struct node_counts {
    uint32_t waiting, running, forwarded, computing_for_peers;
    uint32_t pages_total, pages_free, pages_in_tree;
};
void node_counts(const struct node *node, struct node_counts *out);

#endif

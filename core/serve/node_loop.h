/*
 * The thread that runs a node: drains the inbox, steps the node, and when nothing is to do backs off (pause, yield, then
 * sleep in epoll on the inbox, the transport and the backend until the node's next deadline).
 *
 * A backend may say that a step is about to end (backend.h). From then on the loop stays awake: it yields its CPU to whoever computes, and has
 * it back when the step ends, without being woken, with the caches warm.
 *
 * Threading: start and stop from one thread; step_ends is called from the loop's.
 */
#ifndef HEARSAY_SERVE_NODE_LOOP_H
#define HEARSAY_SERVE_NODE_LOOP_H

#include "core/base/error.h"
#include "core/port/env.h"
#include "core/serve/inbox.h"
#include "core/serve/node.h"

enum node_poll { NODE_POLL_ADAPTIVE, NODE_POLL_BUSY };

struct node_loop;

struct node_loop_config {
    struct node *node;         /* borrowed, like the next four */
    struct node_inbox *inbox;
    struct transport *transport; /* NULL: a node alone */
    struct backend *backend;
    const struct env *env;
    void (*step_ends)(void *arg); /* a step is about to end; NULL: nobody wants to know */
    void *step_ends_arg;
    enum node_poll poll;
    int cpu; /* -1: not pinned */
};

int node_loop_start(const struct node_loop_config *config, struct node_loop **out, struct error *err);
/* Drains for at most drain_ns (running answers finish, new ones are refused, peers are told), then stops and joins the thread. */
void node_loop_stop(struct node_loop *loop, uint64_t drain_ns);

/* The kernel's clock and random numbers. */
struct env node_env_kernel(void);

#endif

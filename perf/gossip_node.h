/*
 * A node reduced to its cluster: UDP on loopback, a thread, and a loop that sleeps in epoll until something arrives or is due, as a
 * node's does when nobody asks it anything. Each turn it calls the benchmark back, which inserts blocks or looks for them.
 *
 * Threading: init, start, stop and fini from one thread; on_turn is called on the node's.
 */
#ifndef HEARSAY_PERF_GOSSIP_NODE_H
#define HEARSAY_PERF_GOSSIP_NODE_H

#include <pthread.h>
#include <stdatomic.h>

#include "core/base/error.h"
#include "core/cluster/cluster.h"
#include "core/port/env.h"
#include "core/port/transport.h"

struct gossip_node {
    struct env env;
    struct transport *transport;
    struct transport_info info;
    struct cluster *cluster;
    struct radix_listener digest; /* what the node's tree would report to */
    int epoll_fd;
    pthread_t thread;
    bool is_running;
    atomic_bool stopping;
    /* Returns when it wants its next turn at the latest. */
    uint64_t (*on_turn)(void *self, struct gossip_node *node, uint64_t now_ns);
    void *self;
};

/* join: an address, or NULL. */
int gossip_node_init(struct gossip_node *node, const char *name, uint64_t gossip_interval_ns, const char *join, struct error *err);
int gossip_node_start(struct gossip_node *node, struct error *err);
void gossip_node_stop(struct gossip_node *node);
/* Also after an init that failed. */
void gossip_node_fini(struct gossip_node *node);

#endif

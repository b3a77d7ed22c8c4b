/*
 * A node reduced to its cluster: a process of its own, a fabric, and a loop that sleeps until something arrives or is due, as a node's does
 * when nobody asks it anything. Each turn it calls the benchmark back, which inserts blocks or looks for them in memory that both
 * processes share.
 *
 * Threading: none. start forks; stop ends the process. Errors: HS_ERR_* with one line; what happens in the child is told by gossip_node_state.
 */
#ifndef HEARSAY_PERF_GOSSIP_NODE_H
#define HEARSAY_PERF_GOSSIP_NODE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <sys/types.h>

#include "core/base/error.h"
#include "core/cluster/cluster.h"
#include "core/port/transport.h"
#include "perf/bench.h"

/* In memory that the processes share. */
struct gossip_node {
    const struct perf_config *config;
    char name[16];
    bool serves;                         /* it is called; else it calls */
    const struct gossip_node *joins;     /* once that is up; NULL: nobody */
    char address[TRANSPORT_ADDRESS_TEXT]; /* valid while is_up */
    atomic_bool is_up, is_stopping, has_failed;
    struct error err; /* valid once has_failed */
    pid_t pid;
    /* Of the child alone. */
    struct transport *transport;
    struct cluster *cluster;
    struct radix_listener digest; /* what the node's tree would report to */
    /* Returns when it wants its next turn at the latest. */
    uint64_t (*on_turn)(void *self, struct gossip_node *node, uint64_t now_ns);
    void *self;
};

int gossip_node_start(struct gossip_node *node, struct error *err);
/* 0, or what ended the node. */
int gossip_node_check(const struct gossip_node *node, struct error *err);
/* Also of one that was never started. */
void gossip_node_stop(struct gossip_node *node);

#endif

/*
 * The world of the conformance suite: up to 8 endpoints on one fabric, stepped together in real or virtual time, with all
 * that they received kept for the test to look at. One implementation for each way to make a transport.
 *
 * Threading: one thread. Everything is freed by world_destroy.
 */
#ifndef HEARSAY_CONFORM_FABRIC_H
#define HEARSAY_CONFORM_FABRIC_H

#include <stdbool.h>
#include <stdint.h>

#include "core/port/transport.h"

enum { WORLD_NODES = 8, WORLD_PEERS = 16 };

enum fabric { FABRIC_INPROC, FABRIC_SOCKETS, FABRIC_SIM_CLEAN, FABRIC_SIM_LOSSY, FABRIC_VERBS, FABRIC_VERBS_UD, FABRIC_DPDK, FABRIC_DPDK_LOSSY, FABRICS };

extern const char *const fabric_names[FABRICS];
/* Why the fabric cannot be tested on this machine, or NULL. */
const char *fabric_missing(enum fabric fabric);

struct message {
    struct message *next;
    uint32_t peer, len;
    uint8_t data[];
};

struct node {
    struct transport *transport; /* NULL: not running */
    bool stalled;                /* not polled: its thread does something else */
    char address[TRANSPORT_ADDRESS_TEXT];
    uint32_t ups[WORLD_PEERS], downs[WORLD_PEERS]; /* events seen, by peer */
    bool up[WORLD_PEERS];
    int down_status[WORLD_PEERS];
    uint64_t peer_boot_id[WORLD_PEERS];
    uint32_t n_up, n_messages, reads_done;
    int read_status;
    uint64_t read_cookie;
    void (*on_read)(void *arg, const struct transport_event *event); /* sees every READ_DONE, while its data is there */
    void *on_read_arg;
    struct message *messages, **messages_tail; /* in order of arrival */
};

struct world;

struct world *world_create(enum fabric fabric, uint64_t seed);
void world_destroy(struct world *world);
struct node *world_node(struct world *world, uint32_t i);
/* Starts (or restarts, at its old address) node i; wrong_key: with another group key. */
void world_start(struct world *world, uint32_t i, bool wrong_key);
/* Ends it; abruptly where the fabric can (no word reaches the peers). */
void world_stop(struct world *world, uint32_t i);
/* Makes a resolve b; returns a's number for b. */
uint32_t world_resolve(struct world *world, uint32_t a, uint32_t b);
/* Polls every node once and lets time pass to the next thing due. */
void world_step(struct world *world);
void world_run_ms(struct world *world, uint64_t ms);
/* Steps until condition(arg) holds; false after timeout_ms of the world's time. */
bool world_run_until(struct world *world, bool (*condition)(struct world *world, void *arg), void *arg, uint64_t timeout_ms);
/* Two nodes, started and up: a's number for b, and b's for a. */
void world_pair(struct world *world, uint32_t *a_to_b, uint32_t *b_to_a);
/* Sends one piece, stepping while the transport is busy. */
void world_send(struct world *world, uint32_t from, uint32_t peer, const void *data, size_t len);
/* Takes the oldest message of a node (to be freed), or NULL. */
struct message *world_take(struct world *world, uint32_t node);

#endif

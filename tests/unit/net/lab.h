/*
 * A bench for the reliable transport: a few nodes on a simulated wire, each behind a tap that records what it receives,
 * counts what it sends by type, and can be made to receive forged datagrams from any address. Virtual time; one thread.
 */
#ifndef HEARSAY_TEST_NET_LAB_H
#define HEARSAY_TEST_NET_LAB_H

#include <stdbool.h>
#include <stdint.h>

#include "net/net.h"
#include "net/sim_carrier.h"

enum { LAB_NODES = 4, LAB_PEERS = 8, LAB_RECORDS = 4096 };

struct record {
    struct carrier_address from;
    uint8_t *data;
    uint32_t len;
};

struct tap {
    struct carrier carrier;
    struct carrier *inner;
    bool recording;
    struct record records[LAB_RECORDS];
    uint32_t n_records;
    struct record injected; /* data NULL: none */
    uint32_t sent_by_type[16];
    uint8_t newest_generation;
};

struct lab_node {
    struct transport *transport;
    struct tap *tap;
    char name[32];
    const uint8_t *key; /* NULL: lab_key */
    uint32_t ups[LAB_PEERS], downs[LAB_PEERS];
    int down_status[LAB_PEERS];
    uint64_t boot_id[LAB_PEERS], down_ns[LAB_PEERS];
    uint32_t next_number; /* messages must be the numbers 0, 1, 2, ... (first 4 bytes) when checking is on */
    bool checking;
    bool in_sequence; /* instead: within a session each peer's numbers grow by one, across sessions they grow */
    uint32_t last[LAB_PEERS];
    bool session_new[LAB_PEERS]; /* nothing received yet */
    bool up[LAB_PEERS];
    uint32_t n_messages;
    uint64_t bytes, trace; /* trace: a hash of everything that happened */
};

struct lab {
    struct sim_net *net;
    uint64_t now_ns;
    struct net_tuning tuning;
    struct env env[LAB_NODES];
    struct lab_node nodes[LAB_NODES];
};

extern const uint8_t lab_key[NET_GROUP_KEY_BYTES];

struct lab *lab_create(uint64_t seed, const struct sim_link *link, const struct net_tuning *tuning);
struct lab *lab_create_on(const struct sim_net_config *config, const struct net_tuning *tuning);
void lab_destroy(struct lab *lab);
void lab_start(struct lab *lab, uint32_t i);
/* Without a word to anybody. */
void lab_crash(struct lab *lab, uint32_t i);
uint32_t lab_resolve(struct lab *lab, uint32_t a, uint32_t b);
/* Nodes 0 and 1 started and up: peer 0 of each other. */
void lab_pair(struct lab *lab);
void lab_step(struct lab *lab);
void lab_run_ms(struct lab *lab, uint64_t ms);
/* Runs until *count >= wanted; fails the test after timeout_ms of virtual time. */
void lab_wait(struct lab *lab, const uint32_t *count, uint32_t wanted, uint64_t timeout_ms);
int lab_send(struct lab *lab, uint32_t from, uint32_t peer, const void *data, size_t len, uint32_t flags);
/* Sends messages of len bytes numbered first .. first + n - 1, stepping while busy. */
void lab_send_numbers(struct lab *lab, uint32_t from, uint32_t peer, uint32_t first, uint32_t n, uint32_t len);
/* Node i's next receive brings this, as if from that address. Then polls it once. */
void lab_inject(struct lab *lab, uint32_t i, const struct carrier_address *from, const uint8_t *data, uint32_t len);
uint64_t lab_rejected(struct lab *lab, uint32_t i);

#endif

/*
 * Ports on a wire whose every datagram is in the hands of the fuzzer: what a port sends lies on the wire until the target
 * delivers, alters or drops it. Carriers for net/reliable; virtual time and random numbers without a seed from outside.
 *
 * Threading: one thread. Ownership: the fabric is caller-owned; transports are destroyed before fabric_close.
 */
#ifndef HEARSAY_TESTS_FUZZ_FABRIC_H
#define HEARSAY_TESTS_FUZZ_FABRIC_H

#include <stdbool.h>
#include <stdint.h>

#include "net/net.h"
#include "tests/fuzz/fuzz_env.h"

enum { FABRIC_PORTS = 3, FABRIC_WIRE = 256, FABRIC_MTU = 1452, FABRIC_INBOX = 64 };

struct fabric_datagram {
    uint8_t from, to;
    uint8_t *data;
    uint32_t len;
};

struct fabric;

struct fabric_port {
    struct carrier carrier;
    struct fabric *fabric;
    uint8_t number;
    struct fuzz_env source;
    struct fabric_datagram inbox[FABRIC_INBOX], given[FABRIC_INBOX];
    uint32_t n_inbox, n_given;
};

struct fabric {
    uint64_t now_ns;
    struct fabric_port ports[FABRIC_PORTS];
    struct fabric_datagram wire[FABRIC_WIRE]; /* [n_wire], oldest first; what comes when it is full is lost */
    uint32_t n_wire;
};

void fabric_open(struct fabric *fabric);
void fabric_close(struct fabric *fabric);
/* The group's key is a constant. NULL tuning: defaults. */
struct transport *fabric_transport(struct fabric *fabric, uint8_t port, const struct net_tuning *tuning);
struct env fabric_env(struct fabric *fabric, uint8_t port);
extern const uint8_t fabric_key[NET_GROUP_KEY_BYTES];

/* Port "to" receives a copy next, as if from port "from". */
void fabric_inject(struct fabric *fabric, uint8_t from, uint8_t to, const void *data, uint32_t len);
/* Takes a datagram off the wire. */
void fabric_drop(struct fabric *fabric, uint32_t index);

#endif

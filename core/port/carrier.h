/*
 * A carrier moves unreliable datagrams: UDP, DPDK frames, verbs UD, or the simulator's wire.
 *
 * Datagrams may be lost, doubled, reordered or cut off by a restart; never merged. net/reliable builds transport.h on any
 * of them. All calls come from one thread and never block.
 *
 * Datagrams come and go in bursts. Received data stays where the carrier has it (an mbuf, a kernel-filled buffer) until the next
 * receive; net/reliable opens it from there into memory of its own, or where it lies and keeps it there (keep). A carrier with transmit
 * buffers of its own lends them (lend), so that a datagram is sealed where it will be sent from; the headers in front are the carrier's
 * business.
 */
#ifndef HEARSAY_PORT_CARRIER_H
#define HEARSAY_PORT_CARRIER_H

#include <stddef.h>
#include <stdint.h>

enum { CARRIER_ADDRESS_BYTES = 48 };

/* Opaque to everyone but the carrier; compared and hashed over its first len bytes. */
struct carrier_address {
    uint8_t bytes[CARRIER_ADDRESS_BYTES];
    uint8_t len;
};

struct carrier_datagram {
    struct carrier_address address; /* destination on send, source on receive */
    uint8_t *data;                  /* send: caller's; receive: carrier's, valid until the next receive */
    uint32_t len;
    void *held;                     /* receive: for keep and authentic; NULL: it cannot be kept */
};

struct carrier_stats {
    uint64_t sent_datagrams, sent_bytes, received_datagrams, received_bytes;
    uint64_t dropped_datagrams; /* could not be sent */
    uint64_t missed_datagrams;  /* arrived and found no room: full socket buffer or receive ring, no free buffer */
    uint64_t rejected_words;    /* what carriers tell each other, where they do: failed to authenticate or malformed */
};

struct carrier;

struct carrier_ops {
    /* Largest payload of one datagram, in bytes: 1,200 to 65,000. Peers agree on the smaller of theirs. */
    uint32_t (*mtu)(const struct carrier *carrier);
    /* Text "host:port" to address (never a name look-up that blocks at run time: the result is cached by the caller). 0 or HS_ERR_PARSE, HS_ERR_NOT_FOUND. */
    int (*resolve)(struct carrier *carrier, const char *text, struct carrier_address *out);
    /* Address to text that resolve takes; always NUL-terminated. */
    void (*format)(const struct carrier *carrier, const struct carrier_address *address, char *text, size_t size);
    /* Hands over up to n datagrams; returns how many were taken (the rest: try later), or HS_ERR_*. */
    int (*send)(struct carrier *carrier, const struct carrier_datagram *datagrams, uint32_t n);
    /* Memory of mtu bytes for one datagram, or NULL when none is free now. It is the carrier's again once send has taken it; the
     * borrower sends what it borrowed in that order, or keeps it. The slot may be NULL: send copies out of the caller's memory. */
    uint8_t *(*lend)(struct carrier *carrier);
    /* Fills up to n datagrams; returns how many, fewer than n when there are no more just now, or HS_ERR_*. */
    int (*receive)(struct carrier *carrier, struct carrier_datagram *datagrams, uint32_t n);
    /* Leaves the data of a datagram that has just been received to the caller, to be written and read, until release. NULL: too many are
     * kept already. Both slots may be NULL. */
    void *(*keep)(struct carrier *carrier, void *held);
    void (*release)(struct carrier *carrier, void *kept);
    /* The datagram just received opened under its source's key: nobody has forged it. The slot may be NULL. */
    void (*authentic)(struct carrier *carrier, const struct carrier_datagram *datagram);
    /* Own address in text, as peers would reach it. */
    void (*local)(const struct carrier *carrier, char *text, size_t size);
    /* Readable when receive would return something, or -1. */
    int (*wait_fd)(const struct carrier *carrier);
    void (*stats)(const struct carrier *carrier, struct carrier_stats *out);
    void (*destroy)(struct carrier *carrier);
};

/* First member of every carrier's own struct. */
struct carrier {
    const struct carrier_ops *ops;
};

#endif

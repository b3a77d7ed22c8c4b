/*
 * Packets of the verbs transport, and the sizes that it is built on. Layouts in docs/protocol-verbs.md. Pure.
 */
#ifndef HEARSAY_NET_VERBS_PACKET_H
#define HEARSAY_NET_VERBS_PACKET_H

#include <stdint.h>

enum {
    VERBS_MAX_MESSAGE = 2 << 20,
    VERBS_MAX_UNRELIABLE = 1164, /* as in the fabric protocol */
    VERBS_HEADER_BYTES = 24,
    VERBS_RECORD_BYTES = 4, /* a message's length in front of it */
    VERBS_PAYLOAD_BYTES = 8192 + VERBS_RECORD_BYTES,
    VERBS_CREDITS = 32,
    VERBS_SPARE = 4,
    VERBS_SEND_DEPTH = 64,
    VERBS_BATCH = 16, /* packets posted at a time */
    VERBS_SIGNAL_EVERY = 16,
    VERBS_MAX_READS = 16,   /* outstanding at once */
    VERBS_READ_QUEUE = 64,  /* and waiting */
    VERBS_READ_SLOTS = 64,  /* of all peers, posted */
    VERBS_UNRELIABLE_BYTES = 512 << 10,
    VERBS_COUNTS = 11,
};

enum packet_kind { PACKET_STREAM = 1, PACKET_UNRELIABLE = 2, PACKET_CREDIT = 3 };

/* In front of every packet, its numbers little-endian. */
struct packet_header {
    uint8_t kind, generation;
    uint16_t reserved;
    uint32_t granted;       /* packets that the receiver may send in all, the lower half */
    uint64_t seen, counter; /* packets that the sender has taken in order; which of its own this is */
};
_Static_assert(sizeof(struct packet_header) == VERBS_HEADER_BYTES, "as on the wire");

#endif

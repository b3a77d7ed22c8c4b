/*
 * What two verbs transports tell each other through their bootstrap session, which seals it and keeps its order. Pure.
 *
 *     OFFER    here is my end of attempt `epoch` of a pair of queues          (each side sends one)
 *     READY    my end is connected to yours: you may send                     (each side sends one)
 *     RESET    attempt `epoch` has failed; a new one will come
 *     PING     nothing: the answer is the bootstrap's acknowledgement
 *     QUERY    where is your region?      REGION   there, or nowhere
 *
 * Layouts in docs/protocol-verbs.md. Errors: decode gives HS_ERR_PROTOCOL for anything malformed.
 */
#ifndef HEARSAY_NET_VERBS_CONTROL_H
#define HEARSAY_NET_VERBS_CONTROL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { CONTROL_VERSION = 1, CONTROL_MAX_BYTES = 128, CONTROL_SECRET_BYTES = 32 };

enum control_type { CONTROL_OFFER = 1, CONTROL_READY, CONTROL_RESET, CONTROL_PING, CONTROL_QUERY, CONTROL_REGION };
enum control_pair { CONTROL_MESSAGES = 0, CONTROL_READS = 1, CONTROL_PAIRS };

struct control {
    enum control_type type;
    enum control_pair pair; /* OFFER, READY, RESET */
    uint32_t epoch;         /* the same */

    /* OFFER */
    uint32_t queue_pair, packet_number; /* its number and its first packet's, 24 bits each */
    uint16_t lid, mtu_bytes;
    uint8_t gid[16];
    bool infiniband;
    uint16_t credits; /* packets that may be sent at once */
    uint16_t reads;   /* outstanding reads that the sender answers */
    uint32_t ciphers; /* mask, as in the fabric protocol's hello */
    uint8_t secret[CONTROL_SECRET_BYTES]; /* from which the sender's packet keys come */

    /* QUERY, REGION */
    uint32_t region;
    bool found;
    uint64_t address;
    uint32_t key, n_pages, page_bytes, publication;
};

size_t control_encode(const struct control *control, uint8_t out[CONTROL_MAX_BYTES]);
int control_decode(const uint8_t *data, size_t len, struct control *out);

#endif

/*
 * What the datagram carrier over verbs (net/verbs/ud.h) says besides its users' datagrams. Pure.
 *
 *     header   in front of every datagram, or of every piece of one that the path MTU is too small for: who sends it, as the address on
 *              which it is called
 *     word     over UDP, from --bind to --bind: ASK where your queue pairs are, TELL here; sealed with the group's key
 *
 * A TELL repeats the nonce of its ASK, so an old one says nothing; it goes to the address in the ASK, so one who repeats another's ASK gets
 * none; and it is as long, so nobody is flooded by it. Layouts in docs/protocol-verbs.md. Errors: HS_ERR_PROTOCOL for anything malformed,
 * HS_ERR_AUTH for another key's.
 */
#ifndef HEARSAY_NET_VERBS_UD_MESSAGE_H
#define HEARSAY_NET_VERBS_UD_MESSAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/port/carrier.h"

enum { UD_VERSION = 2, UD_HEADER_BYTES = 24, UD_WORD_BYTES = 200, UD_NONCE_BYTES = 16, UD_KEY_BYTES = 32, UD_MAX_PORTS = 4, UD_MAX_PIECES = 32 };

/* A piece of a datagram: its bytes from index * size on, `size` of them save in the last. */
struct ud_piece {
    uint16_t number, size; /* number: of the datagram; size 0: no piece, a whole one */
    uint8_t index;
    bool last;
};

/* source: an address of net/udp_address.h without a scope. The header of a whole datagram. */
void ud_header_write(const struct carrier_address *source, uint8_t out[UD_HEADER_BYTES]);
/* Makes it that of a piece. */
void ud_header_cut(uint8_t header[UD_HEADER_BYTES], const struct ud_piece *piece);
/* len: of header and content, which fits the piece if there is no error. */
int ud_header_read(const uint8_t *data, size_t len, struct carrier_address *source, struct ud_piece *piece);

struct ud_port { /* one queue pair of a node */
    uint8_t gid[16];
    uint32_t queue_pair, queue_key;
    uint16_t lid, mtu_bytes;
    bool infiniband;
};

enum ud_word_type { UD_ASK = 1, UD_TELL = 2 };

struct ud_word {
    enum ud_word_type type;
    uint8_t nonce[UD_NONCE_BYTES];
    struct carrier_address asker; /* ASK: who is to be told */
    uint32_t n_ports;             /* TELL */
    struct ud_port ports[UD_MAX_PORTS];
};

/* From the group's key, [32] or NULL for a group without one. */
void ud_word_key(const uint8_t *group_key, uint8_t out[UD_KEY_BYTES]);
/* random: for this word alone. */
void ud_word_encode(const struct ud_word *word, const uint8_t key[UD_KEY_BYTES], const uint64_t random[3], uint8_t out[UD_WORD_BYTES]);
int ud_word_decode(const uint8_t *data, size_t len, const uint8_t key[UD_KEY_BYTES], struct ud_word *out);

#endif

/*
 * Datagrams that came in pieces, being put together in the receive buffer of the piece that came first. Pure.
 *
 *     first piece of a datagram --> its buffer is held --more, in any order, some twice--> whole: the buffer is handed out
 *                                        '--- too old, or the place is needed ---> given back
 *
 * A bounded table, as every buffer held is one less in the receive ring. Threading: one thread.
 */
#ifndef HEARSAY_NET_VERBS_UD_PIECES_H
#define HEARSAY_NET_VERBS_UD_PIECES_H

#include "net/verbs/ud_message.h"

enum { UD_ASSEMBLIES = 64 };

struct ud_assembly {
    struct carrier_address source;
    uint16_t number, size;
    uint32_t have, n_pieces, len; /* have: bit i, piece i; n_pieces, len: 0 until the last piece has come */
    void *buffer;                 /* the owner's */
    uint8_t *data;                /* piece 0 lies, or will lie, here */
    uint64_t since_ns;
};

struct ud_assemblies {
    struct ud_assembly all[UD_ASSEMBLIES];
    uint32_t n, cap;           /* cap: at most UD_ASSEMBLIES */
    void (*release)(void *buffer); /* what is no longer needed */
};

/*
 * A piece has come in `buffer`, its len bytes at data, where there is room for `room`. The buffer is the table's from now on. Returns the
 * buffer of a datagram that is whole now, which is the caller's again, with *out and *out_len in it; NULL otherwise.
 */
void *ud_assemble(struct ud_assemblies *table, const struct carrier_address *source, const struct ud_piece *piece, void *buffer, uint8_t *data,
                  uint32_t len, uint32_t room, uint64_t now_ns, uint8_t **out, uint32_t *out_len);
/* Gives up those that began before then. */
void ud_assemblies_expire(struct ud_assemblies *table, uint64_t before_ns);

#endif

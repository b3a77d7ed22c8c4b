/*
 * Datagrams over verbs: one unreliable (UD) queue pair per rail for all peers, for groups where one queue pair per peer is too many.
 *
 *     node loop        transport.h
 *     net/reliable     order, exactly once, repetition, congestion, sealing: as over sockets
 *     ud_carrier.c     this: datagrams through UD queue pairs, sealed in registered memory; each in one packet, or, where the path MTU is
 *                      below 2,048, in two or more (ud_pieces.h)
 *     ud_neighbours.c  who is where: asked over UDP on --bind (ud_message.h), as IP asks by ARP; address handles are kept
 *
 * A node costs its peers an entry in a table and an address handle instead of two queue pairs, 36 receives and 152 completions. It does not
 * read remote memory, and what the device would repeat by itself the program repeats: queue pairs per peer are the better choice while there
 * are enough of them.
 *
 * Threading and ownership as for every transport (net/net.h). Errors as for net/verbs/verbs.h.
 */
#ifndef HEARSAY_NET_VERBS_UD_H
#define HEARSAY_NET_VERBS_UD_H

#include "core/port/carrier.h"
#include "net/verbs/verbs.h"

/* The same configuration; bind is also the address that peers know the node by. */
int transport_verbs_ud_create(const struct transport_verbs_config *config, const struct env *env, struct transport **out, struct error *err);
/* The carrier alone. */
int verbs_ud_carrier_create(const struct transport_verbs_config *config, const struct env *env, struct carrier **out, struct error *err);

struct verbs_ud_stats {
    uint64_t asks, tells;  /* sent: where is somebody, here we are */
    uint64_t refused;      /* such words that did not hold our group's key, or were malformed */
    uint64_t unresolved;   /* datagrams dropped because nobody said where their address is */
    uint64_t foreign;      /* datagrams that were none of a group's */
    uint64_t pieces;       /* received, of datagrams that did not fit the path MTU */
    uint64_t moved;        /* times that a neighbour was asked because a datagram came from another queue pair than the known one */
    uint64_t restarts;     /* times that a queue pair had to be made ready anew */
    uint64_t drained;      /* times that a receive ring was found to have run empty: what came then was lost, and comes again */
    uint64_t path_asks;    /* questions to the subnet manager */
    uint64_t doorbells, wakeups;
};

/* carrier: one made by verbs_ud_carrier_create. */
void verbs_ud_stats(const struct carrier *carrier, struct verbs_ud_stats *out);

#endif

/*
 * Who is behind an IPv4 address on our segment: the address resolution cache, and the little switch in one, as an entry also says which
 * of our ports the neighbour was heard on.
 *
 *     ip --hash--> set of 8 entries --> { MAC, port, when heard, when asked }
 *
 * An entry is filled by ARP and kept fresh by any datagram that comes from its address. Not heard for STALE_US while we send, it is asked
 * again beside the traffic; after so many requests without an answer it is unknown, and traffic waits for one. The table has a fixed size: in a full set the
 * entry that was used longest ago makes room, so strangers can cost an answer, never memory.
 *
 * Pure data, time comes in. Threading: one thread.
 */
#ifndef HEARSAY_NET_DPDK_NEIGHBOURS_H
#define HEARSAY_NET_DPDK_NEIGHBOURS_H

#include <stdbool.h>
#include <stdint.h>

#include "net/dpdk/frame.h"

enum { NEIGHBOUR_SETS = 512, NEIGHBOUR_WAYS = 8 };
enum { NEIGHBOUR_STALE_US = 1000000, NEIGHBOUR_ASK_US = 100000, NEIGHBOUR_MOST_UNANSWERED = 8 };

struct neighbour {
    uint32_t ip; /* 0: free */
    uint8_t mac[FRAME_MAC_BYTES];
    uint16_t port;     /* of ours, by which it is reached */
    bool known;        /* mac and port are set */
    uint64_t heard_us; /* if known */
    uint64_t asked_us; /* 0: never */
    uint32_t unanswered; /* requests since it was heard */
    uint64_t used_us;
};

struct neighbours {
    struct neighbour of[NEIGHBOUR_SETS][NEIGHBOUR_WAYS];
};

/* NULL: none. */
struct neighbour *neighbours_find(struct neighbours *all, uint32_t ip);
/* Finds or makes; never NULL. */
struct neighbour *neighbours_get(struct neighbours *all, uint32_t ip, uint64_t now_us);
/* ip was heard with this MAC on this port. Returns whether that is news. */
bool neighbour_heard(struct neighbour *neighbour, const uint8_t *mac, uint16_t port, uint64_t now_us);
/* Whether to send a request now, for one that is unknown or stale; counts it as sent, and may find that the neighbour is gone. */
bool neighbour_ask(struct neighbour *neighbour, uint64_t now_us);
/* Everybody heard on that port is unknown from now on: its link went down. */
void neighbours_forget_port(struct neighbours *all, uint16_t port);

#endif

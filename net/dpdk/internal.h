/*
 * Inside of the DPDK carrier, shared by carrier*.c and counts.c.
 *
 *     lent[]     buffers sealed into, in the order in which they will be sent
 *     in[]       | handed out, freed at the next receive but for those kept (NULL) | received, not handed out yet |   found[]: the same as datagrams
 *     waiting[]  complete but for the MAC of a neighbour that was asked for it
 *
 * A frame of ours begins at RTE_PKTMBUF_HEADROOM, where a line of the cache begins: drivers that copy it (memif) have a quicker loop for that. Its
 * headers are written when it leaves.
 */
#ifndef HEARSAY_NET_DPDK_INTERNAL_H
#define HEARSAY_NET_DPDK_INTERNAL_H

#include <rte_cycles.h>
#include <rte_ethdev.h>
#include <rte_mbuf.h>

#include "net/dpdk/device_text.h"
#include "net/dpdk/dpdk.h"
#include "net/dpdk/interrupts.h"
#include "net/dpdk/neighbours.h"
#include "net/dpdk/port.h"

enum { DPDK_LENT = 256, DPDK_IN = 256, DPDK_BURST = 32, DPDK_WAITING = 64, DPDK_KEPT = 256 };
enum { DPDK_COUNTS = 13 };

struct dpdk_waiting {
    struct rte_mbuf *mbuf;
    uint32_t ip; /* of the next hop */
    uint64_t since_us;
};

struct dpdk {
    struct carrier carrier;
    struct dpdk_poller poller; /* polls while a function of the carrier has to do with ports */
    uint32_t ip, mask, gateway, mtu; /* mtu: of a datagram */
    uint16_t udp_port;
    uint64_t owner, ticks_per_us, now_us, watch_us, count_us; /* now_us: a few looks old at most */
    uint32_t looks;
    struct dpdk_port ports[DEVICE_TEXT_PORTS];
    uint32_t n_ports, first_port; /* first_port: whose turn it is to be looked at first */
    bool shares_memory;           /* one of the ports does */
    struct rte_mempool *pool;

    struct rte_mbuf *lent[DPDK_LENT]; /* ring */
    uint32_t lent_first, lent_n;
    struct rte_mbuf *in[DPDK_IN];
    struct carrier_datagram found[DPDK_IN];
    uint32_t in_handed, in_n, n_kept;
    struct dpdk_waiting waiting[DPDK_WAITING];
    uint32_t n_waiting;

    struct neighbour *last_to, *last_from; /* most datagrams go where the one before went */
    struct neighbours neighbours;
    bool told_conflict;
    struct carrier_stats stats;
    struct dpdk_carrier_stats counts, told;
    struct metrics *metrics;
    struct counter *counters[DPDK_COUNTS];
};

static inline struct dpdk *dpdk_of(const struct carrier *carrier)
{
    return (struct dpdk *)(uintptr_t)carrier;
}

static inline uint64_t dpdk_now_us(struct dpdk *self)
{
    return self->now_us = rte_get_tsc_cycles() / self->ticks_per_us;
}

/* carrier_send.c */
uint8_t *dpdk_lend(struct carrier *carrier);
int dpdk_send(struct carrier *carrier, const struct carrier_datagram *datagrams, uint32_t n);
/* kind and to as for frame_write_arp; from: us, on that port. */
void dpdk_send_arp(struct dpdk *self, struct dpdk_port *port, enum frame_kind kind, const struct frame_end *to);
/* Says on a port where we are. */
void dpdk_announce(struct dpdk *self, struct dpdk_port *port);
/* The neighbour is known now: what waited for it leaves. */
void dpdk_send_waiting(struct dpdk *self, const struct neighbour *neighbour);
/* Gives up what has waited too long; all: everything. */
void dpdk_drop_waiting(struct dpdk *self, bool all);

/* carrier_receive.c */
int dpdk_receive(struct carrier *carrier, struct carrier_datagram *datagrams, uint32_t n);
void *dpdk_keep(struct carrier *carrier, void *held);
void dpdk_release(struct carrier *carrier, void *kept);

/* counts.c */
int dpdk_counts_open(struct dpdk *self, struct error *err);
/* Takes what the devices have counted, and carries all over to the metrics. */
void dpdk_counts_take(struct dpdk *self);

#endif

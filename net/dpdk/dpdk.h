/*
 * The DPDK fabric: Ethernet ports driven from user space, without the kernel.
 *
 *     node loop      transport.h
 *     net/reliable   order, repetition, sealing: as over sockets
 *     carrier.c      polls the ports' rings in bursts; datagrams are sealed in the very buffers that leave, and opened from those that came
 *     frame.c        IPv4/UDP and ARP, neighbours.c: who is where
 *     port.c, eal.c  DPDK's ethdev and environment
 *
 * Several ports make one carrier: a neighbour is reached by the port it was heard on, broadcasts leave by all. A group can so be meshed with
 * pairwise shared-memory links (memif) or sit on one switch.
 *
 * The environment (EAL) is one per process and lives until the process ends; a second carrier must ask for the same arguments and other ports.
 *
 * Threading and ownership as for every transport (net/net.h); polled, wait_fd is -1. Errors: HS_ERR_UNSUPPORTED when the program was built
 * without DPDK or the machine lacks hugepages, rights or a port; each with one line that says what to do.
 */
#ifndef HEARSAY_NET_DPDK_DPDK_H
#define HEARSAY_NET_DPDK_DPDK_H

#include <stdbool.h>
#include <stdint.h>

#include "core/base/metrics.h"
#include "core/port/carrier.h"
#include "net/net.h"

struct dpdk_carrier_config {
    const char *bind;   /* "10.0.0.1:7070": an IPv4 address of our own (not the kernel's), and a port */
    const char *eal;    /* arguments of the EAL, NULL: none */
    const char *device; /* net/dpdk/device_text.h; NULL: every port there is */
    struct metrics *metrics; /* NULL: none; else it outlives the carrier and gets hearsay_dpdk_* */
};

int dpdk_carrier_create(const struct dpdk_carrier_config *config, struct carrier **out, struct error *err);

struct dpdk_carrier_stats {
    uint64_t received_frames, sent_frames;
    uint64_t foreign_frames;    /* not for us: other protocols, addresses, ports */
    uint64_t bad_frames;        /* cut off or with a wrong checksum */
    uint64_t arp_requests, arp_replies; /* sent */
    uint64_t unresolved;        /* datagrams dropped because nobody answered for their address */
    uint64_t stuck;             /* datagrams dropped because a port took nothing: its link was down or its other end hung */
    uint64_t missed;            /* frames that found no room in a receive ring */
    uint64_t no_mbuf;           /* frames, or datagrams to be sent, that found no buffer */
    uint64_t receive_errors, send_errors;
    uint64_t link_changes;
};

/* carrier: one made by dpdk_carrier_create. */
void dpdk_carrier_stats(const struct carrier *carrier, struct dpdk_carrier_stats *out);

struct transport_dpdk_config {
    struct dpdk_carrier_config carrier;
    const uint8_t *group_key; /* [NET_GROUP_KEY_BYTES] or NULL ... */
    bool insecure_peers;      /* ... which needs this: an Ethernet segment is no loopback */
    struct net_tuning tuning;
};

int transport_dpdk_create(const struct transport_dpdk_config *config, const struct env *env, struct transport **out, struct error *err);

#endif

/*
 * One Ethernet port: set up for the carrier's needs, started, watched.
 *
 * A device that copies frames out of its buffers (memif, af_packet, ring ...) keeps none of ours in its rings, so the pool counts only
 * what is under way; for all others it is sized at twice the rings. Threading: the carrier's thread. Errors: one line.
 */
#ifndef HEARSAY_NET_DPDK_PORT_H
#define HEARSAY_NET_DPDK_PORT_H

#include <stdbool.h>
#include <stdint.h>

#include <rte_mempool.h>

#include "core/base/error.h"
#include "net/dpdk/call.h"
#include "net/dpdk/frame.h"

/* As the device has last said. */
struct dpdk_port_counts {
    uint64_t missed, no_mbuf, receive_errors, send_errors;
};

struct dpdk_port {
    uint16_t id;
    uint16_t queues; /* of each direction */
    uint8_t mac[FRAME_MAC_BYTES];
    bool copies;     /* as above */
    bool unruly;     /* its link goes up and down in DPDK's interrupt thread, without regard to bursts: see interrupts.h */
    bool shares_memory; /* with the other end, which could read and change what is opened there */
    bool reconnects; /* a memif client, which calls its server only when it is started, and cannot be when nobody answers */
    bool started, up;
    bool lost;       /* its call cannot be ended: nobody may use it any more */
    struct dpdk_call *call; /* to the server of one that reconnects; until it is over the port is not started */
    uint32_t mtu;    /* of IP packets, as the device has it */
    uint16_t ring;   /* descriptors of a queue */
    uint32_t least_room; /* of a buffer, in bytes of a frame */
    uint64_t stuck_since_us; /* 0: it takes frames */
    uint64_t try_us;         /* when one that reconnects is started next */
    struct dpdk_port_counts counts;
    const char *name;
};

/* Looks at port id and claims it for owner; HS_ERR_BUSY when another carrier has it. queues: as many as asked for and possible. */
int dpdk_port_claim(struct dpdk_port *port, uint16_t id, uint64_t owner, uint32_t queues, struct error *err);
/* Buffers that a pool must have for it. */
uint32_t dpdk_port_buffers(const struct dpdk_port *port);
/* mtu: of IP packets, at most what it takes. One that reconnects is only called; dpdk_port_watch says what came of it. */
int dpdk_port_start(struct dpdk_port *port, uint32_t mtu, struct rte_mempool *pool, struct error *err);
/* Looks whether the link is up, calls again where that is ours to do. Returns whether it changed. */
bool dpdk_port_watch(struct dpdk_port *port, uint64_t now_us);
/* Waits a little for a call under way and then ends it, as dpdk_port_release must not be in the interrupt thread's way for it. */
void dpdk_port_hang_up(struct dpdk_port *port);
void dpdk_port_release(struct dpdk_port *port, uint64_t owner);

#endif

/*
 * The verbs transport: messages over reliable queue pairs of an RDMA device, regions of memory read one-sidedly.
 *
 *     node loop     transport.h
 *     this          a stream of messages per peer, sealed, in packets of up to 8 KiB; credits; RDMA READ of published regions
 *     libibverbs    one queue pair per peer for messages, a second one for reads (an error there does not touch messages)
 *     bootstrap     net/sockets on --bind: finds, authenticates and watches peers and carries the queue pairs' numbers, sealed
 *
 * docs/protocol-verbs.md describes what goes over the wire, docs/decisions/050-verbs-bootstrap.md why the bootstrap is ours.
 *
 * Threading and ownership as for every transport (net/net.h). Errors: HS_ERR_UNSUPPORTED when the program was built without
 * libibverbs or the machine has no usable device; each with one line that says what to do.
 */
#ifndef HEARSAY_NET_VERBS_VERBS_H
#define HEARSAY_NET_VERBS_VERBS_H

#include <stdbool.h>
#include <stdint.h>

#include "core/base/metrics.h"
#include "net/net.h"

struct transport_verbs_config {
    const char *bind;         /* address of the bootstrap, and, where an RDMA port has it, of that port */
    const char *device;       /* DEV[:PORT[:GID-INDEX]], several with commas; NULL: the best that is there */
    const uint8_t *group_key; /* [NET_GROUP_KEY_BYTES] or NULL: then bind must be loopback ... */
    bool insecure_peers;      /* ... unless this is set */
    uint8_t service_level;    /* InfiniBand */
    uint8_t traffic_class;    /* RoCE: the IP header's, 4 times the DSCP */
    bool ask_paths;           /* for path records on Ethernet, too, where they say nothing new: for tests */
    uint32_t receive_datagrams; /* net/verbs/ud.h: that may wait at each rail, at least 16; 0: 1,024 */
    struct metrics *metrics;  /* NULL: none; else it outlives the transport and gets hearsay_verbs_* */
    struct net_tuning tuning; /* of the bootstrap; send_buffer_bytes, ciphers and rekey_* of the queue pairs, too */
};

int transport_verbs_create(const struct transport_verbs_config *config, const struct env *env, struct transport **out,
                           struct error *err);

struct transport_verbs_stats {
    uint64_t posts, doorbells; /* packets posted, and calls that posted them */
    uint64_t completions;      /* of any kind */
    uint64_t credit_stalls;    /* times that a peer's queue had to wait for the receiver */
    uint64_t credit_packets;   /* packets that carried nothing but credit */
    uint64_t reads, read_retries, read_failures, torn_reads;
    uint64_t path_asks;        /* questions to the subnet manager */
    uint64_t wakeups;          /* events taken from a completion channel */
};

/* HS_ERR_UNSUPPORTED for another kind of transport. */
int transport_verbs_stats(const struct transport *transport, struct transport_verbs_stats *out);

#endif

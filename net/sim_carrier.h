/*
 * A simulated wire: carriers joined by a net in virtual time, with delay, jitter, loss, duplication, reordering,
 * corruption, one-way cuts, crashes and a bandwidth limit, all drawn from one seed. The same calls in the same order
 * give the same datagrams at the same times.
 *
 *     endpoint "a:1" --send--> [ link a->b: faults, delay ] --due--> inbox of "b:1" --receive--> datagrams with due <= now
 *
 * The driver owns time. One turn of a world reads:
 *
 *     now = least of sim_net_next_event_ns(net) and every node's own deadline
 *     sim_net_advance(net, now)
 *     step every node (poll its transport with now)
 *
 * Endpoints are named by any text of at most CARRIER_ADDRESS_BYTES bytes that holds a ':' ("node1:7070"). A carrier that is
 * destroyed is gone: nothing leaves or reaches the endpoint until a carrier with the same name is created, which is a
 * restart; datagrams still on the wire then reach the newcomer, as they do in life. A transport says good-bye when it is
 * destroyed; sim_net_kill beforehand makes it a crash.
 *
 * Threading: a net and all its carriers belong to one thread. Ownership: carriers are destroyed before their net.
 * Errors: create functions leave one line in err.
 */
#ifndef HEARSAY_NET_SIM_CARRIER_H
#define HEARSAY_NET_SIM_CARRIER_H

#include <stdbool.h>
#include <stdint.h>

#include "core/base/error.h"
#include "core/port/carrier.h"
#include "core/port/env.h"

/* One direction between two endpoints. Zero-initialised: instant, perfect, unlimited. Probabilities are 0 .. 1 per datagram. */
struct sim_link {
    uint64_t delay_ns;    /* one way */
    uint64_t jitter_ns;   /* adds a uniform 0 .. jitter_ns to each datagram; order is kept unless reordered */
    double loss;          /* vanishes */
    double duplicate;     /* arrives twice */
    double reorder;       /* held back by reorder_ns, so that later ones overtake */
    uint64_t reorder_ns;  /* 0: 1 ms */
    double corrupt;       /* one random bit is flipped */
    uint64_t bytes_per_s; /* 0: unlimited; otherwise datagrams queue for the wire ... */
    uint64_t queue_bytes; /* ... in a queue of this size (0: 256 KiB); what does not fit vanishes */
    bool cut;             /* nothing passes */
};

struct sim_net_config {
    uint64_t seed;
    uint32_t mtu;         /* 0: 1,452 bytes */
    struct sim_link link; /* what every link is until set otherwise */
};

struct sim_net_stats {
    uint64_t sent, delivered, lost, duplicated, reordered, corrupted, cut;
};

struct sim_net;

/* NULL only when out of memory. */
struct sim_net *sim_net_create(const struct sim_net_config *config);
void sim_net_destroy(struct sim_net *net);

/* Moves virtual time forward (never back); datagrams due by then can be received. */
void sim_net_advance(struct sim_net *net, uint64_t now_ns);
uint64_t sim_net_now_ns(const struct sim_net *net);
/* When the earliest datagram on the wire falls due, or now when one waits to be received; UINT64_MAX: nothing. */
uint64_t sim_net_next_event_ns(const struct sim_net *net);
/* The same of the wire alone, whatever waits in inboxes: for a driver that does not step every endpoint in every turn. */
uint64_t sim_net_next_flight_ns(const struct sim_net *net);

/* Faults of all links not set one by one. */
void sim_net_set_default_link(struct sim_net *net, const struct sim_link *link);
/* Faults of one direction from now on; what is on the wire keeps its time. Names need no carrier yet. 0 or HS_ERR_INVALID,
 * HS_ERR_NO_MEMORY. */
int sim_net_set_link(struct sim_net *net, const char *from, const char *to, const struct sim_link *link);
/* The link as it stands, default or own. 0 or HS_ERR_INVALID, HS_ERR_NO_MEMORY. */
int sim_net_get_link(struct sim_net *net, const char *from, const char *to, struct sim_link *out);
/* Cuts or mends both directions between two endpoints, or between one and all known so far with b == NULL. Other faults stay. 0 or
 * as above. */
int sim_net_set_cut(struct sim_net *net, const char *a, const char *b, bool cut);
/* From now on nothing that the endpoint's carrier sends leaves and nothing reaches it, as when its process is killed. The
 * carrier stays to be destroyed; one created after that works. 0 or as above. */
int sim_net_kill(struct sim_net *net, const char *name);
void sim_net_stats(const struct sim_net *net, struct sim_net_stats *out);

/* 0 or HS_ERR_INVALID (no ':' or too long), HS_ERR_BUSY (a live carrier has the name), HS_ERR_NO_MEMORY. */
int sim_carrier_create(struct sim_net *net, const char *name, struct carrier **out, struct error *err);

/* Datagrams that the carrier's endpoint has not received yet. */
uint32_t sim_carrier_waiting(const struct carrier *carrier);

/* Virtual time and random numbers of a stream of their own, from the net's seed and the stream's number. Valid while the net lives.
 */
int sim_net_env(struct sim_net *net, uint64_t stream, struct env *out);

#endif

/*
 * Inside of the datagram carrier over verbs, shared by ud_*.c.
 *
 *     lent[]     buffers being sealed into, in the order in which they will be sent
 *     handed[]   what the last receive gave out, posted again by the next
 *     waiting[]  datagrams whose neighbour has been asked where it is, or copies of what went to one that seems to have moved
 *     pieces     of datagrams that are not whole yet
 *
 * A buffer holds the header and the datagram when it is sent; when it is received, 40 bytes of routing header come first. A datagram that is too
 * long for the path's MTU leaves as several sends of a buffer each.
 */
#ifndef HEARSAY_NET_VERBS_UD_INTERNAL_H
#define HEARSAY_NET_VERBS_UD_INTERNAL_H

#include <infiniband/verbs.h>

#include "net/verbs/path_records.h"
#include "net/verbs/rail.h"
#include "net/verbs/ud.h"
#include "net/verbs/ud_handles.h"
#include "net/verbs/ud_neighbours.h"
#include "net/verbs/ud_pieces.h"

enum {
    UD_ROUTE_BYTES = 40, /* room for a global routing header in front of what is received */
    UD_RECEIVES = 1024,
    UD_LEAST_RECEIVES = 16, /* of which a quarter may hold datagrams that are not whole */
    UD_SENDS = 256,
    UD_SIGNAL_EVERY = 16,
    UD_BURST = 32,
    UD_HANDED = 64,
    UD_LENT = 256,
    UD_WAITING = 128,
    UD_COUNTS = 12,
};
_Static_assert((int)UD_MAX_PORTS == (int)DEVICE_MAX_RAILS, "a neighbour has as many queue pairs as we may have rails");

struct ud_rail {
    struct verbs_rail rail;
    struct ibv_qp *qp;
    struct ibv_cq *sent; /* completions of sends; those of receives are the rail's */
    uint32_t queue_key, generation; /* generation: how often the queue pair was made ready; completions of earlier ones say nothing */
    struct verbs_buffer *in_flight[UD_SENDS]; /* NULL: went inline */
    struct ud_handles paths;
    uint64_t posted, done;
    bool broken, fired;    /* fired: an event of the armed queue lies in its channel, or will */
    uint64_t broken_ns;
};

struct ud_waiting {
    struct ud_neighbour *neighbour;
    struct verbs_buffer *buffer;
    uint32_t len;
    bool copy; /* it has been sent, too, to where the neighbour may have been */
    uint64_t since_ns;
};

struct ud {
    struct carrier carrier;
    struct carrier *ground; /* UDP on --bind */
    struct env env;
    struct ud_rail rails[DEVICE_MAX_RAILS];
    uint32_t n_rails, first_rail, mtu, receives; /* first_rail: whose turn it is to be looked at first */
    uint8_t key[UD_KEY_BYTES], header[UD_HEADER_BYTES];
    struct carrier_address address; /* on which we are called */
    uint16_t next_number;           /* of a datagram in pieces */
    uint8_t traffic_class;
    struct path_records *paths; /* NULL: nobody to ask */
    int epoll_fd;
    uint64_t now_ns, slow_ns, async_ns, paths_due_ns; /* paths_due: when a question for a path is to be asked again, 0: none is */

    struct ud_neighbours neighbours;
    struct ud_assemblies pieces;
    struct verbs_buffer *lent[UD_LENT]; /* ring */
    uint32_t lent_first, lent_n;
    struct verbs_buffer *handed[UD_HANDED];
    uint32_t n_handed;
    struct ud_waiting waiting[UD_WAITING];
    uint32_t n_waiting;

    bool told_other_fabric, told_key, told_link;
    struct carrier_stats stats;
    struct verbs_ud_stats counts, told;
    struct counter *counters[UD_COUNTS];
};

static inline struct ud *ud_of(const struct carrier *carrier)
{
    return (struct ud *)(uintptr_t)carrier;
}

/* ud_queue.c: the queue pair of a rail */
int ud_queue_open(struct ud *self, struct ud_rail *rail, struct error *err);
void ud_queue_close(struct ud_rail *rail);
/* It can take datagrams: a broken one is made ready again, at most ten times a second. */
bool ud_queue_ready(struct ud *self, struct ud_rail *rail);
/* Takes back what has been sent. */
void ud_queue_collect(struct ud *self, struct ud_rail *rail);
/* Room for so many more sends. */
uint32_t ud_queue_room(struct ud *self, struct ud_rail *rail);
/* The way to a neighbour on its rail, made when first wanted, and that rail; NULL: it cannot be reached by any of ours. */
struct ud_path *ud_queue_path(struct ud *self, struct ud_neighbour *neighbour, struct ud_rail **rail, const struct ud_port **port);

/* ud_paths.c */
int ud_paths_open(struct ud *self, bool everywhere);
void ud_paths_poll(struct ud *self);
struct path_end ud_path_end(const struct ud_port *port);
/* The way to a neighbour by that rail, as far as it is known; a better one is asked for. */
struct path_route ud_path_of(struct ud *self, struct ud_neighbour *neighbour, uint32_t at);

/* ud_send.c */
uint8_t *ud_lend(struct carrier *carrier);
int ud_send(struct carrier *carrier, const struct carrier_datagram *datagrams, uint32_t n);
/* The neighbour has said where it is: what waited for it leaves; copies only if it has moved. */
void ud_send_waiting(struct ud *self, struct ud_neighbour *neighbour, bool moved);
/* Gives up what has waited too long; all: everything. */
void ud_drop_waiting(struct ud *self, bool all);
void ud_ask(struct ud *self, struct ud_neighbour *neighbour);

/* ud_receive.c */
int ud_receive(struct carrier *carrier, struct carrier_datagram *datagrams, uint32_t n);
void ud_authentic(struct carrier *carrier, const struct carrier_datagram *datagram);

/* ud_counts.c */
int ud_counts_open(struct ud *self, struct metrics *metrics, struct error *err);
void ud_counts_tell(struct ud *self);

#endif

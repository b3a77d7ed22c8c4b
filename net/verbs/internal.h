/*
 * Inside the verbs transport: rails (opened ports), links (what one peer has) and their pairs of queues.
 *
 *     struct verbs --- bootstrap (a sockets transport): one session per peer
 *        |  rails[n]: device, protection domain, completion queue, shared receive queue, registered slabs
 *        '- links[peer]: pair MESSAGES, pair READS, seal, stream to send, message being put together, reads under way
 *
 *     a pair:  IDLE --offer--> OFFERED --their offer--> CONNECTED --their ready, or a packet--> UP
 *                ^                                                                              |
 *                '------------- back-off <------------- failure, reset, timeout <---------------'
 *
 * Both ends count attempts (epochs); the higher one counts, so that both may begin, fail and begin again at any time.
 *
 * Credits: a receiver has CREDITS + SPARE receives in the shared queue for every link. Each packet with content uses one credit; it
 * comes back with the receive's return to the queue. Packets of nothing but credit use the spare ones: at most two can be under
 * way, as each stands for half of the credits. So a receive is always there, and receiver-not-ready cannot happen.
 *
 * Threading: one thread.
 */
#ifndef HEARSAY_NET_VERBS_INTERNAL_H
#define HEARSAY_NET_VERBS_INTERNAL_H

#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stdint.h>

#include "core/base/u64_map.h"
#include "net/buffer_pool.h"
#include "net/seal.h"
#include "net/verbs/control.h"
#include "net/verbs/device_choice.h"
#include "net/verbs/rail.h"
#include "net/verbs/verbs.h"

enum {
    VERBS_MAX_MESSAGE = 2 << 20,
    VERBS_MAX_UNRELIABLE = 1164, /* as in the fabric protocol */
    VERBS_HEADER_BYTES = 24,
    VERBS_RECORD_BYTES = 4, /* a message's length in front of it */
    VERBS_PAYLOAD_BYTES = 8192 + VERBS_RECORD_BYTES,
    VERBS_CREDITS = 32,
    VERBS_SPARE = 4,
    VERBS_SEND_DEPTH = 64,
    VERBS_SIGNAL_EVERY = 16,
    VERBS_MAX_READS = 16,   /* outstanding at once */
    VERBS_READ_QUEUE = 64,  /* and waiting */
    VERBS_REGIONS = 16,
    VERBS_MAX_MEMORY = 64,
    VERBS_UNRELIABLE_BYTES = 512 << 10,
    VERBS_COUNTS = 9,
};

enum packet_kind { PACKET_STREAM = 1, PACKET_UNRELIABLE = 2, PACKET_CREDIT = 3 };

enum pair_state { PAIR_IDLE, PAIR_OFFERED, PAIR_CONNECTED, PAIR_UP };

struct verbs_pair {
    enum pair_state state;
    struct ibv_qp *qp;
    uint32_t epoch, packet_number;
    uint64_t since_ns, next_attempt_ns, retry_ns; /* next_attempt_ns: UINT64_MAX when none is due */
};

struct remote_region {
    bool known, found, asked;
    uint64_t address, length;
    uint32_t key;
};

enum read_state { READ_WAITING, READ_POSTED, READ_FINISHED };

struct read_request {
    enum read_state state;
    uint32_t region, len, tries;
    uint64_t offset, cookie;
    void *dst;
    int status;
};

/* Reads in the order in which they were asked for: [head .. tail), posted ones first. */
struct read_queue {
    struct read_request requests[VERBS_READ_QUEUE];
    uint32_t head, next, tail; /* next: first that is not posted */
    uint32_t peer_reads;       /* how many the peer answers at once */
};

struct verbs_link {
    struct verbs *owner;
    struct verbs_rail *rail;
    uint32_t peer, id;
    uint64_t boot_id;
    struct verbs_pair pairs[CONTROL_PAIRS];
    struct seal_session seal;
    bool sealed;
    uint8_t secret[CONTROL_SECRET_BYTES]; /* ours, until connected */

    /* Sending: whole records in the ring, cut into packets as they come. */
    uint8_t *ring, *unreliable;
    uint64_t ring_cap, ring_head, ring_tail;
    uint32_t unreliable_len, unreliable_cap;
    uint64_t sent_packets, allowed_packets; /* that use credit, since the pair came up */
    uint64_t posted, done;                  /* work requests */
    uint64_t marks[VERBS_SEND_DEPTH];       /* `posted` after each signalled one that is not done */
    uint32_t marks_head, marks_tail;
    struct verbs_buffer *in_flight[VERBS_SEND_DEPTH]; /* by number of work request; NULL: went inline */
    uint64_t sent_ns, heard_ns, progress_ns, ping_ns; /* progress: a signalled request was done */
    uint64_t measure_from_ns, measure_mark;           /* a round trip being measured: from when, up to which request */
    bool stalled;

    /* Receiving. */
    uint64_t expected_counter, returned_packets, granted_packets; /* returned: whose receives are posted again */
    struct message_buffer *assembly;
    uint32_t assembly_len, assembly_filled, record_filled;
    uint8_t record[VERBS_RECORD_BYTES];

    struct remote_region regions[VERBS_REGIONS];
    struct read_queue *reads;

    bool active; /* in the list of those with something to send or read */
    struct verbs_link *active_next;
};

struct verbs_region {
    void *base; /* NULL: not published */
    size_t len;
    struct ibv_mr *mr[DEVICE_MAX_RAILS];
};

struct verbs_event {
    struct transport_event event;
    struct verbs_buffer *buffer;     /* that data lies in */
    struct message_buffer *message; /* or this */
    bool dropped;
};

/* Queue pairs on their way out: until the last completion is known to be there. */
struct dying_pair {
    struct dying_pair *next;
    struct verbs_rail *rail;
    struct ibv_qp *qp;
    struct verbs_buffer *buffers; /* that it may still be sending from */
    uint64_t until_ns;
};

struct verbs {
    struct transport transport;
    struct transport *bootstrap;
    struct transport_verbs_config config;
    struct net_tuning tuning;
    struct env env;
    uint64_t boot_id, now_ns;
    struct verbs_rail rails[DEVICE_MAX_RAILS];
    uint32_t n_rails;
    struct verbs_link **links; /* by peer; NULL: no session */
    struct transport_peer_stats *peer_stats;
    uint32_t max_peers, last_link_id;
    struct u64_map pair_of_qp; /* rail and number -> peer and pair */
    struct dying_pair *dying;

    struct verbs_event *events; /* ring: [given .. head) handed out, [head .. tail) waiting */
    uint64_t events_given, events_head, events_tail;
    uint32_t events_cap;
    struct buffer_pool pool; /* messages put together */

    int epoll_fd;
    uint64_t slow_ns, async_ns, busy_ns; /* last looks at the bootstrap and at asynchronous events; last time that something moved */
    uint64_t next_timer_ns;
    struct verbs_link *active;
    bool may_sleep; /* the next completion makes the descriptor readable */
    struct verbs_region published[VERBS_REGIONS];
    struct verbs_region memory[VERBS_MAX_MEMORY];
    uint32_t n_memory;
    struct transport_stats stats;
    struct transport_verbs_stats counts, told; /* told: what the metrics have of them */
    struct counter *counters[VERBS_COUNTS];
};

/* transport.c */
void verbs_timer_at(struct verbs *self, uint64_t when_ns);
/* Has the link looked at by the next poll: there may be something to send or to read. */
void verbs_activate(struct verbs_link *link);
void verbs_tell(struct verbs_link *link, const struct control *control);

/* events.c */
/* Adds an event, with a reference to the buffer or the message that data lies in. False: out of memory. */
bool verbs_event(struct verbs *self, const struct transport_event *event, struct verbs_buffer *buffer, struct message_buffer *message);
void verbs_events_release(struct verbs *self); /* those handed out */
int verbs_events_take(struct verbs *self, struct transport_event *events, int n);
void verbs_events_drop(struct verbs *self, uint32_t peer);
void verbs_events_fini(struct verbs *self);
/* One reference less; the last one gives the receive back to its rail and the credit to its link. */
void verbs_buffer_unref(struct verbs *self, struct verbs_buffer *buffer);

/* pair.c: queue pairs from offer to end */
int verbs_pair_offer(struct verbs_link *link, enum control_pair which);
void verbs_pair_on_control(struct verbs_link *link, const struct control *control);
/* The other end is ready, as its word or its packet says. */
void verbs_pair_ready(struct verbs_link *link, enum control_pair which);
/* Ends the attempt and plans the next; the peer is told unless it told us. status: of PEER_DOWN, when messages were up. */
void verbs_pair_fail(struct verbs_link *link, enum control_pair which, int status, bool tell);
/* Ends it without a word or a plan. */
void verbs_pair_close(struct verbs_link *link, enum control_pair which);
void verbs_pair_timers(struct verbs_link *link, enum control_pair which);
/* Destroys dying pairs whose time is over, or all. */
void verbs_bury(struct verbs *self, bool all);
/* Whose the queue pair is, or NULL: one that is gone. */
struct verbs_link *verbs_link_of(const struct verbs *self, const struct verbs_rail *rail, uint32_t number, enum control_pair *which);

/* link.c */
void verbs_link_open(struct verbs *self, uint32_t peer, uint64_t boot_id);
/* The session is over; status of PEER_DOWN if messages were up, 0: no event. */
void verbs_link_end(struct verbs_link *link, int status);
void verbs_link_up(struct verbs_link *link);
void verbs_link_down(struct verbs_link *link, int status);
void verbs_link_control(struct verbs_link *link, const uint8_t *data, size_t len);
/* Forgets what belonged to the last pair of queues for messages. */
void verbs_link_reset(struct verbs_link *link);
void verbs_link_timers(struct verbs_link *link);

/* send.c */
int verbs_queue(struct verbs_link *link, const struct iovec *iov, int n, size_t len);
int verbs_queue_unreliable(struct verbs_link *link, const struct iovec *iov, int n, size_t len);
void verbs_flush(struct verbs_link *link);
void verbs_return_credit(struct verbs_link *link); /* told to the peer once the receive is posted again */
void verbs_on_sent(struct verbs_link *link); /* a signalled one, and those before it */
struct verbs_buffer *verbs_take_in_flight(struct verbs_link *link); /* all, as a chain */

/* receive.c */
void verbs_on_packet(struct verbs_link *link, struct verbs_buffer *buffer, uint32_t len);

/* read.c */
int verbs_register_memory(struct verbs *self, void *base, size_t len);
int verbs_publish(struct verbs *self, uint32_t region, void *base, size_t len);
int verbs_read(struct verbs_link *link, uint32_t region, uint64_t offset, void *dst, uint32_t len, uint64_t cookie);
void verbs_reads_step(struct verbs_link *link);
void verbs_on_read(struct verbs_link *link, enum ibv_wc_status status);
void verbs_on_query(struct verbs_link *link, const struct control *control);
void verbs_on_region(struct verbs_link *link, const struct control *control);
/* The pair is gone: what was posted waits again, or fails. */
void verbs_reads_interrupted(struct verbs_link *link);
void verbs_reads_end(struct verbs_link *link, int status);
bool verbs_reads_waiting(const struct verbs_link *link);
void verbs_regions_fini(struct verbs *self);

/* counts.c */
int verbs_counts_open(struct verbs *self, struct error *err);
void verbs_counts_tell(struct verbs *self);

/* completions.c */
/* Takes completions, at most until many events wait; all: whatever is there. */
void verbs_completions(struct verbs *self, struct verbs_rail *rail, bool all);
/* What needs a system call: completion channels, asynchronous events. */
void verbs_wakeups(struct verbs *self);
void verbs_async_events(struct verbs *self);
/* After a time without completions, has the next one make the descriptor readable. False: not yet, poll again. */
bool verbs_arm(struct verbs *self);

static inline bool verbs_link_usable(const struct verbs_link *link)
{
    return link->pairs[CONTROL_MESSAGES].state == PAIR_UP;
}

static inline uint64_t verbs_rail_index(const struct verbs *self, const struct verbs_rail *rail)
{
    return (uint64_t)(rail - self->rails);
}

#endif

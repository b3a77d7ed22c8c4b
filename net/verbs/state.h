/*
 * What the verbs transport consists of: rails (opened ports), links (what one peer has) and their pairs of queues.
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
#ifndef HEARSAY_NET_VERBS_STATE_H
#define HEARSAY_NET_VERBS_STATE_H

#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stdint.h>

#include "core/base/u64_map.h"
#include "net/buffer_pool.h"
#include "net/byte_ring.h"
#include "net/seal.h"
#include "net/verbs/control.h"
#include "net/verbs/device_choice.h"
#include "net/verbs/packet.h"
#include "net/verbs/pages.h"
#include "net/verbs/path_records.h"
#include "net/verbs/path_retry.h"
#include "net/verbs/rail.h"
#include "net/verbs/verbs.h"

enum pair_state { PAIR_IDLE, PAIR_OFFERED, PAIR_CONNECTED, PAIR_UP };

struct verbs_pair {
    enum pair_state state;
    struct ibv_qp *qp;
    uint32_t epoch, packet_number;
    bool ready_there; /* the other end said so before ours was connected */
    uint64_t since_ns, next_attempt_ns, retry_ns; /* next_attempt_ns: UINT64_MAX when none is due */
};

struct remote_region {
    bool known, found, asked;
    uint64_t address;
    uint32_t key, n_pages, page_bytes;
    struct pages_reader_key seal;
};

/* Registered memory that one page at a time is read into. */
struct read_slot {
    uint8_t *memory;
    size_t bytes;
    struct ibv_mr *mr[DEVICE_MAX_RAILS];
    bool taken;
};

enum read_state { READ_WAITING, READ_POSTED, READ_FINISHED };

struct read_request {
    enum read_state state;
    uint32_t region, page, expected;
    uint32_t image, tries, torn; /* image: bytes of the page to read, sealed as it lies there */
    uint64_t cookie;
    struct read_slot *slot;         /* while it is posted, and from one attempt to the next */
    struct message_buffer *content; /* opened */
    uint32_t len;
    uint64_t version;
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
    uint32_t peer, id, kept_events; /* kept: places for PEER_UP and PEER_DOWN, from the offer on */
    uint64_t boot_id;
    struct verbs_pair pairs[CONTROL_PAIRS];
    struct seal_session seal;
    bool sealed;
    uint8_t secret[CONTROL_SECRET_BYTES]; /* ours, until connected */
    struct path_route route;              /* of this attempt's packets */
    uint64_t question;                    /* to the subnet manager, 0: none; then this offer waits, if it is one: */
    struct control awaited;
    struct path_end there;                /* the peer's port, as of this attempt */
    struct path_retry path_retry;
    struct path_route found;              /* for the next attempt, if that is from rail found_by to the port `there` */
    struct verbs_rail *found_by;

    /* Sending: whole records in the ring, cut into packets as they come. */
    struct byte_ring ring;
    struct verbs_buffer *prepared[VERBS_BATCH]; /* packets of a long message each, sealed, that leave before what is in the ring */
    uint32_t prepared_len[VERBS_BATCH], n_prepared;
    uint8_t *unreliable;
    uint32_t unreliable_len, unreliable_cap;
    uint64_t sent_packets, allowed_packets; /* that use credit, since the pair came up */
    uint64_t posted, done;                  /* work requests */
    uint64_t marks[VERBS_SEND_DEPTH];       /* `posted` after each signalled one that is not done */
    uint32_t marks_head, marks_tail;
    struct verbs_buffer *in_flight[VERBS_SEND_DEPTH]; /* by number of work request; NULL: went inline */
    uint64_t sent_ns, heard_ns, progress_ns, ping_ns; /* progress: a signalled request was done */
    uint64_t measure_from_ns, measure_mark;           /* a round trip being measured: from when, up to which request */
    bool broken;        /* a packet could not be posted */
    bool stalled, full; /* something waits for credit; for a request to be done */

    /* Receiving. */
    uint64_t expected_counter, returned_packets, granted_packets; /* returned: whose receives are posted again */
    struct message_buffer *assembly;
    uint32_t assembly_len, assembly_filled, record_filled;
    uint8_t record[VERBS_RECORD_BYTES];

    struct remote_region regions[TRANSPORT_REGIONS];
    struct read_queue *reads;

    bool active; /* in the list of those with something to send or read */
    struct verbs_link *active_next;
};

struct verbs_region {
    struct pages *pages; /* NULL: not published */
    uint32_t n_pages, page_bytes, publication;
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
    struct verbs_link **links; /* by the peer's place (net_peer_place); NULL: no session */
    struct transport_peer_stats *peer_stats;
    uint32_t *numbers; /* whose peer_stats those are */
    uint32_t n_peers;  /* places that the three have room for; grown as peers come */
    uint32_t last_link_id, n_questions;
    struct path_records *paths; /* NULL: nobody to ask */
    struct u64_map pair_of_qp; /* rail and number -> peer and pair */
    uint64_t last_qp_key, last_qp_pair; /* what was found there last, as completions come in runs */
    bool last_qp_known;
    struct dying_pair *dying;

    struct verbs_event *events; /* ring: [given .. head) handed out, [head .. tail) waiting */
    uint64_t events_given, events_head, events_tail;
    uint32_t events_cap, events_kept; /* kept: places for the ends of reads, and for peers that go up and down */
    struct buffer_pool pool; /* messages put together */

    int epoll_fd;
    uint64_t slow_due_ns, async_ns, busy_ns; /* next look at the bootstrap; last ones at asynchronous events, and completion */
    bool some_full;          /* perhaps a link is full */
    uint64_t typical_gap_ns; /* moving average of the time from one completion to the next */
    uint64_t dense_ns;       /* what of it is worth staying awake for */
    uint64_t next_timer_ns;
    struct verbs_link *active;
    bool may_sleep, slow_waits; /* the next completion makes the descriptor readable; what is slow has been put off by a turn */
    struct verbs_region published[TRANSPORT_REGIONS];
    uint32_t publications; /* of this boot: no key comes twice */
    uint8_t pages_root[SEAL_KEY_BYTES];
    struct read_slot slots[VERBS_READ_SLOTS];
    uint32_t slots_taken;
    size_t slot_bytes; /* registered in all of them */
    bool slots_wanted; /* a read waits for one */
    struct transport_stats stats;
    struct transport_verbs_stats counts, told; /* told: what the metrics have of them */
    struct counter *counters[VERBS_COUNTS];
};

#endif

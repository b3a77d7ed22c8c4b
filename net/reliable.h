/*
 * Inside of the reliable transport, shared by the reliable_*.c files only. The wire format is in docs/protocol-fabric.md.
 *
 *     transport
 *      |- peers[]      one per remote address, for ever        peer -> up (session), outgoing (session)
 *      |- half_open[]  sessions that others began and that have not proved a round trip yet
 *      |- sessions     id on the wire -> session (outgoing, half open or up)
 *      |- active       sessions with something to send at the next flush
 *      '- ready        events for poll to hand out, with the buffers that they point into
 *
 * One poll: release what the last poll handed out; receive and process datagrams; run timers that are due; flush active
 * sessions into sealed datagrams; hand out events.
 *
 *     send queue of a session, by fragment number:      receive side:
 *     una ...... next ...... end                        expected ...... highest
 *      | sent     | not yet   |                          | holes in slots[] |
 *
 * Every transmission has its own packet counter, and an acknowledgement names the newest counter that arrived beside the
 * fragments, so a round-trip sample is never ambiguous and a loss is judged by time since a later packet arrived (RACK,
 * RFC 8985). Timers follow RFC 6298, the congestion window NewReno (RFC 6582) with a gentler cut while losses are few.
 */
#ifndef HEARSAY_NET_RELIABLE_H
#define HEARSAY_NET_RELIABLE_H

#include <stdbool.h>
#include <stdint.h>

#include "core/base/codec.h"
#include "core/base/u64_map.h"
#include "net/net.h"
#include "net/seal.h"

enum {
    WIRE_VERSION = 1,
    WIRE_HEADER_BYTES = 8,         /* magic, version and type, generation, receiver */
    WIRE_PACKET_HEADER_BYTES = 16, /* and the counter */
    WIRE_COOKIE_BYTES = 16,
    WIRE_HELLO_BYTES = 24,
    WIRE_MIN_DATAGRAM = 1200,
    WIRE_WINDOW = 4096, /* fragments that a receiver keeps in order */
    WIRE_MAX_MESSAGE = 2 << 20,
    WIRE_MAX_UNRELIABLE = WIRE_MIN_DATAGRAM - WIRE_PACKET_HEADER_BYTES - SEAL_TAG_BYTES - 4,
    WIRE_FRAGMENT_OVERHEAD = 12,
    WIRE_ACK_BYTES = 16,
};

enum wire_type { WIRE_INIT = 1, WIRE_RESPONSE = 2, WIRE_COOKIE = 3, WIRE_PACKET = 4 };
enum wire_frame { FRAME_ACK = 1, FRAME_FRAGMENT = 2, FRAME_UNRELIABLE = 3, FRAME_CLOSE = 4 };
enum { FRAGMENT_FIRST = 1, FRAGMENT_LAST = 2, FRAGMENT_EMPTY = 4 };

/* A received datagram, opened. Shared by the events and slots that point into it. */
struct receive_buffer {
    struct receive_buffer *next;
    uint32_t references;
    uint8_t data[];
};

/* A message put together from fragments. */
struct message_buffer {
    struct message_buffer *next;
    uint32_t capacity;
    uint8_t data[];
};

/* Recycled buffers; grows by slabs up to a bound, so that the hot path allocates nothing. */
struct buffer_pool {
    struct receive_buffer *free_list;
    void *slabs;
    uint32_t buffer_bytes, n_buffers, max_buffers, n_messages;
    struct message_buffer *messages;
};

struct ready_event {
    struct transport_event event;
    struct receive_buffer *receive;
    struct message_buffer *message;
    bool dropped; /* its peer was closed meanwhile */
};

struct hello {
    uint64_t boot_id;
    uint32_t session, ciphers;
    uint16_t datagram_bytes, window;
};

/* What a session keeps only until it is up. */
struct handshake {
    struct seal_handshake noise;
    uint8_t packet[160]; /* our message, for repetition */
    size_t len;
    uint64_t started_ns, sent_ns, next_ns, retry_ns;
    uint32_t n_sent;
};

enum fragment_state { FRAGMENT_QUEUED, FRAGMENT_IN_FLIGHT, FRAGMENT_LOST, FRAGMENT_ACKED };

struct send_fragment {
    uint64_t offset; /* of its bytes in the send ring, absolute */
    uint64_t sent_ns, counter;
    uint32_t message_len;
    uint16_t len;
    uint8_t flags, state;
    bool resent;
};

struct receive_slot {
    struct receive_buffer *buffer; /* NULL: not here yet */
    const uint8_t *data;
    uint32_t message_len;
    uint16_t len;
    uint8_t flags;
};

enum session_state { SESSION_OUTGOING, SESSION_HALF_OPEN, SESSION_UP };

enum { SENT_TIMES = 256 };

struct session {
    struct reliable *owner;
    struct peer *peer; /* NULL while half open */
    struct carrier_address address;
    enum session_state state;
    uint32_t local_id, remote_id;
    uint64_t boot_id;
    uint32_t datagram_bytes, window;
    struct handshake *handshake;
    struct seal_session seal;
    uint8_t initiator_key[32]; /* of the handshake that made it: late copies of its first message are known */
    bool active;
    struct session *active_next, *active_previous;

    /* Sending. */
    struct send_fragment *fragments;
    uint32_t fragments_cap, n_lost;
    uint64_t una, next, end, lost_from;
    uint8_t *ring;
    uint64_t ring_cap, ring_tail, ring_head;
    uint8_t *unreliable; /* frames ready to be copied, drained at every flush */
    uint32_t unreliable_len;
    /* Congestion and timers. */
    uint64_t in_flight, window_bytes, threshold_bytes, recovery_counter;
    uint32_t round_lost, round_acked, timeouts;
    bool window_limited, undo_possible; /* undo: of the last time-out, should it turn out that nothing was lost */
    uint64_t undo_window_bytes, undo_threshold_bytes;
    uint64_t rtt_ns, rtt_variance_ns, rto_start_ns, progress_ns, loss_check_ns;
    uint64_t sent_ns[SENT_TIMES]; /* of the newest packets, by counter modulo SENT_TIMES */
    uint64_t acked_end; /* one past the newest counter that the peer is known to have received */

    /* Receiving. */
    struct receive_slot *slots;
    uint32_t slots_cap;
    uint64_t expected, highest; /* highest: one past the newest fragment seen */
    struct message_buffer *assembly;
    uint32_t assembly_len, assembly_filled;
    uint64_t heard_ns;
    bool heard; /* at all, under these keys */
    bool ack_pending, ack_now;
    uint32_t ack_packets;
    uint64_t ack_due_ns, largest_counter, largest_counter_ns;
};

struct peer {
    struct carrier_address address;
    uint32_t index;
    bool wanted; /* resolved by us and not closed: keep trying */
    struct session *up, *outgoing;
    uint64_t retry_ns, next_attempt_ns;
    struct transport_peer_stats stats;
};

enum { SEND_BATCH = 128, RECEIVE_BATCH = 64 };

struct reliable {
    struct transport transport;
    struct carrier *carrier;
    struct env env;
    struct net_tuning tuning;
    char name[24];
    uint8_t group_key[NET_GROUP_KEY_BYTES];
    uint64_t boot_id, now_ns, next_timer_ns;
    struct transport_stats stats;

    struct peer **peers;
    uint32_t n_peers;
    struct u64_map peer_by_address; /* hash of address -> index */
    struct u64_map peer_by_text;    /* hash of text -> index */
    struct u64_map sessions;        /* local id -> struct session * */
    struct u64_map reports;         /* hash of address and topic -> times seen, for saying things once */
    struct session **half_open;
    uint32_t n_half_open;
    struct session *active;
    uint8_t hash_key[16], cookie_secret[2][32]; /* current, previous */
    uint64_t cookie_until_ns;

    struct buffer_pool pool;
    struct ready_event *ready; /* ring: [given .. head) handed out, [head .. tail) waiting */
    uint32_t ready_cap;
    uint64_t ready_given, ready_head, ready_tail;

    uint8_t *out_data; /* [SEND_BATCH][mtu] */
    struct carrier_datagram out[SEND_BATCH];
    uint32_t out_first, out_n, mtu;
};

/* reliable.c */
void reliable_timer_at(struct reliable *self, uint64_t when_ns);
/* Adds to the ready ring, taking over the references. False: out of memory. */
bool reliable_event(struct reliable *self, const struct transport_event *event, struct receive_buffer *receive, struct message_buffer *message);
/* A free outgoing datagram of mtu bytes, or NULL (the carrier is stuck); sent by reliable_out_commit. */
uint8_t *reliable_out_begin(struct reliable *self);
void reliable_out_commit(struct reliable *self, const struct carrier_address *address, uint32_t len);
void reliable_out_send(struct reliable *self);
uint64_t reliable_hash(const struct reliable *self, const void *data, size_t len);
/* True the nth time that topic comes up for the address; remembers a bounded number of addresses. */
bool reliable_report(struct reliable *self, const struct carrier_address *address, char topic, uint32_t nth);

/* reliable_pool.c */
void buffer_pool_init(struct buffer_pool *pool, uint32_t buffer_bytes, uint64_t max_bytes);
void buffer_pool_fini(struct buffer_pool *pool);
struct receive_buffer *buffer_pool_get(struct buffer_pool *pool); /* one reference, or NULL at the bound */
void buffer_pool_unref(struct buffer_pool *pool, struct receive_buffer *buffer);
struct message_buffer *buffer_pool_get_message(struct buffer_pool *pool, uint32_t len);
void buffer_pool_put_message(struct buffer_pool *pool, struct message_buffer *message);

/* reliable_peer.c: peers and sessions */
struct peer *reliable_peer_find(struct reliable *self, const struct carrier_address *address);
struct peer *reliable_peer_get(struct reliable *self, const struct carrier_address *address); /* made when new; NULL at the bound */
struct session *reliable_session_create(struct reliable *self, const struct carrier_address *address, enum session_state state);
void reliable_session_free(struct session *session);
struct session *reliable_session_find(struct reliable *self, uint32_t local_id);
/* Parts of the handshake over: the session belongs to the peer, which comes up (an earlier session goes down first). */
void reliable_session_up(struct session *session, struct peer *peer);
void reliable_session_down(struct session *session, int status);
void reliable_session_activate(struct session *session);
void reliable_session_deactivate(struct session *session);

/* reliable_handshake.c */
void reliable_connect(struct reliable *self, struct peer *peer);
void reliable_on_init(struct reliable *self, const struct carrier_datagram *datagram);
void reliable_on_response(struct reliable *self, const struct carrier_datagram *datagram);
void reliable_on_cookie(struct reliable *self, const struct carrier_datagram *datagram);
/* The first packet under a half-open session's keys arrived. False: no room for another peer. */
bool reliable_confirm_half_open(struct session *session);
void reliable_half_open_forget(struct session *session);
/* Repetitions and expiry; each says when it is next due through reliable_timer_at. */
void reliable_handshake_timers(struct reliable *self);

/* reliable_send.c */
int reliable_queue(struct session *session, const struct iovec *iov, int n, size_t len);
int reliable_queue_unreliable(struct session *session, const struct iovec *iov, int n, size_t len);
void reliable_queue_empty(struct session *session); /* a fragment without content, to be acknowledged */
void reliable_flush(struct session *session);
void reliable_send_close(struct session *session);
uint32_t reliable_fragment_bytes(const struct session *session);

/* reliable_ack.c: acknowledgements, round-trip time, congestion window, timers */
void reliable_write_ack(struct session *session, struct writer *out);
bool reliable_on_ack(struct session *session, struct reader *in);
void reliable_congestion_init(struct session *session);
void reliable_rtt_sample(struct session *session, uint64_t rtt_ns);
/* Has poll called when the retransmission timer expires, if it runs. */
void reliable_arm_rto(struct session *session);
/* Runs the timers of an up session that are due. May take the session down. */
void reliable_session_timers(struct session *session);

/* reliable_receive.c */
void reliable_on_packet(struct reliable *self, const struct carrier_datagram *datagram);

static inline struct send_fragment *fragment_at(const struct session *session, uint64_t number)
{
    return &session->fragments[number & (session->fragments_cap - 1)];
}

/* The first of several fragments carries the length of the whole. */
static inline bool fragment_has_length(uint8_t flags)
{
    return (flags & (FRAGMENT_FIRST | FRAGMENT_LAST)) == FRAGMENT_FIRST;
}

/* Its share of a packet, which is what the congestion window counts. */
static inline uint32_t fragment_frame_bytes(const struct send_fragment *fragment)
{
    return 8u + (fragment_has_length(fragment->flags) ? 4u : 0u) + fragment->len;
}

/* The number near base whose low 32 bits are given. */
static inline uint64_t expand_u32(uint64_t base, uint32_t low)
{
    return base + (uint64_t)(int64_t)(int32_t)(low - (uint32_t)base);
}

static inline void write_wire_header(struct writer *out, enum wire_type type, uint8_t generation, uint32_t receiver)
{
    write_u8(out, 'H');
    write_u8(out, 'S');
    write_u8(out, (uint8_t)(WIRE_VERSION << 4 | type));
    write_u8(out, generation);
    write_u32(out, receiver);
}

#endif

/*
 * What the reliable transport knows of one peer and of one session with it: keys, the queue of fragments to send, the
 * congestion window and timers, and what has arrived out of order. See reliable.h.
 *
 *     send queue, by fragment number:                   receive side:
 *     una ...... next ...... end                        expected ...... highest
 *      | sent     | not yet   |                          | holes in slots[] |
 *
 * Every transmission has its own packet counter, and an acknowledgement names the newest counter that arrived beside the
 * fragments, so a round-trip sample is never ambiguous and a loss is judged by time since a later packet arrived (RACK,
 * RFC 8985). Timers follow RFC 6298; reliable_congestion.c has the window and the pacing.
 */
#ifndef HEARSAY_NET_RELIABLE_SESSION_H
#define HEARSAY_NET_RELIABLE_SESSION_H

#include <stdbool.h>
#include <stdint.h>

#include "core/port/carrier.h"
#include "core/port/transport.h"
#include "net/buffer_pool.h"
#include "net/byte_ring.h"
#include "net/seal.h"
#include "net/wire.h"

struct reliable;
struct peer;

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
    uint64_t offset; /* of its frame in the send ring, absolute */
    uint64_t sent_ns, counter;
    uint32_t frame_bytes; /* its share of a packet, which is what the congestion window counts */
    uint8_t state;
    bool resent;
};

/* Fragments that were found lost and that arrived in about a round trip. */
struct send_round {
    uint32_t lost, acked;
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
    uint32_t piece_bytes; /* of a message in one fragment */
    struct handshake *handshake;
    struct seal_session seal;
    uint8_t initiator_key[32]; /* of the handshake that made it: late copies of its first message are known */
    bool active;
    struct session *active_next, *active_previous;

    /* Sending. */
    struct send_fragment *fragments;
    uint32_t fragments_cap, n_lost;
    uint64_t una, next, end, lost_from;
    struct byte_ring ring; /* their frames, as they go into packets */
    uint8_t *unreliable; /* frames ready to be copied, drained at every flush */
    uint32_t unreliable_len;
    /* Congestion and timers. */
    uint64_t in_flight, window_bytes, threshold_bytes, recovery_counter;
    struct send_round round, last_round;
    uint64_t round_end; /* a packet with this counter or a later one has arrived: the round is over */
    uint32_t timeouts;
    bool probed;                        /* the tail, since the last progress */
    bool window_limited, undo_possible; /* undo: of the last time-out, should it turn out that nothing was lost */
    uint64_t undo_window_bytes, undo_threshold_bytes;
    int64_t pacing_bytes; /* may go at once, as of pacing_ns */
    uint64_t pacing_ns, pacing_due_ns;
    uint64_t shortest_rtt_ns, shortest_since_ns;
    uint64_t rto_ns, probe_after_ns; /* from the round-trip time; before back-off */
    uint64_t rtt_ns, rtt_variance_ns, rto_start_ns, progress_ns, loss_check_ns;
    uint64_t sent_ns[SENT_TIMES]; /* of the newest packets, by counter modulo SENT_TIMES */
    uint64_t timed_from;          /* of packets before this one it is not known when they left: they tell no round trip */
    uint64_t acked_end;           /* one past the newest counter that the peer is known to have received */

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
    uint32_t number; /* as those above know it: the place in peers[], and how often that has changed hands */
    bool wanted;     /* resolved by us and not closed: keep trying */
    bool closed;     /* let go, and not heard of since: the place goes to a newcomer when there is no other */
    struct session *up, *outgoing;
    uint64_t retry_ns, next_attempt_ns, closed_ns;
    struct transport_peer_stats stats;
};

static inline struct send_fragment *fragment_at(const struct session *session, uint64_t number)
{
    return &session->fragments[number & (session->fragments_cap - 1)];
}

#endif

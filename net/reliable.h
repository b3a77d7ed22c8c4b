/*
 * Inside of the reliable transport, shared by the reliable_*.c files only. The wire format is in docs/protocol-fabric.md.
 *
 *     transport
 *      |- peers[]      one per remote address, until closed    peer -> up (session), outgoing (session)
 *      |- half_open[]  sessions that others began and that have not proved a round trip yet
 *      |- sessions     id on the wire -> session (outgoing, half open or up)
 *      |- active       sessions with something to send at the next flush
 *      '- ready        events for poll to hand out, with the buffers that they point into
 *
 * One poll: release what the last poll handed out; flush what was queued since and did not leave at once; receive and process
 * datagrams; run timers that are due; flush the sessions that now have something to say; hand out events.
 */
#ifndef HEARSAY_NET_RELIABLE_H
#define HEARSAY_NET_RELIABLE_H

#include <stdbool.h>
#include <stdint.h>

#include "core/base/u64_map.h"
#include "net/net.h"
#include "net/reliable_session.h"

struct ready_event {
    struct transport_event event;
    struct receive_buffer *receive;
    struct message_buffer *message;
    bool dropped; /* its peer was closed meanwhile */
};

enum { SEND_BATCH = 128, RECEIVE_BATCH = 64 };
enum { RELIABLE_UNRELIABLE_BYTES = 65536 }; /* of messages that wait for one peer */

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
    struct u64_map peer_by_address; /* hash of address -> place in peers */
    struct u64_map peer_by_text;    /* hash of text -> number */
    struct u64_map reports;         /* hash of address and topic -> times seen, for saying things once */
    struct session **sessions;      /* [sessions_cap], a power of two: by the low bits of the local id, which no two have alike */
    uint32_t sessions_cap;
    struct session **half_open;
    uint32_t n_half_open;
    struct session *active;
    uint8_t hash_key[16], cookie_secret[2][32]; /* current, previous */
    uint64_t cookie_until_ns;
    uint32_t turn;    /* the peer that was called last of those that do not answer ... */
    uint64_t turn_ns; /* ... and when the next one is */

    struct buffer_pool pool;
    struct ready_event *ready; /* ring: [given .. head) handed out, [head .. tail) waiting */
    uint32_t ready_cap;
    uint64_t ready_given, ready_head, ready_tail;

    uint8_t *out_data; /* [SEND_BATCH][mtu]; NULL: the carrier lends */
    uint8_t *lent;     /* by the carrier and not sent yet */
    struct carrier_datagram out[SEND_BATCH];
    uint32_t out_first, out_n, mtu;
    struct session *at_once; /* whose message has left since the last poll, stamped with that poll's time; NULL: none */
};

/* reliable.c */
void reliable_timer_at(struct reliable *self, uint64_t when_ns);
/* Adds to the ready ring, taking over the references; the rest of the event is the caller's to fill. NULL: out of memory. */
struct ready_event *reliable_event(struct reliable *self, enum transport_event_kind kind, uint32_t peer,
                                   struct receive_buffer *receive, struct message_buffer *message);
/* A free outgoing datagram of mtu bytes, or NULL (the carrier is stuck); sent by reliable_out_commit. */
uint8_t *reliable_out_begin(struct reliable *self);
void reliable_out_commit(struct reliable *self, const struct carrier_address *address, uint32_t len);
void reliable_out_send(struct reliable *self);
uint64_t reliable_hash(const struct reliable *self, const void *data, size_t len);
/* True the nth time that topic comes up for the address; remembers a bounded number of addresses. */
bool reliable_report(struct reliable *self, const struct carrier_address *address, char topic, uint32_t nth);

/* reliable_peer.c: peers and sessions */
struct peer *reliable_peer_find(struct reliable *self, const struct carrier_address *address);
struct peer *reliable_peer_get(struct reliable *self, const struct carrier_address *address); /* made when new; NULL at the bound */
/* The peer of that number, or NULL: none has it, or none has it any more. */
struct peer *reliable_peer_numbered(const struct reliable *self, uint32_t number);
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
/* There is reason to think that the peer answers now: the back-off begins anew. */
void reliable_hurry(struct reliable *self, struct peer *peer);
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
/* As reliable_flush, between polls: nothing of the session's is under way. Ended by the next poll. */
void reliable_flush_at_once(struct session *session);
void reliable_end_at_once(struct session *session, uint64_t stamped_ns);
void reliable_send_close(struct session *session);

/* reliable_congestion.c: round-trip time, congestion window, pacing */
void reliable_congestion_init(struct session *session);
void reliable_rtt_sample(struct session *session, uint64_t rtt_ns);
void reliable_window_grow(struct session *session, uint64_t acked_bytes);
/* What was sent when the last round began has arrived: another begins. */
void reliable_round_begin(struct session *session);
/* Losses have been found, up to that packet. */
void reliable_window_cut(struct session *session, uint64_t newest_lost_counter);
/* The retransmission timer has expired; undo: it ought not to have. */
void reliable_window_collapse(struct session *session);
void reliable_window_undo(struct session *session);
/* Whether so many bytes may leave now. False: a timer says when to ask again. */
bool reliable_pacing_allows(struct session *session, uint64_t bytes);

/* reliable_ack.c: acknowledgements, losses, timers */
void reliable_write_ack(struct session *session, struct writer *out);
bool reliable_on_ack(struct session *session, struct reader *in);
/* Time-outs from the round-trip time. */
void reliable_set_timers(struct session *session);
/* Has poll called when the retransmission timer expires, if it runs. */
void reliable_arm_rto(struct session *session);
/* Runs the timers of an up session that are due. May take the session down. */
void reliable_session_timers(struct session *session);

/* reliable_receive.c */
void reliable_on_packet(struct reliable *self, const struct carrier_datagram *datagram);

#endif

/*
 * How much may be under way to a peer, and how fast it leaves.
 *
 * The window grows like NewReno's, but a loss counts as a sign of congestion only together with another: a queue that shows in the
 * round-trip time, or more loss than paths lose by themselves. Wireless and overlay paths lose a few in a hundred however little is
 * sent; a window that shrinks for each of them stays at its floor for ever.
 */
#include "net/reliable.h"

enum {
    INITIAL_WINDOW_DATAGRAMS = 32,
    INITIAL_WINDOW_BYTES = 128 << 10, /* of those, what a socket buffer of the default size holds of long datagrams */
    FLOOR_WINDOW_DATAGRAMS = 32,
    FLOOR_WINDOW_BYTES = 64 << 10,
    FLOOR_AFTER_TIMEOUT_DATAGRAMS = 4,
    MAX_WINDOW_BYTES = 32 << 20,
    QUEUE_NS = 200000,   /* of a round trip, on top of half the shortest, is a queue and not chance */
    SHORTEST_RTT_S = 10, /* so long the shortest round trip is remembered: paths change */
    FEW_LOSSES = 4,      /* at least so many, and more than one in six, are congestion by themselves */
    PACING_BURST_BYTES = 64 << 10,
    PACING_BURST_NS = 500000, /* a node that slept so long makes up for it at once */
};

/* ---- round-trip time (RFC 6298) ---- */

static void remember_shortest(struct session *session, uint64_t rtt_ns)
{
    uint64_t now_ns = session->owner->now_ns;
    if (rtt_ns <= session->shortest_rtt_ns || session->shortest_rtt_ns == 0 ||
        now_ns - session->shortest_since_ns > SHORTEST_RTT_S * UINT64_C(1000000000)) {
        session->shortest_rtt_ns = rtt_ns;
        session->shortest_since_ns = now_ns;
    }
}

void reliable_rtt_sample(struct session *session, uint64_t rtt_ns)
{
    if (rtt_ns == 0)
        rtt_ns = 1;
    remember_shortest(session, rtt_ns);
    if (session->rtt_ns == 0) {
        session->rtt_ns = rtt_ns;
        session->rtt_variance_ns = rtt_ns / 2;
    } else {
        uint64_t deviation = rtt_ns > session->rtt_ns ? rtt_ns - session->rtt_ns : session->rtt_ns - rtt_ns;
        session->rtt_variance_ns = (3 * session->rtt_variance_ns + deviation) / 4;
        session->rtt_ns = (7 * session->rtt_ns + rtt_ns) / 8;
    }
    reliable_set_timers(session);
    if (session->peer != NULL) {
        session->peer->stats.rtt_ns = session->rtt_ns;
        session->peer->stats.rtt_variance_ns = session->rtt_variance_ns;
    }
}

static bool queue_shows(const struct session *session)
{
    return session->rtt_ns > session->shortest_rtt_ns + session->shortest_rtt_ns / 2 + QUEUE_NS;
}

/* ---- window ---- */

static uint64_t datagrams(const struct session *session, uint32_t n, uint64_t max_bytes)
{
    uint64_t bytes = (uint64_t)n * session->datagram_bytes,
             least = (uint64_t)FLOOR_AFTER_TIMEOUT_DATAGRAMS * session->datagram_bytes;
    bytes = bytes < max_bytes ? bytes : max_bytes;
    return bytes > least ? bytes : least;
}

void reliable_congestion_init(struct session *session)
{
    session->window_bytes = datagrams(session, INITIAL_WINDOW_DATAGRAMS, INITIAL_WINDOW_BYTES);
    session->threshold_bytes = MAX_WINDOW_BYTES;
    session->pacing_bytes = (int64_t)session->window_bytes;
    reliable_set_timers(session);
}

void reliable_window_grow(struct session *session, uint64_t acked_bytes)
{
    if (!session->window_limited)
        return; /* not the window but the application holds us back: it proves nothing */
    if (session->window_bytes < session->threshold_bytes && queue_shows(session))
        session->threshold_bytes = session->window_bytes; /* the path is full: no more doubling */
    if (session->window_bytes < session->threshold_bytes) {
        session->window_bytes += acked_bytes;
    } else {
        uint64_t step = session->window_bytes / 32; /* a long fat path is filled again in dozens of round trips, not thousands */
        step = step > session->datagram_bytes && !queue_shows(session) ? step : session->datagram_bytes;
        session->window_bytes += acked_bytes * step / session->window_bytes + 1;
    }
    if (session->window_bytes > MAX_WINDOW_BYTES)
        session->window_bytes = MAX_WINDOW_BYTES;
}

/* Losses are weighed against what arrived in the same round trips: a quiet hour before them says nothing about the path as it is now. */
void reliable_round_begin(struct session *session)
{
    session->last_round = session->round;
    session->round = (struct send_round){0};
    session->round_end = session->seal.send_counter;
}

/* What is left of a window, in tenths, with these losses. */
static uint64_t tenths_left(const struct session *session)
{
    uint64_t lost = session->round.lost + session->last_round.lost, all = lost + session->round.acked + session->last_round.acked;
    if (lost < FEW_LOSSES || lost * 6 <= all)
        return queue_shows(session) ? 9 : 10;
    return 2 * lost > all ? 5 : 7; /* a path that has become much narrower */
}

static void forget_rounds(struct session *session)
{
    session->round = session->last_round = (struct send_round){0};
    session->round_end = session->recovery_counter = session->seal.send_counter;
}

void reliable_window_cut(struct session *session, uint64_t newest_lost_counter)
{
    if (newest_lost_counter < session->recovery_counter)
        return; /* once per round trip */
    uint64_t floor = datagrams(session, FLOOR_WINDOW_DATAGRAMS, FLOOR_WINDOW_BYTES);
    uint64_t left = tenths_left(session);
    if (left < 10) {
        session->window_bytes = session->window_bytes * left / 10;
        if (session->window_bytes < floor)
            session->window_bytes = floor;
        session->threshold_bytes = session->window_bytes;
    }
    forget_rounds(session);
}

void reliable_window_collapse(struct session *session)
{
    uint64_t floor = (uint64_t)FLOOR_AFTER_TIMEOUT_DATAGRAMS * session->datagram_bytes;
    if (session->timeouts++ == 0) {
        session->undo_possible = true;
        session->undo_window_bytes = session->window_bytes;
        session->undo_threshold_bytes = session->threshold_bytes;
    }
    session->threshold_bytes = session->window_bytes / 2 > floor ? session->window_bytes / 2 : floor;
    session->window_bytes = floor;
    forget_rounds(session);
}

void reliable_window_undo(struct session *session)
{
    session->undo_possible = false;
    session->window_bytes = session->undo_window_bytes;
    session->threshold_bytes = session->undo_threshold_bytes;
}

/* ---- pacing: a bucket of bytes that fills at the window's rate ---- */

bool reliable_pacing_allows(struct session *session, uint64_t bytes)
{
    if (session->pacing_bytes >= (int64_t)bytes || session->rtt_ns == 0)
        return true;
    struct reliable *self = session->owner;
    uint64_t gain = session->window_bytes < session->threshold_bytes ? 8 : 5; /* quarters: 2 while doubling, else 1.25 */
    uint64_t per_rtt = session->window_bytes * gain / 4, elapsed_ns = self->now_ns - session->pacing_ns;
    elapsed_ns = elapsed_ns < UINT64_C(1000000000) ? elapsed_ns : UINT64_C(1000000000);
    int64_t deepest = (int64_t)(per_rtt * PACING_BURST_NS / session->rtt_ns);
    int64_t least = PACING_BURST_BYTES > 2 * session->datagram_bytes ? PACING_BURST_BYTES : 2 * (int64_t)session->datagram_bytes;
    deepest = deepest > least ? deepest : least;
    session->pacing_bytes += (int64_t)(per_rtt * elapsed_ns / session->rtt_ns);
    session->pacing_ns = self->now_ns;
    if (session->pacing_bytes > deepest)
        session->pacing_bytes = deepest;
    if (session->pacing_bytes >= (int64_t)bytes)
        return true;
    int64_t worth = least / 4 > (int64_t)bytes ? least / 4 : (int64_t)bytes; /* not for every datagram a turn of its own */
    uint64_t missing = (uint64_t)(worth - session->pacing_bytes);
    session->pacing_due_ns = self->now_ns + missing * session->rtt_ns / per_rtt + 1;
    reliable_timer_at(self, session->pacing_due_ns);
    return false;
}

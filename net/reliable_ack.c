#include "core/base/error.h"
#include "net/reliable.h"

enum {
    INITIAL_RTO_MS = 250,
    MAX_BACKOFF = 10,
    MIN_TIMEOUTS = 3,
    PROBE_SLACK_NS = 200000, /* a peer that sleeps has to be woken */
};

#define MS UINT64_C(1000000)

/* ---- retransmission timer (RFC 6298) ---- */

void reliable_set_timers(struct session *session)
{
    const struct net_tuning *tuning = &session->owner->tuning;
    uint64_t spread = 4 * session->rtt_variance_ns + tuning->ack_delay_ns;
    uint64_t rto = session->rtt_ns == 0 ? INITIAL_RTO_MS * MS : session->rtt_ns + spread;
    rto = rto > tuning->min_rto_ns ? rto : tuning->min_rto_ns;
    /* A process that stood still has measured round trips that are no round trips. */
    session->rto_ns = rto < tuning->peer_timeout_ns ? rto : tuning->peer_timeout_ns;
    session->probe_after_ns = session->rtt_ns == 0 ? UINT64_MAX : 2 * session->rtt_ns + spread + PROBE_SLACK_NS;
}

/* Doubles with every time-out, but looks again at least every second, so that a peer's end is seen when it is due; and after the
 * time in which a peer counts as down at the latest. */
static uint64_t backed_off_rto(const struct session *session)
{
    if (session->timeouts == 0)
        return session->rto_ns;
    uint64_t longest = session->owner->tuning.peer_timeout_ns;
    uint64_t limit = 2 * session->rto_ns < longest ? 2 * session->rto_ns : longest;
    limit = limit > 1000 * MS ? limit : 1000 * MS;
    uint64_t rto = session->rto_ns << (session->timeouts < MAX_BACKOFF ? session->timeouts : MAX_BACKOFF);
    return rto < limit ? rto : limit;
}

/* ---- fragments acknowledged and lost ---- */

struct ack_result {
    uint64_t bytes, newest_sent_ns; /* 0: not known from a fragment */
    bool progress;
};

static void acknowledge(struct session *session, uint64_t number, uint64_t newest_counter, struct ack_result *result)
{
    struct send_fragment *fragment = fragment_at(session, number);
    if (fragment->state == FRAGMENT_ACKED)
        return;
    if (fragment->state == FRAGMENT_IN_FLIGHT) {
        session->in_flight -= fragment->frame_bytes;
        result->bytes += fragment->frame_bytes;
    } else if (fragment->state == FRAGMENT_LOST) {
        session->n_lost--; /* it was only late */
    }
    if (fragment->counter == newest_counter)
        result->newest_sent_ns = fragment->sent_ns;
    fragment->state = FRAGMENT_ACKED;
    session->round.acked++;
    result->progress = true;
}

static void lose(struct session *session, uint64_t number)
{
    struct send_fragment *fragment = fragment_at(session, number);
    session->in_flight -= fragment->frame_bytes;
    fragment->state = FRAGMENT_LOST;
    if (session->n_lost++ == 0 || number < session->lost_from)
        session->lost_from = number;
    session->round.lost++;
}

/* Fragments sent before the newest packet that arrived, and for longer than a round trip and its usual spread, are lost. */
static void detect_losses(struct session *session)
{
    struct reliable *self = session->owner;
    uint64_t spread = 2 * session->rtt_variance_ns > session->rtt_ns / 8 ? 2 * session->rtt_variance_ns : session->rtt_ns / 8;
    uint64_t patience = session->rtt_ns + spread + self->tuning.ack_delay_ns, newest_lost = 0;
    bool any = false;
    session->loss_check_ns = UINT64_MAX;
    for (uint64_t i = session->una; i < session->next; i++) {
        struct send_fragment *fragment = fragment_at(session, i);
        if (fragment->state != FRAGMENT_IN_FLIGHT)
            continue;
        if (fragment->counter >= session->acked_end) {
            if (!fragment->resent)
                break; /* all that follow were sent later still */
            continue;
        }
        if (self->now_ns - fragment->sent_ns < patience) {
            uint64_t due = fragment->sent_ns + patience;
            session->loss_check_ns = due < session->loss_check_ns ? due : session->loss_check_ns;
            continue;
        }
        newest_lost = fragment->counter > newest_lost ? fragment->counter : newest_lost;
        any = true;
        lose(session, i);
    }
    if (any) {
        reliable_window_cut(session, newest_lost);
        reliable_session_activate(session);
    }
    if (session->loss_check_ns != UINT64_MAX)
        reliable_timer_at(self, session->loss_check_ns);
}

/*
 * A packet from before the last time-out has arrived after it: the path was slow, not lossy (in the spirit of F-RTO,
 * RFC 5682, but certain, as every packet has its own counter). What has not been repeated yet counts as under way again.
 */
static void undo_timeout(struct session *session)
{
    reliable_window_undo(session);
    for (uint64_t i = session->una; i < session->next; i++) {
        struct send_fragment *fragment = fragment_at(session, i);
        if (fragment->state == FRAGMENT_LOST && fragment->counter >= session->acked_end) {
            fragment->state = FRAGMENT_IN_FLIGHT;
            session->n_lost--;
            session->in_flight += fragment->frame_bytes;
        }
    }
}

static void release_acknowledged(struct session *session)
{
    while (session->una < session->next && fragment_at(session, session->una)->state == FRAGMENT_ACKED)
        session->una++;
    session->ring.tail = session->una < session->end ? fragment_at(session, session->una)->offset : session->ring.head;
}

/* When nothing has been heard of the newest fragments for so long, one of them goes again. */
static bool may_probe(const struct session *session)
{
    return !session->probed && session->timeouts == 0 && session->n_lost == 0 && session->probe_after_ns < session->rto_ns;
}

void reliable_arm_rto(struct session *session)
{
    if (session->in_flight > 0)
        reliable_timer_at(session->owner,
                          session->rto_start_ns + (may_probe(session) ? session->probe_after_ns : backed_off_rto(session)));
}

/* ---- acknowledgement frames ---- */

void reliable_write_ack(struct session *session, struct writer *out)
{
    uint64_t span = session->highest > session->expected ? session->highest - session->expected - 1 : 0;
    uint32_t words = (uint32_t)((span + 63) / 64), room = (uint32_t)((out->cap - out->len - WIRE_ACK_BYTES) / 8);
    words = words < room ? words : room;
    uint64_t delay_us = (session->owner->now_ns - session->largest_counter_ns) / 1000;
    uint8_t *frame = write_room(out, WIRE_ACK_BYTES);
    if (frame == NULL)
        return;
    wire_store_u32(frame, FRAME_ACK | words << 8); /* and two reserved bytes */
    wire_store_u32(frame + 4, (uint32_t)session->expected);
    wire_store_u32(frame + 8, (uint32_t)session->largest_counter);
    wire_store_u32(frame + 12, delay_us < UINT32_MAX ? (uint32_t)delay_us : UINT32_MAX);
    for (uint32_t w = 0; w < words; w++) {
        uint64_t bits = 0;
        for (uint32_t b = 0; b < 64; b++) {
            uint64_t number = session->expected + 1 + 64u * w + b;
            if (number < session->highest && session->slots[number & (session->slots_cap - 1)].buffer != NULL)
                bits |= UINT64_C(1) << b;
        }
        write_u64(out, bits);
    }
    session->ack_pending = session->ack_now = false;
    session->ack_packets = 0;
    session->ack_due_ns = UINT64_MAX;
}

static void mark_bitmap(struct session *session, uint64_t first, struct reader *in, uint32_t words, uint64_t newest_counter,
                        struct ack_result *result)
{
    for (uint32_t w = 0; w < words; w++) {
        uint64_t bits = read_u64(in);
        for (; bits != 0; bits &= bits - 1) {
            uint64_t number = first + 64u * w + (uint32_t)__builtin_ctzll(bits);
            if (number >= session->una && number < session->next)
                acknowledge(session, number, newest_counter, result);
        }
    }
}

bool reliable_on_ack(struct session *session, struct reader *in)
{
    struct reliable *self = session->owner;
    const uint8_t *frame = read_view(in, WIRE_ACK_BYTES - 1); /* its first byte has been read */
    if (frame == NULL || reader_left(in) < frame[0] * 8u)
        return false;
    uint32_t words = frame[0];
    uint64_t cumulative = expand_u32(session->una, wire_load_u32(frame + 3));
    uint64_t newest = expand_u32(session->seal.send_counter, wire_load_u32(frame + 7));
    uint64_t delay_ns = (uint64_t)wire_load_u32(frame + 11) * 1000;
    if ((int64_t)(cumulative - session->next) > 0 || newest >= session->seal.send_counter)
        return false; /* acknowledges what was never sent */
    if (newest >= session->round_end)
        reliable_round_begin(session);
    struct ack_result result = {0};
    for (uint64_t i = session->una; (int64_t)(cumulative - i) > 0; i++)
        acknowledge(session, i, newest, &result);
    mark_bitmap(session, cumulative + 1, in, words, newest, &result);
    seal_session_confirm(&session->seal, newest);
    bool newer = newest >= session->acked_end;
    if (newer)
        session->acked_end = newest + 1;
    if (session->undo_possible && newer && newest < session->recovery_counter)
        undo_timeout(session);
    else if (newest >= session->recovery_counter)
        session->undo_possible = false;
    /* The newest packet's time of sending: from the table, or from a fragment that went with it if the table has moved on. */
    if (newer && session->seal.send_counter - newest <= SENT_TIMES)
        result.newest_sent_ns = session->sent_ns[newest % SENT_TIMES];
    if (newest >= session->timed_from && newer && result.newest_sent_ns != 0) {
        uint64_t rtt = self->now_ns - result.newest_sent_ns;
        reliable_rtt_sample(session, rtt > delay_ns ? rtt - delay_ns : rtt);
    }
    if (result.progress) {
        session->progress_ns = self->now_ns;
        session->timeouts = 0;
        session->probed = false;
        reliable_window_grow(session, result.bytes);
        release_acknowledged(session);
        session->rto_start_ns = self->now_ns;
        reliable_arm_rto(session);
    }
    if (session->una < session->next)
        detect_losses(session);
    else
        session->loss_check_ns = UINT64_MAX;
    if (session->n_lost > 0 || session->next < session->end)
        reliable_session_activate(session);
    return true;
}

/* ---- timers ---- */

static void retransmission_timeout(struct session *session)
{
    for (uint64_t i = session->una; i < session->next; i++)
        if (fragment_at(session, i)->state == FRAGMENT_IN_FLIGHT)
            lose(session, i);
    reliable_window_collapse(session);
    session->rto_start_ns = session->owner->now_ns;
    reliable_session_activate(session);
}

/* The last fragments of a burst have nothing behind them that would show their loss: the newest goes again, once (RFC 8985, 7). */
static void probe_tail(struct session *session)
{
    session->probed = true;
    for (uint64_t i = session->next; i-- > session->una;) {
        if (fragment_at(session, i)->state == FRAGMENT_IN_FLIGHT) {
            lose(session, i);
            reliable_session_activate(session);
            return;
        }
    }
}

void reliable_session_timers(struct session *session)
{
    struct reliable *self = session->owner;
    if (session->in_flight > 0 && self->now_ns >= session->rto_start_ns + backed_off_rto(session)) {
        if (self->now_ns - session->progress_ns >= self->tuning.peer_timeout_ns && session->timeouts >= MIN_TIMEOUTS) {
            reliable_session_down(session, HS_ERR_TIMEOUT);
            return;
        }
        retransmission_timeout(session);
    } else if (session->in_flight > 0 && may_probe(session) && self->now_ns >= session->rto_start_ns + session->probe_after_ns) {
        probe_tail(session);
    }
    if (self->now_ns >= session->pacing_due_ns)
        reliable_session_activate(session);
    else if (session->pacing_due_ns != UINT64_MAX)
        reliable_timer_at(self, session->pacing_due_ns);
    if (self->now_ns >= session->loss_check_ns)
        detect_losses(session);
    if (session->ack_pending && self->now_ns >= session->ack_due_ns)
        reliable_session_activate(session);
    if (self->tuning.keep_alive_ns != UINT64_MAX && session->una == session->end) {
        if (self->now_ns - session->heard_ns >= self->tuning.keep_alive_ns)
            reliable_queue_empty(session);
        else
            reliable_timer_at(self, session->heard_ns + self->tuning.keep_alive_ns);
    }
    reliable_arm_rto(session);
    if (session->loss_check_ns != UINT64_MAX)
        reliable_timer_at(self, session->loss_check_ns);
    if (session->ack_pending)
        reliable_timer_at(self, session->ack_due_ns);
}

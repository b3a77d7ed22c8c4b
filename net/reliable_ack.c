#include "core/base/error.h"
#include "net/reliable.h"

enum {
    INITIAL_WINDOW_DATAGRAMS = 32,
    FLOOR_WINDOW_DATAGRAMS = 32,
    MAX_WINDOW_BYTES = 32 << 20,
    INITIAL_RTO_MS = 250,
    MAX_BACKOFF = 10,
    MIN_TIMEOUTS = 3,
};

#define MS UINT64_C(1000000)

/* ---- round-trip time (RFC 6298) ---- */

void reliable_rtt_sample(struct session *session, uint64_t rtt_ns)
{
    if (rtt_ns == 0)
        rtt_ns = 1;
    if (session->rtt_ns == 0) {
        session->rtt_ns = rtt_ns;
        session->rtt_variance_ns = rtt_ns / 2;
    } else {
        uint64_t deviation = rtt_ns > session->rtt_ns ? rtt_ns - session->rtt_ns : session->rtt_ns - rtt_ns;
        session->rtt_variance_ns = (3 * session->rtt_variance_ns + deviation) / 4;
        session->rtt_ns = (7 * session->rtt_ns + rtt_ns) / 8;
    }
    if (session->peer != NULL) {
        session->peer->stats.rtt_ns = session->rtt_ns;
        session->peer->stats.rtt_variance_ns = session->rtt_variance_ns;
    }
}

static uint64_t base_rto(const struct session *session)
{
    const struct net_tuning *tuning = &session->owner->tuning;
    if (session->rtt_ns == 0)
        return INITIAL_RTO_MS * MS > tuning->min_rto_ns ? INITIAL_RTO_MS * MS : tuning->min_rto_ns;
    uint64_t rto = session->rtt_ns + 4 * session->rtt_variance_ns + tuning->ack_delay_ns;
    return rto > tuning->min_rto_ns ? rto : tuning->min_rto_ns;
}

/* Doubles with every time-out, but looks again at least every second, so that a peer's end is seen when it is due; and after the time in
 * which a peer counts as down at the latest: a process that stood still has measured round trips that are no round trips. */
static uint64_t backed_off_rto(const struct session *session)
{
    uint64_t longest = session->owner->tuning.peer_timeout_ns;
    uint64_t base = base_rto(session) < longest ? base_rto(session) : longest;
    uint64_t limit = 2 * base < longest ? 2 * base : longest;
    limit = limit > 1000 * MS ? limit : 1000 * MS;
    uint64_t rto = base << (session->timeouts < MAX_BACKOFF ? session->timeouts : MAX_BACKOFF);
    return rto < limit ? rto : limit;
}

/* ---- congestion window ---- */

void reliable_congestion_init(struct session *session)
{
    session->window_bytes = (uint64_t)INITIAL_WINDOW_DATAGRAMS * session->datagram_bytes;
    session->threshold_bytes = MAX_WINDOW_BYTES;
}

static void window_grow(struct session *session, uint64_t acked_bytes)
{
    if (!session->window_limited)
        return; /* not the window but the application holds us back: it proves nothing */
    if (session->window_bytes < session->threshold_bytes)
        session->window_bytes += acked_bytes;
    else
        session->window_bytes += acked_bytes * session->datagram_bytes / session->window_bytes + 1;
    if (session->window_bytes > MAX_WINDOW_BYTES)
        session->window_bytes = MAX_WINDOW_BYTES;
}

/*
 * Once per round trip. Below one loss in ten the cut is small: wireless and overlay paths, and our own full receive
 * buffers, lose a few datagrams without a queue behind it.
 */
static void window_cut(struct session *session, uint64_t newest_lost_counter)
{
    if (newest_lost_counter < session->recovery_counter)
        return;
    uint64_t floor = (uint64_t)FLOOR_WINDOW_DATAGRAMS * session->datagram_bytes;
    bool many = session->round_lost * 10 > session->round_lost + session->round_acked;
    session->window_bytes = session->window_bytes * (many ? 7 : 9) / 10;
    if (session->window_bytes < floor)
        session->window_bytes = floor;
    session->threshold_bytes = session->window_bytes;
    session->recovery_counter = session->seal.send_counter;
    session->round_lost = session->round_acked = 0;
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
        session->in_flight -= fragment_frame_bytes(fragment);
        result->bytes += fragment_frame_bytes(fragment);
    } else if (fragment->state == FRAGMENT_LOST) {
        session->n_lost--; /* it was only late */
    }
    if (fragment->counter == newest_counter)
        result->newest_sent_ns = fragment->sent_ns;
    fragment->state = FRAGMENT_ACKED;
    session->round_acked++;
    result->progress = true;
}

static void lose(struct session *session, uint64_t number)
{
    struct send_fragment *fragment = fragment_at(session, number);
    session->in_flight -= fragment_frame_bytes(fragment);
    fragment->state = FRAGMENT_LOST;
    if (session->n_lost++ == 0 || number < session->lost_from)
        session->lost_from = number;
    session->round_lost++;
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
        window_cut(session, newest_lost);
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
    session->undo_possible = false;
    session->window_bytes = session->undo_window_bytes;
    session->threshold_bytes = session->undo_threshold_bytes;
    for (uint64_t i = session->una; i < session->next; i++) {
        struct send_fragment *fragment = fragment_at(session, i);
        if (fragment->state == FRAGMENT_LOST && fragment->counter >= session->acked_end) {
            fragment->state = FRAGMENT_IN_FLIGHT;
            session->n_lost--;
            session->in_flight += fragment_frame_bytes(fragment);
        }
    }
}

static void release_acknowledged(struct session *session)
{
    while (session->una < session->next && fragment_at(session, session->una)->state == FRAGMENT_ACKED)
        session->una++;
    session->ring_tail = session->una < session->end ? fragment_at(session, session->una)->offset : session->ring_head;
}

void reliable_arm_rto(struct session *session)
{
    if (session->in_flight > 0)
        reliable_timer_at(session->owner, session->rto_start_ns + backed_off_rto(session));
}

/* ---- acknowledgement frames ---- */

void reliable_write_ack(struct session *session, struct writer *out)
{
    uint64_t span = session->highest > session->expected ? session->highest - session->expected - 1 : 0;
    uint32_t words = (uint32_t)((span + 63) / 64), room = (uint32_t)((out->cap - out->len - WIRE_ACK_BYTES) / 8);
    words = words < room ? words : room;
    uint64_t delay_us = (session->owner->now_ns - session->largest_counter_ns) / 1000;
    write_u8(out, FRAME_ACK);
    write_u8(out, (uint8_t)words);
    write_u16(out, 0); /* reserved */
    write_u32(out, (uint32_t)session->expected);
    write_u32(out, (uint32_t)session->largest_counter);
    write_u32(out, delay_us < UINT32_MAX ? (uint32_t)delay_us : UINT32_MAX);
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
    uint32_t words = read_u8(in);
    read_u16(in);
    uint64_t cumulative = expand_u32(session->una, read_u32(in));
    uint64_t newest = expand_u32(session->seal.send_counter, read_u32(in));
    uint64_t delay_ns = (uint64_t)read_u32(in) * 1000;
    if (in->failed || reader_left(in) < words * 8u)
        return false;
    if ((int64_t)(cumulative - session->next) > 0 || newest >= session->seal.send_counter)
        return false; /* acknowledges what was never sent */
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
    if (newer && result.newest_sent_ns != 0) {
        uint64_t rtt = self->now_ns - result.newest_sent_ns;
        reliable_rtt_sample(session, rtt > delay_ns ? rtt - delay_ns : rtt);
    }
    if (result.progress) {
        session->progress_ns = self->now_ns;
        session->timeouts = 0;
        window_grow(session, result.bytes);
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
    if (session->timeouts++ == 0) {
        session->undo_possible = true;
        session->undo_window_bytes = session->window_bytes;
        session->undo_threshold_bytes = session->threshold_bytes;
    }
    for (uint64_t i = session->una; i < session->next; i++)
        if (fragment_at(session, i)->state == FRAGMENT_IN_FLIGHT)
            lose(session, i);
    uint64_t floor = 4u * (uint64_t)session->datagram_bytes;
    session->threshold_bytes = session->window_bytes / 2 > floor ? session->window_bytes / 2 : floor;
    session->window_bytes = floor;
    session->recovery_counter = session->seal.send_counter;
    session->round_lost = session->round_acked = 0;
    session->rto_start_ns = session->owner->now_ns;
    reliable_session_activate(session);
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
    }
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

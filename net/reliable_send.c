#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "core/base/panic.h"
#include "net/reliable.h"

enum { FIRST_FRAGMENTS = 64, FIRST_RING_BYTES = 16384 };

/* ---- queueing ---- */

static bool grow_fragments(struct session *session, uint64_t wanted)
{
    uint32_t cap = session->fragments_cap ? session->fragments_cap : FIRST_FRAGMENTS;
    while (cap < wanted)
        cap *= 2;
    if (cap == session->fragments_cap)
        return true;
    struct send_fragment *fragments = calloc(cap, sizeof *fragments);
    if (fragments == NULL)
        return false;
    for (uint64_t i = session->una; i < session->end; i++)
        fragments[i & (cap - 1)] = *fragment_at(session, i);
    free(session->fragments);
    session->fragments = fragments;
    session->fragments_cap = cap;
    return true;
}

static void add_fragment(struct session *session, uint64_t offset, uint32_t len, uint8_t flags, uint32_t message_len)
{
    if (session->una == session->end) { /* the clock of a silent peer starts with the first thing it owes us */
        session->progress_ns = session->owner->now_ns;
        session->timeouts = 0;
    }
    struct send_fragment *fragment = fragment_at(session, session->end++);
    fragment->offset = offset;
    fragment->message_len = message_len;
    fragment->len = (uint16_t)len;
    fragment->frame_bytes = 8 + (fragment_has_length(flags) ? 4 : 0) + len;
    fragment->flags = flags;
    fragment->state = FRAGMENT_QUEUED;
    fragment->resent = false;
}

int reliable_queue(struct session *session, const struct iovec *iov, int n, size_t len)
{
    struct reliable *self = session->owner;
    uint32_t piece = session->piece_bytes;
    uint64_t count = len <= piece ? 1 : (len + piece - 1) / piece;
    uint64_t queued = session->end - session->una + count, bytes = byte_ring_used(&session->ring) + len;
    if (queued > session->window || bytes > self->tuning.send_buffer_bytes) {
        self->stats.send_bytes.hits++;
        return HS_ERR_BUSY;
    }
    if ((queued > session->fragments_cap && !grow_fragments(session, queued)) ||
        (bytes > session->ring.cap && !byte_ring_grow(&session->ring, bytes, FIRST_RING_BYTES)))
        return HS_ERR_BUSY;
    uint64_t offset = session->ring.head;
    for (int i = 0; i < n; i++)
        byte_ring_write(&session->ring, iov[i].iov_base, iov[i].iov_len);
    for (uint64_t i = 0; i < count; i++) {
        uint8_t flags = (uint8_t)((i == 0 ? FRAGMENT_FIRST : 0) | (i == count - 1 ? FRAGMENT_LAST : 0));
        uint64_t left = len - i * piece;
        add_fragment(session, offset + i * piece, (uint32_t)(left < piece ? left : piece), flags, (uint32_t)len);
    }
    reliable_session_activate(session);
    return 0;
}

void reliable_queue_empty(struct session *session)
{
    if (session->end - session->una >= session->window || !grow_fragments(session, session->end - session->una + 1))
        return;
    add_fragment(session, session->ring.head, 0, FRAGMENT_EMPTY, 0);
    reliable_session_activate(session);
}

int reliable_queue_unreliable(struct session *session, const struct iovec *iov, int n, size_t len)
{
    if (len > session->datagram_bytes - WIRE_PACKET_HEADER_BYTES - SEAL_TAG_BYTES - 4)
        return HS_ERR_LIMIT;
    if (session->unreliable == NULL)
        session->unreliable = malloc(RELIABLE_UNRELIABLE_BYTES);
    if (session->unreliable == NULL || session->unreliable_len + 4 + len > RELIABLE_UNRELIABLE_BYTES) {
        session->owner->stats.unreliable_bytes.hits++;
        return HS_ERR_BUSY;
    }
    struct writer w;
    writer_init(&w, session->unreliable + session->unreliable_len, RELIABLE_UNRELIABLE_BYTES - session->unreliable_len);
    write_u8(&w, FRAME_UNRELIABLE);
    write_u8(&w, 0);
    write_u16(&w, (uint16_t)len);
    for (int i = 0; i < n; i++)
        write_bytes(&w, iov[i].iov_base, iov[i].iov_len);
    session->unreliable_len += (uint32_t)w.len;
    reliable_session_activate(session);
    return 0;
}

/* ---- packets ---- */

static void write_fragment(struct session *session, uint64_t number, struct writer *out)
{
    const struct send_fragment *fragment = fragment_at(session, number);
    uint8_t *frame = write_room(out, fragment->frame_bytes); /* which the caller has seen to be there */
    wire_store_u32(frame, FRAME_FRAGMENT | (uint32_t)fragment->flags << 8 | (uint32_t)fragment->len << 16);
    wire_store_u32(frame + 4, (uint32_t)number);
    frame += 8;
    if (fragment_has_length(fragment->flags)) {
        wire_store_u32(frame, fragment->message_len);
        frame += 4;
    }
    if (fragment->len == 0) /* a ring that nothing was put into has no memory */
        return;
    const uint8_t *at = byte_ring_at(&session->ring, fragment->offset);
    uint64_t first = byte_ring_to_end(&session->ring, fragment->offset);
    if (fragment->len <= first) {
        memcpy(frame, at, fragment->len);
    } else {
        memcpy(frame, at, first);
        memcpy(frame + first, session->ring.bytes, fragment->len - first);
    }
}

static void mark_sent(struct session *session, struct send_fragment *fragment, uint64_t counter)
{
    struct reliable *self = session->owner;
    if (fragment->state == FRAGMENT_LOST) {
        session->n_lost--;
        fragment->resent = true;
        self->stats.retransmits++;
        session->peer->stats.retransmits++;
    }
    fragment->state = FRAGMENT_IN_FLIGHT;
    fragment->sent_ns = self->now_ns;
    fragment->counter = counter;
    if (session->in_flight == 0)
        session->rto_start_ns = self->now_ns;
    session->in_flight += fragment->frame_bytes;
    session->pacing_bytes -= fragment->frame_bytes;
}

/* The fragment to send next: lost ones first. */
static bool next_fragment(struct session *session, uint64_t *number)
{
    if (session->n_lost > 0) {
        if (session->lost_from < session->una)
            session->lost_from = session->una;
        while (session->lost_from < session->next && fragment_at(session, session->lost_from)->state != FRAGMENT_LOST)
            session->lost_from++;
        hs_assert(session->lost_from < session->next);
        *number = session->lost_from;
        return true;
    }
    *number = session->next;
    return session->next < session->end;
}

static bool window_open(struct session *session, const struct send_fragment *fragment)
{
    bool open = session->in_flight == 0 || session->in_flight + fragment->frame_bytes <= session->window_bytes;
    if (!open)
        session->window_limited = true;
    return open && reliable_pacing_allows(session, fragment->frame_bytes);
}

static void write_fragments(struct session *session, uint64_t counter, struct writer *out)
{
    uint64_t number;
    while (next_fragment(session, &number)) {
        struct send_fragment *fragment = fragment_at(session, number);
        if (fragment->frame_bytes > out->cap - out->len || !window_open(session, fragment))
            return;
        write_fragment(session, number, out);
        mark_sent(session, fragment, counter);
        if (number == session->next)
            session->next++;
    }
}

/* Whole frames from the front of the unreliable queue at *at. */
static void write_unreliable(struct session *session, uint32_t *at, struct writer *out)
{
    while (*at < session->unreliable_len) {
        uint16_t len;
        memcpy(&len, session->unreliable + *at + 2, sizeof len);
        if (4u + len > out->cap - out->len)
            return;
        write_bytes(out, session->unreliable + *at, 4u + len);
        *at += 4u + len;
    }
}

/* Starts a packet: header written, out set to the room for frames. NULL: the carrier is stuck or the key is lost. */
static uint8_t *begin_packet(struct session *session, struct writer *out, uint64_t *counter)
{
    struct reliable *self = session->owner;
    uint8_t *packet = reliable_out_begin(self);
    uint8_t generation;
    if (packet == NULL || seal_session_next(&session->seal, self->now_ns, counter, &generation) != 0)
        return NULL;
    wire_store_u32(packet, 'H' | 'S' << 8 | (WIRE_VERSION << 4 | WIRE_PACKET) << 16 | (uint32_t)generation << 24);
    wire_store_u32(packet + 4, session->remote_id);
    wire_store_u64(packet + 8, *counter);
    session->sent_ns[*counter % SENT_TIMES] = self->now_ns;
    writer_init(out, packet + WIRE_PACKET_HEADER_BYTES, session->datagram_bytes - WIRE_PACKET_HEADER_BYTES - SEAL_TAG_BYTES);
    return packet;
}

static void end_packet(struct session *session, uint8_t *packet, const struct writer *frames)
{
    hs_assert(!frames->failed && frames->len > 0);
    int status = seal_session_seal(&session->seal, packet, WIRE_PACKET_HEADER_BYTES, frames->data, frames->len, frames->data);
    hs_assert(status == 0);
    uint32_t len = (uint32_t)frames->len + WIRE_PACKET_HEADER_BYTES + SEAL_TAG_BYTES;
    reliable_out_commit(session->owner, &session->address, len);
}

static bool can_send_fragment(struct session *session)
{
    uint64_t number;
    return (session->next < session->end || session->n_lost > 0) && next_fragment(session, &number) &&
           window_open(session, fragment_at(session, number));
}

void reliable_flush(struct session *session)
{
    struct reliable *self = session->owner;
    uint32_t unreliable_at = 0;
    bool stuck = false;
    if (seal_session_wants_confirmation(&session->seal, self->now_ns) && session->una == session->end)
        reliable_queue_empty(session);
    session->window_limited = false;
    session->pacing_due_ns = UINT64_MAX;
    for (;;) {
        bool content = unreliable_at < session->unreliable_len || can_send_fragment(session);
        bool ack = session->ack_pending && (content || session->ack_now || self->now_ns >= session->ack_due_ns);
        if (!content && !ack)
            break;
        struct writer frames;
        uint64_t counter;
        uint8_t *packet = begin_packet(session, &frames, &counter);
        if (packet == NULL) {
            stuck = true;
            break;
        }
        if (ack)
            reliable_write_ack(session, &frames);
        write_unreliable(session, &unreliable_at, &frames);
        write_fragments(session, counter, &frames);
        end_packet(session, packet, &frames);
    }
    if (unreliable_at > 0) {
        session->unreliable_len -= unreliable_at;
        memmove(session->unreliable, session->unreliable + unreliable_at, session->unreliable_len);
    }
    if (session->ack_pending)
        reliable_timer_at(self, session->ack_due_ns);
    reliable_arm_rto(session);
    if (!stuck)
        reliable_session_deactivate(session);
}

void reliable_send_close(struct session *session)
{
    for (int i = 0; i < 2; i++) { /* unacknowledged: twice against a single loss */
        struct writer frames;
        uint64_t counter;
        uint8_t *packet = begin_packet(session, &frames, &counter);
        if (packet == NULL)
            return;
        write_u8(&frames, FRAME_CLOSE);
        write_u8(&frames, 0);
        end_packet(session, packet, &frames);
    }
}

#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "core/base/panic.h"
#include "net/reliable.h"

enum { FIRST_FRAGMENTS = 64, FIRST_RING_BYTES = 16384 };
enum { AT_ONCE_NS = 20000 }; /* a poll so long ago is another time than now's */

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

/* The next fragment: its frame's head is in the ring, len bytes are to follow. The room is there. */
static void begin_fragment(struct session *session, uint32_t len, uint8_t flags, uint32_t message_len)
{
    if (session->una == session->end) { /* the clock of a silent peer starts with the first thing it owes us */
        session->progress_ns = session->owner->now_ns;
        session->timeouts = 0;
    }
    struct byte_ring *ring = &session->ring;
    struct send_fragment *fragment = fragment_at(session, session->end);
    uint32_t head_bytes = fragment_has_length(flags) ? WIRE_FRAGMENT_OVERHEAD : WIRE_FRAGMENT_OVERHEAD - 4;
    fragment->offset = ring->head;
    fragment->frame_bytes = head_bytes + len;
    fragment->state = FRAGMENT_QUEUED;
    fragment->resent = false;
    uint8_t split[WIRE_FRAGMENT_OVERHEAD], *head = byte_ring_to_end(ring, ring->head) < WIRE_FRAGMENT_OVERHEAD ? split : byte_ring_at(ring, ring->head);
    wire_store_u32(head, FRAME_FRAGMENT | (uint32_t)flags << 8 | len << 16);
    wire_store_u32(head + 4, (uint32_t)session->end++);
    if (fragment_has_length(flags))
        wire_store_u32(head + 8, message_len);
    if (head == split)
        byte_ring_write(ring, head, head_bytes);
    else
        ring->head += head_bytes;
}

/* A message of several fragments. */
static void write_pieces(struct session *session, const struct iovec *iov, size_t len)
{
    uint32_t piece = session->piece_bytes;
    const uint8_t *from = iov->iov_base;
    size_t from_left = iov->iov_len;
    for (size_t left = len; left > 0;) {
        uint32_t bytes = left < piece ? (uint32_t)left : piece;
        begin_fragment(session, bytes, (uint8_t)((left == len ? FRAGMENT_FIRST : 0) | (left == bytes ? FRAGMENT_LAST : 0)), (uint32_t)len);
        for (left -= bytes; bytes > 0;) {
            while (from_left == 0) {
                from = (++iov)->iov_base;
                from_left = iov->iov_len;
            }
            size_t n = bytes < from_left ? bytes : from_left;
            byte_ring_write(&session->ring, from, n);
            from += n;
            from_left -= n;
            bytes -= (uint32_t)n;
        }
    }
}

int reliable_queue(struct session *session, const struct iovec *iov, int n, size_t len)
{
    struct reliable *self = session->owner;
    uint32_t piece = session->piece_bytes;
    uint64_t count = len <= piece ? 1 : (len + piece - 1) / piece, heads = 8 * count + (count > 1 ? 4 : 0);
    uint64_t queued = session->end - session->una + count, used = byte_ring_used(&session->ring), bytes = used + heads + len;
    if (queued > session->window || (used > 0 && bytes > self->tuning.send_buffer_bytes)) {
        self->stats.send_bytes.hits++;
        return HS_ERR_BUSY;
    }
    if ((queued > session->fragments_cap && !grow_fragments(session, queued)) ||
        (bytes > session->ring.cap && !byte_ring_grow(&session->ring, bytes, FIRST_RING_BYTES)))
        return HS_ERR_BUSY;
    if (count > 1) {
        write_pieces(session, iov, len);
    } else {
        begin_fragment(session, (uint32_t)len, FRAGMENT_FIRST | FRAGMENT_LAST, (uint32_t)len);
        for (int i = 0; i < n; i++)
            byte_ring_write(&session->ring, iov[i].iov_base, iov[i].iov_len);
    }
    reliable_session_activate(session);
    return 0;
}

void reliable_queue_empty(struct session *session)
{
    uint64_t queued = session->end - session->una + 1;
    if (queued > session->window || !grow_fragments(session, queued) ||
        !byte_ring_grow(&session->ring, byte_ring_used(&session->ring) + WIRE_FRAGMENT_OVERHEAD, FIRST_RING_BYTES))
        return;
    begin_fragment(session, 0, FRAGMENT_EMPTY, 0);
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

struct packet {
    uint8_t *bytes; /* the header, and where the sealed frames go */
    uint64_t counter;
    struct writer frames;
    const uint8_t *ready; /* the frames, where they lie in the send ring in one piece; NULL: they have been written to `frames` */
};

/* A run of fragments in a packet of its own is sealed from where it lies; what goes with something else is copied. */
static void add_frame(struct session *session, struct packet *packet, const struct send_fragment *fragment)
{
    struct writer *out = &packet->frames; /* in which the caller has seen the room */
    const uint8_t *at = byte_ring_at(&session->ring, fragment->offset);
    uint64_t to_end = byte_ring_to_end(&session->ring, fragment->offset);
    bool follows = out->len == 0 || (packet->ready != NULL && packet->ready + out->len == at);
    if (follows && fragment->frame_bytes <= to_end) {
        packet->ready = at - out->len;
        out->len += fragment->frame_bytes;
        return;
    }
    if (packet->ready != NULL)
        memcpy(out->data, packet->ready, out->len);
    packet->ready = NULL;
    uint8_t *frame = write_room(out, fragment->frame_bytes);
    if (fragment->frame_bytes <= to_end) {
        memcpy(frame, at, fragment->frame_bytes);
    } else {
        memcpy(frame, at, to_end);
        memcpy(frame + to_end, session->ring.bytes, fragment->frame_bytes - to_end);
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

static void write_fragments(struct session *session, struct packet *packet)
{
    uint64_t number;
    while (next_fragment(session, &number)) {
        struct send_fragment *fragment = fragment_at(session, number);
        if (fragment->frame_bytes > packet->frames.cap - packet->frames.len || !window_open(session, fragment))
            return;
        add_frame(session, packet, fragment);
        mark_sent(session, fragment, packet->counter);
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

/* Starts a packet: header written, frames set to the room for them. False: the carrier is stuck or the key is lost. */
static bool begin_packet(struct session *session, struct packet *packet)
{
    struct reliable *self = session->owner;
    uint8_t *bytes = reliable_out_begin(self), generation;
    if (bytes == NULL || seal_session_next(&session->seal, self->now_ns, &packet->counter, &generation) != 0)
        return false;
    wire_store_u32(bytes, 'H' | 'S' << 8 | (WIRE_VERSION << 4 | WIRE_PACKET) << 16 | (uint32_t)generation << 24);
    wire_store_u32(bytes + 4, session->remote_id);
    wire_store_u64(bytes + 8, packet->counter);
    session->sent_ns[packet->counter % SENT_TIMES] = self->now_ns;
    packet->bytes = bytes;
    packet->ready = NULL;
    writer_init(&packet->frames, bytes + WIRE_PACKET_HEADER_BYTES, session->datagram_bytes - WIRE_PACKET_HEADER_BYTES - SEAL_TAG_BYTES);
    return true;
}

static void end_packet(struct session *session, const struct packet *packet)
{
    const struct writer *frames = &packet->frames;
    hs_assert(!frames->failed && frames->len > 0);
    int status = seal_session_seal(&session->seal, packet->bytes, WIRE_PACKET_HEADER_BYTES, packet->ready ? packet->ready : frames->data,
                                   frames->len, frames->data);
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
        struct packet packet;
        if (!begin_packet(session, &packet)) {
            stuck = true;
            break;
        }
        if (ack)
            reliable_write_ack(session, &packet.frames);
        write_unreliable(session, &unreliable_at, &packet.frames);
        write_fragments(session, &packet);
        end_packet(session, &packet);
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

void reliable_flush_at_once(struct session *session)
{
    session->owner->at_once = session;
    reliable_flush(session);
}

/* It left at some time between two polls. Is that long, it tells no round trip, and its answer is late only as seen from now. */
void reliable_end_at_once(struct session *session, uint64_t stamped_ns)
{
    struct reliable *self = session->owner;
    self->at_once = NULL;
    if (self->now_ns - stamped_ns <= AT_ONCE_NS)
        return;
    session->timed_from = session->seal.send_counter;
    for (uint64_t i = session->una; i < session->next; i++)
        fragment_at(session, i)->sent_ns = self->now_ns;
    if (session->in_flight > 0)
        session->rto_start_ns = self->now_ns;
}

void reliable_send_close(struct session *session)
{
    for (int i = 0; i < 2; i++) { /* unacknowledged: twice against a single loss */
        struct packet packet;
        if (!begin_packet(session, &packet))
            return;
        write_u8(&packet.frames, FRAME_CLOSE);
        write_u8(&packet.frames, 0);
        end_packet(session, &packet);
    }
}

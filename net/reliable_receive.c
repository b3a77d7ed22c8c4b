#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "core/base/log.h"
#include "net/reliable.h"

enum { FIRST_SLOTS = 64, ACK_EVERY_PACKETS = 8 };

static struct receive_slot *slot_at(const struct session *session, uint64_t number)
{
    return &session->slots[number & (session->slots_cap - 1)];
}

static bool grow_slots(struct session *session, uint64_t wanted)
{
    uint32_t cap = session->slots_cap ? session->slots_cap : FIRST_SLOTS;
    while (cap < wanted)
        cap *= 2;
    if (cap == session->slots_cap)
        return true;
    struct receive_slot *slots = calloc(cap, sizeof *slots);
    if (slots == NULL)
        return false;
    for (uint64_t i = session->expected; i < session->highest && session->slots_cap > 0; i++)
        slots[i & (cap - 1)] = *slot_at(session, i);
    free(session->slots);
    session->slots = slots;
    session->slots_cap = cap;
    return true;
}

static void deliver(struct session *session, const uint8_t *data, uint32_t len, struct receive_buffer *buffer,
                    struct message_buffer *message)
{
    struct reliable *self = session->owner;
    if (buffer != NULL)
        buffer->references++;
    struct ready_event *ready = reliable_event(self, TRANSPORT_MESSAGE, session->peer->number, buffer, message);
    if (ready == NULL)
        return;
    ready->event.boot_id = session->boot_id;
    ready->event.data = data;
    ready->event.len = len;
    session->peer->stats.received_messages++;
    self->stats.received_messages++;
    self->stats.received_bytes += len;
}

/* The next fragment in order. False: the peer breaks the rules. */
static bool consume(struct session *session, const struct receive_slot *fragment)
{
    struct reliable *self = session->owner;
    if (fragment->flags & FRAGMENT_EMPTY)
        return true;
    bool first = fragment->flags & FRAGMENT_FIRST, last = fragment->flags & FRAGMENT_LAST;
    if (first != (session->assembly == NULL))
        return false;
    if (first && last) {
        deliver(session, fragment->data, fragment->len, fragment->buffer, NULL);
        return true;
    }
    if (first) {
        if (fragment->message_len > WIRE_MAX_MESSAGE)
            return false;
        session->assembly = buffer_pool_get_message(&self->pool, fragment->message_len);
        if (session->assembly == NULL)
            return false;
        session->assembly_len = fragment->message_len;
        session->assembly_filled = 0;
    }
    if (fragment->len > session->assembly_len - session->assembly_filled)
        return false;
    memcpy(session->assembly->data + session->assembly_filled, fragment->data, fragment->len);
    session->assembly_filled += fragment->len;
    if (!last)
        return true;
    if (session->assembly_filled != session->assembly_len)
        return false;
    struct message_buffer *message = session->assembly;
    session->assembly = NULL;
    deliver(session, message->data, session->assembly_len, NULL, message);
    return true;
}

static bool accept_fragment(struct session *session, uint64_t number, const struct receive_slot *fragment)
{
    struct reliable *self = session->owner;
    if (number != session->expected) { /* kept until the gap before it closes */
        if (!grow_slots(session, number - session->expected + 1))
            return true; /* as if lost */
        struct receive_slot *slot = slot_at(session, number);
        *slot = *fragment;
        slot->buffer->references++;
        session->highest = number + 1 > session->highest ? number + 1 : session->highest;
        session->ack_now = true;
        return true;
    }
    bool good = consume(session, fragment);
    session->expected++;
    while (good && session->expected < session->highest && slot_at(session, session->expected)->buffer != NULL) {
        struct receive_slot *slot = slot_at(session, session->expected);
        good = consume(session, slot);
        buffer_pool_unref(&self->pool, slot->buffer);
        slot->buffer = NULL;
        session->expected++;
        session->ack_now = true; /* a gap has closed: the sender waits to hear it */
    }
    if (session->highest < session->expected)
        session->highest = session->expected;
    return good;
}

static bool read_fragment(struct session *session, struct reader *in, struct receive_buffer *buffer)
{
    const uint8_t *frame = read_view(in, 7); /* its first byte has been read */
    if (frame == NULL)
        return false;
    struct receive_slot fragment = {.buffer = buffer, .flags = frame[0], .len = wire_load_u16(frame + 1)};
    uint32_t low = wire_load_u32(frame + 3);
    if (fragment_has_length(fragment.flags))
        fragment.message_len = read_u32(in);
    fragment.data = read_view(in, fragment.len);
    if (fragment.data == NULL)
        return false;
    uint64_t number = expand_u32(session->expected, low);
    int64_t ahead = (int64_t)(number - session->expected);
    if (ahead >= WIRE_WINDOW)
        return false;
    if (ahead < 0 || (number < session->highest && session->slots_cap > 0 && slot_at(session, number)->buffer != NULL)) {
        session->owner->stats.duplicates++;
        session->ack_now = true; /* our acknowledgement may have been lost */
        return true;
    }
    return accept_fragment(session, number, &fragment);
}

static bool read_unreliable(struct session *session, struct reader *in, struct receive_buffer *buffer)
{
    read_u8(in);
    uint16_t len = read_u16(in);
    const uint8_t *data = read_view(in, len);
    if (in->failed)
        return false;
    deliver(session, data, len, buffer, NULL);
    return true;
}

/* 0, HS_ERR_CLOSED when the peer leaves, HS_ERR_PROTOCOL when it breaks the rules. */
static int read_frames(struct session *session, struct reader *in, uint64_t counter, struct receive_buffer *buffer)
{
    bool eliciting = false, good = true;
    while (good && reader_left(in) > 0) {
        switch (read_u8(in)) {
        case FRAME_ACK:
            good = reliable_on_ack(session, in);
            break;
        case FRAME_FRAGMENT:
            eliciting = true;
            good = read_fragment(session, in, buffer);
            break;
        case FRAME_UNRELIABLE:
            good = read_unreliable(session, in, buffer);
            break;
        case FRAME_CLOSE:
            return HS_ERR_CLOSED;
        default:
            good = false;
        }
    }
    if (!good)
        return HS_ERR_PROTOCOL;
    if (!eliciting)
        return 0;
    uint64_t now = session->owner->now_ns;
    if (!session->ack_pending) {
        session->ack_pending = true;
        session->ack_due_ns = now + session->owner->tuning.ack_delay_ns;
    }
    if (counter >= session->largest_counter) {
        session->largest_counter = counter;
        session->largest_counter_ns = now;
    }
    if (++session->ack_packets >= ACK_EVERY_PACKETS)
        session->ack_now = true;
    if (session->ack_now)
        reliable_session_activate(session);
    else
        reliable_timer_at(session->owner, session->ack_due_ns);
    return 0;
}

static void report_protocol_error(struct session *session)
{
    struct reliable *self = session->owner;
    char text[TRANSPORT_ADDRESS_TEXT];
    self->carrier->ops->format(self->carrier, &session->address, text, sizeof text);
    if (reliable_report(self, &session->address, 'f', 1))
        log_warn("net", "peer %s sent a sealed packet that breaks the protocol: session ended; do both run the same version?",
                 text);
}

/* What a packet is opened into: where it lies, if that can be kept. NULL: no memory, or all of it waits for the application. */
static struct receive_buffer *buffer_for(struct reliable *self, const struct carrier_datagram *datagram)
{
    const struct carrier_ops *ops = self->carrier->ops;
    void *kept = ops->keep != NULL && datagram->held != NULL ? ops->keep(self->carrier, datagram->held) : NULL;
    return kept != NULL ? buffer_pool_get_kept(&self->pool, kept, datagram->data + WIRE_PACKET_HEADER_BYTES) : buffer_pool_get(&self->pool);
}

void reliable_on_packet(struct reliable *self, const struct carrier_datagram *datagram)
{
    if (datagram->len < WIRE_PACKET_HEADER_BYTES + SEAL_TAG_BYTES || datagram->len > self->mtu) {
        self->stats.rejected++;
        return;
    }
    uint8_t generation = datagram->data[3];
    struct session *session = reliable_session_find(self, wire_load_u32(datagram->data + 4));
    uint64_t counter = wire_load_u64(datagram->data + 8);
    uint32_t sealed_len = datagram->len - WIRE_PACKET_HEADER_BYTES;
    if (session == NULL || session->state == SESSION_OUTGOING || session->address.len != datagram->address.len ||
        memcmp(session->address.bytes, datagram->address.bytes, session->address.len) != 0) {
        self->stats.rejected++;
        return;
    }
    struct receive_buffer *buffer = buffer_for(self, datagram);
    if (buffer == NULL) { /* as if lost */
        self->stats.receive_bytes.hits++;
        return;
    }
    int status = seal_session_open(&session->seal, self->now_ns, counter, generation, datagram->data, WIRE_PACKET_HEADER_BYTES,
                                   datagram->data + WIRE_PACKET_HEADER_BYTES, sealed_len, buffer->data);
    if (status == HS_ERR_CANCELED)
        self->stats.duplicates++;
    if (status != 0) {
        self->stats.rejected++;
    } else if (session->state != SESSION_HALF_OPEN || reliable_confirm_half_open(session)) {
        session->heard_ns = self->now_ns;
        session->heard = true;
        if (self->carrier->ops->authentic != NULL)
            self->carrier->ops->authentic(self->carrier, datagram);
        struct reader frames;
        reader_init(&frames, buffer->data, sealed_len - SEAL_TAG_BYTES);
        status = read_frames(session, &frames, counter, buffer);
        if (status == HS_ERR_PROTOCOL) {
            self->stats.rejected++;
            report_protocol_error(session);
        }
        if (status != 0)
            reliable_session_down(session, status);
    }
    buffer_pool_unref(&self->pool, buffer);
}

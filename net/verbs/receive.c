/* From packets to messages: opened in place, or into the message that they continue. */
#include <endian.h>
#include <string.h>

#include "core/base/codec.h"
#include "net/verbs/internal.h"
#include "net/wire.h"

static int deliver(struct verbs_link *link, const uint8_t *data, uint32_t len, struct verbs_buffer *buffer, struct message_buffer *message)
{
    struct verbs *self = link->owner;
    struct transport_event event = {
        .kind = TRANSPORT_MESSAGE, .peer = link->peer, .boot_id = link->boot_id, .data = data, .len = len};
    if (!verbs_event(self, &event, buffer, message))
        return HS_ERR_NO_MEMORY;
    self->stats.received_messages++;
    self->stats.received_bytes += len;
    self->peer_stats[net_peer_place(link->peer)].received_messages++;
    return 0;
}

/* Gives out the message that was put together. */
static int finish_assembly(struct verbs_link *link)
{
    struct message_buffer *message = link->assembly;
    link->assembly = NULL;
    return deliver(link, message->data, link->assembly_len, NULL, message);
}

static int begin_assembly(struct verbs_link *link, uint32_t len)
{
    link->assembly = buffer_pool_get_message(&link->owner->pool, len);
    link->assembly_len = len;
    link->assembly_filled = 0;
    return link->assembly != NULL ? 0 : HS_ERR_NO_MEMORY;
}

/* The next record's length; false: its bytes have not all come yet. */
static bool take_record(struct verbs_link *link, struct reader *r, uint32_t *len)
{
    while (link->record_filled < VERBS_RECORD_BYTES && reader_left(r) > 0)
        link->record[link->record_filled++] = read_u8(r);
    if (link->record_filled < VERBS_RECORD_BYTES)
        return false;
    memcpy(len, link->record, VERBS_RECORD_BYTES);
    link->record_filled = 0;
    return true;
}

static int take_stream(struct verbs_link *link, struct verbs_buffer *buffer, const uint8_t *data, size_t size)
{
    struct reader r;
    int status = 0;
    uint32_t len;
    if (link->assembly == NULL && link->record_filled == 0 && size >= VERBS_RECORD_BYTES) {
        memcpy(&len, data, VERBS_RECORD_BYTES);
        if (len == size - VERBS_RECORD_BYTES) /* one message, all of it, and no other: nearly always */
            return deliver(link, data + VERBS_RECORD_BYTES, len, buffer, NULL);
    }
    reader_init(&r, data, size);
    while (status == 0 && reader_left(&r) > 0) {
        if (link->assembly == NULL) {
            if (!take_record(link, &r, &len))
                break;
            if (len > VERBS_MAX_MESSAGE)
                return HS_ERR_PROTOCOL;
            status = len <= reader_left(&r) ? deliver(link, read_view(&r, len), len, buffer, NULL) : begin_assembly(link, len);
            continue;
        }
        uint32_t missing = link->assembly_len - link->assembly_filled;
        len = missing < reader_left(&r) ? missing : (uint32_t)reader_left(&r);
        read_bytes(&r, link->assembly->data + link->assembly_filled, len);
        link->assembly_filled += len;
        if (link->assembly_filled == link->assembly_len)
            status = finish_assembly(link);
    }
    return status;
}

static int take_unreliable(struct verbs_link *link, struct verbs_buffer *buffer, const uint8_t *data, size_t size)
{
    struct reader r;
    int status = 0;
    reader_init(&r, data, size);
    while (status == 0 && reader_left(&r) > 0) {
        uint32_t len = read_u32(&r);
        const uint8_t *at = read_view(&r, len);
        if (at == NULL || len > VERBS_MAX_UNRELIABLE)
            return HS_ERR_PROTOCOL;
        status = deliver(link, at, len, buffer, NULL);
    }
    return status;
}

static void take_grant(struct verbs_link *link, const struct packet_header *header)
{
    uint64_t granted = expand_u32(link->allowed_packets, header->granted);
    if (granted > link->allowed_packets) {
        link->allowed_packets = granted;
        if (link->stalled)
            verbs_activate(link);
    }
    if (header->seen > 0)
        seal_session_confirm(&link->seal, header->seen - 1);
}

/* Where the packet's content goes: behind what is there of a long message, if it is all that message's, else in place. */
static uint8_t *place_for(struct verbs_link *link, const struct packet_header *header, uint8_t *in_place, uint32_t len)
{
    if (header->kind == PACKET_STREAM && link->assembly != NULL && len < link->assembly_len - link->assembly_filled)
        return link->assembly->data + link->assembly_filled;
    return in_place;
}

static int open_packet(struct verbs_link *link, struct verbs_buffer *buffer, uint32_t size)
{
    struct verbs *self = link->owner;
    struct packet_header header;
    if (size < VERBS_HEADER_BYTES + SEAL_TAG_BYTES)
        return HS_ERR_PROTOCOL;
    memcpy(&header, buffer->data, sizeof header);
    header.granted = le32toh(header.granted);
    header.seen = le64toh(header.seen);
    header.counter = le64toh(header.counter);
    if (header.reserved != 0 || header.kind < PACKET_STREAM || header.kind > PACKET_CREDIT || header.counter != link->expected_counter)
        return HS_ERR_PROTOCOL; /* a queue pair loses nothing and keeps its order: any other counter is not the peer's */
    uint32_t len = size - VERBS_HEADER_BYTES - SEAL_TAG_BYTES;
    uint8_t *sealed = buffer->data + VERBS_HEADER_BYTES, *plain = place_for(link, &header, sealed, len);
    int status = seal_session_open(&link->seal, self->now_ns, header.counter, header.generation, buffer->data, VERBS_HEADER_BYTES, sealed,
                                   len + SEAL_TAG_BYTES, plain);
    if (status != 0)
        return status;
    link->expected_counter++;
    if (link->pairs[CONTROL_MESSAGES].state != PAIR_UP)
        verbs_pair_ready(link, CONTROL_MESSAGES); /* its word of being ready may still be under way */
    if (header.kind != PACKET_CREDIT)
        buffer->link_id = link->id;
    take_grant(link, &header);
    if (plain != sealed) {
        link->assembly_filled += len;
        return 0;
    }
    if (header.kind == PACKET_CREDIT)
        return len == 0 ? 0 : HS_ERR_PROTOCOL;
    return header.kind == PACKET_STREAM ? take_stream(link, buffer, plain, len) : take_unreliable(link, buffer, plain, len);
}

void verbs_on_packet(struct verbs_link *link, struct verbs_buffer *buffer, uint32_t len)
{
    struct verbs *self = link->owner;
    enum pair_state state = link->pairs[CONTROL_MESSAGES].state;
    if (state != PAIR_CONNECTED && state != PAIR_UP)
        return;
    buffer->peer = link->peer;
    link->heard_ns = self->now_ns;
    int status = open_packet(link, buffer, len);
    if (status == 0)
        return;
    if (status != HS_ERR_NO_MEMORY)
        self->stats.rejected++;
    verbs_pair_fail(link, CONTROL_MESSAGES, status, true);
}

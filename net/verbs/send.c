/* From messages to packets: records in a ring, packets cut from it, sealed into registered buffers, posted in batches. */
#include <endian.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/panic.h"
#include "net/verbs/internal.h"

enum { BATCH = VERBS_BATCH, FIRST_RING = 64 << 10, FIRST_UNRELIABLE = 8 << 10, LONG_MESSAGE = VERBS_PAYLOAD_BYTES / 2 };
#define MEASURE_EVERY_NS UINT64_C(50000000)

/* ---- the queue ---- */

int verbs_queue(struct verbs_link *link, const struct iovec *iov, int n, size_t len)
{
    uint64_t used = byte_ring_used(&link->ring), needed = used + VERBS_RECORD_BYTES + len;
    uint32_t record = (uint32_t)len;
    if ((used > 0 && needed > link->owner->tuning.send_buffer_bytes) || !byte_ring_grow(&link->ring, needed, FIRST_RING)) {
        link->owner->stats.send_bytes.hits++;
        return HS_ERR_BUSY;
    }
    byte_ring_write(&link->ring, &record, VERBS_RECORD_BYTES);
    for (int i = 0; i < n; i++)
        if (iov[i].iov_len)
            byte_ring_write(&link->ring, iov[i].iov_base, iov[i].iov_len);
    verbs_activate(link);
    return 0;
}

static bool grow_unreliable(struct verbs_link *link, size_t needed)
{
    uint32_t cap = link->unreliable_cap ? link->unreliable_cap : FIRST_UNRELIABLE;
    while (cap < needed)
        cap *= 2;
    if (cap == link->unreliable_cap)
        return true;
    uint8_t *grown = cap <= VERBS_UNRELIABLE_BYTES ? realloc(link->unreliable, cap) : NULL;
    if (grown == NULL)
        return false;
    link->unreliable = grown;
    link->unreliable_cap = cap;
    return true;
}

int verbs_queue_unreliable(struct verbs_link *link, const struct iovec *iov, int n, size_t len)
{
    uint32_t record = (uint32_t)len;
    if (!grow_unreliable(link, link->unreliable_len + VERBS_RECORD_BYTES + len)) {
        link->owner->stats.unreliable_bytes.hits++;
        return HS_ERR_BUSY;
    }
    uint8_t *at = link->unreliable + link->unreliable_len;
    memcpy(at, &record, VERBS_RECORD_BYTES);
    at += VERBS_RECORD_BYTES;
    for (int i = 0; i < n; i++) {
        if (iov[i].iov_len)
            memcpy(at, iov[i].iov_base, iov[i].iov_len);
        at += iov[i].iov_len;
    }
    link->unreliable_len += (uint32_t)(VERBS_RECORD_BYTES + len);
    verbs_activate(link);
    return 0;
}

/* ---- packets ---- */

/* Whole records of the unreliable queue that fit one packet. */
static uint32_t unreliable_part(const struct verbs_link *link, uint32_t from)
{
    uint32_t end = from, record;
    while (end < link->unreliable_len) {
        memcpy(&record, link->unreliable + end, VERBS_RECORD_BYTES);
        if (end - from + VERBS_RECORD_BYTES + record > VERBS_PAYLOAD_BYTES)
            break;
        end += VERBS_RECORD_BYTES + record;
    }
    return end - from;
}

/* What the next packet carries: a record may well go on in the packet after it. */
static uint32_t stream_part(const struct verbs_link *link)
{
    uint64_t n = byte_ring_used(&link->ring);
    return (uint32_t)(n < VERBS_PAYLOAD_BYTES ? n : VERBS_PAYLOAD_BYTES);
}

/* The part in one piece: where it lies, or joined at `room` if it goes on at the ring's beginning. Records as long as a packet would else be
 * cut in two, and all that follow them. */
static const uint8_t *stream_piece(const struct verbs_link *link, uint32_t len, uint8_t *room)
{
    const uint8_t *first = byte_ring_at(&link->ring, link->ring.tail);
    uint64_t to_end = byte_ring_to_end(&link->ring, link->ring.tail);
    if (len <= to_end)
        return first;
    memcpy(room, first, to_end);
    memcpy(room + to_end, link->ring.bytes, len - to_end);
    return room;
}

static bool credit_due(const struct verbs_link *link)
{
    return VERBS_CREDITS + link->returned_packets - link->granted_packets >= VERBS_CREDITS / 2;
}

void verbs_return_credit(struct verbs_link *link)
{
    link->returned_packets++;
    if (credit_due(link))
        verbs_activate(link);
}

struct cut { /* what a packet is made of */
    enum packet_kind kind;
    const uint8_t *data; /* NULL: from the ring */
    uint32_t len;
};

static bool next_cut(struct verbs_link *link, uint32_t unreliable_at, struct cut *out)
{
    bool content = unreliable_at < link->unreliable_len || byte_ring_used(&link->ring) > 0;
    bool credit = link->sent_packets < link->allowed_packets;
    if (content && !credit && !link->stalled)
        link->owner->counts.credit_stalls++;
    link->stalled = content && !credit;
    if (content && credit) {
        bool unreliable = unreliable_at < link->unreliable_len;
        *out = unreliable ? (struct cut){PACKET_UNRELIABLE, link->unreliable + unreliable_at, unreliable_part(link, unreliable_at)}
                          : (struct cut){PACKET_STREAM, NULL, stream_part(link)};
        return true;
    }
    *out = (struct cut){PACKET_CREDIT, (const uint8_t *)"", 0};
    return credit_due(link);
}

/* Header and sealed content; returns the packet's length, 0 if the cipher failed. */
static uint32_t write_packet(struct verbs_link *link, const struct cut *cut, uint8_t *out)
{
    struct verbs *self = link->owner;
    uint64_t counter;
    uint8_t generation;
    if (seal_session_next(&link->seal, self->now_ns, &counter, &generation) != 0)
        return 0;
    link->granted_packets = VERBS_CREDITS + link->returned_packets;
    struct packet_header header = {.kind = (uint8_t)cut->kind,
                                   .generation = generation,
                                   .granted = htole32((uint32_t)link->granted_packets),
                                   .seen = htole64(link->expected_counter),
                                   .counter = htole64(counter)};
    memcpy(out, &header, sizeof header);
    uint8_t *content = out + VERBS_HEADER_BYTES;
    const uint8_t *plain = cut->data != NULL ? cut->data : stream_piece(link, cut->len, content);
    if (seal_session_seal(&link->seal, out, VERBS_HEADER_BYTES, plain, cut->len, content) != 0)
        return 0;
    return VERBS_HEADER_BYTES + cut->len + SEAL_TAG_BYTES;
}

/* ---- posting ---- */

struct batch {
    struct ibv_send_wr requests[BATCH];
    struct ibv_sge pieces[BATCH];
    struct verbs_buffer *buffers[BATCH];
    uint32_t n;
};

static void mark_signalled(struct verbs_link *link, struct ibv_send_wr *request, uint64_t posted)
{
    struct verbs *self = link->owner;
    request->send_flags |= IBV_SEND_SIGNALED;
    if (link->marks_head == link->marks_tail)
        link->progress_ns = self->now_ns;
    link->marks[link->marks_tail++ % VERBS_SEND_DEPTH] = posted;
}

/* Whether a request tells of its end: one in VERBS_SIGNAL_EVERY, the last of a batch if it holds a buffer, now and then one to measure. */
static void choose_signal(struct verbs_link *link, struct ibv_send_wr *request, uint64_t posted, bool last)
{
    struct verbs *self = link->owner;
    bool measure = last && link->measure_mark == 0 && self->now_ns - link->measure_from_ns >= MEASURE_EVERY_NS;
    if (posted % VERBS_SIGNAL_EVERY == 0 || measure || (last && !(request->send_flags & IBV_SEND_INLINE)))
        mark_signalled(link, request, posted);
    if (measure) {
        link->measure_mark = posted;
        link->measure_from_ns = self->now_ns;
    }
    request->next = last ? NULL : request + 1;
}

/* Inline ones are the device's from now on, the others' buffers stay with it. */
static void note_posted(struct verbs_link *link, const struct ibv_send_wr *request, struct verbs_buffer *buffer)
{
    bool kept = !(request->send_flags & IBV_SEND_INLINE);
    link->in_flight[link->posted++ % VERBS_SEND_DEPTH] = kept ? buffer : NULL;
    if (!kept)
        rail_give(link->rail, buffer);
}

static bool post_batch(struct verbs_link *link, struct batch *batch)
{
    struct verbs *self = link->owner;
    struct ibv_send_wr *bad = NULL;
    if (batch->n == 0)
        return true;
    for (uint32_t i = 0; i < batch->n; i++)
        choose_signal(link, &batch->requests[i], link->posted + i + 1, i + 1 == batch->n);
    int failed = ibv_post_send(link->pairs[CONTROL_MESSAGES].qp, batch->requests, &bad);
    for (uint32_t i = 0; i < batch->n; i++)
        note_posted(link, &batch->requests[i], batch->buffers[i]);
    link->sent_ns = self->now_ns;
    self->counts.posts += batch->n;
    self->counts.doorbells++;
    batch->n = 0;
    return failed == 0;
}

/* Not filled with zeros: of the request only this is looked at for a send. */
static void fill_request(const struct verbs_link *link, struct ibv_send_wr *request, struct ibv_sge *piece, const struct verbs_buffer *buffer,
                         uint32_t len)
{
    *piece = (struct ibv_sge){.addr = (uintptr_t)buffer->data, .length = len, .lkey = buffer->key};
    request->wr_id = UINT64_C(1) << 56;
    request->sg_list = piece;
    request->num_sge = 1;
    request->opcode = IBV_WR_SEND;
    request->send_flags = IBV_SEND_SOLICITED | (len <= link->rail->max_inline ? IBV_SEND_INLINE : 0);
}

static void add_to_batch(struct verbs_link *link, struct batch *batch, struct verbs_buffer *buffer, uint32_t len)
{
    uint32_t i = batch->n++;
    batch->buffers[i] = buffer;
    fill_request(link, &batch->requests[i], &batch->pieces[i], buffer, len);
}

/* A batch of one. */
static bool post_one(struct verbs_link *link, struct verbs_buffer *buffer, uint32_t len)
{
    struct verbs *self = link->owner;
    struct ibv_send_wr request, *bad = NULL;
    struct ibv_sge piece;
    fill_request(link, &request, &piece, buffer, len);
    choose_signal(link, &request, link->posted + 1, true);
    int failed = ibv_post_send(link->pairs[CONTROL_MESSAGES].qp, &request, &bad);
    note_posted(link, &request, buffer);
    link->sent_ns = self->now_ns;
    self->counts.posts++;
    self->counts.doorbells++;
    return failed == 0;
}

/* A packet of one message, gathered where it leaves from. NULL: no buffer; *packet_len 0: the cipher failed. */
static struct verbs_buffer *write_message(struct verbs_link *link, enum packet_kind kind, const struct iovec *iov, int n, size_t len,
                                          uint32_t *packet_len)
{
    struct verbs_buffer *buffer = rail_take(link->rail);
    if (buffer == NULL)
        return NULL;
    uint32_t record = (uint32_t)len;
    uint8_t *content = buffer->data + VERBS_HEADER_BYTES, *at = content + VERBS_RECORD_BYTES;
    memcpy(content, &record, VERBS_RECORD_BYTES);
    for (int i = 0; i < n; i++) {
        if (iov[i].iov_len)
            memcpy(at, iov[i].iov_base, iov[i].iov_len);
        at += iov[i].iov_len;
    }
    struct cut cut = {kind, content, VERBS_RECORD_BYTES + record};
    *packet_len = write_packet(link, &cut, buffer->data);
    link->sent_packets++;
    if (*packet_len == 0)
        rail_give(link->rail, buffer);
    return buffer;
}

/* For a message that finds the queues empty: a packet of its own, not waiting for the next poll. One for each poll, so that messages sent
 * together still share packets, or at least, where they are too long for that, the call that posts them. False: it is to be queued. */
bool verbs_send_at_once(struct verbs_link *link, enum packet_kind kind, const struct iovec *iov, int n, size_t len)
{
    struct verbs *self = link->owner;
    bool queued = byte_ring_used(&link->ring) > 0 || link->unreliable_len > 0;
    bool first = link->n_prepared == 0 && link->sent_ns != self->now_ns;
    bool prepare = !first && kind == PACKET_STREAM && len >= LONG_MESSAGE && link->n_prepared < VERBS_BATCH;
    if (queued || link->broken || !(first || prepare) || VERBS_RECORD_BYTES + len > VERBS_PAYLOAD_BYTES || link->sent_packets >= link->allowed_packets ||
        link->posted + link->n_prepared - link->done == VERBS_SEND_DEPTH)
        return false;
    uint32_t packet_len;
    struct verbs_buffer *buffer = write_message(link, kind, iov, n, len, &packet_len);
    if (buffer == NULL)
        return false;
    if (prepare && packet_len > 0) {
        link->prepared[link->n_prepared] = buffer;
        link->prepared_len[link->n_prepared++] = packet_len;
        verbs_activate(link);
        return true;
    }
    link->broken = packet_len == 0 || !post_one(link, buffer, packet_len);
    if (link->broken)
        verbs_activate(link); /* its end is for the next poll */
    verbs_timer_at(self, self->now_ns + self->tuning.peer_timeout_ns / 2);
    return true;
}

void verbs_drop_prepared(struct verbs_link *link)
{
    for (uint32_t i = 0; i < link->n_prepared; i++)
        rail_give(link->prepared[i]->rail, link->prepared[i]);
    link->n_prepared = 0;
}

/* Makes packets while there is something to say, credit, and room. False: something broke. */
static bool make_packets(struct verbs_link *link, uint32_t *unreliable_at)
{
    struct batch batch; /* not filled with zeros: two kilobytes each time */
    struct cut cut;
    batch.n = 0;
    link->full = false;
    for (uint32_t i = 0; i < link->n_prepared; i++)
        add_to_batch(link, &batch, link->prepared[i], link->prepared_len[i]);
    link->n_prepared = 0;
    if (batch.n == BATCH && !post_batch(link, &batch))
        return false;
    while (next_cut(link, *unreliable_at, &cut)) {
        if (link->posted + batch.n - link->done == VERBS_SEND_DEPTH) {
            link->full = true;
            link->owner->some_full = true;
            break;
        }
        struct verbs_buffer *buffer = rail_take(link->rail);
        if (buffer == NULL) {
            verbs_activate(link); /* out of memory for now */
            break;
        }
        uint32_t len = write_packet(link, &cut, buffer->data);
        if (len == 0) {
            rail_give(link->rail, buffer);
            return post_batch(link, &batch) && false;
        }
        if (cut.kind == PACKET_STREAM)
            link->ring.tail += cut.len;
        else if (cut.kind == PACKET_UNRELIABLE)
            *unreliable_at += cut.len;
        else
            link->owner->counts.credit_packets++;
        link->sent_packets += cut.kind != PACKET_CREDIT;
        add_to_batch(link, &batch, buffer, len);
        if (batch.n == BATCH && !post_batch(link, &batch))
            return false;
    }
    return post_batch(link, &batch);
}

void verbs_flush(struct verbs_link *link)
{
    if (!verbs_link_usable(link))
        return;
    uint32_t unreliable_at = 0;
    uint64_t posted = link->posted;
    bool good = !link->broken && make_packets(link, &unreliable_at);
    if (unreliable_at > 0) {
        link->unreliable_len -= unreliable_at;
        memmove(link->unreliable, link->unreliable + unreliable_at, link->unreliable_len);
    }
    if (!good)
        verbs_pair_fail(link, CONTROL_MESSAGES, HS_ERR_IO, true);
    else if (link->posted != posted)
        verbs_timer_at(link->owner, link->owner->now_ns + link->owner->tuning.peer_timeout_ns / 2);
}

/* ---- the end of what was posted ---- */

static void sample_round_trip(struct verbs_link *link)
{
    struct transport_peer_stats *stats = &link->owner->peer_stats[net_peer_place(link->peer)];
    uint64_t sample = link->owner->now_ns - link->measure_from_ns;
    uint64_t error = sample > stats->rtt_ns ? sample - stats->rtt_ns : stats->rtt_ns - sample;
    if (stats->rtt_ns == 0) {
        stats->rtt_ns = sample;
        stats->rtt_variance_ns = sample / 2;
    } else { /* RFC 6298 */
        stats->rtt_variance_ns = (3 * stats->rtt_variance_ns + error) / 4;
        stats->rtt_ns = (7 * stats->rtt_ns + sample) / 8;
    }
    link->measure_mark = 0;
}

void verbs_on_sent(struct verbs_link *link)
{
    hs_assert(link->marks_head != link->marks_tail);
    uint64_t until = link->marks[link->marks_head++ % VERBS_SEND_DEPTH];
    for (; link->done < until; link->done++) {
        struct verbs_buffer *buffer = link->in_flight[link->done % VERBS_SEND_DEPTH];
        if (buffer != NULL)
            rail_give(link->rail, buffer);
    }
    link->heard_ns = link->progress_ns = link->owner->now_ns;
    if (link->measure_mark != 0 && until >= link->measure_mark)
        sample_round_trip(link);
    if (link->full)
        verbs_activate(link);
}

struct verbs_buffer *verbs_take_in_flight(struct verbs_link *link)
{
    struct verbs_buffer *chain = NULL;
    for (; link->done < link->posted; link->done++) {
        struct verbs_buffer *buffer = link->in_flight[link->done % VERBS_SEND_DEPTH];
        if (buffer == NULL)
            continue;
        buffer->next = chain;
        chain = buffer;
    }
    return chain;
}

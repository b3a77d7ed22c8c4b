/* Datagrams on their way out: in the buffer that was lent or a copy, to a known neighbour or kept until one is known. */
#include <string.h>

#include "core/base/panic.h"
#include "net/verbs/ud_internal.h"

#define WAIT_NS UINT64_C(1000000000) /* so long a datagram waits for its neighbour to answer */

/* ---- buffers ---- */

uint8_t *ud_lend(struct carrier *carrier)
{
    struct ud *self = ud_of(carrier);
    if (self->lent_n == UD_LENT)
        return NULL;
    struct verbs_buffer *buffer = rail_take(&self->rails[0].rail);
    if (buffer == NULL)
        return NULL;
    self->lent[(self->lent_first + self->lent_n++) % UD_LENT] = buffer;
    return buffer->data + UD_HEADER_BYTES;
}

static bool is_lent(const struct ud *self, const struct carrier_datagram *datagram)
{
    return self->lent_n > 0 && datagram->data == self->lent[self->lent_first]->data + UD_HEADER_BYTES;
}

static struct verbs_buffer *take_lent(struct ud *self)
{
    struct verbs_buffer *buffer = self->lent[self->lent_first];
    self->lent_first = (self->lent_first + 1) % UD_LENT;
    self->lent_n--;
    return buffer;
}

/* A copy on that rail; NULL: no buffer is free. */
static struct verbs_buffer *copy_of(struct ud_rail *rail, const void *data, uint32_t len)
{
    struct verbs_buffer *buffer = rail_take(&rail->rail);
    if (buffer != NULL)
        memcpy(buffer->data + UD_HEADER_BYTES, data, len);
    return buffer;
}

/* The buffer of a datagram on that rail, the lent one if it can be; NULL: none is free. */
static struct verbs_buffer *buffer_of(struct ud *self, struct ud_rail *rail, const struct carrier_datagram *datagram)
{
    bool lent = is_lent(self, datagram);
    if (lent && self->lent[self->lent_first]->rail == &rail->rail)
        return take_lent(self);
    struct verbs_buffer *copy = copy_of(rail, datagram->data, datagram->len);
    if (lent && copy != NULL) {
        struct verbs_buffer *original = take_lent(self);
        rail_give(original->rail, original);
    }
    return copy;
}

/* A datagram that is not sent: what was lent for it is free. */
static void give_up(struct ud *self, const struct carrier_datagram *datagram)
{
    self->stats.dropped_datagrams++;
    if (is_lent(self, datagram)) {
        struct verbs_buffer *buffer = take_lent(self);
        rail_give(buffer->rail, buffer);
    }
}

/* ---- posting ---- */

struct ud_batch {
    struct ud_rail *rail;
    struct ibv_send_wr requests[UD_BURST];
    struct ibv_sge pieces[UD_BURST];
    struct verbs_buffer *buffers[UD_BURST];
    uint32_t n;
};

static void begin(struct ud_batch *batch)
{
    batch->rail = NULL;
    batch->n = 0;
}

static void post(struct ud *self, struct ud_batch *batch)
{
    struct ud_rail *rail = batch->rail;
    struct ibv_send_wr *bad = NULL;
    if (batch->n == 0)
        return;
    for (uint32_t i = 0; i < batch->n; i++) {
        struct ibv_send_wr *request = &batch->requests[i];
        uint64_t posted = rail->posted + i + 1;
        request->wr_id = (uint64_t)rail->generation << 32 | (uint32_t)posted;
        if (posted % UD_SIGNAL_EVERY == 0)
            request->send_flags |= IBV_SEND_SIGNALED;
        request->next = i + 1 < batch->n ? request + 1 : NULL;
    }
    uint32_t posted = batch->n;
    if (ibv_post_send(rail->qp, batch->requests, &bad) != 0) {
        posted = bad == NULL ? 0 : (uint32_t)(bad - batch->requests);
        rail->broken = true;
        rail->broken_ns = self->now_ns;
    }
    self->counts.doorbells++;
    for (uint32_t i = 0; i < batch->n; i++) {
        bool kept = i < posted && !(batch->requests[i].send_flags & IBV_SEND_INLINE);
        if (i < posted)
            rail->in_flight[(rail->posted + i) % UD_SENDS] = kept ? batch->buffers[i] : NULL;
        if (!kept)
            rail_give(&rail->rail, batch->buffers[i]);
    }
    self->stats.dropped_datagrams += batch->n - posted;
    rail->posted += posted;
    batch->n = 0;
}

/* Where a datagram goes, and in how many pieces. */
struct ud_target {
    struct ud_rail *rail;
    struct ud_path *path;
    const struct ud_port *port;
    uint32_t piece_bytes;
};

/* False: no port that leads there is up. */
static bool aim(struct ud *self, struct ud_neighbour *neighbour, struct ud_target *out)
{
    out->path = ud_queue_path(self, neighbour, &out->rail, &out->port);
    if (out->path == NULL)
        return false;
    out->piece_bytes = out->path->mtu_bytes - UD_HEADER_BYTES;
    return true;
}

static bool has_room(struct ud *self, const struct ud_batch *batch, const struct ud_target *to, uint32_t len)
{
    uint32_t taken = batch->rail == to->rail ? batch->n : 0;
    return ud_queue_room(self, to->rail) >= taken + (len + to->piece_bytes - 1) / to->piece_bytes;
}

static void add(struct ud *self, struct ud_batch *batch, const struct ud_target *to, struct verbs_buffer *buffer, uint32_t len)
{
    struct ud_rail *rail = to->rail;
    if (batch->n == UD_BURST || batch->rail != rail)
        post(self, batch);
    uint32_t i = batch->n++;
    batch->rail = rail;
    batch->buffers[i] = buffer;
    batch->pieces[i] = (struct ibv_sge){.addr = (uintptr_t)buffer->data, .length = len + UD_HEADER_BYTES, .lkey = buffer->key};
    batch->requests[i] = (struct ibv_send_wr){
        .sg_list = &batch->pieces[i],
        .num_sge = 1,
        .opcode = IBV_WR_SEND,
        .send_flags = batch->pieces[i].length <= rail->rail.max_inline ? IBV_SEND_INLINE : 0,
        .wr.ud = {.ah = to->path->handle, .remote_qpn = to->port->queue_pair, .remote_qkey = to->port->queue_key}};
    to->path->used_until = rail->posted + batch->n;
}

/* One that the path takes only in pieces. The first stays where it is. False: too few buffers are free, and nothing has happened. */
static bool add_pieces(struct ud *self, struct ud_batch *batch, const struct ud_target *to, struct verbs_buffer *buffer, uint32_t len)
{
    struct verbs_buffer *buffers[UD_MAX_PIECES] = {buffer};
    struct ud_piece piece = {.number = self->next_number, .size = (uint16_t)to->piece_bytes};
    uint32_t n = (len + to->piece_bytes - 1) / to->piece_bytes;
    hs_assert(n <= UD_MAX_PIECES);
    for (uint32_t i = 1; i < n; i++) {
        buffers[i] = rail_take(&to->rail->rail);
        if (buffers[i] == NULL) {
            while (--i > 0)
                rail_give(&to->rail->rail, buffers[i]);
            return false;
        }
    }
    self->next_number++;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t offset = i * to->piece_bytes, piece_len = i + 1 < n ? to->piece_bytes : len - offset;
        piece.index = (uint8_t)i;
        piece.last = i + 1 == n;
        if (i > 0)
            memcpy(buffers[i]->data + UD_HEADER_BYTES, buffer->data + UD_HEADER_BYTES + offset, piece_len);
        memcpy(buffers[i]->data, self->header, UD_HEADER_BYTES);
        ud_header_cut(buffers[i]->data, &piece);
    }
    for (uint32_t i = 0; i < n; i++) /* after the copies: what is posted may be gone */
        add(self, batch, to, buffers[i], i + 1 < n ? to->piece_bytes : len - i * to->piece_bytes);
    return true;
}

/* The buffer, on the target's rail, is the device's from now on. False: too few buffers are free, and nothing has happened. There is room. */
static bool dispatch(struct ud *self, struct ud_batch *batch, const struct ud_target *to, struct verbs_buffer *buffer, uint32_t len)
{
    if (len > to->piece_bytes) {
        if (!add_pieces(self, batch, to, buffer, len))
            return false;
    } else {
        memcpy(buffer->data, self->header, UD_HEADER_BYTES);
        add(self, batch, to, buffer, len);
    }
    self->stats.sent_datagrams++;
    self->stats.sent_bytes += len;
    return true;
}

/* ---- those that wait ---- */

void ud_ask(struct ud *self, struct ud_neighbour *neighbour)
{
    uint64_t random[5];
    struct ud_word word;
    uint8_t data[UD_WORD_BYTES];
    for (size_t i = 0; i < sizeof random / sizeof random[0]; i++)
        random[i] = env_random_u64(&self->env);
    ud_neighbour_ask(&self->neighbours, neighbour, self->now_ns, random, &word);
    word.asker = self->address;
    ud_word_encode(&word, self->key, random + 2, data);
    self->ground->ops->send(self->ground, &(struct carrier_datagram){.address = neighbour->address, .data = data, .len = sizeof data}, 1);
    self->counts.asks++;
}

static void wait_for(struct ud *self, struct ud_neighbour *neighbour, struct verbs_buffer *buffer, uint32_t len, bool copy)
{
    self->waiting[self->n_waiting++] =
        (struct ud_waiting){.neighbour = neighbour, .buffer = buffer, .len = len, .copy = copy, .since_ns = self->now_ns};
    neighbour->n_waiting++;
}

/* Whether it is kept. The neighbour has been asked. */
static bool keep(struct ud *self, struct ud_neighbour *neighbour, const struct carrier_datagram *datagram)
{
    struct verbs_buffer *buffer = self->n_waiting < UD_WAITING ? buffer_of(self, &self->rails[0], datagram) : NULL;
    if (buffer != NULL)
        wait_for(self, neighbour, buffer, datagram->len, false);
    return buffer != NULL;
}

/* A copy of what is sent to where the neighbour was. Half of the room is left for those of whom nothing is known. */
static void keep_copy(struct ud *self, struct ud_neighbour *neighbour, const struct carrier_datagram *datagram)
{
    struct verbs_buffer *buffer = self->n_waiting < UD_WAITING / 2 ? copy_of(&self->rails[0], datagram->data, datagram->len) : NULL;
    if (buffer != NULL)
        wait_for(self, neighbour, buffer, datagram->len, true);
}

/* Ends the waiting of those that have left, that wait for `gone`, or since before then. */
static void sweep(struct ud *self, const struct ud_neighbour *gone, uint64_t before_ns)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < self->n_waiting; i++) {
        struct ud_waiting *waiting = &self->waiting[i];
        bool sent = waiting->buffer == NULL;
        if (sent || waiting->neighbour == gone || waiting->since_ns < before_ns) {
            waiting->neighbour->n_waiting--;
            if (!sent)
                rail_give(waiting->buffer->rail, waiting->buffer);
            if (!sent && !waiting->copy) {
                self->stats.dropped_datagrams++;
                self->counts.unresolved++;
            }
            continue;
        }
        self->waiting[kept++] = *waiting;
    }
    self->n_waiting = kept;
}

void ud_drop_waiting(struct ud *self, bool all)
{
    if (self->n_waiting > 0)
        sweep(self, NULL, all ? UINT64_MAX : self->now_ns > WAIT_NS ? self->now_ns - WAIT_NS : 0);
}

/* One that cannot go is lost, as any datagram may be. */
static void send_one_that_waited(struct ud *self, struct ud_batch *batch, struct ud_waiting *waiting)
{
    struct ud_target to;
    if (!aim(self, waiting->neighbour, &to) || !has_room(self, batch, &to, waiting->len))
        return;
    struct verbs_buffer *buffer = waiting->buffer;
    if (buffer->rail != &to.rail->rail) { /* its rail is not the one that leads there */
        buffer = copy_of(to.rail, waiting->buffer->data + UD_HEADER_BYTES, waiting->len);
        if (buffer == NULL)
            return;
        rail_give(waiting->buffer->rail, waiting->buffer);
        waiting->buffer = buffer;
    }
    if (!dispatch(self, batch, &to, buffer, waiting->len))
        return;
    waiting->buffer = NULL;
    ud_neighbour_sent(waiting->neighbour, self->now_ns);
}

void ud_send_waiting(struct ud *self, struct ud_neighbour *neighbour, bool moved)
{
    struct ud_batch batch; /* not filled with zeros: kilobytes each time */
    if (neighbour->n_waiting == 0)
        return;
    begin(&batch);
    for (uint32_t i = 0; i < self->n_waiting; i++) {
        struct ud_waiting *waiting = &self->waiting[i];
        if (waiting->neighbour == neighbour && (moved || !waiting->copy))
            send_one_that_waited(self, &batch, waiting);
    }
    post(self, &batch);
    sweep(self, neighbour, 0);
}

/* ---- sending ---- */

/* False: later. */
static bool send_one(struct ud *self, struct ud_batch *batch, const struct carrier_datagram *datagram)
{
    struct ud_neighbour *neighbour = ud_neighbours_get(&self->neighbours, &datagram->address, self->now_ns);
    struct ud_target to;
    if (neighbour == NULL) {
        give_up(self, datagram);
        return true;
    }
    if (ud_neighbour_ask_due(neighbour, self->now_ns))
        ud_ask(self, neighbour);
    if (!neighbour->known) {
        if (!keep(self, neighbour, datagram))
            give_up(self, datagram);
        return true;
    }
    ud_neighbour_sent(neighbour, self->now_ns);
    if (!aim(self, neighbour, &to)) { /* no port that leads there is up */
        give_up(self, datagram);
        return true;
    }
    if (!has_room(self, batch, &to, datagram->len))
        return false;
    if (ud_neighbour_in_doubt(neighbour, self->now_ns))
        keep_copy(self, neighbour, datagram);
    struct verbs_buffer *buffer = buffer_of(self, to.rail, datagram);
    if (buffer == NULL)
        return false;
    if (!dispatch(self, batch, &to, buffer, datagram->len)) {
        rail_give(buffer->rail, buffer); /* not the lender's any more: lost rather than later */
        self->stats.dropped_datagrams++;
    }
    return true;
}

int ud_send(struct carrier *carrier, const struct carrier_datagram *datagrams, uint32_t n)
{
    struct ud *self = ud_of(carrier);
    struct ud_batch batch;
    uint32_t done = 0;
    begin(&batch);
    self->now_ns = env_now_ns(&self->env);
    while (done < n && send_one(self, &batch, &datagrams[done]))
        done++;
    post(self, &batch);
    return (int)done;
}

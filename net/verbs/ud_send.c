/* Datagrams on their way out: in the buffer that was lent or a copy, to a known neighbour or kept until one is known. */
#include <string.h>

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

/* The buffer of a datagram, header and all, on that rail; NULL: none is free. */
static struct verbs_buffer *buffer_of(struct ud *self, struct ud_rail *rail, const struct carrier_datagram *datagram)
{
    struct verbs_buffer *lent = self->lent_n > 0 ? self->lent[self->lent_first] : NULL, *buffer;
    bool is_lent = lent != NULL && datagram->data == lent->data + UD_HEADER_BYTES;
    if (is_lent && lent->rail == &rail->rail) {
        buffer = lent;
    } else {
        buffer = rail_take(&rail->rail);
        if (buffer == NULL)
            return NULL;
        memcpy(buffer->data + UD_HEADER_BYTES, datagram->data, datagram->len);
        if (is_lent)
            rail_give(lent->rail, lent);
    }
    if (is_lent) {
        self->lent_first = (self->lent_first + 1) % UD_LENT;
        self->lent_n--;
    }
    memcpy(buffer->data, self->header, UD_HEADER_BYTES);
    return buffer;
}

/* A datagram that is not sent: what was lent for it is free. */
static void give_up(struct ud *self, const struct carrier_datagram *datagram)
{
    struct verbs_buffer *lent = self->lent_n > 0 ? self->lent[self->lent_first] : NULL;
    self->stats.dropped_datagrams++;
    if (lent == NULL || datagram->data != lent->data + UD_HEADER_BYTES)
        return;
    self->lent_first = (self->lent_first + 1) % UD_LENT;
    self->lent_n--;
    rail_give(lent->rail, lent);
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
        if (i < posted) {
            rail->in_flight[(rail->posted + i) % UD_SENDS] = kept ? batch->buffers[i] : NULL;
            self->stats.sent_datagrams++;
            self->stats.sent_bytes += batch->pieces[i].length - UD_HEADER_BYTES;
        }
        if (!kept)
            rail_give(&rail->rail, batch->buffers[i]);
    }
    self->stats.dropped_datagrams += batch->n - posted;
    rail->posted += posted;
    batch->n = 0;
}

static void add(struct ud *self, struct ud_batch *batch, struct ud_rail *rail, struct ibv_ah *path, const struct ud_port *to,
                struct verbs_buffer *buffer, uint32_t len)
{
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
        .wr.ud = {.ah = path, .remote_qpn = to->queue_pair, .remote_qkey = to->queue_key}};
}

/* ---- those that wait ---- */

void ud_ask(struct ud *self, struct ud_neighbour *neighbour)
{
    uint64_t random[2] = {env_random_u64(&self->env), env_random_u64(&self->env)};
    struct ud_word word;
    uint8_t data[UD_WORD_BYTES];
    ud_neighbour_ask(&self->neighbours, neighbour, self->now_ns, random, &word);
    ud_word_encode(&word, self->key, data);
    self->ground->ops->send(self->ground, &(struct carrier_datagram){.address = neighbour->address, .data = data, .len = sizeof data}, 1);
    self->counts.asks++;
}

/* Whether it is kept. The neighbour has been asked. */
static bool keep(struct ud *self, struct ud_neighbour *neighbour, const struct carrier_datagram *datagram)
{
    struct verbs_buffer *buffer = self->n_waiting < UD_WAITING ? buffer_of(self, &self->rails[0], datagram) : NULL;
    if (buffer == NULL)
        return false;
    self->waiting[self->n_waiting++] =
        (struct ud_waiting){.neighbour = neighbour, .buffer = buffer, .len = datagram->len, .since_ns = self->now_ns};
    neighbour->n_waiting++;
    return true;
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
            if (!sent) {
                rail_give(waiting->buffer->rail, waiting->buffer);
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

void ud_send_waiting(struct ud *self, struct ud_neighbour *neighbour)
{
    struct ud_batch batch; /* not filled with zeros: kilobytes each time */
    if (neighbour->n_waiting == 0)
        return;
    begin(&batch);
    for (uint32_t i = 0; i < self->n_waiting; i++) {
        struct ud_waiting *waiting = &self->waiting[i];
        struct ud_rail *rail;
        const struct ud_port *port;
        struct ibv_ah *path = waiting->neighbour == neighbour ? ud_queue_path(self, neighbour, &rail, &port) : NULL;
        if (path == NULL || waiting->buffer->rail != &rail->rail || ud_queue_room(self, rail) <= batch.n)
            continue; /* those that cannot go are lost, as any datagram may be */
        add(self, &batch, rail, path, port, waiting->buffer, waiting->len);
        waiting->buffer = NULL;
        ud_neighbour_sent(neighbour, self->now_ns);
    }
    post(self, &batch);
    sweep(self, neighbour, 0);
}

/* ---- sending ---- */

int ud_send(struct carrier *carrier, const struct carrier_datagram *datagrams, uint32_t n)
{
    struct ud *self = ud_of(carrier);
    struct ud_batch batch;
    uint32_t done = 0;
    begin(&batch);
    self->now_ns = env_now_ns(&self->env);
    for (; done < n; done++) {
        const struct carrier_datagram *datagram = &datagrams[done];
        struct ud_neighbour *neighbour = ud_neighbours_find(&self->neighbours, &datagram->address);
        if (neighbour == NULL) {
            post(self, &batch); /* a newcomer may take the place, and with it the paths, of one that the batch goes to */
            neighbour = ud_neighbours_get(&self->neighbours, &datagram->address, self->now_ns);
        }
        if (neighbour == NULL) {
            give_up(self, datagram);
            continue;
        }
        if (ud_neighbour_ask_due(neighbour, self->now_ns))
            ud_ask(self, neighbour);
        if (!ud_neighbour_reachable(neighbour)) {
            if (!keep(self, neighbour, datagram))
                give_up(self, datagram);
            continue;
        }
        struct ud_rail *rail;
        const struct ud_port *port;
        struct ibv_ah *path = ud_queue_path(self, neighbour, &rail, &port);
        ud_neighbour_sent(neighbour, self->now_ns);
        if (path == NULL) { /* no port that leads there is up */
            give_up(self, datagram);
            continue;
        }
        if (ud_queue_room(self, rail) <= (batch.rail == rail ? batch.n : 0))
            break;
        struct verbs_buffer *buffer = buffer_of(self, rail, datagram);
        if (buffer == NULL)
            break;
        add(self, &batch, rail, path, port, buffer, datagram->len);
    }
    post(self, &batch);
    return (int)done;
}

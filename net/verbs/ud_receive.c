/* What arrives: datagrams at the queue pairs, questions and answers over UDP, and what happens to the ports. */
#include <string.h>

#include "core/base/log.h"
#include "net/verbs/ud_internal.h"

#define SLOW_NS UINT64_C(20000)   /* between looks that need a system call each */
#define ASYNC_NS UINT64_C(1000000)
#define UD_PIECES_NS UINT64_C(50000000) /* so long the other pieces of a datagram are waited for: in a second its number may be another's */

/* ---- over UDP ---- */

/* To the address that the asker named under the key, not to where the question came from: anybody may have repeated it. */
static void tell(struct ud *self, const struct ud_word *ask)
{
    struct ud_word word = {.type = UD_TELL, .n_ports = self->n_rails};
    uint64_t random[3] = {env_random_u64(&self->env), env_random_u64(&self->env), env_random_u64(&self->env)};
    uint8_t data[UD_WORD_BYTES];
    memcpy(word.nonce, ask->nonce, sizeof word.nonce);
    for (uint32_t i = 0; i < self->n_rails; i++) {
        const struct device_rail *choice = &self->rails[i].rail.choice;
        word.ports[i] = (struct ud_port){.queue_pair = self->rails[i].qp->qp_num,
                                         .queue_key = self->rails[i].queue_key,
                                         .lid = choice->lid,
                                         .mtu_bytes = (uint16_t)choice->mtu_bytes,
                                         .infiniband = choice->link == DEVICE_LINK_INFINIBAND};
        memcpy(word.ports[i].gid, choice->gid, sizeof choice->gid);
    }
    ud_word_encode(&word, self->key, random, data);
    self->ground->ops->send(self->ground, &(struct carrier_datagram){.address = ask->asker, .data = data, .len = sizeof data}, 1);
    self->counts.tells++;
}

/* Once each: a group with mixed fabrics or keys would fill the log. */
static void report(struct ud *self, const struct carrier_datagram *from, bool other_fabric)
{
    bool *told = other_fabric ? &self->told_other_fabric : &self->told_key;
    char text[TRANSPORT_ADDRESS_TEXT];
    if (*told)
        return;
    *told = true;
    self->ground->ops->format(self->ground, &from->address, text, sizeof text);
    if (other_fabric)
        log_warn("net", "peer %s uses another fabric: its attempts are dropped; give all nodes the same --fabric", text);
    else
        log_warn("net", "peer %s does not hold our group key: its attempts are dropped; give all nodes the same --group-key-file", text);
}

static void on_word(struct ud *self, const struct carrier_datagram *datagram)
{
    struct ud_word word;
    int status = ud_word_decode(datagram->data, datagram->len, self->key, &word);
    if (status != 0) {
        self->counts.refused++;
        self->stats.rejected_words++;
        bool other_fabric = datagram->len >= 3 && memcmp(datagram->data, "HS", 2) == 0;
        if (status == HS_ERR_AUTH || other_fabric)
            report(self, datagram, other_fabric);
        return;
    }
    if (word.type == UD_ASK) {
        tell(self, &word);
        return;
    }
    bool moved;
    struct ud_neighbour *neighbour = ud_neighbours_told(&self->neighbours, &word, &moved);
    if (neighbour != NULL)
        ud_send_waiting(self, neighbour, moved);
}

static void look_at_ground(struct ud *self)
{
    struct carrier_datagram words[UD_BURST];
    int n;
    do {
        n = self->ground->ops->receive(self->ground, words, UD_BURST);
        for (int i = 0; i < n; i++)
            on_word(self, &words[i]);
    } while (n == UD_BURST);
}

static void do_what_is_due(struct ud *self)
{
    if (self->now_ns - self->slow_ns < SLOW_NS)
        return;
    self->slow_ns = self->now_ns;
    look_at_ground(self);
    ud_paths_poll(self);
    if (self->now_ns - self->async_ns < ASYNC_NS)
        return;
    self->async_ns = self->now_ns;
    for (uint32_t i = 0; i < self->n_rails; i++) {
        enum rail_event event;
        while (rail_take_event(&self->rails[i].rail, &event)) { /* a port that is down is not sent through; a new LID is told to those who ask */
            if (event != RAIL_EMPTY)
                continue;
            self->counts.drained++;
            rail_watch_receives(&self->rails[i].rail);
        }
    }
    ud_drop_waiting(self, false);
    if (self->now_ns > UD_PIECES_NS)
        ud_assemblies_expire(&self->pieces, self->now_ns - UD_PIECES_NS);
    ud_counts_tell(self);
}

/* ---- at the queue pairs ---- */

/*
 * A receive, which is given back or held for more pieces unless it is returned: then it, or the one that the datagram's first piece came in,
 * holds the datagram *out.
 */
static struct verbs_buffer *take(struct ud *self, struct ud_rail *rail, struct verbs_buffer *buffer, const struct ibv_wc *wc, struct carrier_datagram *out)
{
    uint8_t *data = buffer->data + UD_ROUTE_BYTES;
    struct ud_piece piece;
    bool good = wc->status == IBV_WC_SUCCESS && wc->byte_len >= UD_ROUTE_BYTES;
    if (!good || ud_header_read(data, wc->byte_len - UD_ROUTE_BYTES, &out->address, &piece) != 0) {
        self->counts.foreign += wc->status == IBV_WC_SUCCESS;
        rail_return(&rail->rail, buffer);
        return NULL;
    }
    struct ud_neighbour *neighbour = ud_neighbours_find(&self->neighbours, &out->address);
    buffer->peer = neighbour != NULL ? (uint32_t)(neighbour - self->neighbours.all) : UINT32_MAX;
    buffer->queue_pair = wc->src_qp;
    if (neighbour != NULL && ud_neighbour_heard(neighbour, (uint32_t)(rail - self->rails), wc->src_qp, self->now_ns)) {
        self->counts.moved++;
        ud_ask(self, neighbour);
    }
    out->data = data + UD_HEADER_BYTES;
    out->len = wc->byte_len - UD_ROUTE_BYTES - UD_HEADER_BYTES;
    if (piece.size != 0) {
        self->counts.pieces++;
        buffer = ud_assemble(&self->pieces, &out->address, &piece, buffer, out->data, out->len,
                             RAIL_BUFFER_BYTES - UD_ROUTE_BYTES - UD_HEADER_BYTES, self->now_ns, &out->data, &out->len);
    }
    out->held = buffer;
    if (buffer != NULL) {
        self->stats.received_datagrams++;
        self->stats.received_bytes += out->len;
    }
    return buffer;
}

static uint32_t rail_place(const struct ud *self, const struct verbs_rail *rail)
{
    uint32_t place = 0;
    while (place < self->n_rails && &self->rails[place].rail != rail)
        place++;
    return place;
}

void ud_authentic(struct carrier *carrier, const struct carrier_datagram *datagram)
{
    struct ud *self = ud_of(carrier);
    const struct verbs_buffer *buffer = datagram->held;
    struct ud_neighbour *neighbour = buffer->peer < self->neighbours.n ? &self->neighbours.all[buffer->peer] : NULL;
    if (neighbour != NULL && ud_neighbour_is_at(neighbour, &datagram->address)) /* its place may be another's by now */
        ud_neighbour_answered(neighbour, rail_place(self, buffer->rail), buffer->queue_pair, self->now_ns);
}

/* Up to `most` receives of a rail. Returns how many datagrams that gave; *more: there may be more. */
static uint32_t look(struct ud *self, struct ud_rail *rail, struct carrier_datagram *datagrams, uint32_t most, bool *more)
{
    struct ibv_wc wc[UD_BURST];
    uint32_t count = 0;
    int n = ibv_poll_cq(rail->rail.cq, (int)(most < UD_BURST ? most : UD_BURST), wc);
    *more = n > 0;
    for (int i = 0; i < n; i++) {
        struct verbs_buffer *buffer = take(self, rail, rail_buffer(&rail->rail, (uint32_t)wc[i].wr_id), &wc[i], &datagrams[count]);
        if (buffer != NULL) {
            self->handed[self->n_handed++] = buffer;
            count++;
        }
    }
    if (n > 0 && rail->rail.armed)
        rail->fired = true;
    return count;
}

/* Nothing is there: the next completion makes the descriptor readable. False: look again, something may have come before that. */
static bool arm(struct ud *self, struct ud_rail *rail)
{
    struct ibv_cq *cq;
    void *context;
    if (rail->rail.armed && !rail->fired)
        return true;
    if (rail->rail.armed) {
        if (ibv_get_cq_event(rail->rail.channel, &cq, &context) != 0)
            return true; /* it is still on its way, and wakes us */
        ibv_ack_cq_events(cq, 1);
        self->counts.wakeups++;
    }
    rail->fired = false;
    rail->rail.armed = !rail->rail.failed && ibv_req_notify_cq(rail->rail.cq, 0) == 0;
    return !rail->rail.armed;
}

static void return_handed(struct ud *self)
{
    for (uint32_t i = 0; i < self->n_handed; i++)
        rail_return(self->handed[i]->rail, self->handed[i]);
    self->n_handed = 0;
}

int ud_receive(struct carrier *carrier, struct carrier_datagram *datagrams, uint32_t n)
{
    struct ud *self = ud_of(carrier);
    uint32_t most = n < UD_HANDED ? n : UD_HANDED, count = 0;
    self->now_ns = env_now_ns(&self->env);
    return_handed(self);
    do_what_is_due(self);
    for (uint32_t i = 0; i < self->n_rails; i++) {
        struct ud_rail *rail = &self->rails[(self->first_rail + i) % self->n_rails];
        bool more = true;
        rail_post(&rail->rail);
        ud_queue_collect(self, rail);
        while (count < most && more) {
            count += look(self, rail, datagrams + count, most - count, &more);
            if (!more)
                more = !arm(self, rail);
        }
    }
    if (count == most)
        self->first_rail++; /* so that none is starved */
    return (int)count;
}

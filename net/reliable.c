#include "net/reliable.h"

#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/log.h"
#include "core/base/panic.h"
#include "net/event_ring.h"
#include "net/unsupported.h"

enum {
    POOL_BYTES = 64 << 20,
    RECEIVE_ROUNDS = 8, /* batches per poll, so that timers and sending get their turn */
    READY_LIMIT = 1024, /* events waiting: the carrier's queue may hold the rest */
    MAX_REPORTS = 4096,
    STUCK_RETRY_NS = 200000,
};

static struct reliable *self_of(const struct transport *transport)
{
    return (struct reliable *)(uintptr_t)transport;
}

/* ---- small shared parts ---- */

void reliable_timer_at(struct reliable *self, uint64_t when_ns)
{
    if (when_ns < self->next_timer_ns)
        self->next_timer_ns = when_ns;
}

uint64_t reliable_hash(const struct reliable *self, const void *data, size_t len)
{
    uint64_t hash;
    crypto_shorthash((uint8_t *)&hash, data, len, self->hash_key);
    return hash;
}

bool reliable_report(struct reliable *self, const struct carrier_address *address, char topic, uint32_t nth)
{
    uint64_t key = reliable_hash(self, address->bytes, address->len) + (uint8_t)topic;
    uint64_t *seen = u64_map_get(&self->reports, key);
    if (seen != NULL)
        return ++*seen == nth;
    if (self->reports.len >= MAX_REPORTS || u64_map_put(&self->reports, key, 1) != 0) {
        self->stats.strangers.hits++;
        return false;
    }
    return nth == 1;
}

/* ---- events ---- */

static bool grow_ready(struct reliable *self)
{
    struct ready_event *ready = event_ring_grow(self->ready, &self->ready_cap, sizeof *ready, self->ready_given, self->ready_tail);
    if (ready != NULL)
        self->ready = ready;
    return ready != NULL;
}

static void release(struct reliable *self, struct ready_event *ready)
{
    if (ready->receive != NULL)
        buffer_pool_unref(&self->pool, ready->receive);
    if (ready->message != NULL)
        buffer_pool_put_message(&self->pool, ready->message);
    ready->receive = NULL;
    ready->message = NULL;
}

struct ready_event *reliable_event(struct reliable *self, enum transport_event_kind kind, uint32_t peer,
                                   struct receive_buffer *receive, struct message_buffer *message)
{
    if (self->ready_tail - self->ready_given == self->ready_cap && !grow_ready(self)) {
        release(self, &(struct ready_event){.receive = receive, .message = message});
        return NULL;
    }
    struct ready_event *ready = &self->ready[self->ready_tail++ & (self->ready_cap - 1)];
    *ready = (struct ready_event){.event = {.kind = kind, .peer = peer}, .receive = receive, .message = message};
    return ready;
}

static void release_given(struct reliable *self)
{
    for (; self->ready_given < self->ready_head; self->ready_given++)
        release(self, &self->ready[self->ready_given & (self->ready_cap - 1)]);
}

static int hand_out(struct reliable *self, struct transport_event *events, int n)
{
    int count = 0;
    while (count < n && self->ready_head < self->ready_tail) {
        struct ready_event *ready = &self->ready[self->ready_head++ & (self->ready_cap - 1)];
        if (!ready->dropped)
            events[count++] = ready->event;
    }
    return count;
}

/* ---- outgoing datagrams ---- */

void reliable_out_send(struct reliable *self)
{
    while (self->out_first < self->out_n) {
        int taken = self->carrier->ops->send(self->carrier, self->out + self->out_first, self->out_n - self->out_first);
        if (taken <= 0)
            return;
        self->out_first += (uint32_t)taken;
    }
    self->out_first = self->out_n = 0;
}

uint8_t *reliable_out_begin(struct reliable *self)
{
    if (self->out_n == SEND_BATCH)
        reliable_out_send(self);
    if (self->out_n == SEND_BATCH)
        return NULL;
    if (self->carrier->ops->lend == NULL)
        return self->out_data + (size_t)self->out_n * self->mtu;
    if (self->lent == NULL)
        self->lent = self->carrier->ops->lend(self->carrier);
    return self->lent;
}

void reliable_out_commit(struct reliable *self, const struct carrier_address *address, uint32_t len)
{
    hs_assert(self->out_n < SEND_BATCH && len <= self->mtu);
    struct carrier_datagram *out = &self->out[self->out_n];
    out->address = *address;
    out->data = self->lent ? self->lent : self->out_data + (size_t)self->out_n * self->mtu;
    out->len = len;
    self->lent = NULL;
    self->out_n++;
}

/* ---- poll ---- */

/* The second time, as a damaged datagram may look like that once. */
static void report_version(struct reliable *self, const struct carrier_datagram *datagram)
{
    char text[TRANSPORT_ADDRESS_TEXT];
    self->carrier->ops->format(self->carrier, &datagram->address, text, sizeof text);
    if (reliable_report(self, &datagram->address, 'v', 2))
        log_warn("net", "peer %s speaks version %u of the fabric protocol, we speak %u: not connected; run one version everywhere",
                 text, datagram->data[2] >> 4, WIRE_VERSION);
}

static void on_datagram(struct reliable *self, const struct carrier_datagram *datagram)
{
    _Static_assert((WIRE_VERSION << 4 | WIRE_PACKET) == 0x14, "as it stands below");
    const uint8_t *data = datagram->data;
    if (datagram->len >= WIRE_HEADER_BYTES && memcmp(data, "HS\x14", 3) == 0) { /* as nearly all are: version 1, a packet */
        reliable_on_packet(self, datagram);
        return;
    }
    if (datagram->len < WIRE_HEADER_BYTES || data[0] != 'H' || data[1] != 'S') {
        self->stats.rejected++;
        return;
    }
    if (data[2] >> 4 != WIRE_VERSION) {
        self->stats.rejected++;
        report_version(self, datagram);
        return;
    }
    switch (data[2] & 15) {
    case WIRE_INIT:
        reliable_on_init(self, datagram);
        break;
    case WIRE_RESPONSE:
        reliable_on_response(self, datagram);
        break;
    case WIRE_COOKIE:
        reliable_on_cookie(self, datagram);
        break;
    default:
        self->stats.rejected++;
    }
}

static void receive_all(struct reliable *self)
{
    struct carrier_datagram batch[RECEIVE_BATCH];
    for (int round = 0; round < RECEIVE_ROUNDS && self->ready_tail - self->ready_head < READY_LIMIT; round++) {
        int n = self->carrier->ops->receive(self->carrier, batch, RECEIVE_BATCH);
        for (int i = 0; i < n; i++)
            on_datagram(self, &batch[i]);
        if (n < RECEIVE_BATCH)
            return;
    }
}

static void run_timers(struct reliable *self)
{
    if (self->now_ns < self->next_timer_ns)
        return;
    self->next_timer_ns = UINT64_MAX; /* each timer that still runs names its time again */
    for (uint32_t i = 0; i < self->n_peers; i++)
        if (self->peers[i]->up != NULL)
            reliable_session_timers(self->peers[i]->up);
    reliable_handshake_timers(self);
}

static void flush_active(struct reliable *self)
{
    for (struct session *session = self->active, *next; session != NULL; session = next) {
        next = session->active_next;
        reliable_flush(session);
    }
    if (self->out_n > 0)
        reliable_out_send(self);
}

static int reliable_poll(struct transport *transport, uint64_t now_ns, struct transport_event *events, int n)
{
    struct reliable *self = self_of(transport);
    const uint64_t last_ns = self->now_ns;
    if (now_ns > self->now_ns)
        self->now_ns = now_ns;
    release_given(self);
    if (self->at_once != NULL)
        reliable_end_at_once(self->at_once, last_ns);
    flush_active(self); /* what was queued since the last poll: it must not wait while we look for more */
    receive_all(self);
    run_timers(self);
    flush_active(self);
    return hand_out(self, events, n);
}

static uint64_t reliable_next_deadline(const struct transport *transport)
{
    const struct reliable *self = self_of(transport);
    if (self->ready_head < self->ready_tail)
        return 0;
    if (self->out_n > 0) { /* the carrier was full: look again soon */
        uint64_t soon = self->now_ns + STUCK_RETRY_NS;
        return soon < self->next_timer_ns ? soon : self->next_timer_ns;
    }
    return self->active != NULL ? 0 : self->next_timer_ns;
}

/* ---- peers and messages ---- */

static void reliable_info(const struct transport *transport, struct transport_info *out)
{
    const struct reliable *self = self_of(transport);
    *out = (struct transport_info){
        .name = self->name,
        .boot_id = self->boot_id,
        .max_message_bytes = WIRE_MAX_MESSAGE,
        .max_unreliable_bytes = WIRE_MAX_UNRELIABLE,
    };
    self->carrier->ops->local(self->carrier, out->local, sizeof out->local);
}

static int reliable_resolve(struct transport *transport, const char *text, uint32_t *out)
{
    struct reliable *self = self_of(transport);
    uint64_t key = reliable_hash(self, text, strlen(text));
    uint64_t *known = u64_map_get(&self->peer_by_text, key);
    struct peer *peer = known ? reliable_peer_numbered(self, (uint32_t)*known) : NULL;
    if (peer == NULL) {
        struct carrier_address address;
        int status = self->carrier->ops->resolve(self->carrier, text, &address);
        if (status != 0)
            return status;
        peer = reliable_peer_get(self, &address);
        if (peer == NULL)
            return HS_ERR_LIMIT;
        if (self->peer_by_text.len < 4 * (size_t)self->tuning.max_peers)
            u64_map_put(&self->peer_by_text, key, peer->number);
    }
    peer->closed = false;
    if (!peer->wanted) {
        peer->wanted = true;
        peer->retry_ns = self->tuning.connect_retry_min_ns;
        peer->next_attempt_ns = 0;
        reliable_timer_at(self, 0);
    }
    reliable_hurry(self, peer);
    *out = peer->number;
    return 0;
}

static int reliable_address(const struct transport *transport, uint32_t number, char *text, size_t size)
{
    const struct reliable *self = self_of(transport);
    const struct peer *peer = reliable_peer_numbered(self, number);
    if (peer == NULL)
        return HS_ERR_NOT_FOUND;
    self->carrier->ops->format(self->carrier, &peer->address, text, size);
    return 0;
}

static int reliable_send(struct transport *transport, uint32_t number, const struct iovec *iov, int n, uint32_t flags)
{
    struct reliable *self = self_of(transport);
    struct peer *peer = reliable_peer_numbered(self, number);
    if (peer == NULL || peer->up == NULL)
        return HS_ERR_CLOSED;
    size_t len = 0;
    for (int i = 0; i < n; i++) {
        if (iov[i].iov_len > WIRE_MAX_MESSAGE - len)
            return HS_ERR_LIMIT;
        len += iov[i].iov_len;
    }
    /* Whoever has events of ours in hand has just polled: our time is nearly right, and this is often an answer that nothing follows. */
    bool at_once = self->ready_given < self->ready_head && self->at_once == NULL && self->active == NULL && self->out_n == 0 &&
                   peer->up->una == peer->up->end;
    int status =
        flags & TRANSPORT_UNRELIABLE ? reliable_queue_unreliable(peer->up, iov, n, len) : reliable_queue(peer->up, iov, n, len);
    if (status != 0)
        return status;
    if (at_once) { /* what follows before the next poll leaves together */
        reliable_flush_at_once(peer->up);
        reliable_out_send(self);
    }
    peer->stats.sent_messages++;
    self->stats.sent_messages++;
    self->stats.sent_bytes += len;
    return 0;
}

static void reliable_close_peer(struct transport *transport, uint32_t number)
{
    struct reliable *self = self_of(transport);
    struct peer *peer = reliable_peer_numbered(self, number);
    if (peer == NULL)
        return;
    peer->wanted = false;
    if (!peer->closed)
        peer->closed_ns = self->now_ns;
    peer->closed = true;
    if (peer->outgoing != NULL) {
        reliable_session_free(peer->outgoing);
        peer->outgoing = NULL;
    }
    if (peer->up != NULL) {
        reliable_send_close(peer->up);
        reliable_out_send(self);
        reliable_session_free(peer->up);
        peer->up = NULL;
    }
    for (uint64_t i = self->ready_head; i < self->ready_tail; i++) {
        struct ready_event *ready = &self->ready[i & (self->ready_cap - 1)];
        if (ready->event.peer == number)
            ready->dropped = true;
    }
}

static int reliable_peer_stats(const struct transport *transport, uint32_t number, struct transport_peer_stats *out)
{
    const struct peer *peer = reliable_peer_numbered(self_of(transport), number);
    if (peer == NULL)
        return HS_ERR_NOT_FOUND;
    *out = peer->stats;
    return 0;
}

static void reliable_stats(const struct transport *transport, struct transport_stats *out)
{
    const struct reliable *self = self_of(transport);
    uint64_t fullest = 0, fullest_unreliable = 0, n_closed = 0;
    for (uint32_t i = 0; i < self->n_peers; i++) {
        const struct session *session = self->peers[i]->up;
        n_closed += self->peers[i]->closed;
        if (session == NULL)
            continue;
        uint64_t queued = byte_ring_used(&session->ring);
        fullest = queued > fullest ? queued : fullest;
        fullest_unreliable = session->unreliable_len > fullest_unreliable ? session->unreliable_len : fullest_unreliable;
    }
    const struct transport_stats *s = &self->stats;
    struct carrier_stats carrier = {0};
    self->carrier->ops->stats(self->carrier, &carrier);
    *out = *s;
    out->rejected += carrier.rejected_words;
    out->missed = carrier.missed_datagrams;
    out->peers = (struct transport_bound){self->n_peers - n_closed, self->tuning.max_peers, s->peers.hits};
    out->half_open = (struct transport_bound){self->n_half_open, self->tuning.max_half_open, s->half_open.hits};
    out->send_bytes = (struct transport_bound){fullest, self->tuning.send_buffer_bytes, s->send_bytes.hits};
    out->unreliable_bytes = (struct transport_bound){fullest_unreliable, RELIABLE_UNRELIABLE_BYTES, s->unreliable_bytes.hits};
    out->receive_bytes = (struct transport_bound){buffer_pool_bytes(&self->pool), POOL_BYTES, s->receive_bytes.hits};
    out->strangers = (struct transport_bound){self->reports.len, MAX_REPORTS, s->strangers.hits};
}

static int reliable_wait_fd(const struct transport *transport)
{
    const struct reliable *self = self_of(transport);
    return self->carrier->ops->wait_fd(self->carrier);
}

/* ---- creation and end ---- */

static void free_sessions(struct reliable *self)
{
    for (uint32_t i = 0; i < self->n_peers; i++) {
        struct peer *peer = self->peers[i];
        if (peer->outgoing != NULL)
            reliable_session_free(peer->outgoing);
        if (peer->up != NULL)
            reliable_session_free(peer->up);
        free(peer);
    }
    for (uint32_t i = 0; i < self->n_half_open; i++)
        reliable_session_free(self->half_open[i]);
}

static void free_memory(struct reliable *self)
{
    u64_map_fini(&self->peer_by_address);
    u64_map_fini(&self->peer_by_text);
    u64_map_fini(&self->reports);
    buffer_pool_fini(&self->pool);
    free(self->peers);
    free(self->half_open);
    free(self->ready);
    free(self->out_data);
    free(self->sessions);
    sodium_memzero(self, sizeof *self);
    free(self);
}

static void reliable_destroy(struct transport *transport)
{
    struct reliable *self = self_of(transport);
    for (uint32_t i = 0; i < self->n_peers; i++)
        if (self->peers[i]->up != NULL)
            reliable_send_close(self->peers[i]->up);
    reliable_out_send(self);
    release_given(self);
    for (uint64_t i = self->ready_head; i < self->ready_tail; i++)
        release(self, &self->ready[i & (self->ready_cap - 1)]);
    free_sessions(self);
    self->carrier->ops->destroy(self->carrier);
    free_memory(self);
}

static const struct transport_ops reliable_ops = {
    .info = reliable_info,
    .resolve = reliable_resolve,
    .address = reliable_address,
    .send = reliable_send,
    .poll = reliable_poll,
    .next_deadline_ns = reliable_next_deadline,
    .wait_fd = reliable_wait_fd,
    .publish = unsupported_publish,
    .write_page = unsupported_write_page,
    .read_page = unsupported_read_page,
    .close_peer = reliable_close_peer,
    .peer_stats = reliable_peer_stats,
    .stats = reliable_stats,
    .destroy = reliable_destroy,
};

static struct net_tuning with_defaults(const struct net_tuning *given)
{
    const uint64_t ms = 1000000;
    struct net_tuning t = given ? *given : (struct net_tuning){0};
    t.peer_timeout_ns = t.peer_timeout_ns ? t.peer_timeout_ns : 5000 * ms;
    t.keep_alive_ns = t.keep_alive_ns ? t.keep_alive_ns : 10000 * ms;
    t.connect_retry_min_ns = t.connect_retry_min_ns ? t.connect_retry_min_ns : 100 * ms;
    t.connect_retry_max_ns = t.connect_retry_max_ns ? t.connect_retry_max_ns : 2000 * ms;
    t.handshake_timeout_ns = t.handshake_timeout_ns ? t.handshake_timeout_ns : 10000 * ms;
    t.min_rto_ns = t.min_rto_ns ? t.min_rto_ns : 20 * ms;
    t.ack_delay_ns = t.ack_delay_ns ? t.ack_delay_ns : ms / 2;
    t.rekey_ns = t.rekey_ns ? t.rekey_ns : 600 * 1000 * ms;
    t.rekey_packets = t.rekey_packets ? t.rekey_packets : 1 << 24;
    t.send_buffer_bytes = t.send_buffer_bytes ? t.send_buffer_bytes : 4 << 20;
    t.max_peers = t.max_peers ? t.max_peers : 1024;
    t.max_peers = t.max_peers < NET_MAX_PEERS ? t.max_peers : NET_MAX_PEERS;
    t.max_half_open = t.max_half_open ? t.max_half_open : 64;
    uint32_t available = seal_ciphers_available() | (t.ciphers & 1u << SEAL_CIPHER_NONE);
    t.ciphers = t.ciphers ? t.ciphers & available : available;
    return t;
}

/* Whoever sets no key gets this one: it keeps the format the same and secrets nothing. */
static const uint8_t public_key[NET_GROUP_KEY_BYTES] = "hearsay: no group key was given";

static void fill_random(struct reliable *self)
{
    self->boot_id = env_random_u64(&self->env);
    uint64_t random[2] = {env_random_u64(&self->env), env_random_u64(&self->env)};
    memcpy(self->hash_key, random, sizeof self->hash_key);
    for (size_t i = 0; i < sizeof self->cookie_secret / 8; i++) {
        uint64_t word = env_random_u64(&self->env);
        memcpy((uint8_t *)self->cookie_secret + 8 * i, &word, 8);
    }
}

int transport_reliable_create(struct carrier *carrier, const char *name, const uint8_t *group_key, const struct net_tuning *tuning,
                              const struct env *env, struct transport **out, struct error *err)
{
    uint32_t mtu = carrier->ops->mtu(carrier);
    struct net_tuning filled = with_defaults(tuning);
    if (mtu < WIRE_MIN_DATAGRAM || mtu > UINT16_MAX)
        return error_set(err, HS_ERR_INVALID, "fabric \"%s\": datagrams of %u bytes: at least %d are needed", name, mtu,
                         WIRE_MIN_DATAGRAM);
    if (filled.send_buffer_bytes < WIRE_MAX_MESSAGE)
        return error_set(err, HS_ERR_INVALID,
                         "fabric \"%s\": a send buffer of %u bytes does not hold the longest message: give at least %d", name,
                         filled.send_buffer_bytes, WIRE_MAX_MESSAGE);
    if (filled.ciphers == 0)
        return error_set(err, HS_ERR_UNSUPPORTED, "fabric \"%s\": none of the ciphers asked for works on this CPU", name);
    struct reliable *self = calloc(1, sizeof *self);
    if (self == NULL)
        return error_set(err, HS_ERR_NO_MEMORY, "fabric \"%s\": out of memory", name);
    self->transport.ops = &reliable_ops;
    self->carrier = carrier;
    self->env = *env;
    self->tuning = filled;
    self->mtu = mtu;
    self->now_ns = env_now_ns(env);
    self->next_timer_ns = UINT64_MAX;
    snprintf(self->name, sizeof self->name, "%s", name);
    memcpy(self->group_key, group_key ? group_key : public_key, NET_GROUP_KEY_BYTES);
    fill_random(self);
    buffer_pool_init(&self->pool, mtu, POOL_BYTES);
    self->pool.carrier = carrier;
    self->peers = calloc(filled.max_peers, sizeof(struct peer *));
    self->half_open = calloc(filled.max_half_open, sizeof(struct session *));
    self->out_data = carrier->ops->lend ? NULL : malloc((size_t)SEND_BATCH * mtu);
    for (self->sessions_cap = 64; self->sessions_cap < 4 * (filled.max_peers + filled.max_half_open);)
        self->sessions_cap *= 2;
    self->sessions = calloc(self->sessions_cap, sizeof(struct session *));
    if (self->peers == NULL || self->half_open == NULL || self->sessions == NULL ||
        (self->out_data == NULL && carrier->ops->lend == NULL)) {
        free_memory(self);
        return error_set(err, HS_ERR_NO_MEMORY, "fabric \"%s\": out of memory", name);
    }
    *out = &self->transport;
    return 0;
}

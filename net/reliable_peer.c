#include <sodium.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "core/base/panic.h"
#include "net/reliable.h"

static bool same_address(const struct carrier_address *a, const struct carrier_address *b)
{
    return a->len == b->len && memcmp(a->bytes, b->bytes, a->len) == 0;
}

struct peer *reliable_peer_find(struct reliable *self, const struct carrier_address *address)
{
    uint64_t *found = u64_map_get(&self->peer_by_address, reliable_hash(self, address->bytes, address->len));
    if (found == NULL)
        return NULL;
    struct peer *peer = self->peers[*found];
    return same_address(&peer->address, address) ? peer : NULL;
}

struct peer *reliable_peer_numbered(const struct reliable *self, uint32_t number)
{
    uint32_t place = net_peer_place(number);
    return place < self->n_peers && self->peers[place]->number == number ? self->peers[place] : NULL;
}

/* Names that led to the peer are to be looked up again. */
static void forget_texts(struct reliable *self, const struct peer *peer)
{
    uint64_t key, number;
    for (size_t cursor = 0; u64_map_next(&self->peer_by_text, &cursor, &key, &number);) {
        if (number == peer->number) {
            u64_map_remove(&self->peer_by_text, key);
            cursor = 0;
        }
    }
}

/* All places are taken: the peer that was closed longest ago makes room. Its number ends with it. */
static struct peer *take_place(struct reliable *self, const struct carrier_address *address, uint64_t key)
{
    struct peer *oldest = NULL;
    for (uint32_t i = 0; i < self->n_peers; i++) {
        struct peer *peer = self->peers[i];
        if (peer->closed && (oldest == NULL || peer->closed_ns < oldest->closed_ns))
            oldest = peer;
    }
    if (oldest == NULL || u64_map_put(&self->peer_by_address, key, net_peer_place(oldest->number)) != 0) {
        self->stats.peers.hits += oldest == NULL;
        return NULL;
    }
    u64_map_remove(&self->peer_by_address, reliable_hash(self, oldest->address.bytes, oldest->address.len));
    forget_texts(self, oldest);
    *oldest = (struct peer){
        .address = *address, .number = net_peer_next_number(oldest->number), .retry_ns = self->tuning.connect_retry_min_ns};
    return oldest;
}

struct peer *reliable_peer_get(struct reliable *self, const struct carrier_address *address)
{
    struct peer *peer = reliable_peer_find(self, address);
    if (peer != NULL)
        return peer;
    uint64_t key = reliable_hash(self, address->bytes, address->len);
    if (u64_map_get(&self->peer_by_address, key) != NULL)
        return NULL; /* two addresses with one keyed 64-bit hash: as good as never */
    if (self->n_peers == self->tuning.max_peers)
        return take_place(self, address, key);
    peer = calloc(1, sizeof *peer);
    if (peer == NULL || u64_map_put(&self->peer_by_address, key, self->n_peers) != 0) {
        free(peer);
        return NULL;
    }
    peer->address = *address;
    peer->number = self->n_peers;
    peer->retry_ns = self->tuning.connect_retry_min_ns;
    self->peers[self->n_peers++] = peer;
    return peer;
}

struct session *reliable_session_find(struct reliable *self, uint32_t local_id)
{
    struct session *session = self->sessions[local_id & (self->sessions_cap - 1)];
    return session != NULL && session->local_id == local_id ? session : NULL;
}

struct session *reliable_session_create(struct reliable *self, const struct carrier_address *address, enum session_state state)
{
    struct session *session = calloc(1, sizeof *session);
    if (session == NULL)
        return NULL;
    session->owner = self;
    session->address = *address;
    session->state = state;
    session->loss_check_ns = session->rto_start_ns = session->ack_due_ns = session->pacing_due_ns = UINT64_MAX;
    session->handshake = calloc(1, sizeof *session->handshake);
    if (session->handshake == NULL) {
        free(session);
        return NULL;
    }
    do
        session->local_id = (uint32_t)env_random_u64(&self->env);
    while (session->local_id == 0 || self->sessions[session->local_id & (self->sessions_cap - 1)] != NULL); /* never half full */
    self->sessions[session->local_id & (self->sessions_cap - 1)] = session;
    return session;
}

static void free_handshake(struct session *session)
{
    if (session->handshake == NULL)
        return;
    sodium_memzero(session->handshake, sizeof *session->handshake);
    free(session->handshake);
    session->handshake = NULL;
}

void reliable_session_free(struct session *session)
{
    struct reliable *self = session->owner;
    reliable_session_deactivate(session);
    if (self->at_once == session)
        self->at_once = NULL;
    self->sessions[session->local_id & (self->sessions_cap - 1)] = NULL;
    for (uint32_t i = 0; i < session->slots_cap; i++)
        if (session->slots[i].buffer != NULL)
            buffer_pool_unref(&self->pool, session->slots[i].buffer);
    if (session->assembly != NULL)
        buffer_pool_put_message(&self->pool, session->assembly);
    free_handshake(session);
    seal_session_fini(&session->seal);
    free(session->fragments);
    byte_ring_fini(&session->ring);
    free(session->unreliable);
    free(session->slots);
    free(session);
}

void reliable_session_activate(struct session *session)
{
    if (session->active)
        return;
    struct reliable *self = session->owner;
    session->active = true;
    session->active_previous = NULL;
    session->active_next = self->active;
    if (self->active != NULL)
        self->active->active_previous = session;
    self->active = session;
}

void reliable_session_deactivate(struct session *session)
{
    if (!session->active)
        return;
    session->active = false;
    if (session->active_previous != NULL)
        session->active_previous->active_next = session->active_next;
    else
        session->owner->active = session->active_next;
    if (session->active_next != NULL)
        session->active_next->active_previous = session->active_previous;
}

void reliable_session_up(struct session *session, struct peer *peer)
{
    struct reliable *self = session->owner;
    if (peer->outgoing == session)
        peer->outgoing = NULL;
    if (peer->outgoing != NULL) {
        reliable_session_free(peer->outgoing);
        peer->outgoing = NULL;
    }
    if (peer->up != NULL)
        reliable_session_down(peer->up, HS_ERR_CANCELED);
    free_handshake(session);
    session->state = SESSION_UP;
    session->peer = peer;
    session->heard_ns = session->progress_ns = self->now_ns;
    peer->up = session;
    peer->closed = false;
    peer->retry_ns = self->tuning.connect_retry_min_ns;
    peer->stats.rtt_ns = session->rtt_ns;
    peer->stats.rtt_variance_ns = session->rtt_variance_ns;
    struct ready_event *ready = reliable_event(self, TRANSPORT_PEER_UP, peer->number, NULL, NULL);
    if (ready != NULL)
        ready->event.boot_id = session->boot_id;
    if (self->tuning.keep_alive_ns != UINT64_MAX)
        reliable_timer_at(self, self->now_ns + self->tuning.keep_alive_ns);
}

void reliable_session_down(struct session *session, int status)
{
    struct reliable *self = session->owner;
    struct peer *peer = session->peer;
    hs_assert(peer != NULL && peer->up == session);
    struct ready_event *ready = reliable_event(self, TRANSPORT_PEER_DOWN, peer->number, NULL, NULL);
    if (ready != NULL) {
        ready->event.status = status;
        ready->event.boot_id = session->boot_id;
    }
    peer->up = NULL;
    reliable_session_free(session);
    if (peer->wanted && peer->outgoing == NULL) {
        peer->next_attempt_ns = self->now_ns + peer->retry_ns; /* it may be on its way out: do not call back at once */
        reliable_timer_at(self, peer->next_attempt_ns);
    }
}

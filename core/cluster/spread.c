#include <string.h>

#include "core/base/log.h"
#include "core/cluster/internal.h"

enum { SPREAD_FACTOR = 4 }; /* each state is passed on SPREAD_FACTOR x log2(n + 1) times by each node (SWIM, section 4.1) */

static enum wire_state to_wire(enum cluster_peer_state state)
{
    switch (state) {
    case CLUSTER_PEER_SUSPECT:
        return WIRE_SUSPECT;
    case CLUSTER_PEER_DEAD:
        return WIRE_DEAD;
    case CLUSTER_PEER_LEFT:
        return WIRE_LEFT;
    default:
        return WIRE_ALIVE;
    }
}

void spread_write_self(const struct cluster *c, struct wire_member *out)
{
    *out =
        (struct wire_member){.boot_id = c->info.boot_id, .incarnation = c->incarnation, .state = c->left ? WIRE_LEFT : WIRE_ALIVE};
    memcpy(out->name, c->config.name, sizeof out->name);
    memcpy(out->address, c->info.local, sizeof out->address);
    memcpy(out->http_address, c->config.http_address, sizeof out->http_address);
}

static void fill(const struct member *m, struct wire_member *out)
{
    *out = (struct wire_member){.boot_id = m->boot_id, .incarnation = m->incarnation, .state = to_wire(m->state)};
    memcpy(out->name, m->name, sizeof out->name);
    memcpy(out->address, m->address, sizeof out->address);
    memcpy(out->http_address, m->http_address, sizeof out->http_address);
}

static bool append(const struct member *m, struct writer *w)
{
    struct wire_member record;
    fill(m, &record);
    struct writer trial = *w;
    wire_write_member(&trial, &record);
    if (trial.failed)
        return false;
    *w = trial;
    return true;
}

static uint32_t transmit_limit(const struct cluster *c)
{
    uint32_t bits = 1;
    for (uint32_t n = members_live(c) + 1; n > 1; n /= 2)
        bits++;
    return SPREAD_FACTOR * bits;
}

static void append_self(struct cluster *c, uint32_t limit, struct writer *w)
{
    if (c->self_transmits >= limit && !c->retell_self)
        return;
    struct wire_member self;
    spread_write_self(c, &self);
    struct writer trial = *w;
    wire_write_member(&trial, &self);
    if (trial.failed)
        return;
    *w = trial;
    c->self_transmits++;
    c->retell_self = false;
}

/* Least often told first. spread_number keeps one message from naming a member twice. */
void spread_append(struct cluster *c, const struct member *to, struct writer *w)
{
    uint32_t limit = transmit_limit(c);
    /* A suspect (or one that is held to be gone) hears of it at once, so that it can refute (Lifeguard's buddy system). */
    if (to && to->boot_id && to->state != CLUSTER_PEER_ALIVE && to->state != CLUSTER_PEER_JOINING)
        append(to, w);
    append_self(c, limit, w);
    c->spread_number++;
    for (uint32_t level = 0; level < limit; level++) {
        for (uint32_t i = 0; i < c->n_members; i++) {
            struct member *m = c->members[i];
            if (m->transmits != level || m->spread_number == c->spread_number || !m->boot_id || m == to ||
                m->state == CLUSTER_PEER_JOINING)
                continue;
            if (!append(m, w))
                return;
            m->transmits++;
            m->spread_number = c->spread_number;
        }
    }
}

static void hear_of_self(struct cluster *c, const struct wire_member *record)
{
    if (record->state == WIRE_ALIVE || c->left)
        return;
    if (record->incarnation < c->incarnation) {
        c->retell_self = true;
        return;
    }
    c->incarnation = record->incarnation + 1;
    if (c->local_health < 8)
        c->local_health++; /* that we were suspected means that we are slow (Lifeguard, section IV.A) */
    c->self_transmits = 0;
}

static void learn(struct cluster *c, const struct wire_member *record, uint64_t now_ns)
{
    if (record->state != WIRE_ALIVE && record->state != WIRE_SUSPECT)
        return;
    uint32_t peer;
    int rc = c->transport->ops->resolve(c->transport, record->address, &peer);
    if (rc != 0) {
        log_debug("cluster", "member %s at %s cannot be resolved: %s", record->name, record->address, error_name(rc));
        return;
    }
    struct member *m = member_by_peer(c, peer);
    if (!m)
        m = member_add(c, peer);
    /* What the transport knows of the process behind an address is truer than what a third node says. */
    if (!m || m->up || (m->boot_id && m->state != CLUSTER_PEER_DEAD && m->state != CLUSTER_PEER_LEFT))
        return;
    member_set_boot(c, m, record->boot_id, now_ns);
    memcpy(m->name, record->name, sizeof m->name);
    memcpy(m->http_address, record->http_address, sizeof m->http_address);
    m->incarnation = record->incarnation;
}

static void apply(struct cluster *c, struct member *from, const struct wire_member *record, uint64_t now_ns)
{
    if (record->boot_id == c->info.boot_id) {
        hear_of_self(c, record);
        return;
    }
    struct member *m = member_by_boot(c, record->boot_id);
    if (!m) {
        learn(c, record, now_ns);
        return;
    }
    bool out = m->state == CLUSTER_PEER_DEAD || m->state == CLUSTER_PEER_LEFT;
    bool newer = record->incarnation > m->incarnation;
    bool as_new = record->incarnation >= m->incarnation;
    switch (record->state) {
    case WIRE_ALIVE:
        if (m->state == CLUSTER_PEER_DEAD && !m->up)
            member_call(c, m);
        if (newer && (m->up || m->state == CLUSTER_PEER_SUSPECT || m->state == CLUSTER_PEER_ALIVE))
            member_set_state(c, m, CLUSTER_PEER_ALIVE, record->incarnation, now_ns);
        break;
    case WIRE_SUSPECT:
        if (as_new && !out && m->state != CLUSTER_PEER_JOINING) {
            m->incarnation = record->incarnation;
            swim_suspect(c, m, from->boot_id, now_ns);
        }
        break;
    case WIRE_DEAD:
        if (as_new && !out)
            swim_hear_of_death(c, m, from->boot_id, record->incarnation, now_ns);
        break;
    case WIRE_LEFT:
        if (as_new && m->state != CLUSTER_PEER_LEFT)
            member_set_state(c, m, CLUSTER_PEER_LEFT, record->incarnation, now_ns);
        break;
    }
}

void spread_apply(struct cluster *c, struct member *from, struct wire_list members, uint64_t now_ns)
{
    struct wire_member record;
    while (wire_next_member(&members, &record))
        apply(c, from, &record, now_ns);
}

/* Whoever is met through a seed, or again, may know members that we do not. */
static bool wants_members(const struct member *to)
{
    return to->seed || to->hello_ns || (to->state != CLUSTER_PEER_JOINING && to->state != CLUSTER_PEER_ALIVE);
}

void spread_hello(struct cluster *c, struct member *to, uint64_t now_ns)
{
    uint8_t buffer[1024];
    struct writer w;
    writer_init(&w, buffer, sizeof buffer);
    struct wire_hello hello = {.wants_members = wants_members(to)};
    spread_write_self(c, &hello.self);
    wire_write_hello(&w, &hello);
    if (cluster_send(c, to, &w, 0) != 0)
        return;
    if (!to->hello_ns)
        weights_tell(c, to);
    to->hello_ns = now_ns;
}

void spread_members(struct cluster *c, struct member *to)
{
    static const uint32_t limit = 256 * 1024;
    uint8_t buffer[32 * 1024];
    uint32_t sent = 0;
    for (uint32_t i = 0; i < c->n_members && sent < limit;) {
        struct writer w;
        writer_init(&w, buffer, sizeof buffer);
        wire_begin_members(&w);
        for (; i < c->n_members; i++) {
            struct member *m = c->members[i];
            if (m->boot_id && m != to && m->state != CLUSTER_PEER_JOINING && !append(m, &w))
                break;
        }
        if (cluster_send(c, to, &w, 0) != 0)
            return;
        sent += (uint32_t)w.len;
    }
}

void spread_on_hello(struct cluster *c, struct member *from, const struct wire_hello *hello, uint64_t now_ns)
{
    if (hello->self.boot_id != from->boot_id)
        return; /* sent by a process that is gone */
    memcpy(from->name, hello->self.name, sizeof from->name);
    memcpy(from->http_address, hello->self.http_address, sizeof from->http_address);
    cluster_metrics_member(c, from);
    if (hello->self.state == WIRE_LEFT) {
        member_set_state(c, from, CLUSTER_PEER_LEFT, hello->self.incarnation, now_ns);
    } else if (from->state == CLUSTER_PEER_JOINING || hello->self.incarnation > from->incarnation) {
        member_set_state(c, from, CLUSTER_PEER_ALIVE, hello->self.incarnation, now_ns);
    }
    if (hello->wants_members)
        spread_members(c, from);
}

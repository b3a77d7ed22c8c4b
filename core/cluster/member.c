#include <stdlib.h>
#include <string.h>

#include "core/base/log.h"
#include "core/cluster/internal.h"

enum { REAP_LEFT_S = 60, REAP_DEAD_S = 3600 };

struct member *member_by_peer(const struct cluster *c, uint32_t peer)
{
    const uint64_t *at = u64_map_get(&c->by_peer, peer);
    return at ? (struct member *)(uintptr_t)*at : NULL;
}

struct member *member_by_boot(const struct cluster *c, uint64_t boot_id)
{
    const uint64_t *at = u64_map_get(&c->by_boot, boot_id);
    return at ? (struct member *)(uintptr_t)*at : NULL;
}

const char *member_who(const struct member *m)
{
    return m->name[0] ? m->name : m->address;
}

static bool grow(struct cluster *c)
{
    if (c->n_members < c->cap_members)
        return true;
    uint32_t cap = c->cap_members ? c->cap_members * 2 : 16;
    struct member **members = realloc(c->members, cap * sizeof *members);
    if (!members)
        return false;
    c->members = members;
    c->cap_members = cap;
    return true;
}

struct member *member_add(struct cluster *c, uint32_t peer)
{
    if (c->n_members >= MEMBERS_MAX)
        limit_hit(c->count.limits[CLUSTER_LIMIT_MEMBERS], 1);
    if (c->n_members >= MEMBERS_MAX || !grow(c))
        return NULL;
    struct member *m = calloc(1, sizeof *m);
    if (!m)
        return NULL;
    if (u64_map_put(&c->by_peer, peer, (uintptr_t)m) != 0) {
        free(m);
        return NULL;
    }
    m->peer = peer;
    m->state = CLUSTER_PEER_JOINING;
    m->state_since_ns = m->joined_ns = env_now_ns(c->env);
    c->transport->ops->address(c->transport, peer, m->address, sizeof m->address);
    replica_init(&m->replica, &c->budget);
    c->members[c->n_members++] = m;
    return m;
}

void member_free(struct cluster *c, struct member *m)
{
    uint32_t i = 0;
    while (c->members[i] != m)
        i++;
    c->members[i] = c->members[--c->n_members];
    u64_map_remove(&c->by_peer, m->peer);
    if (m->has_alias)
        u64_map_remove(&c->by_peer, m->alias);
    if (m->boot_id && member_by_boot(c, m->boot_id) == m)
        u64_map_remove(&c->by_boot, m->boot_id);
    metrics_release_gauge(c->metrics, m->replica_gauge);
    replica_fini(&m->replica);
    free(m);
}

void member_forget(struct cluster *c, struct member *m)
{
    c->transport->ops->close_peer(c->transport, m->peer);
    if (m->has_alias)
        c->transport->ops->close_peer(c->transport, m->alias);
    member_free(c, m);
}

/* Everything that belonged to the process which had the old boot id is void. */
void member_set_boot(struct cluster *c, struct member *m, uint64_t boot_id, uint64_t now_ns)
{
    if (m->boot_id == boot_id)
        return;
    if (m->boot_id) {
        log_info("cluster", "peer %s restarted", member_who(m));
        member_announce(c, m, true);
        if (member_by_boot(c, m->boot_id) == m)
            u64_map_remove(&c->by_boot, m->boot_id);
        intents_forget(c, m->boot_id);
    }
    if (u64_map_put(&c->by_boot, boot_id, (uintptr_t)m) != 0)
        log_warn("cluster", "out of memory: peer %s cannot be found by its boot id", m->address);
    m->boot_id = boot_id;
    m->incarnation = 0;
    m->has_header = m->compatible = m->mismatch_logged = m->weights_logged = false;
    m->header = (struct wire_header){0};
    m->pushed = advert_sequence(c->advert);
    m->in_flight = 0;
    m->joined_ns = now_ns;
    m->blame = 0;
    replica_clear(&m->replica);
    m->state = CLUSTER_PEER_JOINING;
    m->state_since_ns = now_ns;
    m->transmits = 0;
}

void member_set_state(struct cluster *c, struct member *m, enum cluster_peer_state state, uint32_t incarnation, uint64_t now_ns)
{
    enum cluster_peer_state old = m->state;
    bool changed = old != state;
    if (!changed && m->incarnation == incarnation)
        return;
    m->incarnation = incarnation;
    m->transmits = 0;
    if (!changed)
        return;
    m->state = state;
    m->state_since_ns = now_ns;
    bool out = state == CLUSTER_PEER_DEAD || state == CLUSTER_PEER_LEFT;
    bool is_passing = state == CLUSTER_PEER_SUSPECT || old == CLUSTER_PEER_SUSPECT;
    log_write(is_passing && !out ? LOG_LEVEL_DEBUG : LOG_LEVEL_INFO, "cluster", "peer %s is %s", member_who(m),
              cluster_state_name(state));
    if (state == CLUSTER_PEER_DEAD)
        counter_add(c->count.deaths, 1);
    if (out) {
        replica_clear(&m->replica);
        intents_forget(c, m->boot_id);
        m->has_header = false; /* routable again only after it spoke */
        m->ask_at_ns = 0;
        if (m->replica_gauge)
            gauge_set(m->replica_gauge, 0);
    }
    member_announce(c, m, out);
    if (state == CLUSTER_PEER_ALIVE && !is_passing && m->up)
        sync_begin(c, m, now_ns);
    if (state == CLUSTER_PEER_ALIVE && old == CLUSTER_PEER_DEAD)
        swim_call_the_dead(c, now_ns);
}

void member_call(struct cluster *c, const struct member *m)
{
    uint32_t peer;
    c->transport->ops->resolve(c->transport, m->address, &peer);
}

bool member_is_routable(const struct cluster *c, const struct member *m)
{
    return m->up && m->state == CLUSTER_PEER_ALIVE && m->has_header && m->compatible && !c->left;
}

/* A suspect stays announced: only its death, leave or restart loses what it computes. */
void member_announce(struct cluster *c, struct member *m, bool gone)
{
    if (gone && m->announced) {
        m->announced = false;
        if (c->listener.peer_gone)
            c->listener.peer_gone(c->listener.self, m->peer);
    } else if (!gone && !m->announced && member_is_routable(c, m)) {
        m->announced = true;
        if (c->listener.peer_alive)
            c->listener.peer_alive(c->listener.self, m->peer);
    }
}

uint32_t members_live(const struct cluster *c)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < c->n_members; i++)
        n += c->members[i]->state == CLUSTER_PEER_ALIVE || c->members[i]->state == CLUSTER_PEER_SUSPECT;
    return n;
}

void members_reap(struct cluster *c, uint64_t now_ns)
{
    for (uint32_t i = c->n_members; i-- > 0;) {
        struct member *m = c->members[i];
        bool is_gone = m->state == CLUSTER_PEER_LEFT || m->state == CLUSTER_PEER_DEAD;
        if (!is_gone && m->state != CLUSTER_PEER_JOINING) /* who is joining and not up may never come, or was gone before a word */
            continue;
        uint64_t keep_s = m->state == CLUSTER_PEER_LEFT ? REAP_LEFT_S : REAP_DEAD_S;
        if (!m->seed && !m->up && now_ns - m->state_since_ns >= keep_s * SECOND)
            member_forget(c, m);
    }
}

/*
 * SWIM's failure detector (Das et al., 2002) with Lifeguard's three changes (Dadgar et al., 2017): a local health score
 * stretches our own timers when we are slow ourselves, a suspicion's timeout shrinks as independent members confirm it, and
 * a suspect is told first.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/log.h"
#include "core/cluster/internal.h"

enum { HELPERS = 3, HEALTH_MAX = 8, CONFIRMATIONS = 3, SUSPICION_ALPHA = 4, SUSPICION_BETA = 3 };

static const uint64_t probe_interval_ns = 300 * MS;
static const uint64_t timeout_floor_ns = 150 * MS, timeout_unknown_ns = 1000 * MS;
static const uint64_t revive_interval_ns = 100 * MS, sync_interval_ns = 30 * SECOND;
static const uint64_t tell_again_ns = 50 * MS;
static const uint64_t fresh_ns = 1 * SECOND; /* less than the shortest suspicion: nobody dead for that long was heard since */

static uint64_t from_seconds(double s)
{
    return (uint64_t)(s * 1e9);
}

static uint64_t timeout_ns(const struct cluster *c, const struct member *m)
{
    uint64_t base = timeout_unknown_ns;
    if (m->rtt_s > 0)
        base = from_seconds(m->rtt_s + 4 * m->rtt_deviation_s);
    if (base < timeout_floor_ns)
        base = timeout_floor_ns;
    return base * (1 + c->local_health);
}

static void health_change(struct cluster *c, int by)
{
    int score = (int)c->local_health + by;
    c->local_health = (uint32_t)(score < 0 ? 0 : score > HEALTH_MAX ? HEALTH_MAX : score);
}

static struct probe *open_probe(struct cluster *c, uint64_t boot_id, uint64_t now_ns, uint64_t deadline_ns)
{
    struct probe *slot = NULL;
    for (int i = 0; i < PROBES_MAX; i++)
        if (!c->probes[i].open)
            slot = &c->probes[i];
    if (slot)
        *slot = (struct probe){
            .open = true, .number = ++c->probe_number, .sent_ns = now_ns, .deadline_ns = deadline_ns, .boot_id = boot_id};
    return slot;
}

static int send_probe(struct cluster *c, struct member *to, enum wire_kind kind, uint64_t number, uint64_t target_boot_id)
{
    uint8_t buffer[DATAGRAM_MAX];
    struct writer w;
    writer_init(&w, buffer, cluster_datagram_bytes(c));
    wire_begin_probe(&w, kind, number, target_boot_id);
    if (kind != WIRE_NACK)
        spread_append(c, to, &w);
    return cluster_send(c, to, &w, TRANSPORT_UNRELIABLE);
}

static void ask_helpers(struct cluster *c, struct probe *probe, const struct member *target, uint64_t now_ns)
{
    probe->indirect = true;
    uint64_t wait = 2 * timeout_ns(c, target);
    uint32_t start = c->n_members ? (uint32_t)rng_below(&c->rng, c->n_members) : 0;
    for (uint32_t i = 0; i < c->n_members && probe->helpers < HELPERS; i++) {
        struct member *m = c->members[(start + i) % c->n_members];
        if (m == target || !m->up || m->state != CLUSTER_PEER_ALIVE)
            continue;
        if (send_probe(c, m, WIRE_PING_REQUEST, probe->number, probe->boot_id) == 0) {
            probe->helpers++;
            uint64_t over_m = from_seconds(m->rtt_s) + wait;
            if (over_m > wait)
                wait = over_m;
        }
    }
    probe->deadline_ns = now_ns + (probe->helpers ? wait : 0);
}

void swim_probe(struct cluster *c, struct member *m, uint64_t now_ns)
{
    struct probe *probe = open_probe(c, m->boot_id, now_ns, now_ns + timeout_ns(c, m));
    if (probe && (!m->up || send_probe(c, m, WIRE_PING, probe->number, 0) != 0))
        ask_helpers(c, probe, m, now_ns);
}

/* Bounds of a suspicion's life; Lifeguard's formula brings it from the longer to the shorter as confirmations come. */
static uint64_t suspicion_ns(const struct cluster *c, const struct member *m)
{
    uint32_t n = members_live(c) + 1;
    double scale = log10(n) > 1 ? log10(n) : 1;
    double shortest = SUSPICION_ALPHA * scale * (double)probe_interval_ns + 3e9 * m->rtt_s;
    uint32_t expected = n > 2 ? n - 2 : 0;
    if (expected > CONFIRMATIONS)
        expected = CONFIRMATIONS;
    if (!expected)
        return (uint64_t)shortest * SUSPICION_BETA;
    double share = log((double)m->confirmations + 1) / log((double)expected + 1);
    double longest = SUSPICION_BETA * shortest;
    double now = longest - (longest - shortest) * (share < 1 ? share : 1);
    return (uint64_t)now;
}

static bool confirm(struct member *m, uint64_t accuser_boot_id)
{
    for (uint32_t i = 0; i < m->confirmations; i++)
        if (m->confirmed_by[i] == accuser_boot_id)
            return false;
    if (m->confirmations == CONFIRMATIONS)
        return false;
    m->confirmed_by[m->confirmations++] = accuser_boot_id;
    return true;
}

void swim_suspect(struct cluster *c, struct member *m, uint64_t accuser_boot_id, uint64_t now_ns)
{
    if (m->state != CLUSTER_PEER_SUSPECT) {
        member_set_state(c, m, CLUSTER_PEER_SUSPECT, m->incarnation, now_ns);
        counter_add(c->count.suspicions, 1);
        m->confirmations = 0;
        m->accuser_boot_id = accuser_boot_id;
        m->suspect_until_ns = now_ns + suspicion_ns(c, m);
    } else if (accuser_boot_id != m->accuser_boot_id && confirm(m, accuser_boot_id)) {
        m->transmits = 0; /* a new independent suspicion is worth passing on again */
        m->suspect_until_ns = m->state_since_ns + suspicion_ns(c, m);
    }
}

static void probe_failed(struct cluster *c, struct probe *probe, uint64_t now_ns)
{
    struct member *m = member_by_boot(c, probe->boot_id);
    probe->open = false;
    if (probe->for_number) {
        struct member *asker = member_by_peer(c, probe->for_peer);
        if (asker)
            send_probe(c, asker, WIRE_NACK, probe->for_number, 0);
        return;
    }
    /* Helpers that did not even say "no" suggest that it is us who are slow or cut off. */
    if (probe->helpers > probe->nacks)
        health_change(c, (int)(probe->helpers - probe->nacks));
    else if (!probe->helpers)
        health_change(c, 1);
    if (m && (m->state == CLUSTER_PEER_ALIVE || m->state == CLUSTER_PEER_SUSPECT)) {
        swim_suspect(c, m, c->info.boot_id, now_ns);
        if (m->up)
            send_probe(c, m, WIRE_PING, ++c->probe_number, 0); /* carries the news to it: a live one refutes at once */
    }
}

static void expire_probes(struct cluster *c, uint64_t now_ns)
{
    for (int i = 0; i < PROBES_MAX; i++) {
        struct probe *probe = &c->probes[i];
        if (!probe->open || now_ns < probe->deadline_ns)
            continue;
        struct member *m = member_by_boot(c, probe->boot_id);
        if (!probe->for_number && !probe->indirect && m)
            ask_helpers(c, probe, m, now_ns);
        if (now_ns >= probe->deadline_ns)
            probe_failed(c, probe, now_ns);
    }
}

static void measure_rtt(struct member *m, uint64_t rtt_ns)
{
    double sample = (double)(rtt_ns ? rtt_ns : 1) / 1e9;
    if (m->rtt_s == 0) { /* RFC 6298, section 2 */
        m->rtt_s = sample;
        m->rtt_deviation_s = sample / 2;
        return;
    }
    double off = sample > m->rtt_s ? sample - m->rtt_s : m->rtt_s - sample;
    m->rtt_deviation_s += (off - m->rtt_deviation_s) / 4;
    m->rtt_s += (sample - m->rtt_s) / 8;
}

static void on_ack(struct cluster *c, struct member *from, const struct wire_probe *ack, uint64_t now_ns)
{
    for (int i = 0; i < PROBES_MAX; i++) {
        struct probe *probe = &c->probes[i];
        if (!probe->open || probe->number != ack->number)
            continue;
        probe->open = false;
        if (from->boot_id == probe->boot_id)
            measure_rtt(from, now_ns - probe->sent_ns);
        struct member *asker = probe->for_number ? member_by_peer(c, probe->for_peer) : NULL;
        if (asker)
            send_probe(c, asker, WIRE_ACK, probe->for_number, 0);
        else
            health_change(c, -1);
        return;
    }
}

static void on_ping_request(struct cluster *c, struct member *from, const struct wire_probe *request, uint64_t now_ns)
{
    struct member *target = member_by_boot(c, request->target_boot_id);
    struct probe *probe = target && target->up ? open_probe(c, target->boot_id, now_ns, now_ns + timeout_ns(c, target)) : NULL;
    if (!probe) {
        send_probe(c, from, WIRE_NACK, request->number, 0);
        return;
    }
    probe->for_number = request->number;
    probe->for_peer = from->peer;
    send_probe(c, target, WIRE_PING, probe->number, 0);
}

/* Tells it what it is held to be, which it refutes. */
static void tell(struct cluster *c, struct member *m, uint64_t now_ns)
{
    if (now_ns - m->told_ns < tell_again_ns)
        return;
    m->told_ns = now_ns;
    if (m->up)
        send_probe(c, m, WIRE_PING, ++c->probe_number, 0);
    else
        member_call(c, m);
}

void swim_heard(struct cluster *c, struct member *from, uint64_t now_ns)
{
    from->heard_ns = now_ns;
    if (from->state == CLUSTER_PEER_DEAD || from->state == CLUSTER_PEER_SUSPECT)
        tell(c, from, now_ns);
}

void swim_call_the_dead(struct cluster *c, uint64_t now_ns)
{
    for (uint32_t i = 0; i < c->n_members; i++)
        if (c->members[i]->state == CLUSTER_PEER_DEAD)
            tell(c, c->members[i], now_ns);
}

/*
 * After a partition each side has buried the other and says so: a member that we have heard from since is only suspected, and told.
 * Else its replica and what it computes for us would be lost for nothing.
 */
void swim_hear_of_death(struct cluster *c, struct member *m, uint64_t accuser_boot_id, uint32_t incarnation, uint64_t now_ns)
{
    if (!m->up || now_ns - m->heard_ns >= fresh_ns) {
        member_set_state(c, m, CLUSTER_PEER_DEAD, incarnation, now_ns);
        return;
    }
    m->incarnation = incarnation;
    swim_suspect(c, m, accuser_boot_id, now_ns);
    send_probe(c, m, WIRE_PING, ++c->probe_number, 0);
}

void swim_on_probe(struct cluster *c, struct member *from, const struct wire_message *message, uint64_t now_ns)
{
    if (message->kind != WIRE_NACK)
        spread_apply(c, from, message->probe.members, now_ns);
    switch (message->kind) {
    case WIRE_PING:
        send_probe(c, from, WIRE_ACK, message->probe.number, 0);
        break;
    case WIRE_PING_REQUEST:
        on_ping_request(c, from, &message->probe, now_ns);
        break;
    case WIRE_ACK:
        on_ack(c, from, &message->probe, now_ns);
        break;
    default:
        for (int i = 0; i < PROBES_MAX; i++)
            if (c->probes[i].open && c->probes[i].number == message->probe.number)
                c->probes[i].nacks++;
        break;
    }
}

/* Every member once in random order, then anew: the time to first detection is bounded (SWIM, section 4.3). */
static struct member *next_target(struct cluster *c)
{
    for (uint32_t tries = 0; tries <= c->n_members; tries++) {
        if (c->probe_at >= c->n_probe_order) {
            uint32_t *order = realloc(c->probe_order, (c->n_members + 1) * sizeof *order);
            if (!order)
                return NULL;
            c->probe_order = order;
            c->n_probe_order = c->n_members;
            c->probe_at = 0;
            for (uint32_t i = 0; i < c->n_members; i++) {
                uint32_t j = (uint32_t)rng_below(&c->rng, i + 1);
                order[i] = order[j];
                order[j] = c->members[i]->peer;
            }
            if (!c->n_probe_order)
                return NULL;
        }
        struct member *m = member_by_peer(c, c->probe_order[c->probe_at++]);
        if (m && (m->state == CLUSTER_PEER_ALIVE || m->state == CLUSTER_PEER_SUSPECT))
            return m;
    }
    return NULL;
}

static struct member *random_member(struct cluster *c)
{
    uint32_t start = c->n_members ? (uint32_t)rng_below(&c->rng, c->n_members) : 0;
    for (uint32_t i = 0; i < c->n_members; i++) {
        struct member *m = c->members[(start + i) % c->n_members];
        if (m->up && m->boot_id && m->state != CLUSTER_PEER_DEAD && m->state != CLUSTER_PEER_LEFT)
            return m;
    }
    return NULL;
}

static bool is_cut_off(const struct member *m)
{
    return m->up && m->state == CLUSTER_PEER_DEAD;
}

/* One of those that are dead to us, though the transport has not given them up, per interval and in turn. */
static void revive_in_turn(struct cluster *c, uint64_t now_ns)
{
    for (uint32_t n = 1; n <= c->n_members; n++) {
        uint32_t i = (c->revive_at + n) % c->n_members;
        if (!is_cut_off(c->members[i]))
            continue;
        c->revive_at = i;
        c->next_revive_ns = now_ns + revive_interval_ns;
        tell(c, c->members[i], now_ns);
        return;
    }
}

static void expire_suspicions(struct cluster *c, uint64_t now_ns)
{
    for (uint32_t i = 0; i < c->n_members; i++) {
        struct member *m = c->members[i];
        if (m->state == CLUSTER_PEER_SUSPECT && now_ns >= m->suspect_until_ns)
            member_set_state(c, m, CLUSTER_PEER_DEAD, m->incarnation, now_ns);
    }
}

void swim_step(struct cluster *c, uint64_t now_ns)
{
    expire_probes(c, now_ns);
    expire_suspicions(c, now_ns);
    if (now_ns >= c->next_probe_ns) {
        c->next_probe_ns = now_ns + probe_interval_ns * (1 + c->local_health);
        struct member *m = next_target(c);
        if (m)
            swim_probe(c, m, now_ns);
        for (uint32_t i = 0; i < c->n_members; i++) /* the transport was busy when they came up */
            if (c->members[i]->up && !c->members[i]->hello_ns)
                spread_hello(c, c->members[i], now_ns);
        members_reap(c, now_ns);
    }
    if (now_ns >= c->next_revive_ns)
        revive_in_turn(c, now_ns); /* the transport does so with those that are down */
    if (now_ns >= c->next_sync_ns) {
        c->next_sync_ns = now_ns + sync_interval_ns;
        struct member *m = random_member(c);
        if (m)
            spread_hello(c, m, now_ns);
    }
}

uint64_t swim_next(const struct cluster *c)
{
    uint64_t next = c->next_probe_ns < c->next_sync_ns ? c->next_probe_ns : c->next_sync_ns;
    for (int i = 0; i < PROBES_MAX; i++)
        if (c->probes[i].open && c->probes[i].deadline_ns < next)
            next = c->probes[i].deadline_ns;
    for (uint32_t i = 0; i < c->n_members; i++) {
        const struct member *m = c->members[i];
        if (m->state == CLUSTER_PEER_SUSPECT && m->suspect_until_ns < next)
            next = m->suspect_until_ns;
        if (is_cut_off(m) && c->next_revive_ns < next)
            next = c->next_revive_ns;
    }
    return next;
}

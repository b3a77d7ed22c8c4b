#include <math.h>

#include "core/cluster/internal.h"

static const double blame_half_life_s = 10, blame_max = 8;

static struct booking *find(struct cluster *c, uint64_t id)
{
    for (uint32_t i = 0; i < c->books.n_bookings; i++)
        if (c->books.bookings[i].id == id)
            return &c->books.bookings[i];
    return NULL;
}

void books_open(struct cluster *c, struct route_ticket *ticket, uint64_t boot_id)
{
    do
        ticket->intent_id = rng_u64(&c->rng);
    while (!ticket->intent_id);
    c->books.typical_tokens += (ticket->uncached_tokens - c->books.typical_tokens) / 16;
    if (c->books.n_bookings == BOOKINGS_MAX) {
        limit_hit(c->count.limits[CLUSTER_LIMIT_BOOKINGS], 1);
        return;
    }
    c->books.bookings[c->books.n_bookings++] = (struct booking){.id = ticket->intent_id,
                                                                .boot_id = boot_id,
                                                                .decided_ns = ticket->decided_ns,
                                                                .load_version = c->load_version,
                                                                .uncached_tokens = ticket->uncached_tokens};
}

static uint64_t rtt_ns(const struct member *m)
{
    return (uint64_t)(m->rtt_s * 1e9);
}

static struct outlook *outlook_of(struct cluster *c, struct member *m)
{
    return m ? &m->outlook : &c->books.self;
}

static void look_at_booking(struct cluster *c, const struct booking *booking)
{
    struct member *m = booking->boot_id == c->info.boot_id ? NULL : member_by_boot(c, booking->boot_id);
    if (!m && booking->boot_id != c->info.boot_id)
        return;
    outlook_of(c, m)->booked_requests++;
    /* The request takes half a round trip to get there, and so does the load to come here. */
    bool is_seen = m ? booking->decided_ns + rtt_ns(m) < m->header_ns : booking->load_version < c->load_version;
    if (is_seen)
        return;
    outlook_of(c, m)->unseen_tokens += booking->uncached_tokens;
    outlook_of(c, m)->unseen_requests++;
}

static void look_at_foreign_intent(struct cluster *c, const struct intent *intent, uint64_t now_ns)
{
    struct member *m = member_by_boot(c, intent->target_boot_id);
    if (!m || intent->expires_ns <= now_ns || intent->heard_ns + rtt_ns(m) < m->header_ns)
        return;
    m->outlook.unseen_tokens += intent->uncached_tokens;
    m->outlook.unseen_requests++;
}

/* A node that has measured nothing yet is taken for an average one: a fixed guess would look fast beside nodes that are truly
 * measured under load. */
static void look_at_rates(struct cluster *c)
{
    double rates = c->load.prefill_tokens_per_s, steps = c->load.decode_step_s;
    uint32_t n_rates = rates > 0, n_steps = steps > 0;
    for (uint32_t i = 0; i < c->n_members; i++) {
        const struct member *m = c->members[i];
        if (!member_is_routable(c, m))
            continue;
        rates += m->header.load.prefill_tokens_per_s;
        n_rates += m->header.load.prefill_tokens_per_s > 0;
        steps += m->header.load.decode_step_s;
        n_steps += m->header.load.decode_step_s > 0;
    }
    c->books.group_prefill_tokens_per_s = n_rates ? rates / n_rates : 0;
    c->books.group_decode_step_s = n_steps ? steps / n_steps : 0;
}

/* Members stand far apart in memory: without this every one of their lines would be waited for in turn. */
static void fetch_ahead(const struct cluster *c)
{
    for (uint32_t i = 0; i < c->n_members; i++)
        for (size_t at = 0; at < MEMBER_HOT_BYTES; at += 64)
            __builtin_prefetch((const char *)c->members[i] + at);
}

static void look_at_replicas(struct cluster *c, const struct route_query *query)
{
    enum { AT_ONCE = 64 };
    for (uint32_t first = 0; first < c->n_members; first += AT_ONCE) {
        const struct block_set *sets[AT_ONCE];
        uint32_t matches[AT_ONCE], n = c->n_members - first < AT_ONCE ? c->n_members - first : AT_ONCE;
        for (uint32_t i = 0; i < n; i++)
            sets[i] = c->members[first + i]->replica.set;
        block_set_match_each(sets, n, query->blocks, query->n_blocks, matches);
        for (uint32_t i = 0; i < n; i++)
            c->members[first + i]->outlook = (struct outlook){.held_blocks = matches[i]};
    }
}

void books_look(struct cluster *c, const struct route_query *query, uint64_t now_ns)
{
    fetch_ahead(c);
    c->books.self = (struct outlook){0};
    look_at_replicas(c, query);
    for (uint32_t i = 0; i < c->books.n_bookings; i++)
        look_at_booking(c, &c->books.bookings[i]);
    for (int i = 0; i < INTENTS_MAX; i++)
        if (c->books.intents[i].id && !c->books.intents[i].ours)
            look_at_foreign_intent(c, &c->books.intents[i], now_ns);
    intents_look(c, query, now_ns);
    look_at_rates(c);
}

double books_blame(const struct member *m, uint64_t now_ns)
{
    if (m->blame == 0)
        return 0;
    return m->blame * exp2(-(double)(now_ns - m->blame_ns) / 1e9 / blame_half_life_s);
}

void cluster_route_started(struct cluster *c, struct route_ticket *ticket, const struct route_query *query, uint32_t cached_tokens)
{
    if (!ticket->open)
        return;
    uint64_t now_ns = env_now_ns(c->env);
    struct member *m = ticket->peer == ROUTE_SELF ? NULL : member_by_peer(c, ticket->peer);
    if (m) {
        uint32_t held = cached_tokens / c->config.page_tokens, told = ticket->estimated_cached_tokens / c->config.page_tokens;
        uint32_t n = held > told ? held : told;
        n = n < query->n_blocks ? n : query->n_blocks;
        replica_correct(&m->replica, query->blocks, n, held < n ? held : n);
    }
    uint32_t uncached = query->n_tokens > cached_tokens ? query->n_tokens - cached_tokens : 0;
    intent_restart(c, ticket->intent_id, uncached / cost_prefill_rate(c, m), now_ns);
}

static void observe(struct cluster *c, const struct route_ticket *ticket, uint64_t now_ns)
{
    double predicted = (double)ticket->predicted_ns / 1e9;
    double actual = (double)(now_ns - ticket->decided_ns) / 1e9;
    histogram_observe(c->count.predicted, predicted);
    histogram_observe(c->count.actual, actual);
    histogram_observe(c->count.miss, fabs(predicted - actual));
}

static void add_blame(struct member *m, uint64_t now_ns)
{
    double blame = books_blame(m, now_ns) + 1;
    m->blame = blame < blame_max ? blame : blame_max;
    m->blame_ns = now_ns;
}

static void judge(struct cluster *c, struct member *m, enum route_outcome outcome, uint32_t refused_depth, uint64_t now_ns)
{
    switch (outcome) {
    case ROUTE_FAILED:
        add_blame(m, now_ns);
        break;
    case ROUTE_REFUSED: /* holds until its next header */
        m->header.load.waiting = refused_depth;
        m->header.load.push_back = true;
        break;
    case ROUTE_DONE:
        m->blame = books_blame(m, now_ns) / 2;
        m->blame_ns = now_ns;
        break;
    default:
        break;
    }
}

void cluster_route_finished(struct cluster *c, struct route_ticket *ticket, enum route_outcome outcome, uint32_t refused_depth)
{
    if (!ticket->open)
        return;
    ticket->open = false;
    uint64_t now_ns = env_now_ns(c->env);
    struct booking *booking = find(c, ticket->intent_id);
    struct member *m = ticket->peer == ROUTE_SELF ? NULL : member_by_peer(c, ticket->peer);
    bool same_process = m && (!booking || booking->boot_id == m->boot_id);
    if (booking)
        *booking = c->books.bookings[--c->books.n_bookings];
    if (same_process && m->in_flight)
        m->in_flight--;
    if (same_process)
        judge(c, m, outcome, refused_depth, now_ns);
    counter_add(c->count.outcomes[outcome], 1);
    if (outcome == ROUTE_DONE)
        observe(c, ticket, now_ns);
    else
        intent_revoke(c, ticket->intent_id);
}

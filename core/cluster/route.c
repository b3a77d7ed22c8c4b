/*
 * The choice. Candidates are ourselves and every eligible peer; each has a predicted completion (cost.c), and a peer must beat the
 * rest by its margin too. Four rules stand above the plain minimum.
 *
 * Cold heads. If nobody holds or is promised a fair part of the head, or a long rest is new to all, the request goes to the first
 * node in rendezvous order (Thaler & Ravishankar 1998) of the head's name that is not overloaded against the best (bounded load,
 * Mirrokni et al. 2018), so entries agree without talking. Only among nodes that are near, that is where the link costs a small
 * share of the prefill: over slow links agreeing is not worth it.
 *
 * Copies. While a head is being computed, the rest of its prefill counts as wait there. A second node may start it too only where
 * that wins by a whole prefill (or the head is finished somewhere and its holders' queues cost more than a prefill), it is the
 * next in rendezvous order, and at most two compute it at a time: heads spread from one node to two, then on, never to all at once.
 * Where queues are shorter than a prefill, the next in order gets a copy once its absence has cost as much as one (regret.c).
 *
 * Rent. A remote answer pays the link again with every later request of the same head, a local one pays the prefill once. So a
 * remote candidate is charged the link for the repetitions to be expected and for those already paid (as in ski rental, Karlin et
 * al. 1988): over slow links a head that keeps coming is soon computed here, and one that came once is not.
 *
 * Home. A node that is idle and knows as much of the prompt as anyone computes by itself, unless the first rule applies: a long
 * rest that is new to all may be new to other entries at the same moment, and meeting costs at most a twentieth of its prefill.
 */
#include <stdlib.h>
#include <string.h>

#include "core/cluster/internal.h"

enum { HEAD_BLOCKS = 16, COLD_BLOCKS_MIN = 8, COLD_REST_BLOCKS = 32, ANNOUNCE_BLOCKS = 4, COPIES_IN_PROGRESS = 2 };

static const double near_share = 0.05;         /* link cost over prefill, below which a node is near */
static const double bounded_load_slack = 0.25; /* of a prefill, above the best node's completion */
static const double tie_s = 0.001, tie_share = 0.01;
static const double repeats_max = 4;
static const double ramp_s = 10, fresh_group_s = 5;
static const double blame_limit = 0.7;

struct decision {
    const struct candidate *choice;
    enum route_reason reason;
};

static bool is_excluded(const struct route_query *query, uint32_t peer)
{
    for (uint32_t i = 0; i < query->n_exclude; i++)
        if (query->exclude[i] == peer)
            return true;
    return false;
}

/* A node that joined a running group gets few requests at first; in a group that has just started everyone is new. */
static bool is_ramped(const struct cluster *c, const struct member *m, uint64_t now_ns)
{
    bool joined_later = m->joined_ns > c->started_ns + (uint64_t)(fresh_group_s * 1e9);
    double age_s = (double)(now_ns - m->joined_ns) / 1e9;
    return !joined_later || age_s > ramp_s || m->in_flight < 1 + (uint32_t)age_s;
}

static bool is_eligible(const struct cluster *c, const struct member *m, const struct route_query *query, uint64_t now_ns)
{
    return member_is_routable(c, m) && !m->header.load.push_back && !m->header.load.draining &&
           books_blame(m, now_ns) < blame_limit && is_ramped(c, m, now_ns) && !is_excluded(query, m->peer);
}

static uint32_t gather(struct cluster *c, const struct route_query *query, uint64_t now_ns)
{
    struct books *books = &c->books;
    if (books->cap_candidates < c->n_members + 1) { /* grows with the group, not with requests */
        struct candidate *grown = realloc(books->candidates, (c->n_members + 1) * sizeof *grown);
        if (!grown && !books->candidates)
            return 0;
        if (grown) {
            books->candidates = grown;
            books->cap_candidates = c->n_members + 1;
        }
    }
    books_look(c, query, now_ns);
    uint32_t n = 0;
    if (!is_excluded(query, ROUTE_SELF))
        cost_predict(c, NULL, query, now_ns, &books->candidates[n++]);
    for (uint32_t i = 0; c->config.mode != ROUTE_NONE && i < c->n_members && n < books->cap_candidates; i++)
        if (is_eligible(c, c->members[i], query, now_ns))
            cost_predict(c, c->members[i], query, now_ns, &books->candidates[n++]);
    return n;
}

static uint64_t boot_of(const struct cluster *c, const struct candidate *at)
{
    return at->member ? at->member->boot_id : c->info.boot_id;
}

static uint64_t mix(uint64_t x)
{
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

/* The head's name: a block deep enough that prompts which merely begin alike (a chat template's first words) differ in it. With
 * `known` blocks known already it is the next in a fixed row of depths, so that entries with slightly different knowledge still
 * agree. */
static uint64_t head_beyond(const struct route_query *query, uint32_t known)
{
    uint32_t depth = HEAD_BLOCKS;
    while (depth <= known)
        depth *= 2;
    return query->blocks[(query->n_blocks < depth ? query->n_blocks : depth) - 1];
}

static uint64_t head_of(const struct route_query *query)
{
    return head_beyond(query, 0);
}

static uint64_t rank(const struct cluster *c, const struct candidate *at, uint64_t head)
{
    return mix(head ^ mix(boot_of(c, at)));
}

static bool has_head(const struct route_query *query)
{
    return query->n_blocks >= COLD_BLOCKS_MIN;
}

/* What staying remote has cost for this head and will cost, per second of link delay and in seconds. */
struct rent {
    double repeats, paid_s;
};

static struct rent rent_of(const struct cluster *c, const struct route_query *query)
{
    if (!has_head(query))
        return (struct rent){0};
    const struct head_seen *seen = &c->books.heads[head_of(query) % HEADS_MAX];
    double share = c->books.repeat_share;
    double repeats = share < 1 ? share / (1 - share) : repeats_max;
    return (struct rent){repeats < repeats_max ? repeats : repeats_max, seen->head == head_of(query) ? seen->paid_s : 0};
}

static void note_head(struct cluster *c, const struct route_query *query, const struct candidate *choice)
{
    if (!has_head(query))
        return;
    struct head_seen *seen = &c->books.heads[head_of(query) % HEADS_MAX];
    bool known = seen->head == head_of(query);
    c->books.repeat_share += (known - c->books.repeat_share) / 32;
    if (!known)
        *seen = (struct head_seen){.head = head_of(query)};
    seen->paid_s = choice->member ? seen->paid_s + choice->delay_s : 0;
}

static double score(const struct candidate *at)
{
    return at->total_s + at->margin_s;
}

static uint32_t longest_match(const struct candidate *all, uint32_t n)
{
    uint32_t longest = 0;
    for (uint32_t i = 0; i < n; i++)
        if (all[i].match_blocks > longest)
            longest = all[i].match_blocks;
    return longest;
}

static bool is_near(const struct candidate *at, double prefill_s)
{
    return !at->member || at->link_s <= near_share * prefill_s;
}

/* First in rendezvous order among those near and not overloaded; NULL: nobody but ourselves is near. */
static const struct candidate *choose_cold(const struct cluster *c, const struct candidate *all, uint32_t n, uint64_t head)
{
    double best = 1e300;
    uint32_t near = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (!is_near(&all[i], all[i].prefill_s))
            continue;
        near++;
        if (all[i].total_s < best)
            best = all[i].total_s;
    }
    if (near < 2)
        return NULL;
    const struct candidate *first = NULL;
    for (uint32_t i = 0; i < n; i++) {
        bool fits = is_near(&all[i], all[i].prefill_s) && all[i].total_s <= best + bounded_load_slack * all[i].prefill_s;
        if (fits && (!first || rank(c, &all[i], head) > rank(c, first, head)))
            first = &all[i];
    }
    return first;
}

/* How the longest match stands: where it is complete, where it is being computed, and over which link. */
struct spread {
    uint32_t longest, in_progress, complete;
    double link_s; /* of the nearest node that is computing it */
};

static bool holds(const struct candidate *at, uint32_t longest)
{
    return at->match_blocks >= longest - longest / 4;
}

static struct spread survey(const struct candidate *all, uint32_t n)
{
    struct spread s = {.longest = longest_match(all, n), .link_s = 1e300};
    for (uint32_t i = 0; s.longest && i < n; i++) {
        if (!holds(&all[i], s.longest))
            continue;
        bool waits = all[i].in_progress && all[i].held_blocks < s.longest - s.longest / 4;
        s.in_progress += waits;
        s.complete += !waits;
        if (waits && all[i].link_s < s.link_s)
            s.link_s = all[i].link_s;
    }
    return s;
}

static double seconds_to_copy(const struct candidate *at, const struct spread *s, uint32_t page_tokens,
                              const struct route_query *query)
{
    double token_s = query->n_tokens ? at->full_prefill_s / query->n_tokens : 0;
    return (double)(s->longest - at->match_blocks) * page_tokens * token_s;
}

/* Whether a node that lacks the match may compute it again, and what the repetition costs the group. */
static bool may_copy(const struct candidate *at, const struct candidate *next, const struct spread *s, uint32_t page_tokens,
                     const struct route_query *query, double *penalty_s)
{
    *penalty_s = 0;
    double again_s = seconds_to_copy(at, s, page_tokens, query);
    if (!s->in_progress || s->link_s > near_share * again_s)
        return true; /* nobody is at it, or too far away to be waited for */
    if (s->in_progress >= COPIES_IN_PROGRESS || at != next)
        return false;
    *penalty_s = s->complete ? 0 : again_s;
    return true;
}

static bool is_tie(double a, double b)
{
    double off = a > b ? a - b : b - a;
    return off <= tie_s || off <= tie_share * (a < b ? a : b);
}

/* Of equals: ourselves, else any, by our own dice, so that entries do not all fall on the same one. */
static const struct candidate *break_tie(struct cluster *c, const struct candidate *all, uint32_t n, double best)
{
    const struct candidate *choice = NULL;
    uint32_t equals = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (all[i].score_s >= 1e299 || !is_tie(all[i].score_s, best))
            continue;
        if (!all[i].member)
            return &all[i];
        if (rng_below(&c->rng, ++equals) == 0)
            choice = &all[i];
    }
    return choice;
}

static const struct candidate *choose_lowest(struct cluster *c, const struct route_query *query, struct candidate *all, uint32_t n,
                                             const struct spread *s, uint64_t now_ns)
{
    const struct candidate *next = NULL; /* whose turn a further copy is */
    for (uint32_t i = 0; s->longest && i < n; i++)
        if (!holds(&all[i], s->longest) && (!next || rank(c, &all[i], head_of(query)) > rank(c, next, head_of(query))))
            next = &all[i];
    uint32_t head_blocks = s->longest > HEAD_BLOCKS ? s->longest : query->n_blocks < HEAD_BLOCKS ? query->n_blocks : HEAD_BLOCKS;
    bool lacks_here = !all[0].member && all[0].match_blocks < head_blocks; /* computing here would leave a copy here */
    struct rent rent = lacks_here ? rent_of(c, query) : (struct rent){0};
    double best = 1e300;
    for (uint32_t i = 0; i < n; i++) {
        double penalty_s = 0;
        bool allowed =
            !s->longest || holds(&all[i], s->longest) || may_copy(&all[i], next, s, c->config.page_tokens, query, &penalty_s);
        all[i].score_s = allowed ? score(&all[i]) + penalty_s : 1e300;
        if (all[i].member)
            all[i].score_s += rent.repeats * all[i].delay_s + rent.paid_s;
        if (all[i].score_s < best)
            best = all[i].score_s;
    }
    const struct candidate *choice = break_tie(c, all, n, best);
    bool may_regret = has_head(query) && next && !s->in_progress && holds(choice, s->longest);
    if (may_regret && regret_is_due(c, query->blocks[s->longest - 1], choice, next, boot_of(c, next),
                                    seconds_to_copy(next, s, c->config.page_tokens, query), n, now_ns))
        return next;
    return choice;
}

static enum route_reason reason_for(const struct candidate *choice, uint32_t longest, uint32_t n, const struct route_query *query)
{
    if (query->n_exclude)
        return ROUTE_REASON_FALLBACK;
    if (n == 1 && !choice->member)
        return ROUTE_REASON_LOCAL_ONLY;
    if (longest && choice->match_blocks >= longest - longest / 4)
        return ROUTE_REASON_CACHED;
    return longest ? ROUTE_REASON_HOT_COPY : ROUTE_REASON_IDLE;
}

static struct decision decide_cost(struct cluster *c, const struct route_query *query, struct candidate *all, uint32_t n,
                                   uint64_t now_ns)
{
    struct spread s = survey(all, n);
    struct candidate *self = all[0].member ? NULL : &all[0];
    uint32_t head = query->n_blocks < HEAD_BLOCKS ? query->n_blocks : HEAD_BLOCKS;
    bool is_cold = has_head(query) && (s.longest < head / 2 || query->n_blocks - s.longest >= COLD_REST_BLOCKS);
    const struct candidate *choice = is_cold ? choose_cold(c, all, n, head_beyond(query, s.longest)) : NULL;
    if (choice)
        return (struct decision){choice, query->n_exclude ? ROUTE_REASON_FALLBACK : ROUTE_REASON_COLD_HASH};
    if (self && self->idle && self->held_blocks >= s.longest)
        return (struct decision){self, reason_for(self, s.longest, n, query)};
    choice = choose_lowest(c, query, all, n, &s, now_ns);
    return (struct decision){choice, reason_for(choice, s.longest, n, query)};
}

/* The published scheme: longest estimated match among peers that are not pushed back, else ourselves. */
static struct decision decide_longest(struct cluster *c, const struct route_query *query, struct candidate *all, uint32_t n)
{
    const struct candidate *choice = NULL;
    uint32_t longest = 0;
    for (uint32_t i = 0; i < n; i++) {
        struct member *m = all[i].member;
        bool pushed_back = m && c->config.push_back_depth && m->header.load.waiting >= c->config.push_back_depth;
        bool better = !choice || all[i].held_blocks > longest ||
                      (all[i].held_blocks == longest && choice->member && m && score(&all[i]) < score(choice));
        if (pushed_back || !better)
            continue;
        choice = &all[i];
        longest = all[i].held_blocks;
    }
    if (!choice)
        return (struct decision){NULL, ROUTE_REASON_FALLBACK};
    return (struct decision){choice, reason_for(choice, longest, n, query)};
}

static void book(struct cluster *c, const struct route_query *query, const struct decision *decision, struct route_ticket *ticket,
                 uint64_t now_ns)
{
    const struct candidate *choice = decision->choice;
    *ticket = (struct route_ticket){
        .peer = choice->member ? choice->member->peer : ROUTE_SELF,
        .reason = decision->reason,
        .predicted_ns = (uint64_t)(choice->total_s * 1e9),
        .estimated_cached_tokens = choice->cached_tokens,
        .uncached_tokens = query->n_tokens - choice->cached_tokens,
        .expected_output_tokens = query->expected_output_tokens,
        .decided_ns = now_ns,
        .open = true,
    };
    books_open(c, ticket, boot_of(c, choice));
    note_head(c, query, choice);
    if (choice->member)
        choice->member->in_flight++;
    counter_add(c->count.reasons[choice->member != NULL][decision->reason], 1);
    bool is_news = query->n_blocks >= choice->match_blocks + ANNOUNCE_BLOCKS;
    if (is_news && c->config.mode == ROUTE_COST && c->n_members)
        intent_announce(c, query, ticket, boot_of(c, choice), choice->wait_s + choice->prefill_s + choice->delay_s / 2, now_ns);
}

int cluster_route(struct cluster *c, const struct route_query *query, struct route_ticket *ticket)
{
    uint64_t now_ns = env_now_ns(c->env);
    uint32_t n = gather(c, query, now_ns);
    if (!n)
        return HS_ERR_BUSY;
    struct candidate *all = c->books.candidates;
    struct decision decision =
        c->config.mode == ROUTE_LONGEST ? decide_longest(c, query, all, n) : decide_cost(c, query, all, n, now_ns);
    if (!decision.choice)
        return HS_ERR_BUSY; /* mode longest: all that is left is pushed back */
    book(c, query, &decision, ticket, now_ns);
    return 0;
}

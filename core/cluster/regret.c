/*
 * Copies as ski rental (Karlin et al. 1988): waiting at the holders of a head is rent, a copy buys. What each request would have
 * gained at the next node, had that held the head, adds up until it has come to the price of a copy. It is kept for exactly the
 * blocks that would be copied: conversations that merely begin alike do not pay for each other's histories.
 *
 * Only an idle node counts: there the copy delays nobody, and a group that is busy everywhere needs none to share its work.
 *
 * Every entry sees only its own requests. It takes the others' for as many as the holder's load shows beside its own, and starts
 * again when the turn has passed to another node, since then another entry has made the copy.
 */
#include <math.h>

#include "core/cluster/internal.h"

static const double half_life_s = 30;
/* A header that is just out of date shows the request before this one: a single client never waits for itself. */
static const double requests_min = 2;

static const struct cluster_load *load_of(const struct cluster *c, const struct candidate *at)
{
    return at->member ? &at->member->header.load : &c->load;
}

static const struct outlook *outlook_of(const struct cluster *c, const struct candidate *at)
{
    return at->member ? &at->member->outlook : &c->books.self;
}

/* How many requests come for each that we see, judged by those at one node; no more than there are entries. */
static double entries_share(double requests, uint32_t ours, uint32_t n_candidates)
{
    double share = (requests + 1) / (ours + 1.0);
    return share < 1 ? 1 : share < n_candidates ? share : n_candidates;
}

static struct regret *regret_of(struct cluster *c, uint64_t name, uint64_t boot_id)
{
    struct regret *regret = &c->books.regrets[name % HEADS_MAX];
    if (regret->name != name || regret->boot_id != boot_id)
        *regret = (struct regret){.name = name, .boot_id = boot_id};
    return regret;
}

bool regret_is_due(struct cluster *c, uint64_t name, const struct candidate *best, const struct candidate *next,
                   uint64_t next_boot_id, double copy_s, uint32_t n_candidates, uint64_t now_ns)
{
    const struct cluster_load *load = load_of(c, best);
    const struct outlook *outlook = outlook_of(c, best);
    double requests = (double)load->running + load->waiting + outlook->unseen_requests;
    double gain_s = best->total_s + best->margin_s - (next->total_s + next->margin_s - copy_s);
    if (!next->idle || requests < requests_min || gain_s <= 0)
        return false;
    struct regret *regret = regret_of(c, name, next_boot_id);
    regret->seconds *= exp2(-(double)(now_ns - regret->at_ns) / 1e9 / half_life_s);
    regret->seconds += gain_s * entries_share(requests, outlook->booked_requests, n_candidates);
    regret->at_ns = now_ns;
    if (regret->seconds <= copy_s)
        return false;
    regret->seconds = 0;
    return true;
}

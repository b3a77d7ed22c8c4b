/* What a node believes of another once it is quiet: that it lives, whether it may be asked, and exactly what it advertises. */
#include <stdio.h>

#include "core/cluster/internal.h"
#include "core/serve/node_internal.h"
#include "tests/sim/check.h"

struct count {
    const struct block_set *set;
    uint32_t n_missing;
};

static bool count_missing(void *arg, uint64_t name)
{
    struct count *count = arg;
    count->n_missing += !block_set_has(count->set, name);
    return true;
}

static uint32_t smaller(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

/* A node advertises all of its tree, or as much as it may. */
static bool advertises_all(const struct world_node *other, char *why, size_t size)
{
    const struct cluster *cluster = other->node->cluster;
    struct count count = {.set = advert_set(cluster->advert)};
    struct radix_stats stats;
    radix_stats(other->node->tree, &stats);
    radix_each_block(other->node->tree, count_missing, &count);
    uint32_t n = block_set_len(count.set), most = smaller((uint32_t)stats.pages, cluster->config.max_advertised_blocks);
    if (n == most && count.n_missing == stats.pages - n)
        return true;
    snprintf(why, size, "%s holds %llu blocks and advertises %u, %u of them not", other->name, (unsigned long long)stats.pages, n, count.n_missing);
    return false;
}

static uint32_t names_not_in(const struct block_set *set, const struct block_set *all)
{
    enum { LONGEST_PAGE = 4096 };
    uint64_t names[LONGEST_PAGE];
    uint32_t n_missing = 0;
    for (uint32_t page = 0; page < BLOCK_SET_PAGES; page++) {
        uint32_t n = block_set_page_names(set, page, names, LONGEST_PAGE);
        for (uint32_t i = 0; i < smaller(n, LONGEST_PAGE); i++)
            n_missing += !block_set_has(all, names[i]);
    }
    return n_missing;
}

/* The replica is what is advertised; one that found no room is a part of it, and asks for no more. */
static bool is_true(const struct world_node *wn, const struct world_node *other, const struct replica *replica, char *why, size_t size)
{
    const struct block_set *advertised = advert_set(other->node->cluster->advert);
    uint32_t n = block_set_len(advertised), n_replica = replica_blocks(replica);
    uint32_t n_false = replica->set ? names_not_in(replica->set, advertised) : 0;
    bool room = !wn->world->config.replicas;
    if (!n_false && (n_replica == n || (!room && n_replica < n && !replica_need(replica))))
        return true;
    snprintf(why, size, "%s advertises %u blocks, %s believes %u, %u of them falsely, as of change %llu of %llu with %u pages stale", other->name, n,
             wn->name, n_replica, n_false, (unsigned long long)replica->sequence, (unsigned long long)replica->target, replica->n_stale);
    return false;
}

bool check_believes(struct world_node *wn, struct world_node *other, char *why, size_t size)
{
    const struct cluster *cluster = wn->node->cluster;
    const struct member *m = member_by_boot(cluster, other->node->cluster->info.boot_id);
    if (!m || !m->up || m->state != CLUSTER_PEER_ALIVE || !m->has_header) {
        snprintf(why, size, "%s knows %s as %s, %s", wn->name, other->name, m ? cluster_state_name(m->state) : "nobody",
                 m && m->up ? m->has_header ? "up" : "up but mute" : "down");
        return false;
    }
    if (member_is_routable(cluster, m) != world_same_kind(wn, other)) {
        snprintf(why, size, "%s would%s ask %s", wn->name, member_is_routable(cluster, m) ? "" : " not", other->name);
        return false;
    }
    bool can_be_known = world_same_kind(wn, other) && other->miscount < COUNTS_PROMISES; /* else what it says does not fit together */
    return advertises_all(other, why, size) && (!can_be_known || is_true(wn, other, &m->replica, why, size));
}

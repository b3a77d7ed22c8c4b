/* What a node believes of another once it is quiet: that it lives, whether it may be asked, and exactly what it advertises. */
#include <stdio.h>

#include "core/cluster/internal.h"
#include "core/serve/node_internal.h"
#include "tests/sim/world_internal.h"

struct comparison {
    const struct block_set *advertised;
    const struct replica *replica; /* NULL: just the advertised set against the tree */
    uint32_t n_missing;
};

static bool compare(void *arg, uint64_t name)
{
    struct comparison *c = arg;
    c->n_missing += !block_set_has(c->advertised, name) || (c->replica && !replica_match(c->replica, &name, 1));
    return true;
}

/* The tree, what is advertised of it, and the replica are the same set. */
static bool same_blocks(const struct world_node *other, const struct replica *replica, char *why, size_t size)
{
    struct comparison c = {.advertised = advert_set(other->node->cluster->advert), .replica = replica};
    struct radix_stats stats;
    radix_stats(other->node->tree, &stats);
    radix_each_block(other->node->tree, compare, &c);
    uint32_t n = block_set_len(c.advertised), n_replica = replica ? replica_blocks(replica) : n;
    if (!c.n_missing && n == stats.pages && n_replica == n)
        return true;
    snprintf(why, size, "%s holds %llu blocks, advertises %u, %u are believed, %u are wrong", other->name, (unsigned long long)stats.pages, n,
             n_replica, c.n_missing);
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
    return same_blocks(other, world_same_kind(wn, other) ? &m->replica : NULL, why, size);
}

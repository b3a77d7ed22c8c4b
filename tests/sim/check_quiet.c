/*
 * Once all know the truth of each other: what peers would read is the truth, too; whoever can read reads again, whatever went wrong
 * before; and nobody does more than the interval of gossip asks for, liars or not.
 */
#include <stdlib.h>

#include "core/cluster/internal.h"
#include "core/serve/node_internal.h"
#include "tests/sim/check.h"

static const uint64_t READS_AGAIN_NS = 60000000000, WATCH_NS = 3000000000, RESIGN_NS = 4000000000;
enum { QUESTIONS = 5 };

static struct wire_counts counts_of(const struct world_node *wn, const struct world_node *of)
{
    const struct member *m = member_by_boot(wn->node->cluster, of->node->cluster->info.boot_id);
    return m ? wire_check_counts(tap_check(wn->transport), m->peer) : (struct wire_counts){0};
}

typedef void look_at_pair(struct world_node *wn, struct world_node *of, struct wire_counts *seen, struct wire_counts now);

static void each_pair(struct world *world, struct wire_counts *seen, look_at_pair *look)
{
    for (uint32_t i = 0; i < world->n_nodes; i++)
        for (uint32_t j = 0; j < world->n_nodes; j++)
            if (i != j)
                look(&world->nodes[i], &world->nodes[j], &seen[i * world->n_nodes + j], counts_of(&world->nodes[i], &world->nodes[j]));
}

static void remember(struct world_node *wn, struct world_node *of, struct wire_counts *seen, struct wire_counts now)
{
    *seen = now;
}

static bool ought_to_read(const struct world_node *wn, const struct world_node *of)
{
    const struct world_config *c = &wn->world->config;
    return wn->reads_pages && of->reads_pages && !of->is_short && !of->miscount && !c->read_fail && !c->read_lost;
}

static void check_reads(struct world_node *wn, struct world_node *of, struct wire_counts *seen, struct wire_counts now)
{
    if (ought_to_read(wn, of) && now.headers <= seen->headers)
        world_fail(wn->world, "%s does not read the digest of %s any more", wn->name, of->name);
}

/* One header each interval, in large groups less often; for counts that never fit together, a question a second, and the pages. */
static void check_work(struct world_node *wn, struct world_node *of, struct wire_counts *seen, struct wire_counts now)
{
    const struct world_config *c = &wn->world->config;
    uint64_t rounds = (uint64_t)(1.2 * (double)WATCH_NS / (double)c->gossip_ns) + 8;
    uint64_t questions = of->miscount >= COUNTS_PROMISES ? QUESTIONS * (1 + BLOCK_SET_PAGES) : 0;
    uint64_t answers = wn->miscount >= COUNTS_PROMISES ? QUESTIONS * (1 + BLOCK_SET_PAGES) : 0;
    uint64_t reads = now.reads - seen->reads, messages = now.messages - seen->messages;
    if (now.reads < seen->reads || now.messages < seen->messages)
        return; /* it has another number now */
    if (reads > rounds + questions || messages > rounds + questions + answers)
        world_fail(wn->world, "%s, idle, made %llu reads of %s and sent it %llu messages in 3 s", wn->name, (unsigned long long)reads, of->name,
                   (unsigned long long)messages);
}

static bool all_read(struct world *world)
{
    for (uint32_t i = 0; i < world->n_nodes; i++)
        for (uint32_t j = 0; j < world->n_nodes; j++)
            if (i != j && ought_to_read(&world->nodes[i], &world->nodes[j]) &&
                counts_of(&world->nodes[i], &world->nodes[j]).headers <= world->headers_seen[i * world->n_nodes + j].headers)
                return false;
    return true;
}

void check_quiet(struct world *world)
{
    char why[240];
    struct wire_counts *seen = calloc((size_t)world->n_nodes * world->n_nodes, sizeof *seen);
    if (!seen)
        return;
    world->headers_seen = seen;
    each_pair(world, seen, remember);
    world_run_until(world, all_read, world->now_ns + READS_AGAIN_NS);
    each_pair(world, seen, check_reads);
    if (world->config.miscounts)
        world_run_until(world, NULL, world->now_ns + RESIGN_NS);
    each_pair(world, seen, remember);
    world_run_until(world, NULL, world->now_ns + WATCH_NS);
    each_pair(world, seen, check_work);
    world->headers_seen = NULL;
    free(seen);
    for (uint32_t i = 0; i < world->n_nodes; i++)
        if (!check_published(&world->nodes[i], why, sizeof why))
            world_fail(world, "quiet, but %s", why);
}

/* Nothing grows beyond its bound, and when all work is done nothing of it is left: no gauge, no page, no booking, no message. */
#include "core/cluster/internal.h"
#include "core/serve/node_internal.h"
#include "core/serve/scheduler_internal.h"
#include "tests/sim/check.h"

static const uint64_t LOST_NS = 6000000000; /* a connection that the troubles broke is given up */

bool check_is_full(const struct world_node *wn)
{
    return scheduler_is_full(wn->node->scheduler) || !wn->node->free_entry;
}

bool check_is_idle(const struct world_node *wn)
{
    struct node_counts c;
    if (!world_node_runs(wn))
        return false;
    node_counts(wn->node, &c);
    return !c.waiting && !c.running && !c.forwarded && !c.computing_for_peers && !wn->node->n_entries &&
           forward_outbox_empty(&wn->node->outbox);
}

/* A peer hears soon that nobody waits for what it computes. */
static void check_services(struct world_node *wn)
{
    struct world *world = wn->world;
    const struct world_config *config = &world->config;
    uint64_t step_ns = (config->step_ns + wn->backend_config.max_rows * config->row_ns) * (config->slow ? config->slowness : 1);
    uint64_t patience_ns = 2000000000 + 16 * (config->delay_ns + config->jitter_ns) + 4 * step_ns;
    for (uint32_t i = 0, seen = 0; seen < wn->node->n_services && i < wn->node->max_services; i++) {
        const struct sequence *sequence = wn->node->services[i].sequence;
        if (!sequence)
            continue;
        seen++;
        const struct client *client = clients_by_seed(world, sequence->sampling.seed);
        if (!client || client->state != CLIENT_DONE)
            continue;
        uint64_t since_ns = client->done_ns > world->calm_ns ? client->done_ns : world->calm_ns;
        if (world->now_ns > since_ns + patience_ns + LOST_NS)
            world_fail(world, "%s still computes request %u, which is over for %.3f s", wn->name, client->index,
                       (double)(world->now_ns - client->done_ns) / 1e9);
    }
}

void check_bounds(struct world_node *wn)
{
    check_services(wn);
    const struct node *node = wn->node;
    const struct cluster *cluster = node->cluster;
    uint32_t blocks = 0, in_flight = 0;
    for (uint32_t i = 0; i < cluster->n_members; i++) {
        blocks += replica_blocks(&cluster->members[i]->replica);
        in_flight += cluster->members[i]->in_flight;
    }
    if (node->outbox.bytes > FORWARD_OUTBOX_BYTES)
        world_fail(wn->world, "%s: %zu bytes wait in the outbox", wn->name, node->outbox.bytes);
    if (blocks != cluster->budget.blocks || blocks > cluster->budget.max_blocks)
        world_fail(wn->world, "%s: replicas hold %u blocks and count %u of %u", wn->name, blocks, cluster->budget.blocks,
                   cluster->budget.max_blocks);
    if (in_flight > cluster->books.n_bookings)
        world_fail(wn->world, "%s: %u requests in flight and %u in the books", wn->name, in_flight, cluster->books.n_bookings);
    if (node->n_forwarded > node->n_entries || node->n_entries > node->max_entries || node->n_services > node->max_services)
        world_fail(wn->world, "%s: %u forwarded of %u entries, %u services", wn->name, node->n_forwarded, node->n_entries, node->n_services);
}

void check_describe(const struct world_node *wn)
{
    struct node_counts c;
    const struct scheduler *scheduler = wn->node->scheduler;
    node_counts(wn->node, &c);
    world_note(wn->world, "%s: %u waiting (%u follow), %u running, %u forwarded, %u for peers, pages %u free, %u in the tree, %u evictable",
               wn->name, scheduler->admission.n_waiting, scheduler->admission.n_following, c.running, c.forwarded, c.computing_for_peers,
               c.pages_free, c.pages_in_tree, radix_evictable_pages(wn->node->tree));
    for (uint32_t i = 0; i < scheduler->n_running; i++) {
        const struct sequence *s = scheduler->running[i];
        world_note(wn->world, "  runs: arrival %llu, %u tokens of %u, computed %u, grant %u, %u pages, %u in the tree, unscored %u",
                   (unsigned long long)s->arrival, s->n_tokens, s->limit, s->computed, s->grant, s->n_pages, s->inserted_pages,
                   sequence_unscored(s));
    }
    for (uint32_t t = 0; t < scheduler->admission.n_tenants; t++)
        for (const struct sequence *s = scheduler->admission.tenants[t].head; s; s = s->next)
            world_note(wn->world, "  waits: arrival %llu, %u tokens of %u, %u rows expected, priority %d%s", (unsigned long long)s->arrival,
                       s->n_tokens, s->limit, s->expected_rows, s->priority, s->follows ? ", follows" : "");
}

static void check_gauge(struct world_node *wn, const char *name)
{
    int64_t value = gauge_get(metrics_gauge(wn->metrics, name, "model_name=\"null\"", "", 1));
    if (value)
        world_fail(wn->world, "%s is idle, and %s is %lld", wn->name, name, (long long)value);
}

static void check_books(struct world_node *wn)
{
    const struct cluster *cluster = wn->node->cluster;
    if (cluster->books.n_bookings)
        world_fail(wn->world, "%s is idle with %u requests in its books", wn->name, cluster->books.n_bookings);
    for (uint32_t i = 0; i < cluster->n_members; i++)
        if (cluster->members[i]->in_flight)
            world_fail(wn->world, "%s is idle with %u requests in flight to %s", wn->name, cluster->members[i]->in_flight,
                       cluster->members[i]->name);
}

void check_idle(struct world_node *wn)
{
    struct world *world = wn->world;
    if (!check_is_idle(wn)) {
        struct node_counts c = {0};
        if (wn->up)
            node_counts(wn->node, &c);
        world_fail(world, "%s ought to be idle: %s, %u waiting, %u running, %u forwarded, %u for peers", wn->name,
                   wn->stopped ? "stopped" : wn->up ? "up" : "down", c.waiting, c.running, c.forwarded, c.computing_for_peers);
        return;
    }
    struct node_counts c;
    node_counts(wn->node, &c);
    if (c.pages_free + c.pages_in_tree != c.pages_total)
        world_fail(world, "%s is idle, and %u pages belong to nobody", wn->name, c.pages_total - c.pages_free - c.pages_in_tree);
    const struct scheduler *scheduler = wn->node->scheduler;
    if (scheduler->admission.waiting_rows || scheduler->admission.n_following || scheduler->n_orphans)
        world_fail(world, "%s is idle with %llu rows waiting, %u sequences following, %u orphans", wn->name,
                   (unsigned long long)scheduler->admission.waiting_rows, scheduler->admission.n_following, scheduler->n_orphans);
    check_gauge(wn, "vllm:num_requests_running");
    check_gauge(wn, "vllm:num_requests_waiting");
    check_gauge(wn, "vllm:kv_cache_usage_perc");
    check_gauge(wn, "hearsay_requests_forwarded");
    check_gauge(wn, "hearsay_requests_for_peers");
    check_books(wn);
}

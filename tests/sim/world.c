#include "tests/sim/world.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "net/net.h"
#include "tests/sim/world_internal.h"

static const uint8_t GROUP_KEY[32] = "a key that simulated nodes share";
static const uint64_t LONGEST_NS = 900000000000u; /* of virtual time: beyond it somebody hangs */
static const uint64_t SETTLE_NS = 30000000000u;   /* for gauges to return to zero after the last answer */
enum { MAX_PRINTED = 20, MAX_STEPS_AT_ONE_TIME = 20000 };

void world_defaults(struct world_config *config)
{
    *config = (struct world_config){.seed = 1,
                                    .n_nodes = 4,
                                    .n_requests = 200,
                                    .loss = 0.01,
                                    .duplicate = 0.01,
                                    .reorder = 0.01,
                                    .delay_ns = 200000,
                                    .jitter_ns = 100000,
                                    .n_pages = 192,
                                    .max_sequences = 16,
                                    .rate_per_s = 60,
                                    .route = "cost"};
}

void world_fail(struct world *world, const char *format, ...)
{
    if (world->result->failures++ >= MAX_PRINTED)
        return;
    va_list args;
    va_start(args, format);
    fprintf(stderr, "seed %llu, %.6f s: ", (unsigned long long)world->config.seed, (double)world->now_ns / 1e9);
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
    va_end(args);
}

/* FNV-1a (Fowler, Noll, Vo) over the eight bytes. */
void world_trace(struct world *world, uint64_t value)
{
    for (int i = 0; i < 8; i++)
        world->result->trace = (world->result->trace ^ (value >> (8 * i) & 0xff)) * 0x100000001b3u;
}

static enum route_mode route_mode(const char *name)
{
    return strcmp(name, "none") == 0 ? ROUTE_NONE : strcmp(name, "longest") == 0 ? ROUTE_LONGEST : ROUTE_COST;
}

static int open_transport(struct world_node *wn, struct error *err)
{
    struct carrier *carrier;
    struct transport *inner;
    int status = sim_carrier_create(wn->world->net, wn->address, &carrier, err);
    if (status < 0)
        return status;
    status = transport_reliable_create(carrier, "simulated", GROUP_KEY, NULL, &wn->env, &inner, err);
    if (status < 0) {
        carrier->ops->destroy(carrier);
        return status;
    }
    wn->transport = tap_create(inner, wn);
    return wn->transport ? 0 : error_set(err, HS_ERR_NO_MEMORY, "out of memory");
}

static int start_node(struct world_node *wn)
{
    struct world *world = wn->world;
    struct error err = {0};
    int status = sim_net_env(world->net, ++world->streams, &wn->env);
    if (status == 0)
        status = open_transport(wn, &err);
    wn->backend = null_backend_create(&world->backend, &wn->env);
    wn->metrics = metrics_create();
    struct node_config config = {.model_name = "null",
                                 .n_context = WORLD_CONTEXT,
                                 .max_sequences = world->config.max_sequences,
                                 .forward_timeout_ns = 2000000000};
    snprintf(config.cluster.name, sizeof config.cluster.name, "%s", wn->name);
    config.cluster.mode = route_mode(world->config.route);
    config.cluster.gossip_interval_ns = 50000000;
    memcpy(config.group_key, GROUP_KEY, sizeof config.group_key);
    if (status == 0)
        status = node_create(&config, &wn->env, wn->transport, wn->backend, wn->metrics, &wn->node, &err);
    for (uint32_t i = 0; status == 0 && i < world->config.n_nodes; i++)
        if (i != wn->index)
            status = node_join(wn->node, world->nodes[i].address, &err);
    if (status < 0) {
        world_fail(world, "%s does not start: %s", wn->name, err.text);
        return status;
    }
    wn->up = true;
    wn->draining = false;
    wn->restart_ns = wn->undrain_ns = UINT64_MAX;
    wn->next_ns = world->now_ns;
    return 0;
}

static uint64_t metric(const struct world_node *wn, const char *name)
{
    return counter_get(metrics_counter(wn->metrics, name, "model_name=\"null\"", ""));
}

/* As if the plug were pulled: nothing that is done from here on leaves the machine. */
static void stop_node(struct world_node *wn)
{
    struct world *world = wn->world;
    wn->up = false;
    world->result->preemptions += metric(wn, "hearsay_preemptions_total");
    world->result->takeovers += metric(wn, "hearsay_takeovers_total");
    sim_net_kill(world->net, wn->address);
    node_destroy(wn->node);
    wn->transport->ops->destroy(wn->transport);
    wn->backend->ops->destroy(wn->backend);
    metrics_destroy(wn->metrics);
}

static uint32_t n_serving(const struct world *world)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < world->config.n_nodes; i++)
        n += world->nodes[i].up && !world->nodes[i].draining;
    return n;
}

/* Whether it is time for one of the planned moments; each is used once. */
static bool due(struct world *world, uint64_t *moments, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        if (world->now_ns >= moments[i]) {
            moments[i] = UINT64_MAX;
            return true;
        }
    return false;
}

static void disturb(struct world *world)
{
    struct world_node *victim = &world->nodes[rng_below(&world->rng, world->config.n_nodes)];
    bool able = victim->up && !victim->draining && n_serving(world) > 1;
    if (due(world, world->crash_ns, world->config.crashes) && able) {
        if (world->config.verbose)
            fprintf(stderr, "%.6f s: %s crashes\n", (double)world->now_ns / 1e9, victim->name);
        stop_node(victim);
        victim->restart_ns = world->now_ns + 200000000 + rng_below(&world->rng, 3000000000);
        return;
    }
    if (due(world, world->drain_ns, world->config.drains) && able) {
        victim->draining = true;
        node_drain(victim->node, true);
        victim->undrain_ns = world->now_ns + 500000000 + rng_below(&world->rng, 2000000000);
        return;
    }
    if (world->mend_ns == UINT64_MAX && world->config.n_nodes > 1 && due(world, world->cut_ns, world->config.cuts)) {
        world->cut_a = victim->index;
        world->cut_b = (victim->index + 1 + (uint32_t)rng_below(&world->rng, world->config.n_nodes - 1)) % world->config.n_nodes;
        sim_net_set_cut(world->net, world->nodes[world->cut_a].address, world->nodes[world->cut_b].address, true);
        world->mend_ns = world->now_ns + 200000000 + rng_below(&world->rng, 8000000000);
    }
}

static void mend(struct world *world)
{
    if (world->now_ns >= world->mend_ns) {
        sim_net_set_cut(world->net, world->nodes[world->cut_a].address, world->nodes[world->cut_b].address, false);
        world->mend_ns = UINT64_MAX;
    }
    for (uint32_t i = 0; i < world->config.n_nodes; i++) {
        struct world_node *wn = &world->nodes[i];
        if (!wn->up && world->now_ns >= wn->restart_ns)
            start_node(wn);
        if (wn->up && wn->draining && world->now_ns >= wn->undrain_ns) {
            wn->undrain_ns = UINT64_MAX;
            wn->draining = false;
            node_drain(wn->node, false);
            wn->next_ns = world->now_ns;
        }
    }
}

static void check_pages(struct world *world, const struct world_node *wn, bool idle)
{
    struct node_counts c;
    node_counts(wn->node, &c);
    if (c.pages_total != world->config.n_pages || c.pages_free + c.pages_in_tree > c.pages_total)
        world_fail(world, "%s: %u pages free and %u in the tree of %u", wn->name, c.pages_free, c.pages_in_tree, c.pages_total);
    if (idle && c.pages_free + c.pages_in_tree != c.pages_total)
        world_fail(world, "%s is idle, and %u pages belong to nobody", wn->name, c.pages_total - c.pages_free - c.pages_in_tree);
    if (idle && (c.waiting || c.running || c.forwarded || c.computing_for_peers))
        world_fail(world, "%s is idle with %u waiting, %u running, %u forwarded, %u for peers", wn->name, c.waiting, c.running,
                   c.forwarded, c.computing_for_peers);
}

static bool idle(const struct world *world)
{
    for (uint32_t i = 0; i < world->config.n_nodes; i++) {
        struct node_counts c;
        if (!world->nodes[i].up)
            return false;
        node_counts(world->nodes[i].node, &c);
        if (c.waiting || c.running || c.forwarded || c.computing_for_peers)
            return false;
    }
    return true;
}

static uint64_t next_moment(const struct world *world)
{
    uint64_t next = sim_net_next_event_ns(world->net);
    uint64_t client = clients_next_ns(world);
    next = client < next ? client : next;
    for (uint32_t i = 0; i < world->config.n_nodes; i++) {
        const struct world_node *wn = &world->nodes[i];
        uint64_t mine = wn->up ? (wn->draining && wn->undrain_ns < wn->next_ns ? wn->undrain_ns : wn->next_ns) : wn->restart_ns;
        next = mine < next ? mine : next;
    }
    for (uint32_t i = 0; i < world->config.crashes; i++)
        next = world->crash_ns[i] < next ? world->crash_ns[i] : next;
    for (uint32_t i = 0; i < world->config.drains; i++)
        next = world->drain_ns[i] < next ? world->drain_ns[i] : next;
    for (uint32_t i = 0; world->mend_ns == UINT64_MAX && i < world->config.cuts; i++)
        next = world->cut_ns[i] < next ? world->cut_ns[i] : next;
    next = world->mend_ns < next ? world->mend_ns : next;
    return next > world->now_ns ? next : world->now_ns;
}

/* Runs until every client has its last event, then until the nodes are idle. */
static void run_until_idle(struct world *world)
{
    uint64_t quiet_ns = UINT64_MAX;
    uint32_t at_one_time = 0;
    while (world->n_open || (!idle(world) && world->now_ns < quiet_ns)) {
        uint64_t next = next_moment(world);
        at_one_time = next == world->now_ns ? at_one_time + 1 : 0;
        if (next > LONGEST_NS || at_one_time > MAX_STEPS_AT_ONE_TIME) {
            world_fail(world, "%u requests are still open and %s", world->n_open,
                       next > LONGEST_NS ? "nothing happens any more" : "time stands still");
            return;
        }
        world->now_ns = next;
        sim_net_advance(world->net, next);
        disturb(world);
        mend(world);
        clients_step(world);
        for (uint32_t i = 0; i < world->config.n_nodes; i++) {
            struct world_node *wn = &world->nodes[i];
            if (!wn->up)
                continue;
            wn->next_ns = node_step(wn->node, next);
            check_pages(world, wn, false);
            world->result->steps++;
        }
        if (!world->n_open && quiet_ns == UINT64_MAX)
            quiet_ns = world->now_ns + SETTLE_NS;
    }
    for (uint32_t i = 0; i < world->config.n_nodes; i++)
        if (world->nodes[i].up)
            check_pages(world, &world->nodes[i], true);
}

static int plan(struct world *world)
{
    double length_ns = 5e8 + 1e9 * world->config.n_requests / world->config.rate_per_s;
    world->crash_ns = calloc(world->config.crashes + 1, sizeof(uint64_t));
    world->drain_ns = calloc(world->config.drains + 1, sizeof(uint64_t));
    world->cut_ns = calloc(world->config.cuts + 1, sizeof(uint64_t));
    if (!world->crash_ns || !world->drain_ns || !world->cut_ns)
        return HS_ERR_NO_MEMORY;
    world->mend_ns = UINT64_MAX;
    for (uint32_t i = 0; i < world->config.cuts; i++)
        world->cut_ns[i] = (uint64_t)(length_ns * (0.1 + 0.8 * rng_unit(&world->rng)));
    for (uint32_t i = 0; i < world->config.crashes; i++)
        world->crash_ns[i] = (uint64_t)(length_ns * (0.1 + 0.8 * rng_unit(&world->rng)));
    for (uint32_t i = 0; i < world->config.drains; i++)
        world->drain_ns[i] = (uint64_t)(length_ns * (0.1 + 0.8 * rng_unit(&world->rng)));
    return clients_create(world);
}

static int open_world(struct world *world)
{
    const struct world_config *config = &world->config;
    struct sim_net_config net = {.seed = config->seed,
                                 .link = {.delay_ns = config->delay_ns,
                                          .jitter_ns = config->jitter_ns,
                                          .loss = config->loss,
                                          .duplicate = config->duplicate,
                                          .reorder = config->reorder}};
    world->backend = (struct null_backend_config){.n_pages = config->n_pages,
                                                  .page_tokens = WORLD_PAGE_TOKENS,
                                                  .n_vocab = 49152,
                                                  .max_rows = 256,
                                                  .fixed_ns = 2000000,
                                                  .row_ns = 20000,
                                                  .context_ns = 2048,
                                                  .stop_every = 40,
                                                  .stop_id = 2,
                                                  .check_chains = true};
    rng_seed(&world->rng, config->seed);
    world->net = sim_net_create(&net);
    if (!world->net)
        return HS_ERR_NO_MEMORY;
    int status = plan(world);
    for (uint32_t i = 0; i < config->n_nodes; i++) {
        struct world_node *wn = &world->nodes[i];
        *wn = (struct world_node){.world = world, .index = i};
        snprintf(wn->name, sizeof wn->name, "node%u", i);
        snprintf(wn->address, sizeof wn->address, "node%u:7070", i);
    }
    for (uint32_t i = 0; status == 0 && i < config->n_nodes; i++)
        status = start_node(&world->nodes[i]);
    return status;
}

int world_run(const struct world_config *config, struct world_result *result)
{
    *result = (struct world_result){.trace = 0xcbf29ce484222325u};
    if (config->n_nodes < 1 || config->n_nodes > WORLD_MAX_NODES || config->rate_per_s <= 0)
        return HS_ERR_INVALID;
    struct world *world = calloc(1, sizeof *world);
    if (!world)
        return HS_ERR_NO_MEMORY;
    world->config = *config;
    world->result = result;
    int status = open_world(world);
    if (status == 0) {
        run_until_idle(world);
        clients_repeat(world);
        run_until_idle(world);
    }
    result->virtual_ns = world->now_ns;
    for (uint32_t i = 0; i < config->n_nodes; i++)
        if (world->nodes[i].up)
            stop_node(&world->nodes[i]);
    if (world->net)
        sim_net_destroy(world->net);
    clients_destroy(world);
    free(world->crash_ns);
    free(world->drain_ns);
    free(world->cut_ns);
    free(world);
    return status;
}

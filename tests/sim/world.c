#include "tests/sim/world.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "net/net.h"
#include "tests/sim/check.h"
#include "tests/sim/world_pages.h"

static const uint8_t GROUP_KEY[32] = "a key that simulated nodes share";
static const uint64_t LONGEST_NS = 7200000000000u; /* of virtual time */
static const uint64_t HANG_NS = 180000000000u;     /* without a word to any client, troubles being over */
static const uint64_t IDLE_NS = 60000000000u;      /* after the last answer every node is idle */
static const uint64_t SETTLE_NS = 180000000000u;   /* after that all know the truth of each other */
static const uint64_t LOOK_NS = 50000000;          /* between looks whether they do */
enum { MAX_PRINTED = 10, MAX_TURNS_AT_ONE_TIME = 20000 };

void world_defaults(struct world_config *config)
{
    *config = (struct world_config){.seed = 1,
                                    .nodes = 4,
                                    .requests = 200,
                                    .rate = 60,
                                    .pages = 192,
                                    .sequences = 16,
                                    .context = 1024,
                                    .head_tokens = 400,
                                    .route = "cost",
                                    .gossip_ns = 50000000,
                                    .gossip_bytes = 1 << 20,
                                    .cancel = 0.1,
                                    .score = 0.08,
                                    .delay_ns = 200000,
                                    .jitter_ns = 100000,
                                    .loss = 0.01,
                                    .duplicate = 0.01,
                                    .reorder = 0.01,
                                    .trouble_ns = 8000000000,
                                    .slowness = 20,
                                    .step_ns = 2000000,
                                    .row_ns = 20000,
                                    .models = 1,
                                    .page_sizes = 1,
                                    .classes = 1,
                                    .read_ns = 5000,
                                    .read_jitter_ns = 5000};
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

void world_note(const struct world *world, const char *format, ...)
{
    if (!world->config.verbose)
        return;
    va_list args;
    va_start(args, format);
    fprintf(stderr, "%.6f s: ", (double)world->now_ns / 1e9);
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

bool world_node_serves(const struct world_node *wn)
{
    return world_node_runs(wn) && !wn->draining;
}

bool world_node_runs(const struct world_node *wn)
{
    return wn->up && !wn->stopped;
}

void world_wake(struct world_node *wn)
{
    wn->next_ns = wn->world->now_ns;
}

bool world_same_kind(const struct world_node *a, const struct world_node *b)
{
    return a->model == b->model && a->page_tokens == b->page_tokens && a->class == b->class;
}

uint64_t world_counter(const struct world_node *wn, const char *name)
{
    return counter_get(metrics_counter(wn->metrics, name, "model_name=\"null\"", ""));
}

static int open_transport(struct world_node *wn, struct error *err)
{
    struct transport *inner;
    int status = sim_carrier_create(wn->world->net, wn->address, &wn->carrier, err);
    if (status < 0)
        return status;
    status = transport_reliable_create(wn->carrier, "simulated", GROUP_KEY, NULL, &wn->env, &inner, err);
    if (status < 0) {
        wn->carrier->ops->destroy(wn->carrier);
        return status;
    }
    struct transport *outer = wn->reads_pages ? pages_create(inner, wn) : inner;
    wn->transport = outer ? tap_create(outer, wn) : NULL;
    return wn->transport ? 0 : error_set(err, HS_ERR_NO_MEMORY, "out of memory");
}

static struct node_config config_of(const struct world_node *wn)
{
    const struct world_config *c = &wn->world->config;
    struct node_config config = {.model_name = "null",
                                 .n_context = c->context,
                                 .max_sequences = c->sequences,
                                 .max_waiting = c->queue,
                                 .push_back_depth = c->push_back,
                                 .tree_bytes = c->tree_bytes,
                                 .forward_timeout_ns = 2000000000};
    snprintf(config.cluster.name, sizeof config.cluster.name, "%s", wn->name);
    config.cluster.mode = wn->route;
    config.cluster.gossip_interval_ns = c->gossip_ns;
    config.cluster.gossip_bytes_per_s = c->gossip_bytes;
    config.cluster.max_advertised_blocks = c->advertised;
    config.cluster.max_replica_blocks = c->replicas;
    config.cluster.same_bits = c->classes > 1;
    config.cluster.fingerprint[0] = (uint8_t)wn->model;
    memcpy(config.group_key, GROUP_KEY, sizeof config.group_key);
    return config;
}

int world_start_node(struct world_node *wn)
{
    struct world *world = wn->world;
    struct error err = {0};
    pages_bury(wn);
    int status = clock_env(wn);
    if (status == 0)
        status = open_transport(wn, &err);
    struct backend *null = status == 0 ? null_backend_create(&wn->backend_config, &wn->env) : NULL;
    wn->backend = null ? shadow_create(null, wn) : NULL;
    wn->metrics = metrics_create();
    if (status == 0 && (!wn->backend || !wn->metrics))
        status = HS_ERR_NO_MEMORY;
    struct node_config config = config_of(wn);
    if (status == 0)
        status = node_create(&config, &wn->env, wn->transport, wn->backend, wn->metrics, &wn->node, &err);
    for (uint32_t i = 0; status == 0 && i < world->n_nodes; i++)
        if (i != wn->index)
            status = node_join(wn->node, world->nodes[i].address, &err);
    if (status < 0) {
        world_fail(world, "%s does not start: %s", wn->name, err.text);
        return status;
    }
    wn->up = true;
    wn->draining = false;
    wn->tree_seen = 0;
    world_wake(wn);
    return 0;
}

/* Unless orderly as if the plug were pulled: nothing that is done from here on leaves the machine. */
void world_stop_node(struct world_node *wn, bool orderly)
{
    struct world *world = wn->world;
    wn->up = false;
    world->result->preemptions += world_counter(wn, "hearsay_preemptions_total");
    world->result->takeovers += world_counter(wn, "hearsay_takeovers_total");
    if (!orderly)
        sim_net_kill(world->net, wn->address);
    node_destroy(wn->node);
    if (!orderly)
        pages_crash(wn);
    wn->transport->ops->destroy(wn->transport);
    wn->backend->ops->destroy(wn->backend);
    metrics_destroy(wn->metrics);
}

static bool hears(const struct world_node *wn)
{
    return sim_carrier_waiting(wn->carrier) || pages_waiting(wn);
}

static uint64_t next_moment(const struct world *world)
{
    uint64_t next = sim_net_next_flight_ns(world->net), read = pages_next_ns(world);
    next = read < next ? read : next;
    next = world->clients_due_ns < next ? world->clients_due_ns : next;
    next = world->troubles_due_ns < next ? world->troubles_due_ns : next;
    for (uint32_t i = 0; i < world->n_nodes; i++) {
        const struct world_node *wn = &world->nodes[i];
        if (!world_node_runs(wn))
            continue;
        next = wn->next_ns < next ? wn->next_ns : next;
        if (hears(wn))
            return world->now_ns;
    }
    return next > world->now_ns ? next : world->now_ns;
}

static void step_nodes(struct world *world)
{
    for (uint32_t i = 0; i < world->n_nodes; i++) {
        struct world_node *wn = &world->nodes[i];
        if (!world_node_runs(wn) || (wn->next_ns > world->now_ns && !hears(wn)))
            continue;
        uint64_t next_ns = node_step(wn->node, env_now_ns(&wn->env));
        wn->next_ns = clock_world_ns(&wn->clock, next_ns);
        check_pages(wn);
        check_tree(wn);
        check_bounds(wn);
        world->result->steps++;
    }
}

static bool is_stuck(struct world *world, uint64_t next, uint32_t turns)
{
    uint64_t since = world->last_event_ns > world->calm_ns ? world->last_event_ns : world->calm_ns;
    bool hangs = world->n_open && next > since + HANG_NS && world->clients_due_ns > next;
    if (turns > MAX_TURNS_AT_ONE_TIME)
        world_fail(world, "time stands still");
    else if (hangs || next > LONGEST_NS)
        world_fail(world, "%u requests are still open and nothing happens any more", world->n_open);
    else
        return false;
    for (uint32_t i = 0; i < world->n_clients; i++)
        if (world->clients[i].state == CLIENT_WAITING)
            world_note(world, "request %u waits at node%u", i, world->clients[i].entry);
    for (uint32_t i = 0; i < world->n_nodes; i++)
        if (world->nodes[i].up)
            check_describe(&world->nodes[i]);
    return true;
}

bool world_run_until(struct world *world, bool (*done)(struct world *), uint64_t limit_ns)
{
    uint32_t turns = 0;
    while (!done || !done(world)) {
        uint64_t next = next_moment(world);
        if (next > limit_ns)
            return false;
        turns = next == world->now_ns ? turns + 1 : 0;
        if (is_stuck(world, next, turns))
            return false;
        world->now_ns = next;
        sim_net_advance(world->net, next);
        pages_advance(world);
        troubles_step(world);
        clients_step(world);
        step_nodes(world);
    }
    return true;
}

bool world_answered(struct world *world)
{
    if (world->n_open || world->now_ns < world->calm_ns || world->troubles_due_ns != UINT64_MAX)
        return false;
    for (uint32_t i = 0; i < world->n_nodes; i++)
        if (!check_is_idle(&world->nodes[i]))
            return false;
    return true;
}

static bool nobody_is_asked(struct world *world)
{
    return !world->n_open && world->now_ns >= world->calm_ns && world->troubles_due_ns == UINT64_MAX;
}

static bool all_believe(struct world *world, char *why, size_t size)
{
    for (uint32_t i = 0; i < world->n_nodes; i++)
        for (uint32_t j = 0; j < world->n_nodes; j++)
            if (i != j && !check_believes(&world->nodes[i], &world->nodes[j], why, size))
                return false;
    return true;
}

bool world_settled(struct world *world)
{
    char why[240];
    if (world->now_ns < world->settled_at_ns)
        return false;
    world->settled_at_ns = world->now_ns + LOOK_NS;
    return all_believe(world, why, sizeof why);
}

/* Until all is answered, then until the nodes have nothing left to do. */
static bool run_requests(struct world *world)
{
    if (!world_run_until(world, nobody_is_asked, UINT64_MAX))
        return false;
    bool idle = world_run_until(world, world_answered, world->now_ns + IDLE_NS);
    for (uint32_t i = 0; i < world->n_nodes; i++)
        check_idle(&world->nodes[i]);
    return idle;
}

static void run_whole(struct world *world)
{
    if (!run_requests(world) || clients_repeat(world) < 0 || !run_requests(world))
        return;
    char why[240] = "";
    if (!world_run_until(world, world_settled, world->now_ns + SETTLE_NS) && !all_believe(world, why, sizeof why))
        world_fail(world, "not settled: %s", why);
    else
        check_quiet(world);
    for (uint32_t i = 0; i < world->n_nodes; i++)
        check_names(&world->nodes[i]);
}

static enum route_mode route_of(const char *name, uint32_t index)
{
    static const enum route_mode MIXED[] = {ROUTE_COST, ROUTE_LONGEST, ROUTE_COST, ROUTE_NONE};
    if (strcmp(name, "mixed") == 0)
        return MIXED[index % 4];
    return strcmp(name, "none") == 0 ? ROUTE_NONE : strcmp(name, "longest") == 0 ? ROUTE_LONGEST : ROUTE_COST;
}

/* Kinds go round robin over the nodes, so that each has company where the group is large enough; the odd ones are the last nodes. */
static void make_node(struct world *world, uint32_t index)
{
    static const uint32_t PAGE_TOKENS[] = {WORLD_PAGE_TOKENS, 8, 32};
    const struct world_config *c = &world->config;
    struct world_node *wn = &world->nodes[index];
    uint32_t from_end = c->nodes - 1 - index;
    *wn = (struct world_node){.world = world, .index = index};
    snprintf(wn->name, sizeof wn->name, "node%u", index);
    snprintf(wn->address, sizeof wn->address, "node%u:7070", index);
    wn->model = index % c->models;
    wn->page_tokens = PAGE_TOKENS[index / c->models % c->page_sizes];
    wn->class = index / c->models / c->page_sizes % c->classes;
    wn->liar = from_end < c->liars;
    wn->miscount = from_end < c->miscounts ? (enum miscount)(1 + (index + c->seed) % (MISCOUNTS - 1)) : COUNTS_TRUE;
    wn->reads_pages = from_end < c->one_sided;
    wn->is_short = wn->reads_pages && index < c->unpublished;
    wn->route = route_of(c->route, index);
    uint32_t pages = index < c->small_pools ? (c->pages + 3) / 4 : c->pages;
    uint64_t times = from_end < c->slow ? c->slowness : 1;
    wn->backend_config = (struct null_backend_config){.n_pages = (pages * WORLD_PAGE_TOKENS + wn->page_tokens - 1) / wn->page_tokens,
                                                      .page_tokens = wn->page_tokens,
                                                      .n_vocab = 49152 - 1000 * wn->model,
                                                      .max_rows = 256,
                                                      .fixed_ns = c->step_ns * times,
                                                      .row_ns = c->row_ns * times,
                                                      .context_ns = 2048 * times,
                                                      .stop_every = 40,
                                                      .stop_id = 2,
                                                      .check_chains = true};
    uint32_t drift = (uint32_t)(1000 * c->drift);
    wn->clock.per_mille = 1000 - drift + (uint32_t)rng_below(&world->rng, 2 * drift + 1);
    wn->clock.local_ns = rng_below(&world->rng, 4) ? rng_below(&world->rng, 1000000000000) : 0;
}

static int open_world(struct world *world)
{
    const struct world_config *c = &world->config;
    struct sim_net_config net = {.seed = c->seed,
                                 .link = {.delay_ns = c->delay_ns,
                                          .jitter_ns = c->jitter_ns,
                                          .loss = c->loss,
                                          .duplicate = c->duplicate,
                                          .reorder = c->reorder,
                                          .corrupt = c->corrupt}};
    rng_seed(&world->rng, c->seed);
    world->net = sim_net_create(&net);
    world->reads = pages_open(c->seed);
    if (!world->net || !world->reads)
        return HS_ERR_NO_MEMORY;
    world->n_nodes = c->nodes;
    for (uint32_t i = 0; i < c->nodes; i++)
        make_node(world, i);
    int status = clients_create(world);
    if (status == 0)
        status = troubles_create(world);
    for (uint32_t i = 0; status == 0 && i < c->nodes; i++)
        status = world_start_node(&world->nodes[i]);
    return status;
}

int world_create(const struct world_config *config, struct world_result *result, struct world **out)
{
    *result = (struct world_result){.trace = 0xcbf29ce484222325u};
    if (config->nodes < 1 || config->nodes > WORLD_MAX_NODES || config->rate <= 0 || config->models > config->nodes)
        return HS_ERR_INVALID;
    struct world *world = calloc(1, sizeof *world);
    if (!world)
        return HS_ERR_NO_MEMORY;
    world->config = *config;
    world->result = result;
    int status = open_world(world);
    if (status < 0)
        world_destroy(world);
    else
        *out = world;
    return status;
}

static void trace_wire(struct world *world)
{
    struct sim_net_stats stats;
    sim_net_stats(world->net, &stats);
    world_trace(world, stats.sent);
    world_trace(world, stats.delivered);
    world_trace(world, stats.lost + stats.cut);
}

void world_destroy(struct world *world)
{
    if (!world)
        return;
    world->result->virtual_ns = world->now_ns;
    if (world->net)
        trace_wire(world);
    for (uint32_t i = 0; i < world->n_nodes; i++) {
        if (world->nodes[i].up)
            world_stop_node(&world->nodes[i], true);
        pages_bury(&world->nodes[i]);
    }
    if (world->net)
        sim_net_destroy(world->net);
    pages_close(world->reads);
    clients_destroy(world);
    troubles_destroy(world);
    free(world);
}

int world_run(const struct world_config *config, struct world_result *result)
{
    struct world *world;
    int status = world_create(config, result, &world);
    if (status < 0)
        return status;
    run_whole(world);
    world_destroy(world);
    return 0;
}

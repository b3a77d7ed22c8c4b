#include "tests/unit/cluster/fleet.h"

#include <string.h>

#include "core/base/panic.h"

static uint64_t mix(uint64_t x)
{
    struct rng rng;
    rng_seed(&rng, x);
    return rng_u64(&rng);
}

void fleet_prompt(struct job *job, uint64_t head, uint32_t head_blocks, uint64_t tail, uint32_t tail_tokens, uint32_t output_tokens)
{
    *job = (struct job){.n_blocks = head_blocks + tail_tokens / PAGE, .output_tokens = output_tokens, .exclude = UINT32_MAX - 1};
    job->n_tokens = head_blocks * PAGE + tail_tokens;
    hs_assert(job->n_blocks <= FLEET_BLOCKS_MAX);
    uint64_t name = 12345;
    for (uint32_t i = 0; i < job->n_blocks; i++) {
        name = mix(name ^ mix(i < head_blocks ? head : tail));
        job->blocks[i] = name;
    }
}

static uint32_t cached_blocks(const struct fleet_node *node, const struct job *job)
{
    uint32_t n = 0;
    while (n < job->n_blocks && u64_map_get(&node->cache, job->blocks[n]))
        n++;
    return n;
}

static uint32_t uncached_tokens(const struct fleet_node *node, const struct job *job)
{
    uint32_t cached = cached_blocks(node, job) * PAGE;
    return cached < job->n_tokens ? job->n_tokens - cached : 1;
}

void fleet_tell_load(struct fleet *f, uint32_t id)
{
    struct fleet_node *node = &f->nodes[id];
    struct cluster_load load = {
        .waiting = node->n_waiting,
        .running = node->decoding + (node->prefilling != NULL),
        .decode_tokens = node->decode_tokens,
        .prefill_tokens_per_s = (float)f->prefill_tokens_per_s,
        .decode_step_s = (float)(f->step_s * (3 + node->decoding) / 4),
        .free_pages = 1 << 20,
        .total_pages = 1 << 20,
    };
    if (node->prefilling)
        load.prefill_tokens += node->prefilling->n_tokens - node->prefilling->cached_tokens;
    for (uint32_t i = 0; i < node->n_waiting; i++)
        load.prefill_tokens += uncached_tokens(node, node->queue[i]);
    cluster_set_load(f->world.nodes[id].cluster, &load);
    world_kick(&f->world.nodes[id]);
}

static void learn(struct fleet_node *node, const struct job *job)
{
    struct world_node *at = &node->fleet->world.nodes[node - node->fleet->nodes];
    for (uint32_t i = 0; i < job->n_blocks; i++) {
        if (u64_map_get(&node->cache, job->blocks[i]))
            continue;
        u64_map_put(&node->cache, job->blocks[i], 1);
        at->digest.added(at->digest.self, i ? job->blocks[i - 1] : 1, &job->blocks[i], 1);
    }
    world_kick(at);
}

void fleet_warm(struct fleet *f, uint32_t id, const struct job *job)
{
    learn(&f->nodes[id], job);
}

static uint64_t link_ns(const struct job *job)
{
    return job->node == job->entry ? 0 : job->fleet->world.link.delay_ns;
}

static void begin_next(struct fleet_node *node);

static void at_done(void *arg)
{
    struct job *job = arg;
    struct fleet *f = job->fleet;
    job->done_ns = f->world.now_ns;
    cluster_route_finished(f->world.nodes[job->entry].cluster, &job->ticket, ROUTE_DONE, 0);
    f->n_done++;
    f->total_latency_s += (double)(job->done_ns - job->sent_ns) / 1e9;
    f->total_cached_tokens += job->cached_tokens;
    if (f->on_done)
        f->on_done(f, job);
}

static void at_decoded(void *arg)
{
    struct job *job = arg;
    struct fleet *f = job->fleet;
    struct fleet_node *node = &f->nodes[job->node];
    node->decoding--;
    node->decode_tokens -= job->output_tokens;
    fleet_tell_load(f, job->node);
    world_at(&f->world, f->world.now_ns + link_ns(job), at_done, job);
}

static void at_prefilled(void *arg)
{
    struct job *job = arg;
    struct fleet *f = job->fleet;
    struct fleet_node *node = &f->nodes[job->node];
    learn(node, job);
    node->prefilling = NULL;
    node->decoding++;
    node->decode_tokens += job->output_tokens;
    double step_s = f->step_s * (3 + node->decoding) / 4;
    world_at(&f->world, f->world.now_ns + (uint64_t)(step_s * job->output_tokens * 1e9), at_decoded, job);
    begin_next(node);
}

static void at_started(void *arg)
{
    struct job *job = arg;
    cluster_route_started(job->fleet->world.nodes[job->entry].cluster, &job->ticket, &job->query, job->cached_tokens);
}

static void begin_next(struct fleet_node *node)
{
    struct fleet *f = node->fleet;
    if (!node->prefilling && node->n_waiting) {
        struct job *job = node->queue[0];
        memmove(node->queue, node->queue + 1, --node->n_waiting * sizeof *node->queue);
        node->prefilling = job;
        uint32_t work = uncached_tokens(node, job);
        job->cached_tokens = job->n_tokens - work;
        node->prefilled_tokens += work;
        node->computed++;
        world_at(&f->world, f->world.now_ns + (uint64_t)(work / f->prefill_tokens_per_s * 1e9), at_prefilled, job);
        world_at(&f->world, f->world.now_ns + link_ns(job), at_started, job);
    }
    fleet_tell_load(f, (uint32_t)(node - f->nodes));
}

static void at_arrival(void *arg)
{
    struct job *job = arg;
    struct fleet_node *node = &job->fleet->nodes[job->node];
    hs_assert(node->n_waiting < FLEET_QUEUE_MAX);
    node->queue[node->n_waiting++] = job;
    begin_next(node);
}

void fleet_query(struct fleet *f, struct job *job, uint32_t entry)
{
    job->fleet = f;
    job->entry = entry;
    job->query = (struct route_query){.blocks = job->blocks,
                                      .n_blocks = job->n_blocks,
                                      .n_tokens = job->n_tokens,
                                      .local_cached_tokens = cached_blocks(&f->nodes[entry], job) * PAGE,
                                      .expected_output_tokens = job->output_tokens,
                                      .exclude = &job->exclude,
                                      .n_exclude = job->exclude != UINT32_MAX - 1};
}

static void at_entry(void *arg)
{
    struct job *job = arg;
    struct fleet *f = job->fleet;
    fleet_query(f, job, job->entry);
    job->sent_ns = f->world.now_ns;
    int rc = cluster_route(f->world.nodes[job->entry].cluster, &job->query, &job->ticket);
    hs_assert(rc == 0);
    job->node = job->ticket.peer == ROUTE_SELF ? job->entry : job->ticket.peer;
    world_at(&f->world, f->world.now_ns + link_ns(job), at_arrival, job);
}

void fleet_submit(struct fleet *f, struct job *job, uint32_t entry, uint64_t at_ns)
{
    job->fleet = f;
    job->entry = entry;
    world_at(&f->world, at_ns, at_entry, job);
}

void fleet_start(struct fleet *f, uint32_t n, uint64_t seed, const struct cluster_config *config, const struct world_link *link)
{
    memset(f, 0, sizeof *f);
    f->prefill_tokens_per_s = 500;
    f->step_s = 0.012;
    world_start(&f->world, n, seed, config, link);
    for (uint32_t i = 0; i < n; i++) {
        f->nodes[i].fleet = f;
        fleet_tell_load(f, i);
    }
    bool ready = world_run_until(&f->world, world_all_routable, 30 * SECOND);
    hs_assert(ready);
    world_run(&f->world, 5 * SECOND); /* round trips are measured */
}

void fleet_stop(struct fleet *f)
{
    world_stop(&f->world);
    for (uint32_t i = 0; i < f->world.n; i++)
        u64_map_fini(&f->nodes[i].cache);
}

static uint32_t wanted;

static bool all_done(struct world *world)
{
    return ((struct fleet *)world)->n_done >= wanted; /* the world is the fleet's first member */
}

bool fleet_finish(struct fleet *f, uint32_t n_done, uint64_t for_ns)
{
    wanted = n_done;
    return world_run_until(&f->world, all_done, for_ns);
}

/* A random mix of sizes and troubles: most worlds are small and have a few kinds of trouble, so that a failure says something. */
#include "core/base/rng.h"
#include "tests/sim/world.h"

static bool one_in(struct rng *rng, uint32_t n)
{
    return rng_below(rng, n) == 0;
}

static uint32_t between(struct rng *rng, uint32_t least, uint32_t most)
{
    return least + (uint32_t)rng_below(rng, most - least + 1);
}

/* Mostly 0. */
static uint32_t some(struct rng *rng, uint32_t most)
{
    return one_in(rng, 3) ? between(rng, 1, most) : 0;
}

static double share(struct rng *rng, double most)
{
    return one_in(rng, 2) ? 0 : (double)between(rng, 1, 100) / 100 * most;
}

static void draw_sizes(struct world_config *c, struct rng *rng)
{
    uint32_t size = (uint32_t)rng_below(rng, 100);
    c->nodes = size < 60 ? between(rng, 2, 5) : size < 95 ? between(rng, 4, 9) : size < 99 ? between(rng, 10, 24) : between(rng, 25, 64);
    c->requests = c->nodes > 24 ? between(rng, 10, 20) : between(rng, 15, 60);
    c->rate = between(rng, 10, 120);
    c->pages = one_in(rng, 3) ? between(rng, 24, 64) : between(rng, 64, 256);
    c->small_pools = one_in(rng, 5) ? between(rng, 1, c->nodes) : 0;
    c->sequences = one_in(rng, 4) ? between(rng, 1, 4) : between(rng, 4, 32);
    c->queue = one_in(rng, 4) ? between(rng, 1, 8) : 0;
    c->push_back = one_in(rng, 3) ? between(rng, 1, 8) : 0;
    c->head_tokens = one_in(rng, 4) ? between(rng, 20, 100) : between(rng, 100, 500);
    c->context = one_in(rng, 6) ? between(rng, 64, 400) : 1024;
    static const char *const routes[] = {"cost", "cost", "cost", "cost", "longest", "none", "mixed", "mixed"};
    c->route = routes[rng_below(rng, 8)];
    c->gossip_ns = 1000000ull * between(rng, 10, 200);
    c->gossip_bytes = one_in(rng, 5) ? between(rng, 4000, 50000) : 1 << 20;
    c->cancel = share(rng, 0.4);
    c->score = share(rng, 0.2);
}

static void draw_wire(struct world_config *c, struct rng *rng)
{
    c->delay_ns = 1000ull * (one_in(rng, 6) ? between(rng, 20000, 200000) : between(rng, 20, 2000));
    c->jitter_ns = one_in(rng, 2) ? c->delay_ns / between(rng, 1, 10) / 1000 * 1000 : 0;
    c->loss = share(rng, 0.1);
    c->duplicate = share(rng, 0.1);
    c->reorder = share(rng, 0.2);
    c->corrupt = share(rng, 0.03);
}

static void draw_troubles(struct world_config *c, struct rng *rng)
{
    uint32_t *const kinds[] = {&c->crash, &c->leave, &c->drain, &c->flush, &c->stop, &c->jump, &c->cut, &c->one_way, &c->split};
    for (uint32_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        *kinds[i] = some(rng, 3);
    c->trouble_ns = 1000000ull * (one_in(rng, 6) ? between(rng, 8000, 40000) : between(rng, 500, 8000));
    c->slow = one_in(rng, 5) ? between(rng, 1, (c->nodes + 1) / 2) : 0;
    c->slowness = between(rng, 2, 100);
    c->liars = one_in(rng, 6) ? between(rng, 1, (c->nodes + 1) / 2) : 0;
    c->drift = one_in(rng, 4) ? between(rng, 1, 10) / 100.0 : 0;
    c->fail = one_in(rng, 10) ? between(rng, 1, 10) / 100.0 : 0;
    c->models = one_in(rng, 8) ? 2 : 1;
    c->page_sizes = one_in(rng, 8) ? between(rng, 2, 3) : 1;
    c->classes = one_in(rng, 10) ? 2 : 1;
}

static void draw_caps(struct world_config *c, struct rng *rng)
{
    c->tree_bytes = one_in(rng, 10) ? between(rng, 3000, 30000) : 0;
    c->advertised = one_in(rng, 10) ? between(rng, 8, 150) : 0;
    c->replicas = one_in(rng, 10) ? between(rng, 8, 300) : 0;
}

/* Last, so that what a seed draws besides is as it was before there were reads. */
static void draw_reads(struct world_config *c, struct rng *rng)
{
    uint32_t kind = (uint32_t)rng_below(rng, 4);
    c->one_sided = kind < 2 ? 0 : kind == 2 ? c->nodes : between(rng, 1, c->nodes);
    c->unpublished = one_in(rng, 5) ? between(rng, 1, (c->nodes + 1) / 2) : 0;
    c->read_ns = 1000ull * (one_in(rng, 4) ? between(rng, 50, 3000) : between(rng, 1, 50));
    c->read_jitter_ns = one_in(rng, 2) ? c->read_ns * between(rng, 1, 10) / 5 : 0;
    c->torn = share(rng, 0.5);
    c->read_fail = one_in(rng, 4) ? share(rng, 0.3) : 0;
    c->read_lost = one_in(rng, 4) ? share(rng, 0.1) : 0;
    c->blind = some(rng, 4);
    c->miscounts = one_in(rng, 6) ? between(rng, 1, (c->nodes + 1) / 2) : 0;
    uint64_t quick_ns = one_in(rng, 4) ? 1000000ull * between(rng, 1, 9) : 0;
    if (!c->one_sided)
        c->unpublished = c->blind = c->miscounts = 0;
    else if (quick_ns && c->nodes <= 6) /* more would only make it slow */
        c->gossip_ns = quick_ns;
}

void world_draw(struct world_config *config, uint64_t seed)
{
    struct rng rng;
    rng_seed(&rng, seed ^ UINT64_C(0x5eed0f7401b1e5));
    world_defaults(config);
    config->seed = seed;
    draw_sizes(config, &rng);
    draw_wire(config, &rng);
    draw_troubles(config, &rng);
    draw_caps(config, &rng);
    draw_reads(config, &rng);
}

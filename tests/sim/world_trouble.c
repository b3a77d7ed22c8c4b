/* What the world does to its nodes and links: planned ahead from the seed, begun and ended at their times. */
#include <stdlib.h>

#include "tests/sim/world_internal.h"

enum trouble_kind { CRASH, LEAVE, DRAIN, FLUSH, STOP, JUMP, CUT, ONE_WAY, SPLIT, BLIND, N_KINDS };

struct trouble {
    enum trouble_kind kind;
    uint64_t begin_ns, end_ns;
    uint32_t victim, other; /* nodes */
    uint64_t side;          /* SPLIT: bit i: node i is on the other side */
    bool begun, done;
};

static const char *const NAMES[N_KINDS] = {"crash", "leave", "drain", "flush", "stop", "jump", "cut", "one-way", "split", "blindness"};
static const uint64_t START_NS = 500000000; /* the first request; links may be in trouble before */

static uint32_t n_serving(const struct world *world, uint32_t model)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < world->n_nodes; i++)
        n += world->nodes[i].model == model && world_node_serves(&world->nodes[i]);
    return n;
}

static void block(struct world *world, uint32_t from, uint32_t to, bool on)
{
    world->blocked[from][to] = (uint16_t)(world->blocked[from][to] + (on ? 1 : -1));
    struct sim_link link;
    const char *a = world->nodes[from].address, *b = world->nodes[to].address;
    if (sim_net_get_link(world->net, a, b, &link) < 0)
        return;
    link.cut = world->blocked[from][to] > 0;
    sim_net_set_link(world->net, a, b, &link);
}

static void set_links(struct world *world, const struct trouble *trouble, bool on)
{
    if (trouble->kind != SPLIT) {
        block(world, trouble->victim, trouble->other, on);
        if (trouble->kind == CUT)
            block(world, trouble->other, trouble->victim, on);
        return;
    }
    for (uint32_t i = 0; i < world->n_nodes; i++)
        for (uint32_t j = 0; j < world->n_nodes; j++)
            if ((trouble->side >> i & 1) != (trouble->side >> j & 1))
                block(world, i, j, on);
}

/* Nodes go away only where another of the model is left to ask. */
static bool may_begin(const struct trouble *trouble, const struct world *world)
{
    const struct world_node *victim = &world->nodes[trouble->victim];
    switch (trouble->kind) {
    case CRASH:
    case LEAVE:
    case DRAIN:
    case STOP:
        return victim->up && !victim->draining && !victim->stopped && n_serving(world, victim->model) > 1;
    case FLUSH:
        return world_node_runs(victim);
    case JUMP:
    case BLIND:
        return true;
    case CUT:
    case ONE_WAY:
    case SPLIT:
        return world->n_nodes > 1;
    case N_KINDS:
        break;
    }
    return false;
}

static void begin(struct trouble *trouble, struct world *world)
{
    struct world_node *victim = &world->nodes[trouble->victim];
    trouble->begun = true;
    if (!may_begin(trouble, world)) {
        trouble->done = true;
        return;
    }
    world_note(world, "%s of %s for %.3f s", NAMES[trouble->kind], victim->name, (double)(trouble->end_ns - trouble->begin_ns) / 1e9);
    switch (trouble->kind) {
    case CRASH:
    case LEAVE:
        world_stop_node(victim, trouble->kind == LEAVE);
        break;
    case DRAIN:
        victim->draining = true;
        node_drain(victim->node, true);
        world_wake(victim);
        break;
    case FLUSH:
        node_flush(victim->node);
        world_wake(victim);
        break;
    case STOP:
        victim->stopped++;
        break;
    case JUMP:
        clock_jump(&victim->clock, world->now_ns, trouble->end_ns - trouble->begin_ns);
        if (victim->up)
            world_wake(victim);
        break;
    case CUT:
    case ONE_WAY:
    case SPLIT:
        set_links(world, trouble, true);
        break;
    case BLIND:
        victim->n_blind++;
        victim->blindness = (enum blindness)(1 + trouble->side % (BLINDNESSES - 1));
        break;
    case N_KINDS:
        break;
    }
}

static void end(struct trouble *trouble, struct world *world)
{
    struct world_node *victim = &world->nodes[trouble->victim];
    trouble->done = true;
    world_note(world, "%s of %s ends", NAMES[trouble->kind], victim->name);
    switch (trouble->kind) {
    case CRASH:
    case LEAVE:
        world_start_node(victim);
        break;
    case DRAIN:
        victim->draining = false;
        node_drain(victim->node, false);
        world_wake(victim);
        break;
    case STOP:
        victim->stopped--;
        world_wake(victim);
        break;
    case CUT:
    case ONE_WAY:
    case SPLIT:
        set_links(world, trouble, false);
        break;
    case BLIND:
        victim->blindness = --victim->n_blind ? victim->blindness : BLIND_NOT;
        break;
    case FLUSH:
    case JUMP:
    case N_KINDS:
        break;
    }
}

void troubles_step(struct world *world)
{
    if (world->now_ns < world->troubles_due_ns)
        return;
    uint64_t due = UINT64_MAX;
    for (uint32_t i = 0; i < world->n_troubles; i++) {
        struct trouble *trouble = &world->troubles[i];
        if (!trouble->begun && world->now_ns >= trouble->begin_ns)
            begin(trouble, world);
        if (trouble->begun && !trouble->done && world->now_ns >= trouble->end_ns)
            end(trouble, world);
        uint64_t next = trouble->done ? UINT64_MAX : trouble->begun ? trouble->end_ns : trouble->begin_ns;
        due = next < due ? next : due;
    }
    world->troubles_due_ns = due;
}

/* Half of the troubles are short, so that what is under way meets them; the rest lasts long enough to be noticed. */
static uint64_t duration(struct world *world)
{
    uint64_t longest = world->config.trouble_ns ? world->config.trouble_ns : 1, brief = longest / 16 + 1;
    return 1 + rng_below(&world->rng, rng_below(&world->rng, 2) ? longest : brief);
}

static void plan(struct world *world, enum trouble_kind kind, uint32_t n, uint64_t length_ns)
{
    for (uint32_t i = 0; i < n; i++) {
        struct trouble *trouble = &world->troubles[world->n_troubles++];
        *trouble = (struct trouble){.kind = kind};
        trouble->begin_ns = (uint64_t)((double)length_ns * (0.02 + 0.9 * rng_unit(&world->rng)));
        trouble->end_ns = trouble->begin_ns + duration(world);
        trouble->victim = (uint32_t)rng_below(&world->rng, world->n_nodes);
        if (world->n_nodes > 1)
            trouble->other = (trouble->victim + 1 + (uint32_t)rng_below(&world->rng, world->n_nodes - 1)) % world->n_nodes;
        trouble->side = rng_u64(&world->rng);
        if (trouble->end_ns > world->calm_ns)
            world->calm_ns = trouble->end_ns;
    }
}

int troubles_create(struct world *world)
{
    const struct world_config *c = &world->config;
    const uint32_t counts[N_KINDS] = {c->crash, c->leave, c->drain, c->flush, c->stop, c->jump, c->cut, c->one_way, c->split, c->blind};
    uint32_t total = 0;
    for (int i = 0; i < N_KINDS; i++)
        total += counts[i];
    world->troubles = calloc(total + 1, sizeof *world->troubles);
    if (!world->troubles)
        return -1;
    uint64_t length_ns = START_NS + (uint64_t)(1e9 * c->requests / c->rate);
    for (int i = 0; i < N_KINDS; i++)
        plan(world, (enum trouble_kind)i, counts[i], length_ns);
    return 0;
}

void troubles_destroy(struct world *world)
{
    free(world->troubles);
}

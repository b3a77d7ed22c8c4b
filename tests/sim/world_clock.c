/* Clocks of simulated nodes. */
#include "tests/sim/world_internal.h"

uint64_t clock_local_ns(const struct world_clock *clock, uint64_t world_ns)
{
    return clock->local_ns + (world_ns - clock->world_ns) * clock->per_mille / 1000;
}

uint64_t clock_world_ns(const struct world_clock *clock, uint64_t local_ns)
{
    if (local_ns == UINT64_MAX)
        return UINT64_MAX;
    if (local_ns <= clock->local_ns)
        return clock->world_ns;
    uint64_t ahead = local_ns - clock->local_ns;
    if (ahead > UINT64_MAX / 2000)
        return UINT64_MAX;
    return clock->world_ns + (ahead * 1000 + clock->per_mille - 1) / clock->per_mille;
}

void clock_jump(struct world_clock *clock, uint64_t world_ns, uint64_t by_ns)
{
    clock->local_ns = clock_local_ns(clock, world_ns) + by_ns;
    clock->world_ns = world_ns;
}

static uint64_t now_ns(void *self)
{
    const struct world_node *wn = self;
    return clock_local_ns(&wn->clock, wn->world->now_ns);
}

static uint64_t random_u64(void *self)
{
    return env_random_u64(&((struct world_node *)self)->random);
}

int clock_env(struct world_node *wn)
{
    wn->env = (struct env){.now_ns = now_ns, .random_u64 = random_u64, .self = wn};
    return sim_net_env(wn->world->net, ++wn->world->streams, &wn->random);
}

#include "tests/unit/cluster/digests.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

struct digests digests;

void digests_start_with(uint32_t n, uint64_t seed, const struct world_link *link, const struct cluster_config *config)
{
    digests_stop(); /* a test that failed left its world */
    printf("    seed %llu\n", (unsigned long long)seed);
    rng_seed(&digests.rng, seed);
    world_start(&digests.world, n, seed, config, link);
    assert_true(world_run_until(&digests.world, world_all_routable, 15 * SECOND));
}

void digests_start(uint32_t n, uint64_t seed, const struct world_link *link)
{
    struct cluster_config config = world_config();
    digests_start_with(n, seed, link, &config);
}

void digests_forget(uint32_t node)
{
    u64_map_fini(&digests.held[node]);
    digests.held[node] = (struct u64_map){0};
}

void digests_stop(void)
{
    world_stop(&digests.world);
    digests.world = (struct world){0};
    for (uint32_t i = 0; i < WORLD_NODES_MAX; i++)
        digests_forget(i);
}

/* A name says who holds it, so that "somebody holds it" tells whose replica has it. */
void digests_add(uint32_t node, uint32_t n)
{
    uint64_t names[256];
    struct world_node *at = &digests.world.nodes[node];
    assert_true(n <= 256);
    for (uint32_t i = 0; i < n; i++) {
        names[i] = rng_u64(&digests.rng);
        u64_map_put(&digests.held[node], names[i], 1);
    }
    at->digest.added(at->digest.self, 1, names, n);
    world_kick(at);
}

void digests_drop(uint32_t node, uint32_t n)
{
    uint64_t name, value;
    size_t cursor = 0;
    struct world_node *at = &digests.world.nodes[node];
    while (n-- && u64_map_next(&digests.held[node], &cursor, &name, &value)) {
        at->digest.removed(at->digest.self, &name, 1);
        u64_map_remove(&digests.held[node], name);
        cursor = 0;
    }
    world_kick(at);
}

static bool knows(uint32_t at, uint32_t origin)
{
    if (world_view(&digests.world, at, origin).replica_blocks != digests.held[origin].len)
        return false;
    uint64_t name, value;
    size_t cursor = 0;
    struct radix_listener *digest = &digests.world.nodes[at].digest;
    while (u64_map_next(&digests.held[origin], &cursor, &name, &value))
        if (!digest->held_elsewhere(digest->self, name))
            return false;
    return true;
}

static bool all_equal(void)
{
    const struct world *world = &digests.world;
    for (uint32_t a = 0; a < world->n; a++)
        for (uint32_t b = 0; b < world->n; b++)
            if (a != b && world->nodes[a].cluster && world->nodes[b].cluster && !knows(a, b))
                return false;
    return true;
}

/* World time passes in steps, because looking at everything after every event would take long. */
uint64_t digests_until_equal(uint64_t at_most_ns)
{
    uint64_t from_ns = digests.world.now_ns;
    while (!all_equal() && digests.world.now_ns - from_ns < at_most_ns)
        world_run(&digests.world, 5 * MS);
    assert_true(all_equal());
    return digests.world.now_ns - from_ns;
}

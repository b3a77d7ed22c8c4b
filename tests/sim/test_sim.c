/* Simulated worlds from a fixed list of seeds: quiet, lossy, crashing, cramped; and equal seeds give equal traces. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

#include "core/base/log.h"
#include "tests/sim/world.h"

static struct world_result run(const struct world_config *config)
{
    struct world_result result;
    assert_int_equal(world_run(config, &result), 0);
    if (result.failures)
        fprintf(stderr, "repeat with: sim_world --seed %llu and this test's settings\n", (unsigned long long)config->seed);
    assert_int_equal(result.failures, 0);
    return result;
}

static void quiet_world(void **state)
{
    struct world_config config;
    world_defaults(&config);
    config.loss = config.duplicate = config.reorder = 0;
    struct world_result r = run(&config);
    assert_true(r.forwarded > 0);
    assert_true(r.cached_tokens > r.prompt_tokens / 4);
    assert_int_equal(r.takeovers, 0);
}

static void lossy_worlds(void **state)
{
    for (uint64_t seed = 100; seed < 108; seed++) {
        struct world_config config;
        world_defaults(&config);
        config.seed = seed;
        config.loss = 0.05;
        config.reorder = 0.1;
        config.duplicate = 0.05;
        run(&config);
    }
}

static void crashing_worlds(void **state)
{
    uint64_t takeovers = 0;
    for (uint64_t seed = 200; seed < 224; seed++) {
        struct world_config config;
        world_defaults(&config);
        config.seed = seed;
        config.crashes = 3;
        config.loss = seed % 2 ? 0.03 : 0;
        takeovers += run(&config).takeovers;
    }
    assert_true(takeovers > 0); /* otherwise nothing was tested */
}

static void far_apart(void **state)
{
    for (uint64_t seed = 300; seed < 303; seed++) {
        struct world_config config;
        world_defaults(&config);
        config.seed = seed;
        config.delay_ns = 100000000;
        config.jitter_ns = 20000000;
        config.crashes = 1;
        run(&config);
    }
}

static void cramped_worlds(void **state)
{
    uint64_t preemptions = 0;
    for (uint64_t seed = 400; seed < 408; seed++) {
        struct world_config config;
        world_defaults(&config);
        config.seed = seed;
        config.n_pages = 64;
        config.rate_per_s = 200;
        config.crashes = 1;
        preemptions += run(&config).preemptions;
    }
    assert_true(preemptions > 0);
}

static void draining_worlds(void **state)
{
    for (uint64_t seed = 500; seed < 506; seed++) {
        struct world_config config;
        world_defaults(&config);
        config.seed = seed;
        config.drains = 3;
        run(&config);
    }
}

static void parting_worlds(void **state)
{
    uint64_t takeovers = 0;
    for (uint64_t seed = 800; seed < 814; seed++) {
        struct world_config config;
        world_defaults(&config);
        config.seed = seed;
        config.cuts = 3;
        config.crashes = seed % 2;
        takeovers += run(&config).takeovers;
    }
    assert_true(takeovers > 0);
}

static void other_routes(void **state)
{
    const char *const routes[] = {"longest", "none"};
    for (int i = 0; i < 2; i++) {
        struct world_config config;
        world_defaults(&config);
        config.seed = 600;
        config.crashes = 2;
        config.route = routes[i];
        struct world_result r = run(&config);
        assert_true(i == 0 ? r.forwarded > 0 : r.forwarded == 0);
    }
}

static void same_seed_same_trace(void **state)
{
    struct world_config config;
    world_defaults(&config);
    config.seed = 700;
    config.crashes = 2;
    config.n_requests = 100;
    uint64_t first = run(&config).trace;
    assert_true(run(&config).trace == first);
    config.seed = 701;
    assert_true(run(&config).trace != first);
}

int main(void)
{
    log_setup(LOG_LEVEL_ERROR, LOG_FORMAT_TEXT);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(quiet_world),    cmocka_unit_test(lossy_worlds),   cmocka_unit_test(crashing_worlds),
        cmocka_unit_test(far_apart),      cmocka_unit_test(cramped_worlds), cmocka_unit_test(draining_worlds),
        cmocka_unit_test(parting_worlds), cmocka_unit_test(other_routes),   cmocka_unit_test(same_seed_same_trace),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Simulated worlds, one kind of trouble at a time, with a fixed list of seeds; and equal seeds give equal traces. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

#include "core/base/log.h"
#include "tests/sim/world_options.h"

static struct world_result run(const struct world_config *config)
{
    struct world_result result;
    assert_int_equal(world_run(config, &result), 0);
    if (result.failures) {
        printf("repeat with: sim_world ");
        world_print_options(config, stdout);
        printf("\n");
    }
    assert_int_equal(result.failures, 0);
    return result;
}

static struct world_config plain(uint64_t seed)
{
    struct world_config config;
    world_defaults(&config);
    config.seed = seed;
    return config;
}

static void quiet_world(void **state)
{
    struct world_config config = plain(1);
    config.loss = config.duplicate = config.reorder = 0;
    struct world_result r = run(&config);
    assert_true(r.forwarded > 0);
    assert_true(r.cached_tokens > r.prompt_tokens / 4);
    assert_int_equal(r.takeovers, 0);
    assert_int_equal(r.refused + r.too_long + r.crashed + r.broke, 0);
}

static void bad_wires(void **state)
{
    for (uint64_t seed = 100; seed < 104; seed++) {
        struct world_config config = plain(seed);
        config.loss = config.duplicate = 0.05;
        config.reorder = 0.1;
        config.corrupt = 0.02;
        run(&config);
    }
}

static void crashes(void **state)
{
    uint64_t takeovers = 0;
    for (uint64_t seed = 200; seed < 210; seed++) {
        struct world_config config = plain(seed);
        config.crash = 3;
        config.leave = seed % 3;
        config.loss = seed % 2 ? 0.03 : 0;
        takeovers += run(&config).takeovers;
    }
    assert_true(takeovers > 0); /* otherwise nothing was tested */
}

static void far_apart(void **state)
{
    for (uint64_t seed = 300; seed < 302; seed++) {
        struct world_config config = plain(seed);
        config.delay_ns = 100000000;
        config.jitter_ns = 20000000;
        config.crash = 1;
        run(&config);
    }
}

static void out_of_pages(void **state)
{
    uint64_t preemptions = 0;
    uint32_t too_long = 0;
    for (uint64_t seed = 400; seed < 404; seed++) {
        struct world_config config = plain(seed);
        config.pages = seed % 2 ? 64 : 24;
        config.rate = 200;
        config.crash = 1;
        config.small_pools = seed % 3;
        struct world_result r = run(&config);
        preemptions += r.preemptions;
        too_long += r.too_long;
    }
    assert_true(preemptions > 0);
    assert_true(too_long > 0);
}

static void full_queues(void **state)
{
    uint32_t refused = 0;
    for (uint64_t seed = 450; seed < 453; seed++) {
        struct world_config config = plain(seed);
        config.queue = 3;
        config.sequences = 2;
        config.rate = 400;
        refused += run(&config).refused;
    }
    assert_true(refused > 0);
}

static void drains_and_flushes(void **state)
{
    for (uint64_t seed = 500; seed < 503; seed++) {
        struct world_config config = plain(seed);
        config.drain = config.flush = 3;
        run(&config);
    }
}

static void partitions(void **state)
{
    uint64_t takeovers = 0;
    for (uint64_t seed = 800; seed < 806; seed++) {
        struct world_config config = plain(seed);
        config.cut = 2;
        config.one_way = seed % 3;
        config.split = 1;
        config.crash = seed % 2;
        takeovers += run(&config).takeovers;
    }
    assert_true(takeovers > 0);
}

static void stops_and_clocks(void **state)
{
    uint64_t takeovers = 0;
    for (uint64_t seed = 900; seed < 904; seed++) {
        struct world_config config = plain(seed);
        config.stop = config.jump = 3;
        config.drift = 0.1;
        config.trouble_ns = 12000000000;
        takeovers += run(&config).takeovers;
    }
    assert_true(takeovers > 0);
}

static void odd_nodes(void **state)
{
    uint32_t broke = 0;
    for (uint64_t seed = 950; seed < 954; seed++) {
        struct world_config config = plain(seed);
        config.nodes = 6;
        config.slow = config.liars = 2;
        config.models = 1 + seed % 2;
        config.page_sizes = 1 + seed / 2 % 2;
        config.classes = 1 + seed % 2;
        config.fail = 0.3;
        broke += run(&config).broke;
    }
    assert_true(broke > 0);
}

static void large_groups(void **state)
{
    struct world_config config = plain(960);
    config.nodes = 24;
    config.requests = 60;
    config.crash = 2;
    assert_true(run(&config).forwarded > 0);
    config.nodes = 64;
    config.requests = 20;
    run(&config);
}

static void other_routes(void **state)
{
    const char *const routes[] = {"longest", "mixed", "none"};
    for (int i = 0; i < 3; i++) {
        struct world_config config = plain(600);
        config.crash = 2;
        config.route = routes[i];
        struct world_result r = run(&config);
        assert_true(i < 2 ? r.forwarded > 0 : r.forwarded == 0);
    }
}

/* Digests that are read one-sidedly: by all, by some, with whatever may become of a read. */
static void one_sided_reads(void **state)
{
    uint64_t reads = 0, failed = 0;
    for (uint64_t seed = 970; seed < 982; seed++) {
        struct world_config config = plain(seed);
        config.nodes = 5;
        config.requests = 80;
        config.one_sided = seed % 3 ? 5 : 3;
        config.unpublished = seed % 4 == 1 ? 2 : 0;
        config.torn = seed % 2 ? 0.3 : 0;
        config.read_fail = seed % 4 == 2 ? 0.2 : 0;
        config.read_lost = seed % 5 == 3 ? 0.1 : 0;
        config.blind = seed % 3;
        config.crash = config.flush = config.stop = 2;
        config.cut = config.one_way = seed % 2;
        config.trouble_ns = 3000000000;
        struct world_result r = run(&config);
        reads += r.reads;
        failed += r.reads_failed;
    }
    assert_true(reads > 1000 && failed > 100 && failed < reads / 2);
}

/* Counts that authenticate and are wrong cost those who believe them little. */
static void wrong_counts(void **state)
{
    for (uint64_t seed = 990; seed < 996; seed++) {
        struct world_config config = plain(seed);
        config.requests = 80;
        config.one_sided = seed % 3 ? 4 : 0;
        config.miscounts = seed % 2 ? 4 : 2;
        config.gossip_bytes = seed % 3 == 1 ? 8000 : config.gossip_bytes;
        config.flush = 3;
        run(&config);
    }
}

static void same_seed_same_trace(void **state)
{
    for (uint64_t seed = 1; seed <= 20; seed++) {
        struct world_config config;
        world_draw(&config, seed);
        uint64_t first = run(&config).trace;
        assert_true(run(&config).trace == first);
        config.seed += 1000;
        assert_true(run(&config).trace != first);
    }
}

int main(void)
{
    log_setup(LOG_LEVEL_ERROR, LOG_FORMAT_TEXT);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(quiet_world),      cmocka_unit_test(bad_wires),    cmocka_unit_test(crashes),
        cmocka_unit_test(far_apart),        cmocka_unit_test(out_of_pages), cmocka_unit_test(full_queues),
        cmocka_unit_test(drains_and_flushes), cmocka_unit_test(partitions), cmocka_unit_test(stops_and_clocks),
        cmocka_unit_test(odd_nodes),        cmocka_unit_test(large_groups), cmocka_unit_test(other_routes),
        cmocka_unit_test(one_sided_reads),  cmocka_unit_test(wrong_counts), cmocka_unit_test(same_seed_same_trace),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

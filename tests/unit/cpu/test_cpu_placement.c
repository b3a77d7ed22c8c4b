/* Which worker runs where and which panels it reads: the pure functions, and nodes found on a machine that hwloc makes up. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#include "core/cpu/placement.h"

static struct topology two_nodes(uint32_t first_cpus, uint32_t second_cpus)
{
    struct topology t = {.n_nodes = 2, .nodes = {{.index = 0}, {.index = 3}}};
    for (uint32_t cpu = 0; cpu < first_cpus + second_cpus; cpu++)
        CPU_SET(cpu, &t.nodes[cpu >= first_cpus].cpus);
    return t;
}

static struct placement plan(const struct topology *t, uint32_t n_workers, const uint32_t *cpus, uint32_t n_cpus)
{
    struct placement p;
    struct error err;
    assert_int_equal(placement_plan(t, n_workers, cpus, n_cpus, &p, &err), 0);
    assert_int_equal(p.n_workers, n_workers);
    return p;
}

static void check_nodes(const struct placement *p, const char *nodes)
{
    for (uint32_t i = 0; i < p->n_workers; i++)
        assert_int_equal(p->workers[i].node, nodes[i] - '0');
}

static void test_one_node_pins_nobody(void **state)
{
    struct topology t = {.n_nodes = 1};
    CPU_SET(0, &t.nodes[0].cpus);
    CPU_SET(1, &t.nodes[0].cpus);
    struct placement p = plan(&t, 3, NULL, 0);
    check_nodes(&p, "000");
    assert_int_equal(p.nodes, 1);
    for (uint32_t i = 0; i < 3; i++)
        assert_false(p.workers[i].pinned);
    placement_fini(&p);
}

static void test_workers_are_shared_out_by_cpus(void **state)
{
    static const struct {
        uint32_t n_workers;
        const char *nodes;
    } cases[] = {{1, "0"}, {2, "00"}, {3, "001"}, {6, "000011"}, {9, "000000111"}};
    const struct topology t = two_nodes(4, 2);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct placement p = plan(&t, cases[i].n_workers, NULL, 0);
        check_nodes(&p, cases[i].nodes);
        for (uint32_t w = 0; w < p.n_workers; w++) {
            assert_true(p.workers[w].pinned);
            assert_true(CPU_EQUAL(&p.workers[w].cpus, &t.nodes[p.workers[w].node].cpus));
        }
        assert_int_equal(p.nodes, cases[i].n_workers < 3 ? 1 : 3);
        placement_fini(&p);
    }
}

static void test_a_list_is_ordered_by_nodes(void **state)
{
    const struct topology t = two_nodes(4, 4);
    const uint32_t cpus[] = {0, 4, 1, 5}, order[] = {0, 1, 0, 4, 5, 4};
    struct placement p = plan(&t, 6, cpus, 4);
    check_nodes(&p, "000111");
    for (uint32_t i = 0; i < 6; i++) {
        assert_true(p.workers[i].pinned);
        assert_int_equal(CPU_COUNT(&p.workers[i].cpus), 1);
        assert_true(CPU_ISSET(order[i], &p.workers[i].cpus));
    }
    placement_fini(&p);
}

static void test_unknown_cpus_count_as_the_first_node(void **state)
{
    const struct topology t = two_nodes(1, 1);
    const uint32_t cpus[] = {9, 100000};
    struct placement p = plan(&t, 2, cpus, 2);
    check_nodes(&p, "00");
    assert_true(CPU_ISSET(9, &p.workers[0].cpus));
    assert_int_equal(CPU_COUNT(&p.workers[1].cpus), 0); /* worker_pool_create refuses it */
    placement_fini(&p);
}

/* Whatever the numbers: runs follow each other and hold all panels, and nobody has more than two chunks above an even share. */
static void test_runs_of_panels(void **state)
{
    for (uint32_t n_workers = 1; n_workers <= 20; n_workers++) {
        for (uint32_t n_panels = 1; n_panels <= 300; n_panels++) {
            const uint32_t chunk = placement_chunk_panels(n_panels, n_workers);
            assert_in_range(chunk, 1, n_panels);
            assert_int_equal(placement_first_panel(n_panels, n_workers, 0), 0);
            assert_int_equal(placement_first_panel(n_panels, n_workers, n_workers), n_panels);
            for (uint32_t w = 0; w < n_workers; w++) {
                uint32_t first = placement_first_panel(n_panels, n_workers, w), end = placement_first_panel(n_panels, n_workers, w + 1);
                assert_true(first <= end);
                assert_true(end - first <= n_panels / n_workers + 2 * chunk);
            }
        }
    }
}

static void test_cuts(void **state)
{
    const size_t mib = 1 << 20;
    assert_int_equal(placement_cut(0x1000, 100, 100), 0x1000);
    assert_int_equal(placement_cut(0x17ff, mib, mib), 0x1000);
    assert_int_equal(placement_cut(0x1800, mib, 100 * mib), 0x2000);
    assert_int_equal(placement_cut(0x1800, 100 * mib, 8 * mib - 1), 0x2000);
    assert_int_equal(placement_cut(0x2fffff, 8 * mib, 8 * mib), 0x200000);
    assert_int_equal(placement_cut(0x300000, 8 * mib, 80 * mib), 0x400000);
}

/* Two nodes of a CPU each, as hwloc describes them without looking at the machine. */
static void test_nodes_are_found(void **state)
{
    cpu_set_t allowed;
    struct topology t;
    setenv("HWLOC_SYNTHETIC", "node:2 pu:1", 1);
    topology_init(&t);
    unsetenv("HWLOC_SYNTHETIC");
    assert_int_equal(sched_getaffinity(0, sizeof allowed, &allowed), 0);
    if (!t.handle || !CPU_ISSET(0, &allowed) || !CPU_ISSET(1, &allowed)) { /* built without hwloc, or too small a machine */
        topology_fini(&t);
        skip();
    }
    assert_int_equal(t.n_nodes, 2);
    for (uint32_t i = 0; i < 2; i++) {
        assert_int_equal(t.nodes[i].index, i);
        assert_int_equal(CPU_COUNT(&t.nodes[i].cpus), 1);
        assert_true(CPU_ISSET(i, &t.nodes[i].cpus));
    }
    topology_fini(&t);
}

/* Two kinds of memory beside the same CPUs, as high-bandwidth or expansion memory is: one node, or each CPU would count twice. */
static void test_a_cpu_has_one_node(void **state)
{
    cpu_set_t allowed;
    struct topology t;
    setenv("HWLOC_SYNTHETIC", "[numa] [numa] pu:2", 1);
    topology_init(&t);
    unsetenv("HWLOC_SYNTHETIC");
    assert_int_equal(sched_getaffinity(0, sizeof allowed, &allowed), 0);
    assert_int_equal(t.n_nodes, 1);
    assert_true(CPU_COUNT(&t.nodes[0].cpus) <= CPU_COUNT(&allowed));
    topology_fini(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_node_pins_nobody),
        cmocka_unit_test(test_workers_are_shared_out_by_cpus),
        cmocka_unit_test(test_a_list_is_ordered_by_nodes),
        cmocka_unit_test(test_unknown_cpus_count_as_the_first_node),
        cmocka_unit_test(test_runs_of_panels),
        cmocka_unit_test(test_cuts),
        cmocka_unit_test(test_nodes_are_found),
        cmocka_unit_test(test_a_cpu_has_one_node),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/*
 * On a machine of several NUMA nodes: the kernel is asked where each page of the weights and of the KV pool stands, and each worker where
 * it runs. Exit 77 on a machine of one node; tests/lab/numa-test runs it in a virtual machine of two.
 */
#include <semaphore.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cmocka.h>

#include "core/cpu/kv_pool.h"
#include "core/cpu/weights.h"
#include "core/cpu/worker_pool.h"
#include "tests/unit/cpu/tiny_model.h"

enum { PAGE_BYTES = 4096, KV_PAGES = 512, KV_PAGE_TOKENS = 16, WORKERS_PER_NODE = 2, CHUNKS = 200 };

/* Some MiB of weights, with matrices below and above what is cut at huge pages. */
static const struct tiny_options options = {.n_layers = 2,
                                            .d_model = 512,
                                            .d_ff = 1024,
                                            .n_heads = 8,
                                            .n_kv_heads = 2,
                                            .d_head = 64,
                                            .n_vocab = 20000,
                                            .type = TENSOR_F16,
                                            .tied = true,
                                            .seed = 1};

static struct topology topology;
static struct placement placement;

/* The kernel's number of the node that a page stands on; negative: on none. */
static int node_of_page(uintptr_t address)
{
    void *page = (void *)address;
    int node = -1;
    assert_int_equal(syscall(SYS_move_pages, 0, 1UL, &page, NULL, &node, 0), 0);
    return node;
}

static uint32_t worker_of_panel(uint32_t panel, uint32_t n_panels)
{
    uint32_t worker = 0;
    while (panel >= placement_first_panel(n_panels, placement.n_workers, worker + 1))
        worker++;
    return worker;
}

/* Counts the pages that lie within the panels of one node, and those of them that stand elsewhere. */
static void check_matrix(const struct packed_matrix *matrix, size_t panel_bytes, uint32_t before, uint32_t n_panels, uint32_t *pages,
                         uint32_t *elsewhere)
{
    const uintptr_t start = (uintptr_t)matrix->panels, end = start + matrix->n_panels * panel_bytes;
    for (uintptr_t page = (start + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES; page + PAGE_BYTES <= end; page += PAGE_BYTES) {
        uint32_t first = worker_of_panel(before + (uint32_t)((page - start) / panel_bytes), n_panels);
        uint32_t last = worker_of_panel(before + (uint32_t)((page + PAGE_BYTES - 1 - start) / panel_bytes), n_panels);
        const uint32_t node = placement.workers[first].node;
        if (placement.workers[last].node != node)
            continue;
        ++*pages;
        *elsewhere += node_of_page(page) != (int)topology.nodes[node].index;
    }
}

/* One thread on the first node writes everything, so that only placing can bring pages to the others. */
static void test_panels_stand_with_their_workers(void **state)
{
    struct tiny_model *model = tiny_model_create(&options);
    const struct cpu_kernels *kernels = cpu_kernels_generic();
    uint64_t node_bytes[CPU_MAX_NODES], sum = 0;
    uint32_t pages = 0, elsewhere = 0;
    struct weights *w;
    struct error err;
    assert_int_equal(weights_create(tiny_model_desc(model), kernels, WEIGHT_FORM_16BIT, &w, &err), 0);
    assert_true(weights_place(w, &topology, &placement, node_bytes));
    assert_int_equal(sched_setaffinity(0, sizeof topology.nodes[0].cpus, &topology.nodes[0].cpus), 0);
    float *scratch = malloc(weights_fill_scratch(w) * sizeof *scratch);
    for (uint32_t i = 0; i < w->n_chunks; i++)
        weights_fill(w, i, scratch);
    for (uint32_t i = 0; i < topology.n_nodes; i++) {
        sum += node_bytes[i];
        assert_true(node_bytes[i] >= w->panel_bytes / topology.n_nodes / 2);
    }
    assert_int_equal(sum, w->panel_bytes);
    for (uint32_t l = 0; l < options.n_layers; l++) {
        const struct layer_weights *layer = &w->layers[l];
        const struct packed_matrix *matrices[] = {&layer->q, &layer->k, &layer->v, &layer->o, &layer->gate, &layer->up, &layer->down};
        const uint32_t n_qkv = layer->q.n_panels + layer->k.n_panels + layer->v.n_panels;
        for (uint32_t i = 0, before = 0; i < 7; i++) {
            const struct packed_matrix *m = matrices[i];
            const size_t panel_bytes = weight_panel_bytes(m->type, m->n_inputs, kernels->panel_width);
            check_matrix(m, panel_bytes, i < 3 ? before : 0, i < 3 ? n_qkv : m->n_panels, &pages, &elsewhere);
            before += m->n_panels;
        }
    }
    printf("layers: %u pages, %u on another node than their workers\n", pages, elsewhere);
    assert_true(pages > 1000);
    assert_int_equal(elsewhere, 0);
    check_matrix(&w->output, weight_panel_bytes(w->output.type, w->output.n_inputs, kernels->panel_width), 0, w->output.n_panels, &pages,
                 &elsewhere);
    printf("with the output layer, cut at huge pages: %u pages, %u on another node\n", pages, elsewhere);
    assert_true(elsewhere <= topology.n_nodes * (2 << 20) / PAGE_BYTES / 2);
    free(scratch);
    weights_destroy(w);
    tiny_model_destroy(model);
}

static void test_keys_and_values_are_spread(void **state)
{
    struct tiny_model *model = tiny_model_create(&options);
    uint32_t on[CPU_MAX_NODES] = {0}, pages = 0;
    uint16_t key[64] = {0}, value[64] = {0};
    struct kv_pool pool;
    struct error err;
    assert_int_equal(kv_pool_init(&pool, tiny_model_desc(model), KV_PAGES, KV_PAGE_TOKENS, 1, &err), 0);
    assert_true(kv_pool_place(&pool, &topology, placement.nodes));
    for (uint32_t page = 0; page < KV_PAGES; page++)
        for (uint32_t slot = 0; slot < KV_PAGE_TOKENS; slot++)
            for (uint32_t head = 0; head < options.n_layers * options.n_kv_heads; head++)
                kv_pool_store(&pool, page, slot, head / options.n_kv_heads, head % options.n_kv_heads, key, value);
    for (uintptr_t page = (uintptr_t)pool.memory; page < (uintptr_t)pool.memory + kv_pool_bytes(&pool); page += PAGE_BYTES, pages++)
        for (uint32_t i = 0, node = (uint32_t)node_of_page(page); i < topology.n_nodes; i++)
            on[i] += topology.nodes[i].index == node;
    for (uint32_t i = 0; i < topology.n_nodes; i++) {
        printf("keys and values: %u of %u pages on node %u\n", on[i], pages, topology.nodes[i].index);
        assert_true(on[i] >= pages / topology.n_nodes / 2);
    }
    kv_pool_fini(&pool);
    tiny_model_destroy(model);
}

struct job {
    sem_t done;
    _Atomic uint32_t chunks, misplaced;
};

static void run(void *arg, uint32_t worker, uint32_t chunk)
{
    struct job *job = arg;
    atomic_fetch_add(&job->chunks, 1);
    if (!CPU_ISSET(sched_getcpu(), &placement.workers[worker].cpus))
        atomic_fetch_add(&job->misplaced, 1);
}

static uint32_t advance(void *arg, uint32_t worker)
{
    return 0;
}

static void done(void *arg)
{
    sem_post(&((struct job *)arg)->done);
}

static void test_workers_run_on_their_nodes(void **state)
{
    struct job job = {.chunks = 0};
    struct worker_pool *pool;
    struct error err;
    sem_init(&job.done, 0, 0);
    assert_int_equal(worker_pool_create(placement.n_workers, placement.workers, &pool, &err), 0);
    worker_pool_start(pool, &(struct worker_job){run, advance, done, &job}, CHUNKS);
    while (sem_wait(&job.done))
        ;
    worker_pool_destroy(pool);
    assert_int_equal(job.chunks, CHUNKS);
    assert_int_equal(job.misplaced, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_panels_stand_with_their_workers),
        cmocka_unit_test(test_keys_and_values_are_spread),
        cmocka_unit_test(test_workers_run_on_their_nodes),
    };
    struct error err;
    topology_init(&topology);
    if (topology.n_nodes < 2) {
        fprintf(stderr, "skipped: this machine has one NUMA node\n");
        topology_fini(&topology);
        return 77;
    }
    if (placement_plan(&topology, topology.n_nodes * WORKERS_PER_NODE, NULL, 0, &placement, &err))
        return 1;
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    placement_fini(&placement);
    topology_fini(&topology);
    return failed;
}

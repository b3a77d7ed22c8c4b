#include "core/cpu/placement.h"

#include <stdlib.h>

enum {
    CHUNKS_PER_WORKER = 4, /* of a product: enough to even out, few enough to stay cheap */
    PAGE_BYTES = 4096,
    HUGE_PAGE_BYTES = 2 << 20,
    HUGE_PAGES_OF_A_PIECE = 4, /* from which on a cut may be half a huge page off */
};

/* ---- workers ---- */

static uint32_t node_of_cpu(const struct topology *t, uint32_t cpu)
{
    for (uint32_t i = 0; i < t->n_nodes; i++)
        if (cpu < CPU_SETSIZE && CPU_ISSET(cpu, &t->nodes[i].cpus))
            return i;
    return 0;
}

static void pin_to_list(const struct topology *t, const uint32_t *cpus, uint32_t n_cpus, struct placement *p)
{
    uint32_t placed = 0;
    for (uint32_t node = 0; node < t->n_nodes; node++) {
        for (uint32_t i = 0; i < p->n_workers; i++) {
            const uint32_t cpu = cpus[i % n_cpus];
            if (node_of_cpu(t, cpu) != node)
                continue;
            struct worker_place *worker = &p->workers[placed++];
            *worker = (struct worker_place){.node = node, .pinned = true};
            CPU_ZERO(&worker->cpus);
            if (cpu < CPU_SETSIZE)
                CPU_SET(cpu, &worker->cpus);
        }
    }
}

static void share_out(const struct topology *t, struct placement *p)
{
    uint64_t n_cpus = 0;
    for (uint32_t i = 0; i < t->n_nodes; i++)
        n_cpus += (uint32_t)CPU_COUNT(&t->nodes[i].cpus);
    for (uint32_t i = 0, node = 0, end = (uint32_t)CPU_COUNT(&t->nodes[0].cpus); i < p->n_workers; i++) {
        while (i * n_cpus / p->n_workers >= end && node + 1 < t->n_nodes)
            end += (uint32_t)CPU_COUNT(&t->nodes[++node].cpus);
        p->workers[i] = (struct worker_place){.node = node, .pinned = t->n_nodes > 1, .cpus = t->nodes[node].cpus};
    }
}

int placement_plan(const struct topology *topology, uint32_t n_workers, const uint32_t *cpus, uint32_t n_cpus, struct placement *out,
                   struct error *err)
{
    struct placement p = {.workers = calloc(n_workers, sizeof *p.workers), .n_workers = n_workers};
    if (!p.workers)
        return error_set(err, HS_ERR_NO_MEMORY, "placing of workers: out of memory");
    if (n_cpus > 0)
        pin_to_list(topology, cpus, n_cpus, &p);
    else
        share_out(topology, &p);
    for (uint32_t i = 0; i < n_workers; i++)
        p.nodes |= UINT64_C(1) << p.workers[i].node;
    *out = p;
    return 0;
}

void placement_fini(struct placement *placement)
{
    free(placement->workers);
    *placement = (struct placement){0};
}

/* ---- panels ---- */

/* The largest chunks, from a chunk per CHUNKS_PER_WORKER down to half of it, for which the busiest worker has least to do. */
uint32_t placement_chunk_panels(uint32_t n_panels, uint32_t n_workers)
{
    if (n_workers == 1)
        return n_panels;
    const uint32_t most = (n_panels + CHUNKS_PER_WORKER * n_workers - 1) / (CHUNKS_PER_WORKER * n_workers);
    const uint32_t share = (n_panels + n_workers - 1) / n_workers;
    uint32_t best = most, least_work = UINT32_MAX;
    for (uint32_t panels = most; panels > most / 2 && least_work > share; panels--) {
        uint32_t chunks = (n_panels + panels - 1) / panels, work = (chunks + n_workers - 1) / n_workers * panels;
        if (work < least_work) {
            least_work = work;
            best = panels;
        }
    }
    return best;
}

uint32_t placement_first_panel(uint32_t n_panels, uint32_t n_workers, uint32_t worker)
{
    const uint32_t panels = placement_chunk_panels(n_panels, n_workers), n_chunks = (n_panels + panels - 1) / panels;
    const uint64_t first = (uint64_t)n_chunks * worker / n_workers * panels;
    return first < n_panels ? (uint32_t)first : n_panels;
}

uintptr_t placement_cut(uintptr_t wanted, size_t before, size_t after)
{
    const size_t smaller = before < after ? before : after;
    const uintptr_t unit = smaller >= (size_t)HUGE_PAGES_OF_A_PIECE * HUGE_PAGE_BYTES ? HUGE_PAGE_BYTES : PAGE_BYTES;
    return (wanted + unit / 2) / unit * unit;
}

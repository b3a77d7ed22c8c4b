/*
 * Which CPUs each worker runs on, and on which NUMA node the panels stand that it reads. Pure functions of what topology.h found.
 *
 *     workers   0 1 2 3 | 4 5 6 7      in the order of their nodes, so that neighbours share one: who is done takes over from the
 *     panels    0 ...   | ... n - 1    next worker first, and every matrix is cut once for each node
 *
 * Threading: pure functions. Ownership: a placement's arrays are freed by placement_fini.
 */
#ifndef HEARSAY_CPU_PLACEMENT_H
#define HEARSAY_CPU_PLACEMENT_H

#include "core/base/error.h"
#include "core/cpu/topology.h"

struct worker_place {
    uint32_t node; /* in topology.nodes */
    bool pinned;   /* to cpus; else the kernel may move it over all */
    cpu_set_t cpus;
};

struct placement {
    struct worker_place *workers; /* [n_workers], nodes ascending */
    uint32_t n_workers;
    uint64_t nodes; /* that workers are on: bit i for topology.nodes[i] */
};

/*
 * With a list of CPUs worker after worker takes the next of them, over and over, and is pinned to it. Without one, workers are shared
 * out over nodes by their number of CPUs and each is pinned to all CPUs of its node; on a machine of one node to none.
 * 0 or HS_ERR_NO_MEMORY. The CPUs of the list need not exist.
 */
int placement_plan(const struct topology *topology, uint32_t n_workers, const uint32_t *cpus, uint32_t n_cpus, struct placement *out,
                   struct error *err);
void placement_fini(struct placement *placement);

/* Panels that are multiplied in one piece: few enough that none of n_workers has much more to do than another. */
uint32_t placement_chunk_panels(uint32_t n_panels, uint32_t n_workers);
/* The first panel of those that are a worker's own; n_panels for worker n_workers. */
uint32_t placement_first_panel(uint32_t n_panels, uint32_t n_workers, uint32_t worker);

/*
 * Where to cut between memory of two nodes, given the wanted address and the bytes before and after it that belong together: at a
 * page, or where the pieces are so large that it hardly matters at a huge page, of which a cut inside would make small ones.
 */
uintptr_t placement_cut(uintptr_t wanted, size_t before, size_t after);

#endif

/* Built without hwloc: one node of all CPUs. */
#include "core/cpu/topology.h"

void topology_init(struct topology *topology)
{
    *topology = (struct topology){.n_nodes = 1};
    if (sched_getaffinity(0, sizeof topology->nodes[0].cpus, &topology->nodes[0].cpus))
        CPU_ZERO(&topology->nodes[0].cpus);
}

void topology_fini(struct topology *topology)
{
}

bool topology_place(const struct topology *topology, void *memory, size_t bytes, uint64_t nodes)
{
    return false;
}

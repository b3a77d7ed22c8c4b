#include <hwloc.h>
#include <hwloc/glibc-sched.h>

#include "core/cpu/topology.h"

static hwloc_topology_t load(void)
{
    hwloc_topology_t handle;
    if (hwloc_topology_init(&handle))
        return NULL;
    if (hwloc_topology_load(handle) == 0)
        return handle;
    hwloc_topology_destroy(handle);
    return NULL;
}

/* Takes the node's CPUs from those that are left. Several kinds of memory beside the same CPUs are nodes, too: the first counts, plain memory. */
static void add_node(struct topology *t, hwloc_obj_t node, cpu_set_t *left)
{
    cpu_set_t cpus;
    CPU_ZERO(&cpus);
    if (!node->cpuset || hwloc_cpuset_to_glibc_sched_affinity(t->handle, node->cpuset, &cpus, sizeof cpus))
        return;
    CPU_AND(&cpus, &cpus, left);
    if (CPU_COUNT(&cpus) == 0) /* memory alone, or CPUs that others were given */
        return;
    CPU_XOR(left, left, &cpus);
    if (t->n_nodes == CPU_MAX_NODES) {
        CPU_OR(&t->nodes[CPU_MAX_NODES - 1].cpus, &t->nodes[CPU_MAX_NODES - 1].cpus, &cpus);
        return;
    }
    t->nodes[t->n_nodes++] = (struct numa_node){.index = node->os_index, .cpus = cpus};
}

void topology_init(struct topology *topology)
{
    cpu_set_t left; /* of the CPUs that this process may use, those of no node so far */
    *topology = (struct topology){.handle = load()};
    if (sched_getaffinity(0, sizeof left, &left))
        CPU_ZERO(&left);
    if (topology->handle)
        for (hwloc_obj_t node = NULL; (node = hwloc_get_next_obj_by_type(topology->handle, HWLOC_OBJ_NUMANODE, node));)
            add_node(topology, node, &left);
    if (topology->n_nodes == 0)
        topology->nodes[topology->n_nodes++] = (struct numa_node){.cpus = left};
}

void topology_fini(struct topology *topology)
{
    if (topology->handle)
        hwloc_topology_destroy(topology->handle);
    topology->handle = NULL;
}

bool topology_place(const struct topology *topology, void *memory, size_t bytes, uint64_t nodes)
{
    hwloc_bitmap_t set = topology->handle ? hwloc_bitmap_alloc() : NULL;
    if (!set)
        return false;
    for (uint32_t i = 0; i < topology->n_nodes; i++)
        if (nodes >> i & 1)
            hwloc_bitmap_set(set, topology->nodes[i].index);
    hwloc_membind_policy_t policy = hwloc_bitmap_weight(set) > 1 ? HWLOC_MEMBIND_INTERLEAVE : HWLOC_MEMBIND_BIND;
    bool placed = hwloc_set_area_membind(topology->handle, memory, bytes, set, policy, HWLOC_MEMBIND_BYNODESET) == 0;
    hwloc_bitmap_free(set);
    return placed;
}

/*
 * The NUMA nodes of this machine: which CPUs belong to them, and memory that stands on them. On hwloc; in a build without it, and
 * where the kernel knows nothing of nodes, all CPUs are one node and memory stands where it is first touched.
 *
 * Threading: topology_init and topology_fini from one thread; the others from any, on memory of one's own. Placing is advice: a node
 * that is full lends from its neighbours.
 */
#ifndef HEARSAY_CPU_TOPOLOGY_H
#define HEARSAY_CPU_TOPOLOGY_H

#include <sched.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { CPU_MAX_NODES = 64 };

struct numa_node {
    uint32_t index; /* the kernel's number */
    cpu_set_t cpus; /* of it alone, those that this process may use; at least one */
};

struct topology {
    struct numa_node nodes[CPU_MAX_NODES]; /* by index; CPUs of nodes beyond belong to the last */
    uint32_t n_nodes;                      /* at least 1 */
    void *handle;
};

void topology_init(struct topology *topology);
void topology_fini(struct topology *topology);
/*
 * Pages of this memory that are not touched yet shall stand on some nodes, bit i for nodes[i]; on several in turn. False: the kernel
 * refuses.
 */
bool topology_place(const struct topology *topology, void *memory, size_t bytes, uint64_t nodes);

#endif

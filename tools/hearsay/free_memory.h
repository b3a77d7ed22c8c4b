/*
 * How much memory this process may still take: what the machine has free, or less where a control group allows less.
 *
 * A container, a Slurm job and a systemd unit with MemoryMax are control groups. A limit of the own group or of any above it counts, in
 * version 2 (memory.max, memory.high) and in version 1 (memory.limit_in_bytes). Cached file pages of a group count as free, as in the
 * machine's MemAvailable: the kernel takes them back first.
 *
 * Threading: any. Errors: what cannot be read limits nothing.
 */
#ifndef HEARSAY_TOOLS_FREE_MEMORY_H
#define HEARSAY_TOOLS_FREE_MEMORY_H

#include <stdint.h>

struct free_memory {
    uint64_t bytes;  /* 0: not known */
    char under[256]; /* what leaves no more: "on this machine", "under /sys/fs/cgroup/job_7/memory.max" */
};

/* root stands before all paths that are read: "" for this machine's. */
void free_memory_read(const char *root, struct free_memory *out);

#endif

/*
 * Large blocks straight from the kernel: zeroed, page aligned, huge pages advised, touched only when used.
 * Pure system calls; any thread.
 */
#ifndef HEARSAY_CPU_MEMORY_H
#define HEARSAY_CPU_MEMORY_H

#include <stddef.h>

/* NULL when the kernel refuses. */
void *memory_map(size_t bytes);
/* memory may be NULL. */
void memory_unmap(void *memory, size_t bytes);

#endif

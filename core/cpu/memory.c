#include "core/cpu/memory.h"

#include <sys/mman.h>

void *memory_map(size_t bytes)
{
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED)
        return NULL;
    madvise(memory, bytes, MADV_HUGEPAGE); /* advice only: without it everything works, with more TLB misses */
    return memory;
}

void memory_unmap(void *memory, size_t bytes)
{
    if (memory)
        munmap(memory, bytes);
}

#include "tools/hearsay/kv_size.h"

#include <stdio.h>

enum { MIN_PAGES = 2, MAX_PAGES = 1 << 30 };

uint64_t kv_size_free_memory(void)
{
    FILE *file = fopen("/proc/meminfo", "re");
    if (!file)
        return 0;
    char line[128];
    unsigned long long kib = 0;
    while (fgets(line, sizeof line, file)) {
        if (sscanf(line, "MemAvailable: %llu kB", &kib) == 1)
            break;
    }
    fclose(file);
    return kib * 1024;
}

int kv_size_pages(const struct kv_size_request *request, uint32_t *out, struct error *err)
{
    uint64_t page_bytes = request->page_bytes;
    uint64_t pages = request->pages;
    if (!pages && request->memory_bytes) {
        pages = request->memory_bytes / page_bytes;
    } else if (!pages) {
        uint64_t share = request->free_bytes / 4 / page_bytes;
        pages = share < request->useful_pages ? share : request->useful_pages;
    }
    if (pages > MAX_PAGES)
        pages = MAX_PAGES;
    if (pages < MIN_PAGES)
        return error_set(err, HS_ERR_LIMIT, "--kv-memory: room for %llu KV pages of %llu bytes; at least %d are needed",
                         (unsigned long long)pages, (unsigned long long)page_bytes, MIN_PAGES);
    if (request->free_bytes && pages * page_bytes > request->free_bytes)
        return error_set(err, HS_ERR_LIMIT, "%llu KV pages need %llu MiB and %llu MiB are free; give a smaller --kv-memory or --kv-pages",
                         (unsigned long long)pages, (unsigned long long)(pages * page_bytes >> 20),
                         (unsigned long long)(request->free_bytes >> 20));
    *out = (uint32_t)pages;
    return 0;
}

#include "net/counts.h"

int counts_open(const struct count_spec *table, int n, const char *fabric, struct metrics *metrics, struct counter **counters,
                struct error *err)
{
    for (int i = 0; i < n; i++) {
        counters[i] = metrics ? metrics_counter(metrics, table[i].name, "", table[i].help) : NULL;
        if (metrics && !counters[i])
            return error_set(err, HS_ERR_NO_MEMORY, "fabric \"%s\": out of memory", fabric);
    }
    return 0;
}

static uint64_t count_at(const void *counts, size_t offset)
{
    return *(const uint64_t *)((const char *)counts + offset);
}

void counts_tell(const struct count_spec *table, int n, struct counter *const *counters, const void *now, const void *told)
{
    for (int i = 0; i < n && counters[i]; i++)
        counter_add(counters[i], count_at(now, table[i].offset) - count_at(told, table[i].offset));
}

/* The transport's own counts as metrics: carried over now and then, so that the hot path adds to plain numbers. */
#include <stddef.h>

#include "net/verbs/internal.h"

static const struct {
    const char *name, *help;
    size_t offset;
} counts[VERBS_COUNTS] = {
#define COUNT(field, text) {"hearsay_verbs_" #field "_total", text, offsetof(struct transport_verbs_stats, field)}
    COUNT(posts, "Packets posted to queue pairs"),
    COUNT(doorbells, "Calls that posted them"),
    COUNT(completions, "Completions taken"),
    COUNT(credit_stalls, "Times that something to send had to wait for credit"),
    COUNT(credit_packets, "Packets that carried nothing but credit"),
    COUNT(reads, "One-sided reads done"),
    COUNT(read_retries, "One-sided reads begun again"),
    COUNT(read_failures, "One-sided reads that failed"),
    COUNT(wakeups, "Events taken from completion channels"),
#undef COUNT
};

static uint64_t count_of(const struct transport_verbs_stats *stats, int i)
{
    return *(const uint64_t *)((const char *)stats + counts[i].offset);
}

int verbs_counts_open(struct verbs *self, struct error *err)
{
    for (int i = 0; self->config.metrics != NULL && i < VERBS_COUNTS; i++) {
        self->counters[i] = metrics_counter(self->config.metrics, counts[i].name, "", counts[i].help);
        if (self->counters[i] == NULL)
            return error_set(err, HS_ERR_NO_MEMORY, "fabric \"verbs\": out of memory");
    }
    return 0;
}

void verbs_counts_tell(struct verbs *self)
{
    for (int i = 0; self->config.metrics != NULL && i < VERBS_COUNTS; i++)
        counter_add(self->counters[i], count_of(&self->counts, i) - count_of(&self->told, i));
    self->told = self->counts;
}

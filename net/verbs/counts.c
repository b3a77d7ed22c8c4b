/* The transport's own counts as metrics: carried over now and then, so that the hot path adds to plain numbers. */
#include <stddef.h>

#include "net/counts.h"
#include "net/verbs/internal.h"

static const struct count_spec table[VERBS_COUNTS] = {
#define COUNT(field, text) {"hearsay_verbs_" #field "_total", text, offsetof(struct transport_verbs_stats, field)}
    COUNT(posts, "Packets posted to queue pairs"),
    COUNT(doorbells, "Calls that posted them"),
    COUNT(completions, "Completions taken"),
    COUNT(credit_stalls, "Times that something to send had to wait for credit"),
    COUNT(credit_packets, "Packets that carried nothing but credit"),
    COUNT(reads, "One-sided reads done"),
    COUNT(read_retries, "One-sided reads begun again"),
    COUNT(read_failures, "One-sided reads that failed"),
    COUNT(torn_reads, "One-sided reads repeated because the page was being written"),
    COUNT(path_asks, "Questions for path records to the subnet manager"),
    COUNT(wakeups, "Events taken from completion channels"),
#undef COUNT
};

int verbs_counts_open(struct verbs *self, struct error *err)
{
    return counts_open(table, VERBS_COUNTS, "verbs", self->config.metrics, self->counters, err);
}

void verbs_counts_tell(struct verbs *self)
{
    counts_tell(table, VERBS_COUNTS, self->counters, &self->counts, &self->told);
    self->told = self->counts;
}

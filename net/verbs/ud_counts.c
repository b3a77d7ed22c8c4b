/* The datagram carrier's own counts as metrics. */
#include <stddef.h>

#include "net/counts.h"
#include "net/verbs/ud_internal.h"

static const struct count_spec table[UD_COUNTS] = {
#define COUNT(field, text) {"hearsay_verbs_ud_" #field "_total", text, offsetof(struct verbs_ud_stats, field)}
    COUNT(asks, "Questions where a peer's queue pair is"),
    COUNT(tells, "Answers where ours is"),
    COUNT(refused, "Questions and answers without the group's key, or malformed"),
    COUNT(unresolved, "Datagrams dropped because nobody said where their address is"),
    COUNT(foreign, "Datagrams received that are none of a group's"),
    COUNT(pieces, "Pieces received of datagrams that did not fit the path MTU"),
    COUNT(moved, "Questions because a datagram came from another queue pair than the known one"),
    COUNT(restarts, "Times that a queue pair was made ready anew"),
    COUNT(drained, "Times that a receive ring was found to have run empty"),
    COUNT(path_asks, "Questions for path records to the subnet manager"),
    COUNT(doorbells, "Calls that posted datagrams"),
    COUNT(wakeups, "Events taken from completion channels"),
#undef COUNT
};

int ud_counts_open(struct ud *self, struct metrics *metrics, struct error *err)
{
    return counts_open(table, UD_COUNTS, "verbs-ud", metrics, self->counters, err);
}

void ud_counts_tell(struct ud *self)
{
    counts_tell(table, UD_COUNTS, self->counters, &self->counts, &self->told);
    self->told = self->counts;
}

void verbs_ud_stats(const struct carrier *carrier, struct verbs_ud_stats *out)
{
    *out = ud_of(carrier)->counts;
}

/*
 * A fabric's own counts as metrics. The hot path adds to plain numbers in a struct; now and then what is new is carried over.
 *
 * Threading: as the fabric's that owns the counts. Ownership: tables are static, counters belong to the metrics.
 */
#ifndef HEARSAY_NET_COUNTS_H
#define HEARSAY_NET_COUNTS_H

#include <stddef.h>
#include <stdint.h>

#include "core/base/error.h"
#include "core/base/metrics.h"

/* One uint64_t field of the struct of counts. */
struct count_spec {
    const char *name, *help; /* of the metric */
    size_t offset;
};

/* counters[n], one for each row of the table; metrics NULL: none. HS_ERR_NO_MEMORY names the fabric. */
int counts_open(const struct count_spec *table, int n, const char *fabric, struct metrics *metrics, struct counter **counters,
                struct error *err);
/* Adds to the counters what now has beyond told; the caller then notes that as told. counters of counts_open without metrics: nothing. */
void counts_tell(const struct count_spec *table, int n, struct counter *const *counters, const void *now, const void *told);

#endif

/*
 * What a benchmark found: rows of one shape, printed as a table while it runs and written as JSON and as a plot at the end.
 *
 *     {"bench", "version", "machine": {cpu, cores, memory, kernel}, "options",
 *      "rows": [{"case", "metric", "unit", "n", "median", "min", "max", "p50"?, "p99"?, "limit"?, "share_of_limit"?,
 *                "peer"?, "peer_median"?, "ratio"?}]}
 *
 * Ratios above 1 mean that hearsay is better. Threading: one thread.
 */
#ifndef HEARSAY_PERF_REPORT_H
#define HEARSAY_PERF_REPORT_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "core/base/error.h"
#include "perf/samples.h"

struct report_row {
    char name[48]; /* the case: "prefill 512" */
    const char *metric;
    const char *unit;
    size_t n;
    double median, min, max;
    double p50, p99;  /* NaN: not given, as the following */
    double limit;     /* what the machine allows */
    const char *peer; /* NULL: not compared */
    double peer_median, ratio;
};

struct report {
    const char *bench;
    json_t *options; /* owned */
    struct report_row *rows;
    size_t n_rows;
    bool failed; /* out of memory: sticky */
};

void report_init(struct report *report, const char *bench);
void report_fini(struct report *report);
/* Notes an option in force. value is taken over. */
void report_option(struct report *report, const char *name, json_t *value);
/* A new row over the samples (sorted by this); NULL when out of memory. Valid until the next. */
struct report_row *report_add(struct report *report, const char *name, const char *metric, const char *unit,
                              struct samples *samples, bool percentiles);
/* higher_is_better decides which way the ratio goes. */
void report_compare(struct report_row *row, const char *peer, double peer_median, bool higher_is_better);
/* One line on standard output, the heading before the first. */
void report_print_row(const struct report *report, const struct report_row *row);
int report_write_json(const struct report *report, const char *path, struct error *err);
/* The rows alone, in the same words. */
int report_write_csv(const struct report *report, const char *path, struct error *err);

/* Whether plots can be made here: 0, or HS_ERR_UNSUPPORTED with the remedy. */
int report_can_plot(struct error *err);
/* A bar for each row of the most frequent unit, with limits and peers. */
int report_plot(const struct report *report, const char *path, struct error *err);

/* "cpu", "cores", "memory" (bytes), "kernel"; NULL when out of memory. */
json_t *machine_describe(void);

#endif

/*
 * Counters, gauges and histograms, written out in Prometheus' text format (version 0.0.4).
 *
 * A registry owns its metrics; asking twice for the same name and labels gives the same metric. Registering allocates and
 * locks, so do it at start and keep the pointer; changing a metric is one relaxed atomic operation from any thread.
 * Names and labels are ours; text from outside becomes a label by metrics_label. What carries such a label is given back by
 * metrics_release_gauge when its subject goes, so that a registry does not grow with everybody who was ever met.
 *
 * A limit is a bound that this process enforces. All of them are shown under three names, so that one rule watches them all:
 *
 *     hearsay_limit{limit="http_connections"} 8192               the bound
 *     hearsay_limit_used{limit="http_connections"} 17            where it bounds a level: the level
 *     hearsay_limit_hits_total{limit="http_connections"} 0       how often something was refused, dropped or cut because of it
 *
 * docs/limits.md lists them; a test holds that list to what a node shows.
 */
#ifndef HEARSAY_BASE_METRICS_H
#define HEARSAY_BASE_METRICS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "core/base/strbuf.h"

struct metrics;   /* a registry */
struct counter {  /* only grows */
    _Atomic uint64_t value;
};
struct gauge {
    _Atomic int64_t value; /* in units of 1 / scale given at registration */
};
struct histogram;

struct limit_spec {
    const char *name; /* of the label, as in docs/limits.md */
    const char *area; /* of the log line */
    /* What happens and what helps, for the log; NULL: whoever hits it is told already, by an answer that says so. */
    const char *advice;
    bool has_level;
};

struct limit {
    struct limit *next;
    const struct limit_spec *spec;
    uint64_t max;
    struct counter *hits;
    struct gauge *used; /* NULL: no level */
    uint64_t told_hits, told_ns; /* of the last line in the log; metrics_tell_limits only */
};

enum { METRICS_TELL_S = 60 }; /* a limit gets one line in so many seconds */

struct metrics *metrics_create(void);
void metrics_destroy(struct metrics *m);

enum { METRICS_LABEL_BYTES = 192 };

/* key="value", with '_' for whatever in value would break the format, cut where it is too long. Returns the length. */
size_t metrics_label(char out[METRICS_LABEL_BYTES], const char *key, const char *value);

/* labels: "" or `model_name="x",peer="y"`, written as given. NULL only when out of memory. */
struct counter *metrics_counter(struct metrics *m, const char *name, const char *labels, const char *help);
/* Shown as value / scale (scale 1 for whole numbers, 1000000 for fractions). */
struct gauge *metrics_gauge(struct metrics *m, const char *name, const char *labels, const char *help, int64_t scale);
/* bounds: ascending upper bounds in seconds, n at most 40. */
struct histogram *metrics_histogram(struct metrics *m, const char *name, const char *labels, const char *help, const double *bounds, int n);

static inline void counter_add(struct counter *c, uint64_t n)
{
    atomic_fetch_add_explicit(&c->value, n, memory_order_relaxed);
}

static inline uint64_t counter_get(const struct counter *c)
{
    return atomic_load_explicit(&c->value, memory_order_relaxed);
}

static inline void gauge_set(struct gauge *g, int64_t v)
{
    atomic_store_explicit(&g->value, v, memory_order_relaxed);
}

static inline void gauge_add(struct gauge *g, int64_t v)
{
    atomic_fetch_add_explicit(&g->value, v, memory_order_relaxed);
}

static inline int64_t gauge_get(const struct gauge *g)
{
    return atomic_load_explicit(&g->value, memory_order_relaxed);
}

/* Gives back one registration of a gauge; the last one takes it out of the registry, and then it must not be used any more. NULL is fine. */
void metrics_release_gauge(struct metrics *m, struct gauge *gauge);

/* spec outlives the registry. NULL only when out of memory. */
struct limit *metrics_limit(struct metrics *m, const struct limit_spec *spec, uint64_t max);

static inline void limit_hit(struct limit *limit, uint64_t times)
{
    counter_add(limit->hits, times);
}

static inline void limit_use(struct limit *limit, uint64_t used)
{
    gauge_set(limit->used, (int64_t)used);
}

/* For a total that somebody else counts. */
static inline void limit_set_hits(struct limit *limit, uint64_t hits)
{
    atomic_store_explicit(&limit->hits->value, hits, memory_order_relaxed);
}

/* Logs the limits with advice that were hit since their last line, each at most once in METRICS_TELL_S. From one thread. */
void metrics_tell_limits(struct metrics *m, uint64_t now_ns);

void histogram_observe(struct histogram *h, double seconds);

/* Appends the whole registry: metrics of one name together, under one HELP and TYPE. */
void metrics_write(struct metrics *m, struct strbuf *out);

#endif

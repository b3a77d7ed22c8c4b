/*
 * Counters, gauges and histograms, written out in Prometheus' text format (version 0.0.4).
 *
 * A registry owns its metrics; asking twice for the same name and labels gives the same metric. Registering allocates and
 * locks, so do it at start and keep the pointer; changing a metric is one relaxed atomic operation from any thread.
 * Names and labels are ours; text from outside becomes a label by metrics_label.
 */
#ifndef HEARSAY_BASE_METRICS_H
#define HEARSAY_BASE_METRICS_H

#include <stdatomic.h>
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

void histogram_observe(struct histogram *h, double seconds);

/* Appends the whole registry: metrics of one name together, under one HELP and TYPE. */
void metrics_write(struct metrics *m, struct strbuf *out);

#endif

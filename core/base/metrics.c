#include "core/base/metrics.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/log.h"
#include "core/base/panic.h"
#include "core/base/utf8.h"

/*
 *  metrics --> family "a_total" --> series {x="1"} --> series {x="2"}
 *                   |
 *                   v
 *              family "b_seconds" --> series {}
 *
 * Families and series get added at their list's end and stay, so a pointer given out is good until destroy. Gauges alone may go
 * earlier, when all who asked for one have given it back.
 */
enum metric_kind { METRIC_COUNTER, METRIC_GAUGE, METRIC_HISTOGRAM };

enum { HISTOGRAM_BOUNDS_MAX = 40 };

struct histogram {
    int n_bounds;
    double bounds[HISTOGRAM_BOUNDS_MAX];
    _Atomic uint64_t counts[HISTOGRAM_BOUNDS_MAX + 1]; /* the last one: above all bounds */
    _Atomic double sum;
};

struct series {
    struct series *next;
    char *labels;
    uint32_t users; /* registrations not given back */
    int64_t scale;  /* of a gauge */
    union {
        struct counter counter;
        struct gauge gauge;
        struct histogram histogram;
    };
};

struct family {
    struct family *next;
    enum metric_kind kind;
    char *name, *help;
    struct series *series;
};

struct metrics {
    pthread_mutex_t lock; /* guards the lists, not the values */
    struct family *families;
    struct limit *limits;
};

size_t metrics_label(char out[METRICS_LABEL_BYTES], const char *key, const char *value)
{
    int start = snprintf(out, METRICS_LABEL_BYTES, "%s=\"", key);
    hs_assert(start > 0 && start < METRICS_LABEL_BYTES / 2);
    size_t n = (size_t)start, left = strlen(value), len;
    for (; left; value += len, left -= len) {
        bool valid;
        len = utf8_next(value, left, &valid);
        if (n + len + 2 > METRICS_LABEL_BYTES)
            break;
        if (valid && (unsigned char)*value >= ' ' && !strchr("\"\\\x7f", *value)) {
            memcpy(out + n, value, len);
            n += len;
        } else {
            out[n++] = '_';
        }
    }
    memcpy(out + n, "\"", 2);
    return n + 1;
}

struct metrics *metrics_create(void)
{
    struct metrics *m = calloc(1, sizeof *m);
    if (m)
        pthread_mutex_init(&m->lock, NULL);
    return m;
}

static void series_destroy(struct series *s)
{
    free(s->labels);
    free(s);
}

static void family_destroy(struct family *f)
{
    while (f->series) {
        struct series *s = f->series;
        f->series = s->next;
        series_destroy(s);
    }
    free(f->name);
    free(f->help);
    free(f);
}

void metrics_destroy(struct metrics *m)
{
    if (!m)
        return;
    while (m->families) {
        struct family *f = m->families;
        m->families = f->next;
        family_destroy(f);
    }
    while (m->limits) {
        struct limit *limit = m->limits;
        m->limits = limit->next;
        free(limit);
    }
    pthread_mutex_destroy(&m->lock);
    free(m);
}

static struct family *family_find_or_add(struct metrics *m, enum metric_kind kind, const char *name, const char *help)
{
    struct family **link = &m->families;
    for (; *link; link = &(*link)->next) {
        if (strcmp((*link)->name, name) == 0) {
            hs_assert((*link)->kind == kind);
            return *link;
        }
    }
    struct family *f = calloc(1, sizeof *f);
    if (!f)
        return NULL;
    f->kind = kind;
    f->name = strdup(name);
    f->help = strdup(help);
    if (!f->name || !f->help) {
        family_destroy(f);
        return NULL;
    }
    *link = f;
    return f;
}

/* init prepares a new series before others can see it. */
static struct series *series_find_or_add(struct family *f, const char *labels, const struct series *init)
{
    struct series **link = &f->series;
    for (; *link; link = &(*link)->next)
        if (strcmp((*link)->labels, labels) == 0)
            return *link;
    struct series *s = malloc(sizeof *s);
    if (!s)
        return NULL;
    *s = *init;
    s->labels = strdup(labels);
    if (!s->labels) {
        free(s);
        return NULL;
    }
    *link = s;
    return s;
}

static struct series *register_series(struct metrics *m, enum metric_kind kind, const char *name, const char *labels,
                                      const char *help, const struct series *init)
{
    pthread_mutex_lock(&m->lock);
    struct family *f = family_find_or_add(m, kind, name, help);
    struct series *s = f ? series_find_or_add(f, labels, init) : NULL;
    if (s)
        s->users++;
    pthread_mutex_unlock(&m->lock);
    return s;
}

struct counter *metrics_counter(struct metrics *m, const char *name, const char *labels, const char *help)
{
    struct series *s = register_series(m, METRIC_COUNTER, name, labels, help, &(struct series){0});
    return s ? &s->counter : NULL;
}

struct gauge *metrics_gauge(struct metrics *m, const char *name, const char *labels, const char *help, int64_t scale)
{
    hs_assert(scale > 0);
    struct series *s = register_series(m, METRIC_GAUGE, name, labels, help, &(struct series){.scale = scale});
    return s ? &s->gauge : NULL;
}

/* The series that holds the gauge, as the link that leads to it; NULL: there is none. */
static struct series **find_gauge(struct metrics *m, const struct gauge *gauge)
{
    for (struct family *f = m->families; f; f = f->next) {
        if (f->kind != METRIC_GAUGE)
            continue;
        for (struct series **link = &f->series; *link; link = &(*link)->next)
            if (&(*link)->gauge == gauge)
                return link;
    }
    return NULL;
}

void metrics_release_gauge(struct metrics *m, struct gauge *gauge)
{
    if (!gauge)
        return;
    pthread_mutex_lock(&m->lock);
    struct series **link = find_gauge(m, gauge);
    hs_assert(link && (*link)->users);
    struct series *s = *link;
    if (--s->users == 0) {
        *link = s->next;
        series_destroy(s);
    }
    pthread_mutex_unlock(&m->lock);
}

struct limit *metrics_limit(struct metrics *m, const struct limit_spec *spec, uint64_t max)
{
    char label[METRICS_LABEL_BYTES];
    metrics_label(label, "limit", spec->name);
    struct gauge *bound = metrics_gauge(m, "hearsay_limit", label, "Bounds that this node enforces; docs/limits.md explains each.", 1);
    struct limit *limit = calloc(1, sizeof *limit);
    if (!bound || !limit)
        goto fail;
    *limit = (struct limit){.spec = spec, .max = max};
    limit->hits = metrics_counter(m, "hearsay_limit_hits_total", label, "Times that something was refused, dropped or cut by a limit.");
    if (spec->has_level)
        limit->used = metrics_gauge(m, "hearsay_limit_used", label, "How much of a limit is in use.", 1);
    if (!limit->hits || (spec->has_level && !limit->used))
        goto fail;
    gauge_set(bound, (int64_t)max);
    pthread_mutex_lock(&m->lock);
    limit->next = m->limits;
    m->limits = limit;
    pthread_mutex_unlock(&m->lock);
    return limit;
fail:
    free(limit);
    return NULL;
}

static void tell_limit(struct limit *limit, uint64_t now_ns)
{
    uint64_t hits = counter_get(limit->hits);
    bool too_soon = limit->told_hits && now_ns - limit->told_ns < METRICS_TELL_S * UINT64_C(1000000000);
    if (hits == limit->told_hits || too_soon)
        return;
    log_warn(limit->spec->area, "limit %s (%llu) was hit, times: %llu: %s", limit->spec->name, (unsigned long long)limit->max,
             (unsigned long long)(hits - limit->told_hits), limit->spec->advice);
    limit->told_hits = hits;
    limit->told_ns = now_ns;
}

void metrics_tell_limits(struct metrics *m, uint64_t now_ns)
{
    pthread_mutex_lock(&m->lock);
    for (struct limit *limit = m->limits; limit; limit = limit->next)
        if (limit->spec->advice)
            tell_limit(limit, now_ns);
    pthread_mutex_unlock(&m->lock);
}

struct histogram *metrics_histogram(struct metrics *m, const char *name, const char *labels, const char *help,
                                    const double *bounds, int n)
{
    hs_assert(n > 0 && n <= HISTOGRAM_BOUNDS_MAX);
    struct series init = {0};
    init.histogram.n_bounds = n;
    for (int i = 0; i < n; i++) {
        hs_assert(i == 0 || bounds[i - 1] < bounds[i]);
        init.histogram.bounds[i] = bounds[i];
    }
    struct series *s = register_series(m, METRIC_HISTOGRAM, name, labels, help, &init);
    return s ? &s->histogram : NULL;
}

void histogram_observe(struct histogram *h, double seconds)
{
    int i = 0;
    while (i < h->n_bounds && seconds > h->bounds[i])
        i++;
    atomic_fetch_add_explicit(&h->counts[i], 1, memory_order_relaxed);
    double sum = atomic_load_explicit(&h->sum, memory_order_relaxed);
    while (!atomic_compare_exchange_weak_explicit(&h->sum, &sum, sum + seconds, memory_order_relaxed,
                                                  memory_order_relaxed))
        ;
}

/* name + suffix, then the labels and one more label, either of which may be empty. */
static void write_name(struct strbuf *out, const char *name, const char *suffix, const char *labels, const char *extra)
{
    strbuf_printf(out, "%s%s", name, suffix);
    if (*labels || *extra)
        strbuf_printf(out, "{%s%s%s}", labels, *labels && *extra ? "," : "", extra);
    strbuf_puts(out, " ");
}

static void write_histogram(struct strbuf *out, const char *name, const char *labels, struct histogram *h)
{
    uint64_t total = 0;
    for (int i = 0; i <= h->n_bounds; i++) {
        char le[48] = "le=\"+Inf\"";
        if (i < h->n_bounds)
            snprintf(le, sizeof le, "le=\"%.10g\"", h->bounds[i]);
        total += atomic_load_explicit(&h->counts[i], memory_order_relaxed);
        write_name(out, name, "_bucket", labels, le);
        strbuf_printf(out, "%llu\n", (unsigned long long)total);
    }
    write_name(out, name, "_sum", labels, "");
    strbuf_printf(out, "%.15g\n", atomic_load_explicit(&h->sum, memory_order_relaxed));
    write_name(out, name, "_count", labels, "");
    strbuf_printf(out, "%llu\n", (unsigned long long)total);
}

static void write_series(struct strbuf *out, const struct family *f, struct series *s)
{
    switch (f->kind) {
    case METRIC_COUNTER:
        write_name(out, f->name, "", s->labels, "");
        strbuf_printf(out, "%llu\n", (unsigned long long)counter_get(&s->counter));
        break;
    case METRIC_GAUGE:
        write_name(out, f->name, "", s->labels, "");
        if (s->scale == 1)
            strbuf_printf(out, "%lld\n", (long long)gauge_get(&s->gauge));
        else
            strbuf_printf(out, "%.15g\n", (double)gauge_get(&s->gauge) / (double)s->scale);
        break;
    case METRIC_HISTOGRAM:
        write_histogram(out, f->name, s->labels, &s->histogram);
        break;
    }
}

void metrics_write(struct metrics *m, struct strbuf *out)
{
    static const char *const kind_names[] = {"counter", "gauge", "histogram"};
    pthread_mutex_lock(&m->lock);
    for (struct family *f = m->families; f; f = f->next) {
        strbuf_printf(out, "# HELP %s %s\n# TYPE %s %s\n", f->name, f->help, f->name, kind_names[f->kind]);
        for (struct series *s = f->series; s; s = s->next)
            write_series(out, f, s);
    }
    pthread_mutex_unlock(&m->lock);
}

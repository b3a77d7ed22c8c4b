/*
 * What the scheduler's files share: scheduler.c (queue, admission, life of sequences), scheduler_step.c (forming and completing
 * steps).
 */
#ifndef HEARSAY_SERVE_SCHEDULER_INTERNAL_H
#define HEARSAY_SERVE_SCHEDULER_INTERNAL_H

#include "core/serve/admission.h"
#include "core/serve/node_metrics.h"
#include "core/serve/scheduler.h"
#include "core/serve/scheduler_roofline.h"

struct scheduler {
    struct scheduler_config config;
    struct backend_info info;
    struct admission admission;
    struct roofline roofline;

    struct sequence **running; /* [n_running], oldest first */
    uint32_t n_running;
    uint32_t n_orphans;     /* dropped, but still read by the step under way */
    uint32_t *page_scratch; /* [info.n_pages] */
    uint64_t arrivals;
    double expected_output; /* mean answer length */
    uint64_t preemptions;

    /* The step under way. */
    bool in_flight;
    struct step step;
    bool shortest_turn; /* whose turn it is among a tenant's own: the oldest's, or that of whoever lacks least */
    uint64_t step_started_ns;
    struct step_span *spans;         /* [n_spans] */
    struct sequence **span_sequence; /* [n_spans] */
    uint32_t n_spans;
    struct row_result *results; /* [info.max_rows] */
    struct roofline_sample sample;
};

/* Moves a running sequence out of the batch; its pages stay. */
void scheduler_unlist(struct scheduler *scheduler, struct sequence *sequence);
void scheduler_end(struct scheduler *scheduler, struct sequence *sequence, enum finish_reason reason, uint64_t now_ns);
void scheduler_fail(struct scheduler *scheduler, struct sequence *sequence, int status, const char *text, uint64_t now_ns);
/* The step that read a dropped sequence is done. */
void scheduler_bury(struct scheduler *scheduler, struct sequence *orphan);
void scheduler_preempt(struct scheduler *scheduler, struct sequence *sequence, uint64_t now_ns);
void scheduler_admit(struct scheduler *scheduler, uint64_t now_ns);

#endif

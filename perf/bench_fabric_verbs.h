/*
 * Beside the verbs fabrics: a minimal program over the same verbs set-up, and perftest's programs where they are installed. Both pick
 * their devices as the fabric does, the serving side by --bind, callers by --bind-calls.
 *
 * Threading and errors as in perf/bench_fabric.h; where the program was built without verbs, all say so.
 */
#ifndef HEARSAY_PERF_BENCH_FABRIC_VERBS_H
#define HEARSAY_PERF_BENCH_FABRIC_VERBS_H

#include "perf/bench_fabric.h"

int fabric_verbs_serve_bare(const struct fabric_job *job, int (*ready)(int control, const char *address), struct error *err);
int fabric_verbs_call_bare(const struct fabric_job *job, const char *address, struct fabric_result *out, struct error *err);

/* ib_send_lat, ib_read_lat or ib_send_bw: one figure, its own median or mean, for each run. */
int fabric_perftest_serve(const struct fabric_job *job, int (*ready)(int control, const char *address), struct error *err);
int fabric_perftest_call(const struct fabric_job *job, const char *address, struct fabric_result *out, struct error *err);

#endif

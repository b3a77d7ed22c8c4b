/*
 * The DPDK fabric in the benchmark, and a minimal program over the same EAL set-up beside it. Without --eal the two sides are joined by
 * a memif link that is made for the run. Threading and errors as in perf/bench_fabric.h.
 */
#ifndef HEARSAY_PERF_BENCH_FABRIC_DPDK_H
#define HEARSAY_PERF_BENCH_FABRIC_DPDK_H

#include "perf/bench_fabric.h"

/* EAL arguments of a side: as given, else its ends of memif links, one for each caller, whose name the parent process lends. */
const char *fabric_dpdk_eal(const struct fabric_job *job, bool serves);
/* bind, unless that is loopback: then an address that the other side's default knows. */
const char *fabric_dpdk_bind(const char *bind, const struct fabric_job *job, bool serves);

/* The bare references, the second one for streams alone; where the program was built without DPDK, all say so. */
int fabric_dpdk_serve_bare(const struct fabric_job *job, int (*ready)(int control, const char *address), struct error *err);
int fabric_dpdk_call_bare(const struct fabric_job *job, const char *address, struct fabric_result *out, struct error *err);
int fabric_dpdk_serve_untouched(const struct fabric_job *job, int (*ready)(int control, const char *address), struct error *err);
int fabric_dpdk_call_untouched(const struct fabric_job *job, const char *address, struct fabric_result *out, struct error *err);

#endif

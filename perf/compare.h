/*
 * Holds the results of a benchmark against a baseline: a CSV of earlier results, as --csv writes them, for example one of
 * perf/baselines.
 *
 * Machines differ, so only what each run measured beside itself is compared: shares of the limit and ratios to a peer. Both mean
 * that more is better. Rows of other benchmarks in the baseline are left out; a row that the results lack is an error, since nobody
 * would notice otherwise that it is no longer measured.
 *
 * Threading: one thread.
 */
#ifndef HEARSAY_PERF_COMPARE_H
#define HEARSAY_PERF_COMPARE_H

#include "core/base/error.h"

/*
 * Prints a table. 0: nothing is lower than the baseline by more than the tolerance (0.1: a tenth). HS_ERR_LIMIT: something is, or is
 * missing. Else HS_ERR_IO, HS_ERR_PARSE, HS_ERR_NO_MEMORY.
 */
int compare_run(const char *baseline_csv, const char *result_json, double tolerance, struct error *err);

#endif

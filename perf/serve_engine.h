/*
 * The serve benchmark's work done by the engine alone, with nothing around it: what a server's throughput and first tokens are
 * compared with to see what serving costs. As many sequences as clients; their prompts enter one after the other, then all decode at
 * once, until as many answers are there as requests were asked for.
 *
 * Threading: one thread.
 */
#ifndef HEARSAY_PERF_SERVE_ENGINE_H
#define HEARSAY_PERF_SERVE_ENGINE_H

#include "perf/engine_session.h"
#include "perf/serve_client.h"

int serve_engine_open(const struct perf_config *config, struct engine *engine, struct error *err);
/* All requests once. */
int serve_engine_run(const struct perf_config *config, struct engine *engine, struct serve_results *results, struct error *err);

#endif

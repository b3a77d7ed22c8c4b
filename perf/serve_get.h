/*
 * What the serve benchmark asks servers besides completions: the model's name, the time that a node's steps took so far.
 *
 * Threading: as the client given.
 */
#ifndef HEARSAY_PERF_SERVE_GET_H
#define HEARSAY_PERF_SERVE_GET_H

#include "core/base/strbuf.h"
#include "perf/bench.h"
#include "perf/http_client.h"

/* Sum of all steps' durations by the node's /metrics; NaN where a server has no such thing. */
double serve_step_seconds(struct http_client *client, const struct perf_config *config, const char *url, struct strbuf *scratch);
/* The first model that a server names; written to out. */
int serve_find_model(const struct perf_config *config, const char *url, char *out, size_t cap, struct error *err);

#endif

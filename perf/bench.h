/*
 * The benchmarks and what they are told. bench.c has the one table; each benchmark is a file of its own.
 */
#ifndef HEARSAY_PERF_BENCH_H
#define HEARSAY_PERF_BENCH_H

#include <stdbool.h>
#include <stdint.h>

#include "core/base/error.h"
#include "core/cpu/cpu_backend.h"
#include "perf/report.h"

enum { PERF_MAX_LIST = 16, PERF_MAX_URLS = 64, PERF_MAX_CPUS = 1024 };

struct number_list {
    uint32_t values[PERF_MAX_LIST];
    uint32_t n;
};

/* Before a timed call: as the last one left them, or full of something else. */
enum perf_caches { PERF_CACHES_WARM = 1, PERF_CACHES_FLUSHED = 2, PERF_CACHES_BOTH = 3 };

enum perf_backend { PERF_BACKEND_CPU, PERF_BACKEND_NULL };

/* What --against names. */
enum perf_peer { PERF_PEER_NONE, PERF_PEER_LLAMA_BENCH, PERF_PEER_ENGINE, PERF_PEER_SERVER, PERF_PEER_BARE, PERF_PEER_PERFTEST, PERF_PEER_MODEL };

/* How a benchmark waits for its peer: as fast as it can, or as an idle node does. */
enum perf_poll { PERF_POLL_SPIN, PERF_POLL_ADAPTIVE };

struct perf_config {
    const struct benchmark *bench; /* NULL: list */
    bool list;
    bool compare; /* files[0] with files[1] */
    const char *files[2];
    uint32_t n_files;
    double tolerance;
    const char *json_path, *csv_path, *plot_path; /* NULL: not wanted */
    enum perf_peer peer;
    const char *against; /* llama-bench's path, the server's URL or the reference model, NULL: none */
    uint32_t runs;
    uint64_t seed;
    /* engine */
    const char *model;
    enum perf_backend backend;
    enum cpu_path path;
    enum cpu_compute compute;
    enum weight_form weights;
    uint32_t threads; /* 0: as many as CPUs */
    uint32_t cpus[PERF_MAX_CPUS], n_cpus;
    struct number_list prefill, decode, extend, batch;
    uint32_t decode_tokens;
    const char *against_model;
    /* accuracy */
    const char *text;
    uint32_t context, sequences; /* sequences 0: the whole text */
    /* serve */
    const char *urls[PERF_MAX_URLS];
    uint32_t n_urls;
    const char *served_model; /* NULL: the first that /v1/models names */
    const char *api_key;
    uint32_t clients, requests, rounds, prompt_tokens, output_tokens, shared_prefix, vocab;
    uint64_t timeout_ns; /* how long a server may be silent */
    bool overhead;
    /* route, then gossip */
    uint32_t tokens, peers, blocks, calls;
    enum perf_caches caches;
    uint64_t gossip_interval_ns;
    uint32_t insertions, run;
    /* fabric */
    const char *fabric, *bind, *bind_calls, *connect; /* connect NULL: the serving side is started here */
    const char *eal, *eal_calls; /* of the serving side and of callers; NULL: a memif link */
    bool serve;
    int sealed;
    enum perf_poll poll;
    uint32_t patterns; /* mask of enum fabric_pattern */
    struct number_list sizes;
    uint64_t duration_ns;
    uint32_t window, senders, datagram_bytes;
};

struct benchmark {
    const char *name;
    const char *summary;
    const char *metrics;
    /* 0, HS_ERR_INVALID (usage), HS_ERR_UNSUPPORTED (not possible here), other HS_ERR_*. */
    int (*run)(const struct perf_config *config, struct report *report, struct error *err);
};

/* [*n], by name. */
const struct benchmark *benchmarks(uint32_t *n);

int bench_accuracy(const struct perf_config *config, struct report *report, struct error *err);
int bench_engine(const struct perf_config *config, struct report *report, struct error *err);
int bench_fabric(const struct perf_config *config, struct report *report, struct error *err);
int bench_gossip(const struct perf_config *config, struct report *report, struct error *err);
int bench_kernels(const struct perf_config *config, struct report *report, struct error *err);
int bench_route(const struct perf_config *config, struct report *report, struct error *err);
int bench_serve(const struct perf_config *config, struct report *report, struct error *err);

#endif

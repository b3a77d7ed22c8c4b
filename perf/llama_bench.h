/* Runs llama.cpp's llama-bench on one case and reads its result: the peer of the engine benchmark. */
#ifndef HEARSAY_PERF_LLAMA_BENCH_H
#define HEARSAY_PERF_LLAMA_BENCH_H

#include <stdint.h>

#include "core/base/error.h"

struct llama_bench_case {
    const char *program;
    const char *model; /* a GGUF file */
    uint32_t threads, runs;
    uint32_t prompt, generate, depth; /* tokens; prompt or generate is 0 */
};

/* The median of its runs in tokens per second. 0, HS_ERR_UNSUPPORTED (no such program), HS_ERR_IO, HS_ERR_PARSE. */
int llama_bench_run(const struct llama_bench_case *c, double *median, struct error *err);

#endif

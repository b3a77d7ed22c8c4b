#include "perf/bench.h"

static const struct benchmark table[] = {
    {"engine", "one backend alone: prefill, decode and batches of decodes, against the machine's limit", "tokens/s", bench_engine},
    {"serve", "clients of one or more OpenAI-compatible servers, streaming",
     "TTFT, inter-token latency, end to end, throughput, cache", bench_serve},
};

const struct benchmark *benchmarks(uint32_t *n)
{
    *n = sizeof table / sizeof table[0];
    return table;
}

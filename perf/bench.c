#include "perf/bench.h"

static const struct benchmark table[] = {
    {"accuracy", "how well a model file predicts a text, and how far it is from a reference file",
     "perplexity, KL divergence, same tokens", bench_accuracy},
    {"engine", "one backend alone: prefill, decode and batches of decodes, against the machine's limit", "tokens/s", bench_engine},
    {"fabric", "messages between two processes, beside the kernel's bare sockets", "round trips, reads, throughput, own work",
     bench_fabric},
    {"gossip", "from an insertion at one node to a peer that knows of it, over loopback", "visibility, bytes, bare UDP",
     bench_gossip},
    {"kernels", "each kernel of the CPU backend on one thread, against the machine's limit", "GB/s, GFLOP/s", bench_kernels},
    {"route", "naming a prompt's blocks and choosing among many peers", "hashing, deciding, memory", bench_route},
    {"serve", "clients of one or more OpenAI-compatible servers, streaming",
     "TTFT, inter-token latency, end to end, throughput, cache", bench_serve},
};

const struct benchmark *benchmarks(uint32_t *n)
{
    *n = sizeof table / sizeof table[0];
    return table;
}

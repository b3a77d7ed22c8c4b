#include "perf/limits.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "core/cpu/memory.h"
#include "perf/peak.h"
#include "perf/progress.h"

enum { PASSES = 6, PEAK_ITERATIONS = 4000000 };

/* Threads wait for all of them to exist, then begin each pass together. */
struct start {
    atomic_int gate; /* 0: wait, 1: go, 2: give up */
    pthread_barrier_t barrier;
};

struct probe {
    pthread_t thread;
    uint32_t cpu; /* UINT32_MAX: anywhere */
    const float *data;
    size_t n_floats;
    struct start *start;
    double read_s[PASSES], peak_s[PASSES]; /* from a pass's start to this thread's end */
    bool bfloat;                           /* the arithmetic whose peak is wanted */
    uint64_t peak_flops;
    volatile float sink; /* keeps the compiler from dropping the work */
};

static void pin(uint32_t cpu)
{
    cpu_set_t set;
    if (cpu >= CPU_SETSIZE)
        return;
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    pthread_setaffinity_np(pthread_self(), sizeof set, &set); /* a hint: unpinned works, too */
}

static void *probe_main(void *arg)
{
    struct probe *probe = arg;
    pin(probe->cpu);
    while (atomic_load(&probe->start->gate) == 0)
        sched_yield();
    if (atomic_load(&probe->start->gate) == 2)
        return NULL;
    for (int pass = 0; pass < PASSES; pass++) {
        pthread_barrier_wait(&probe->start->barrier);
        uint64_t start = perf_now_ns();
        probe->sink = peak_read(probe->data, probe->n_floats);
        probe->read_s[pass] = (double)(perf_now_ns() - start) * 1e-9;
    }
    for (int pass = 0; pass < PASSES; pass++) {
        float value;
        pthread_barrier_wait(&probe->start->barrier);
        uint64_t start = perf_now_ns();
        probe->peak_flops =
            probe->bfloat ? peak_multiply_add_bfloat(PEAK_ITERATIONS, &value) : peak_multiply_add(PEAK_ITERATIONS, &value);
        probe->peak_s[pass] = (double)(perf_now_ns() - start) * 1e-9;
        probe->sink = value;
    }
    return NULL;
}

/* The best pass counts: disturbances only ever slow a pass down. A pass takes as long as its slowest thread. */
static void evaluate(const struct probe *probes, uint32_t threads, struct limits *out)
{
    *out = (struct limits){0};
    for (int pass = 0; pass < PASSES; pass++) {
        double read_s = 0, peak_s = 0, bytes = 0, flops = 0;
        for (uint32_t i = 0; i < threads; i++) {
            read_s = probes[i].read_s[pass] > read_s ? probes[i].read_s[pass] : read_s;
            peak_s = probes[i].peak_s[pass] > peak_s ? probes[i].peak_s[pass] : peak_s;
            bytes += (double)probes[i].n_floats * sizeof(float);
            flops += (double)probes[i].peak_flops;
        }
        if (bytes / read_s > out->bytes_per_s)
            out->bytes_per_s = bytes / read_s;
        if (flops / peak_s > out->flops_per_s)
            out->flops_per_s = flops / peak_s;
    }
}

int limits_measure(uint32_t threads, const uint32_t *cpus, uint32_t n_cpus, bool bfloat, uint64_t stream_bytes, struct limits *out,
                   struct error *err)
{
    struct start start = {0};
    uint32_t n_started = 0;
    const size_t n_floats = (stream_bytes / sizeof(float) / threads + 1023) & ~(size_t)1023, bytes = n_floats * sizeof(float) * threads;
    struct probe *probes = calloc(threads, sizeof *probes);
    float *data = memory_map(bytes);
    int rc = 0;
    if (!probes || !data) {
        rc = error_set(err, HS_ERR_NO_MEMORY, "%s", error_name(HS_ERR_NO_MEMORY));
        goto free_memory;
    }
    memset(data, 0x3c, bytes);
    pthread_barrier_init(&start.barrier, NULL, threads);
    for (; n_started < threads; n_started++) {
        struct probe *probe = &probes[n_started];
        probe->cpu = n_cpus ? cpus[n_started % n_cpus] : UINT32_MAX;
        probe->data = data + n_started * n_floats;
        probe->n_floats = n_floats;
        probe->bfloat = bfloat;
        probe->start = &start;
        if (pthread_create(&probe->thread, NULL, probe_main, probe) != 0)
            break;
    }
    atomic_store(&start.gate, n_started == threads ? 1 : 2);
    for (uint32_t i = 0; i < n_started; i++)
        pthread_join(probes[i].thread, NULL);
    pthread_barrier_destroy(&start.barrier);
    if (n_started < threads)
        rc = error_set(err, HS_ERR_LIMIT, "thread %u of %u did not start; give fewer --threads", n_started + 1, threads);
    else
        evaluate(probes, threads, out);
    out->stream_bytes = bytes;
free_memory:
    memory_unmap(data, bytes);
    free(probes);
    return rc;
}

static double parameters(const struct tensor_view *t)
{
    return tensor_present(t) ? (double)t->rows * t->cols : 0;
}

double limits_step_seconds(const struct limits *limits, const struct model_desc *model, uint64_t weight_bytes, uint32_t n_sequences,
                           uint32_t n_rows, uint32_t context)
{
    double layers = 0, output = parameters(&model->output), rows = (double)n_sequences * n_rows;
    for (uint32_t i = 0; i < model->n_layers; i++) {
        const struct model_layer *layer = &model->layers[i];
        layers += parameters(&layer->wq) + parameters(&layer->wk) + parameters(&layer->wv) + parameters(&layer->wo) +
                  parameters(&layer->w_gate) + parameters(&layer->w_up) + parameters(&layer->w_down);
    }
    /* Positions attended to by all rows of a sequence, and 16-bit keys and values read once each. */
    double attended = (double)n_rows * context - (double)n_rows * (n_rows - 1) / 2;
    double kv_values = 2.0 * model->n_layers * model->n_kv_heads * model->d_head;
    double bytes = (double)weight_bytes + 2.0 * n_sequences * context * kv_values;
    double flops = 2 * (rows * layers + n_sequences * output) +
                   n_sequences * attended * 4.0 * model->n_layers * model->n_heads * model->d_head;
    double read_s = bytes / limits->bytes_per_s, compute_s = flops / limits->flops_per_s;
    return read_s > compute_s ? read_s : compute_s;
}

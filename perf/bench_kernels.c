/*
 * The kernel benchmark: each kernel of one path on one thread, by that thread's CPU time, in shapes of the default model
 * (576 inputs, heads of 64, three of them to a KV head). Memory-bound kernels run over a buffer beyond any cache, the others
 * over what they find in cache in a real step. Each case runs once unmeasured and then --runs times; the limits are measured in
 * turn with the cases, and the best of them counts.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "core/cpu/kernels.h"
#include "perf/bench.h"
#include "perf/peak.h"
#include "perf/progress.h"

#define STREAM_BYTES (UINT64_C(256) << 20)

enum {
    INPUTS = 576,
    HEAD = 64,
    GROUP = 3,
    GEMM_ROWS = 480,
    GEMM_PANELS = 16,
    PANELS_AT_ONCE = 2,
    PREFILL_KEYS = 2048,
    PREFILL_ROUNDS = 50,
    NORM_ROWS = 4096,
    PEAK_ROUNDS = 2000000,
    TILE_SHORTS = CPU_KEY_TILE * HEAD,
    SEGMENT_TILES = CPU_KV_SEGMENT / CPU_KEY_TILE,
    TILES_AHEAD = 8, /* as in attention.c */
};

struct kernel_run {
    const struct cpu_kernels *kernels;
    bool bfloat;
    enum weight_type type;
    uint16_t *stream; /* STREAM_BYTES of 16-bit values near one: panels, or tiles of keys and values in turn */
    enum weight_type integers; /* of the case's weights */
    int32_t *fixed;
    float *x, *widened, *out, *scores;
    struct attention_state total;
    double bytes_per_s, flops_per_s;
};

struct kernel_case {
    const char *name;
    uint32_t rows; /* or queries; 0: as many as the kernels take at once */
    /* Runs the case once; leaves what it read from memory, or the operations it did. */
    void (*run)(struct kernel_run *run, uint32_t rows, double *bytes, double *flops);
    bool memory; /* reported as GB/s rather than GFLOP/s */
    enum weight_type integers; /* or WEIGHT_F16: they are the path's own 16 bits */
};

static double thread_seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* ---- the cases ---- */

static void run_product(struct kernel_run *r, uint32_t rows, double *bytes, double *flops)
{
    const size_t panel = (size_t)INPUTS * r->kernels->panel_width, n_panels = STREAM_BYTES / sizeof(uint16_t) / panel;
    struct matmul m = {
        .type = r->type,
        .n_inputs = INPUTS,
        .n_panels = CPU_MAX_PANELS_AT_ONCE,
        .x = r->x,
        .n_rows = rows,
        .out = r->out,
        .out_stride = CPU_MAX_PANELS_AT_ONCE * r->kernels->panel_width,
        .ahead_bytes = CPU_MAX_PANELS_AT_ONCE * panel * sizeof *r->stream,
    };
    for (size_t p = 0; p + CPU_MAX_PANELS_AT_ONCE <= n_panels; p += CPU_MAX_PANELS_AT_ONCE) {
        m.panels = r->stream + p * panel;
        m.ahead = p + 2 * CPU_MAX_PANELS_AT_ONCE <= n_panels ? r->stream + (p + CPU_MAX_PANELS_AT_ONCE) * panel : NULL;
        r->kernels->matmul(&m);
    }
    double values = (double)(n_panels / CPU_MAX_PANELS_AT_ONCE * CPU_MAX_PANELS_AT_ONCE) * (double)panel;
    *bytes = values * sizeof(uint16_t);
    *flops = values * 2 * rows;
}

/*
 * Weights that stay integers. Products of bytes are no float multiply-adds: where memory is the measure they count nothing, and with many
 * rows they are compared with the peak of those, which they may pass.
 */
static void run_integers(struct kernel_run *r, uint32_t rows, double *bytes, double *flops)
{
    const struct cpu_kernels *k = r->kernels;
    const size_t panel = weight_panel_bytes(r->integers, INPUTS, k->panel_width), at_once = CPU_MAX_PANELS_AT_ONCE;
    const size_t n_panels = STREAM_BYTES / panel / at_once * at_once;
    struct matmul m = {
        .type = r->integers,
        .n_inputs = INPUTS,
        .n_panels = (uint32_t)at_once,
        .fixed = r->fixed,
        .n_rows = rows,
        .out = r->out,
        .out_stride = at_once * k->panel_width,
        .ahead_bytes = at_once * panel,
    };
    k->fix_inputs(r->integers, INPUTS, r->x, rows, 0, rows, r->fixed);
    for (size_t p = 0; p < n_panels; p += at_once) {
        m.panels = (const char *)r->stream + p * panel;
        m.ahead = p + 2 * at_once <= n_panels ? (const char *)m.panels + at_once * panel : NULL;
        k->matmul(&m);
    }
    *bytes = (double)(n_panels * panel);
    *flops = 0;
}

static void run_integer_gemm(struct kernel_run *r, uint32_t rows, double *bytes, double *flops)
{
    const struct cpu_kernels *k = r->kernels;
    const size_t panel = weight_panel_bytes(r->integers, INPUTS, k->panel_width);
    uint32_t done = 0;
    for (; done + rows <= GEMM_ROWS; done += rows) {
        struct matmul m = {
            .type = r->integers,
            .n_inputs = INPUTS,
            .n_panels = PANELS_AT_ONCE,
            .fixed = r->fixed,
            .n_rows = rows,
            .out = r->out,
            .out_stride = PANELS_AT_ONCE * k->panel_width,
        };
        k->fix_inputs(r->integers, INPUTS, r->x + (size_t)done * (INPUTS / k->inputs_per_word), rows, 0, rows, r->fixed);
        for (uint32_t p = 0; p < GEMM_PANELS; p += PANELS_AT_ONCE) {
            m.panels = (const char *)r->stream + p * panel;
            k->matmul(&m);
        }
    }
    *bytes = (double)(GEMM_PANELS * panel);
    *flops = 2.0 * done * GEMM_PANELS * INPUTS * k->panel_width;
}

/* As the backend does it for a prompt: panels are made floats where that helps, then all tiles of rows pass. */
static void run_gemm(struct kernel_run *r, uint32_t rows, double *bytes, double *flops)
{
    const struct cpu_kernels *k = r->kernels;
    const size_t panel = (size_t)INPUTS * k->panel_width;
    uint32_t done = 0;
    for (uint32_t p = 0; p < GEMM_PANELS; p += PANELS_AT_ONCE) {
        const void *panels = r->stream + p * panel;
        if (k->widen_panels) {
            k->widen_panels(panels, r->type, PANELS_AT_ONCE * panel, r->widened);
            panels = r->widened;
        }
        struct matmul m = {
            .panels = panels,
            .type = k->widen_panels ? WEIGHT_F32 : r->type,
            .n_inputs = INPUTS,
            .n_panels = PANELS_AT_ONCE,
            .n_rows = rows,
            .out = r->out,
            .out_stride = PANELS_AT_ONCE * k->panel_width,
        };
        done = 0;
        for (; done + rows <= GEMM_ROWS; done += rows) {
            m.x = r->x + (size_t)done * (INPUTS / k->inputs_per_word);
            k->matmul(&m);
        }
    }
    *bytes = (double)GEMM_PANELS * (double)panel * sizeof(uint16_t);
    *flops = 2.0 * done * GEMM_PANELS * (double)panel;
}

/* A segment of keys, then of values, from `tiles` on, as the backend takes them. once: they come from memory. */
static void attend_segment(struct kernel_run *r, uint32_t queries, const uint16_t *tiles, bool once)
{
    const struct cpu_kernels *k = r->kernels;
    const uint16_t *tiles_in_order[2 * SEGMENT_TILES + TILES_AHEAD];
    struct attention_state state = {.values = r->out};
    struct key_range all[CPU_MAX_TILE_ROWS];
    for (uint32_t t = 0; t < SEGMENT_TILES; t++) {
        tiles_in_order[t] = tiles + (size_t)t * TILE_SHORTS;
        tiles_in_order[SEGMENT_TILES + t] = tiles_in_order[t] + (size_t)SEGMENT_TILES * TILE_SHORTS;
    }
    for (uint32_t t = 0; t < TILES_AHEAD; t++)
        tiles_in_order[2 * SEGMENT_TILES + t] = tiles + (size_t)(2 * SEGMENT_TILES + t) * TILE_SHORTS;
    for (uint32_t q = 0; q < queries; q++)
        all[q] = (struct key_range){0, CPU_KV_SEGMENT};
    const uint16_t *const *keys = tiles_in_order, *const *values = tiles_in_order + SEGMENT_TILES;
    k->score_keys(r->x, queries, HEAD, keys, SEGMENT_TILES, once ? keys + TILES_AHEAD : NULL, r->scores, CPU_KV_SEGMENT);
    k->softmax_segment(r->scores, CPU_KV_SEGMENT, queries, all, state.maximum, state.sum);
    k->accumulate_values(r->scores, CPU_KV_SEGMENT, queries, all, values, once ? values + TILES_AHEAD : NULL, HEAD, r->out);
    k->merge_states(queries, HEAD, &state, &r->total);
}

static void run_attention_decode(struct kernel_run *r, uint32_t queries, double *bytes, double *flops)
{
    const size_t segment = (size_t)2 * SEGMENT_TILES * TILE_SHORTS;
    const size_t n = STREAM_BYTES / sizeof(uint16_t) / segment - 1; /* the last only stands ahead of them */
    for (size_t i = 0; i < n; i++)
        attend_segment(r, queries, r->stream + i * segment, true);
    *bytes = (double)(n * segment) * sizeof(uint16_t);
    *flops = 2.0 * queries * (double)(n * segment);
}

static void run_attention_prefill(struct kernel_run *r, uint32_t queries, double *bytes, double *flops)
{
    const size_t segment = (size_t)2 * SEGMENT_TILES * TILE_SHORTS;
    for (uint32_t i = 0; i < PREFILL_ROUNDS; i++)
        for (uint32_t s = 0; s < PREFILL_KEYS / CPU_KV_SEGMENT; s++)
            attend_segment(r, queries, r->stream + s * segment, false);
    *bytes = (double)PREFILL_KEYS * HEAD * 2 * sizeof(uint16_t);
    *flops = 4.0 * PREFILL_ROUNDS * queries * PREFILL_KEYS * HEAD;
}

/* Rows in the second-level cache, as a stage finds them. */
static void run_norm(struct kernel_run *r, uint32_t rows, double *bytes, double *flops)
{
    for (uint32_t i = 0; i < NORM_ROWS; i++)
        r->kernels->normalize(r->x + (size_t)(i % GEMM_ROWS) * INPUTS, r->widened, INPUTS, 1e-5f, r->out);
    *bytes = (double)NORM_ROWS * INPUTS * sizeof(float);
    *flops = 4.0 * NORM_ROWS * INPUTS;
}

static const struct kernel_case cases[] = {
    {"product, one row", 1, run_product, true, WEIGHT_F16},
    {"product, 4 rows", 4, run_product, true, WEIGHT_F16},
    {"product, 8 rows", 8, run_product, true, WEIGHT_F16},
    {"product, many rows", 0, run_gemm, false, WEIGHT_F16},
    {"W4 group 128, one row", 1, run_integers, true, WEIGHT_W4_G128},
    {"W4 group 128, 4 rows", 4, run_integers, true, WEIGHT_W4_G128},
    {"W4 group 128, many rows", 0, run_integer_gemm, false, WEIGHT_W4_G128},
    {"Q4_1, one row", 1, run_integers, true, WEIGHT_W4_G32_MIN},
    {"Q4_1, many rows", 0, run_integer_gemm, false, WEIGHT_W4_G32_MIN},
    {"Q8_0, one row", 1, run_integers, true, WEIGHT_W8_G32},
    {"Q8_0, many rows", 0, run_integer_gemm, false, WEIGHT_W8_G32},
    {"attention, decode", GROUP, run_attention_decode, true, WEIGHT_F16},
    {"attention, prefill", 0, run_attention_prefill, false, WEIGHT_F16},
    {"norm", 1, run_norm, true, WEIGHT_F16},
};

/* ---- running ---- */

static void measure_limits(struct kernel_run *r)
{
    volatile float sink;
    float value;
    double start = thread_seconds();
    sink = peak_read((const float *)r->stream, STREAM_BYTES / sizeof(float));
    double bytes_per_s = (double)STREAM_BYTES / (thread_seconds() - start);
    start = thread_seconds();
    uint64_t flops = r->bfloat ? peak_multiply_add_bfloat(PEAK_ROUNDS, &value) : peak_multiply_add(PEAK_ROUNDS, &value);
    double flops_per_s = (double)flops / (thread_seconds() - start);
    sink = value;
    (void)sink;
    r->bytes_per_s = bytes_per_s > r->bytes_per_s ? bytes_per_s : r->bytes_per_s;
    r->flops_per_s = flops_per_s > r->flops_per_s ? flops_per_s : r->flops_per_s;
}

/* Takes at most what the kernels do at once. */
static uint32_t rows_of(const struct kernel_run *r, const struct kernel_case *c)
{
    uint32_t most = r->kernels->tile_rows;
    return c->rows == 0 || c->rows > most ? most : c->rows;
}

static void run_case(struct kernel_run *r, const struct kernel_case *c, uint32_t runs, struct report *report)
{
    struct samples samples = {0};
    char name[48];
    uint32_t rows = rows_of(r, c);
    double bytes = 0, flops = 0;
    r->integers = c->integers;
    for (uint32_t i = 0; i <= runs; i++) {
        progress_show("%s: run %u of %u", c->name, i, runs);
        double start = thread_seconds();
        c->run(r, rows, &bytes, &flops);
        double seconds = thread_seconds() - start;
        if (i > 0) /* the first only warms up */
            samples_add(&samples, (c->memory ? bytes : flops) / seconds * 1e-9);
        measure_limits(r);
    }
    progress_clear();
    snprintf(name, sizeof name, "%s", c->name);
    struct report_row *row =
        report_add(report, name, c->memory ? "read" : "multiply-add", c->memory ? "GB/s" : "GFLOP/s", &samples, false);
    if (row) {
        double read_s = bytes / r->bytes_per_s, compute_s = flops / r->flops_per_s;
        row->limit = (c->memory ? bytes : flops) / (read_s > compute_s ? read_s : compute_s) * 1e-9;
        report_print_row(report, row);
    }
    samples_fini(&samples);
}

static void report_limit(struct report *report, const char *metric, const char *unit, double value)
{
    struct samples samples = {0};
    samples_add(&samples, value * 1e-9);
    const struct report_row *row = report_add(report, "machine", metric, unit, &samples, false);
    if (row)
        report_print_row(report, row);
    samples_fini(&samples);
}

static int allocate(struct kernel_run *r, struct error *err)
{
    const size_t rows = GEMM_ROWS, width = r->kernels->panel_width, tile_rows = r->kernels->tile_rows;
    r->stream = mmap(NULL, STREAM_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    r->x = calloc(rows * INPUTS, sizeof *r->x);
    r->fixed = calloc(tile_rows * cpu_fixed_words(WEIGHT_W8_G16, INPUTS, r->kernels->input_planes), sizeof *r->fixed);
    r->widened = calloc(PANELS_AT_ONCE * width * INPUTS, sizeof *r->widened);
    r->out = calloc(CPU_MAX_PANELS_AT_ONCE * tile_rows * width + INPUTS, sizeof *r->out);
    r->scores = calloc(tile_rows * CPU_KV_SEGMENT, sizeof *r->scores);
    r->total.values = calloc(tile_rows * HEAD, sizeof *r->total.values);
    if (r->stream == MAP_FAILED || !r->x || !r->fixed || !r->widened || !r->out || !r->scores || !r->total.values)
        return error_set(err, HS_ERR_NO_MEMORY, "%s", error_name(HS_ERR_NO_MEMORY));
    madvise(r->stream, STREAM_BYTES, MADV_HUGEPAGE); /* as the backend's weights */
    /* Small values of changing size: no sum overflows, none is denormal. */
    for (size_t i = 0; i < STREAM_BYTES / sizeof(uint16_t); i++)
        r->stream[i] = (uint16_t)((r->bfloat ? 0x3c00 : 0x2c00) + i % 251);
    for (size_t i = 0; i < rows * INPUTS; i++)
        r->x[i] = 0.01f + 0.0001f * (float)(i % 97);
    for (size_t i = 0; i < width * INPUTS; i++)
        r->widened[i] = 1;
    return 0;
}

static void free_all(struct kernel_run *r)
{
    if (r->stream != MAP_FAILED && r->stream)
        munmap(r->stream, STREAM_BYTES);
    free(r->x);
    free(r->fixed);
    free(r->widened);
    free(r->out);
    free(r->scores);
    free(r->total.values);
}

int bench_kernels(const struct perf_config *config, struct report *report, struct error *err)
{
    struct kernel_run run = {.kernels = cpu_path_kernels(config->path, config->compute)};
    if (!run.kernels)
        return error_set(err, HS_ERR_UNSUPPORTED, "this CPU has no such kernels: use --kernels auto --compute f32");
    run.bfloat = run.kernels->inputs_per_word == 2;
    run.type = run.bfloat ? WEIGHT_BF16_PAIRS : WEIGHT_F16;
    report_option(report, "arithmetic", json_string(run.kernels->arithmetic));
    report_option(report, "runs", json_integer(config->runs));
    int rc = allocate(&run, err);
    if (rc)
        goto free_memory;
    for (int i = 0; i < 3; i++)
        measure_limits(&run);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        run_case(&run, &cases[i], config->runs, report);
    report_limit(report, "streaming read", "GB/s", run.bytes_per_s);
    report_limit(report, run.bfloat ? "bfloat16 multiply-add" : "float32 multiply-add", "GFLOP/s", run.flops_per_s);
free_memory:
    free_all(&run);
    return rc;
}

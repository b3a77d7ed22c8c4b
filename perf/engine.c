/*
 * The engine benchmark: how fast a backend computes, alone. Each case runs once unmeasured and then --runs times; with --against
 * the peer runs the same case right after, so that both see the machine in the same mood.
 */
#include <stdio.h>
#include <string.h>

#include "perf/bench.h"
#include "perf/engine_session.h"
#include "perf/hand_over.h"
#include "perf/limits.h"
#include "perf/llama_bench.h"
#include "perf/progress.h"

enum {
    BATCH_CONTEXT = 64,    /* of the sequences decoded at once */
    EXTEND_CONTEXT = 1000, /* warm, before new tokens come */
    EXTEND_DECODES = 8,    /* decodes timed beside each extension */
    HAND_OVER_RUNS = 20,   /* at least */
};

enum kind { PREFILL, DECODE, BATCH };

struct bench_case {
    enum kind kind;
    uint32_t n_sequences, context; /* prefill: context is the prompt's length */
};

struct engine_run {
    const struct perf_config *config;
    struct engine engine;
    struct limits limits; /* zero with the null backend */
    struct report *report;
};

static const char *name_of(const struct bench_case *c, char out[48])
{
    if (c->kind == PREFILL)
        snprintf(out, 48, "prefill %u", c->context);
    else if (c->kind == DECODE)
        snprintf(out, 48, "decode behind %u", c->context);
    else
        snprintf(out, 48, "decode %u at once behind %u", c->n_sequences, c->context);
    return out;
}

/* One run of a case: tokens per second. Decodes begin behind the context again, over the same pages. */
static int run_once(struct engine_run *run, const struct bench_case *c, double *tokens_per_s, struct error *err)
{
    uint32_t n_steps = c->kind == PREFILL ? 1 : run->config->decode_tokens;
    uint64_t start = perf_now_ns();
    int rc = 0;
    for (uint32_t i = 0; rc == 0 && i < n_steps; i++)
        rc = c->kind == PREFILL ? engine_prefill(&run->engine, 0, c->context, err)
                                : engine_decode(&run->engine, c->n_sequences, c->context + i, err);
    double seconds = (double)(perf_now_ns() - start) * 1e-9;
    *tokens_per_s = (c->kind == PREFILL ? c->context : (double)n_steps * c->n_sequences) / seconds;
    return rc;
}

static double limit_of(const struct engine_run *run, const struct bench_case *c)
{
    const struct model_desc *model = &run->engine.weights->desc;
    const uint64_t bytes = cpu_backend_weight_bytes(run->engine.backend);
    if (c->kind == PREFILL)
        return c->context / limits_step_seconds(&run->limits, model, bytes, 1, c->context, c->context);
    uint32_t middle = c->context + run->config->decode_tokens / 2;
    return c->n_sequences / limits_step_seconds(&run->limits, model, bytes, c->n_sequences, 1, middle);
}

static int run_peer(const struct engine_run *run, const struct bench_case *c, double *median, struct error *err)
{
    struct llama_bench_case peer = {
        .program = run->config->against,
        .model = run->config->against_model ? run->config->against_model : run->config->model,
        .threads = run->engine.threads,
        .runs = run->config->runs,
        .prompt = c->kind == PREFILL ? c->context : 0,
        .generate = c->kind == PREFILL ? 0 : run->config->decode_tokens,
        .depth = c->kind == PREFILL ? 0 : c->context,
    };
    return llama_bench_run(&peer, median, err);
}

static int run_case(struct engine_run *run, const struct bench_case *c, struct error *err)
{
    struct samples samples = {0};
    char name[48];
    double value;
    int rc = 0;
    for (uint32_t i = 0; rc == 0 && c->kind != PREFILL && i < c->n_sequences; i++)
        rc = engine_prefill(&run->engine, i, c->context, err);
    for (uint32_t i = 0; rc == 0 && i <= run->config->runs; i++) {
        progress_show("%s: run %u of %u", name_of(c, name), i, run->config->runs);
        rc = run_once(run, c, &value, err);
        if (i > 0) /* the first only warms up */
            samples_add(&samples, value);
    }
    struct report_row *row = rc ? NULL : report_add(run->report, name_of(c, name), "throughput", "tokens/s", &samples, false);
    if (row && run->engine.weights)
        row->limit = limit_of(run, c);
    if (row && run->config->against && c->kind != BATCH) { /* it has no batches of decodes */
        progress_show("%s: llama-bench", name);
        rc = run_peer(run, c, &value, err);
        if (rc == 0)
            report_compare(row, "llama-bench", value, true);
    }
    progress_clear();
    if (row && rc == 0)
        report_print_row(run->report, row);
    samples_fini(&samples);
    return rc;
}

/*
 * New tokens behind a warm prefix, as another turn of a conversation brings them, and right after each the decodes that follow: the
 * time of the former, and how many of the latter it is worth.
 */
static int run_extend(struct engine_run *run, uint32_t n_tokens, struct error *err)
{
    struct samples times = {0}, steps = {0};
    char name[48];
    int rc = engine_prefill(&run->engine, 0, EXTEND_CONTEXT, err);
    snprintf(name, sizeof name, "extend %u behind %d", n_tokens, EXTEND_CONTEXT);
    for (uint32_t i = 0; rc == 0 && i <= run->config->runs; i++) {
        progress_show("%s: run %u of %u", name, i, run->config->runs);
        uint64_t start = perf_now_ns();
        rc = engine_extend(&run->engine, 0, EXTEND_CONTEXT, n_tokens, err);
        uint64_t extended = perf_now_ns();
        for (uint32_t j = 0; rc == 0 && j < EXTEND_DECODES; j++)
            rc = engine_decode(&run->engine, 1, EXTEND_CONTEXT + n_tokens + j, err);
        double decode_ns = (double)(perf_now_ns() - extended) / EXTEND_DECODES;
        if (i > 0) { /* the first only warms up */
            samples_add(&times, (double)(extended - start) * 1e-6);
            samples_add(&steps, (double)(extended - start) / decode_ns);
        }
    }
    progress_clear();
    struct report_row *row = rc ? NULL : report_add(run->report, name, "time", "ms", &times, false);
    if (row)
        report_print_row(run->report, row);
    row = rc ? NULL : report_add(run->report, name, "time in decode steps", "steps", &steps, false);
    if (row)
        report_print_row(run->report, row);
    samples_fini(&times);
    samples_fini(&steps);
    return rc;
}

static int report_hand_over(struct engine_run *run, struct error *err)
{
    struct samples us = {0};
    uint32_t runs = run->config->runs > HAND_OVER_RUNS ? run->config->runs : HAND_OVER_RUNS;
    progress_show("handing stages from worker to worker");
    int rc = hand_over_measure(run->engine.threads, run->config->cpus, run->config->n_cpus, runs, &us, err);
    progress_clear();
    const struct report_row *row = rc ? NULL : report_add(run->report, "worker pool", "hand-over", "us", &us, true);
    if (row)
        report_print_row(run->report, row);
    samples_fini(&us);
    return rc;
}

static int report_limits(struct engine_run *run, struct error *err)
{
    progress_show("measuring memory and arithmetic of the machine");
    bool bfloat = strstr(run->engine.info.arithmetic, "bf16") != NULL;
    int rc = limits_measure(run->engine.threads, run->config->cpus, run->config->n_cpus, bfloat,
                            cpu_backend_weight_bytes(run->engine.backend), &run->limits, err);
    if (rc)
        return rc;
    struct samples bandwidth = {0}, peak = {0};
    samples_add(&bandwidth, run->limits.bytes_per_s * 1e-9);
    samples_add(&peak, run->limits.flops_per_s * 1e-9);
    progress_clear();
    const char *const metrics[] = {"streaming read", bfloat ? "bfloat16 multiply-add" : "float32 multiply-add"}, *const units[] = {
                                                                                                                     "GB/s",
                                                                                                                     "GFLOP/s"};
    struct samples *const both[] = {&bandwidth, &peak};
    for (int i = 0; i < 2; i++) {
        const struct report_row *row = report_add(run->report, "machine", metrics[i], units[i], both[i], false);
        if (row)
            report_print_row(run->report, row);
        samples_fini(both[i]);
    }
    return 0;
}

static json_t *list_json(const struct number_list *list)
{
    json_t *array = json_array();
    for (uint32_t i = 0; i < list->n; i++)
        json_array_append_new(array, json_integer(list->values[i]));
    return array;
}

static void note_options(struct engine_run *run)
{
    const struct perf_config *config = run->config;
    report_option(run->report, "backend", json_string(run->engine.info.name));
    report_option(run->report, "arithmetic", json_string(run->engine.info.arithmetic));
    if (run->engine.weights)
        report_option(run->report, "weight_bytes", json_integer((json_int_t)cpu_backend_weight_bytes(run->engine.backend)));
    report_option(run->report, "model", run->engine.weights ? json_string(run->engine.weights->desc.name) : json_null());
    report_option(run->report, "threads", json_integer(run->engine.threads));
    report_option(run->report, "runs", json_integer(config->runs));
    report_option(run->report, "prefill", list_json(&config->prefill));
    report_option(run->report, "decode", list_json(&config->decode));
    report_option(run->report, "extend", list_json(&config->extend));
    report_option(run->report, "batch", list_json(&config->batch));
    report_option(run->report, "decode_tokens", json_integer(config->decode_tokens));
}

static uint32_t largest(const struct number_list *list, uint32_t least)
{
    for (uint32_t i = 0; i < list->n; i++)
        least = list->values[i] > least ? list->values[i] : least;
    return least;
}

/* Long sequences come alone and batches are short, so the pool has room for either, not for both. */
static int open_engine(struct engine_run *run, bool batches, struct error *err)
{
    const struct perf_config *config = run->config;
    uint32_t n_tokens = BATCH_CONTEXT + config->decode_tokens;
    if (!batches) {
        uint32_t behind = largest(&config->decode, 1) + config->decode_tokens;
        n_tokens = largest(&config->prefill, behind);
        uint32_t extended = config->extend.n > 0 ? EXTEND_CONTEXT + largest(&config->extend, 1) + EXTEND_DECODES : 0;
        n_tokens = n_tokens > extended ? n_tokens : extended;
    }
    return engine_open(config, batches ? largest(&config->batch, 1) : 1, n_tokens + 1, &run->engine, err);
}

static int run_cases(struct engine_run *run, enum kind kind, const struct number_list *list, struct error *err)
{
    int rc = 0;
    for (uint32_t i = 0; rc == 0 && i < list->n; i++) {
        struct bench_case c = {.kind = kind, .n_sequences = 1, .context = list->values[i]};
        if (kind == BATCH)
            c = (struct bench_case){.kind = kind, .n_sequences = list->values[i], .context = BATCH_CONTEXT};
        rc = run_case(run, &c, err);
    }
    return rc;
}

int bench_engine(const struct perf_config *config, struct report *report, struct error *err)
{
    struct engine_run run = {.config = config, .report = report};
    int rc = open_engine(&run, false, err);
    if (rc)
        return rc;
    note_options(&run);
    if (run.engine.weights)
        rc = report_limits(&run, err);
    if (rc == 0 && run.engine.weights)
        rc = report_hand_over(&run, err);
    if (rc == 0)
        rc = run_cases(&run, PREFILL, &config->prefill, err);
    if (rc == 0)
        rc = run_cases(&run, DECODE, &config->decode, err);
    for (uint32_t i = 0; rc == 0 && i < config->extend.n; i++)
        rc = run_extend(&run, config->extend.values[i], err);
    engine_close(&run.engine);
    if (rc || config->batch.n == 0)
        return rc;
    rc = open_engine(&run, true, err);
    if (rc)
        return rc;
    rc = run_cases(&run, BATCH, &config->batch, err);
    engine_close(&run.engine);
    return rc;
}

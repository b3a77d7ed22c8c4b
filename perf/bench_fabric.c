#include "perf/bench_fabric.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "net/seal.h"
#include "perf/progress.h"

enum { MAX_SIDES = 16, MIN_BYTES = 8 };

/* All runs of one side in one case. */
struct tally {
    const struct fabric_side *side;
    struct samples times_us, mb_per_s, cpu_percent;
    uint64_t retransmits;
    bool one_sided;
};

struct bench {
    const struct perf_config *config;
    struct report *report;
    struct tally tallies[MAX_SIDES]; /* hearsay's first */
    uint32_t n_sides;
};

/* ---- rows ---- */

static void fini_tallies(struct bench *b)
{
    for (uint32_t i = 0; i < b->n_sides; i++) {
        samples_fini(&b->tallies[i].times_us);
        samples_fini(&b->tallies[i].mb_per_s);
        samples_fini(&b->tallies[i].cpu_percent);
    }
    b->n_sides = 0;
}

static struct report_row *add_row(struct bench *b, const char *name, const char *metric, const char *unit, struct samples *samples)
{
    if (samples->n == 0)
        return NULL;
    return report_add(b->report, name, metric, unit, samples, samples->n > 100);
}

static void print_row(struct bench *b, const struct report_row *row)
{
    progress_clear();
    if (row)
        report_print_row(b->report, row);
}

/* The reference that a figure is compared with: the first beside hearsay. */
static double reference_median(struct bench *b, bool times)
{
    if (b->n_sides < 2)
        return NAN;
    struct samples *samples = times ? &b->tallies[1].times_us : &b->tallies[1].mb_per_s;
    samples_sort(samples);
    return samples_median(samples);
}

static void add_rows(struct bench *b, const char *what, const char *metric, bool times)
{
    for (uint32_t i = 0; i < b->n_sides; i++) {
        struct tally *tally = &b->tallies[i];
        char name[48];
        snprintf(name, sizeof name, "%s%s%s", what, i ? ", " : "", i ? tally->side->name : "");
        double reference = i == 0 ? reference_median(b, times) : NAN;
        struct report_row *row = add_row(b, name, metric, times ? "us" : "MB/s", times ? &tally->times_us : &tally->mb_per_s);
        if (row && isfinite(reference))
            report_compare(row, b->tallies[1].side->name, reference, !times);
        print_row(b, row);
    }
    print_row(b, add_row(b, what, "CPU of a caller", "%", &b->tallies[0].cpu_percent));
}

static void add_one(struct bench *b, const char *name, const char *metric, const char *unit, double value)
{
    struct samples one = {0};
    samples_add(&one, value);
    print_row(b, add_row(b, name, metric, unit, &one));
    samples_fini(&one);
}

/* ---- measuring ---- */

static bool stands_beside(const struct fabric_side *side, const struct fabric_job *job)
{
    const struct perf_config *config = job->config;
    bool wanted = config->peer == PERF_PEER_PERFTEST || (config->peer == PERF_PEER_BARE && !side->perftest);
    return wanted && (side->patterns & job->pattern) && (!side->fabric || strcmp(side->fabric, config->fabric) == 0);
}

/* Hearsay and, where it is wanted and can play this, every reference, in turn, run after run. */
static int measure(struct bench *b, const struct fabric_job *job, bool with_references, struct error *err)
{
    const struct perf_config *config = b->config;
    uint32_t n_bare;
    const struct fabric_side *bare = fabric_bare_sides(&n_bare);
    fini_tallies(b);
    memset(b->tallies, 0, sizeof b->tallies);
    b->tallies[b->n_sides++].side = &fabric_hearsay;
    for (uint32_t i = 0; with_references && !config->connect && i < n_bare && b->n_sides < MAX_SIDES; i++)
        if (stands_beside(&bare[i], job))
            b->tallies[b->n_sides++].side = &bare[i];
    for (uint32_t run = 0; run < config->runs; run++) {
        for (uint32_t i = 0; i < b->n_sides; i++) {
            struct tally *tally = &b->tallies[i];
            struct fabric_result result;
            progress_show("%u bytes, run %u of %u: %s", job->bytes, run + 1, config->runs, tally->side->name);
            int rc = fabric_measure(tally->side, job, i == 0 ? config->connect : NULL, &result, err);
            if (rc)
                return error_wrap(err, rc, "%s, %u bytes", tally->side->name, job->bytes);
            samples_append(&tally->times_us, &result.times_us);
            if (result.bytes_per_s > 0)
                samples_add(&tally->mb_per_s, result.bytes_per_s / 1e6);
            samples_add(&tally->cpu_percent, 100 * result.cpu_share / job->senders);
            tally->retransmits += result.sum.retransmits;
            tally->one_sided = result.one_sided;
            fabric_result_fini(&result);
        }
    }
    return 0;
}

static int bench_ping(struct bench *b, struct fabric_job *job, struct error *err)
{
    char name[48];
    snprintf(name, sizeof name, "ping-pong %u B", job->bytes);
    int rc = measure(b, job, true, err);
    if (rc == 0)
        add_rows(b, name, "round trip", true);
    return rc;
}

static int bench_read(struct bench *b, struct fabric_job *job, struct error *err)
{
    char name[48];
    int rc = measure(b, job, true, err);
    snprintf(name, sizeof name, "read %u B%s", job->bytes, b->tallies[0].one_sided ? ", one-sided" : " by message");
    if (rc == 0)
        add_rows(b, name, "time", true);
    return rc;
}

/* Beside the bare program stand ciphers alone: libcrypto's, which is the reference, and the one that seals here; and what the bare
 * program and the reference leave together when one core must do the one and the other. */
static int add_ciphers(struct bench *b, const struct fabric_job *job, struct error *err)
{
    char name[96];
    struct fabric_cipher_speed cipher;
    double bare = reference_median(b, false);
    int rc = fabric_cipher(job->bytes, b->config->duration_ns, &cipher, err);
    if (rc)
        return rc;
    snprintf(name, sizeof name, "stream %u B, cipher alone, libcrypto", job->bytes);
    add_one(b, name, "throughput", "MB/s", cipher.libcrypto / 1e6);
    snprintf(name, sizeof name, "stream %u B, our seal alone, %.*s", job->bytes, (int)strcspn(cipher.by, " "), cipher.by);
    add_one(b, name, "throughput", "MB/s", cipher.ours / 1e6);
    if (isfinite(bare)) {
        snprintf(name, sizeof name, "stream %u B, %s and libcrypto", job->bytes, b->tallies[1].side->name);
        add_one(b, name, "throughput", "MB/s", 1 / (1 / bare + 1e6 / cipher.libcrypto));
    }
    return 0;
}

static int bench_stream(struct bench *b, struct fabric_job *job, struct error *err)
{
    char name[64];
    snprintf(name, sizeof name, "stream %u B", job->bytes);
    int rc = measure(b, job, true, err);
    if (rc)
        return rc;
    add_rows(b, name, "throughput", false);
    add_one(b, name, "retransmits", "a run", (double)b->tallies[0].retransmits / b->config->runs);
    return b->config->sealed ? add_ciphers(b, job, err) : 0;
}

static int bench_gather(struct bench *b, struct fabric_job *job, struct error *err)
{
    char name[48];
    job->senders = b->config->senders;
    job->pattern = FABRIC_PING;
    snprintf(name, sizeof name, "%u to one, %u B", job->senders, job->bytes);
    int rc = measure(b, job, false, err);
    if (rc)
        return rc;
    add_rows(b, name, "round trip", true);
    job->pattern = FABRIC_STREAM;
    rc = measure(b, job, false, err);
    if (rc)
        return rc;
    add_rows(b, name, "throughput", false);
    add_one(b, name, "retransmits", "a run", (double)b->tallies[0].retransmits / b->config->runs);
    return 0;
}

static int bench_answer(struct bench *b, struct fabric_job *job, struct error *err)
{
    char name[48];
    struct samples answer_ns = {0};
    snprintf(name, sizeof name, "answer %u B%s", job->bytes, b->config->sealed ? "" : ", unsealed");
    int rc = fabric_answer(b->config, job->bytes, &answer_ns, err);
    if (rc == 0)
        print_row(b, add_row(b, name, "own work", "ns", &answer_ns));
    samples_fini(&answer_ns);
    return rc;
}

static const struct {
    enum fabric_pattern pattern;
    uint32_t max_bytes;
    int (*run)(struct bench *b, struct fabric_job *job, struct error *err);
} patterns[] = {
    {FABRIC_ANSWER, 4096, bench_answer},
    {FABRIC_PING, UINT32_MAX, bench_ping},
    {FABRIC_READ, FABRIC_REGION_BYTES, bench_read},
    {FABRIC_STREAM, UINT32_MAX, bench_stream},
    {FABRIC_GATHER, UINT32_MAX, bench_gather},
};

static void note_options(const struct perf_config *config, struct report *report)
{
    report_option(report, "fabric", json_string(config->fabric));
    report_option(report, "sealed", json_boolean(config->sealed));
    enum seal_cipher cipher = config->sealed ? seal_cipher_choose(seal_ciphers_available(), seal_ciphers_available()) : SEAL_CIPHER_NONE;
    report_option(report, "cipher", json_string(seal_cipher_name(cipher)));
    report_option(report, "sealed_by", json_string(seal_cipher_library(cipher)));
    report_option(report, "poll", json_string(config->poll == PERF_POLL_SPIN ? "spin" : "adaptive"));
    report_option(report, "duration_ms", json_real((double)config->duration_ns / 1e6));
    report_option(report, "runs", json_integer(config->runs));
    report_option(report, "window", json_integer(config->window));
    report_option(report, "datagram_bytes", json_integer(config->datagram_bytes));
    report_option(report, "address", json_string(config->connect ? config->connect : config->bind));
}

int bench_fabric(const struct perf_config *config, struct report *report, struct error *err)
{
    if (!fabric_is_known(config->fabric))
        return error_set(err, HS_ERR_INVALID, "--fabric: \"%s\" is not a fabric; give one of %s", config->fabric, fabric_names());
    if (config->serve)
        return fabric_serve_forever(config, err);
    struct bench b = {.config = config, .report = report};
    int rc = 0;
    note_options(config, report);
    for (uint32_t p = 0; rc == 0 && p < sizeof patterns / sizeof patterns[0]; p++) {
        for (uint32_t s = 0; rc == 0 && s < config->sizes.n; s++) {
            uint32_t bytes = config->sizes.values[s] < MIN_BYTES ? MIN_BYTES : config->sizes.values[s];
            struct fabric_job job = {
                .config = config, .pattern = patterns[p].pattern, .bytes = bytes, .senders = 1, .control = -1, .cpu = UINT32_MAX};
            if ((config->patterns & patterns[p].pattern) && bytes <= patterns[p].max_bytes)
                rc = patterns[p].run(&b, &job, err);
        }
    }
    fini_tallies(&b);
    return rc;
}

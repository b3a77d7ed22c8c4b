/*
 * The gossip benchmark: from the moment at which blocks enter one node's tree until its peer's replica has them. Two clusters in
 * two processes over any fabric of this machine. An insertion waits for the one before to be seen, and then for a random
 * while, so that it falls anywhere between two rounds. Beside it stands the fabric without hearsay: a read of as much by a bare
 * program where the fabric reads one-sidedly, else a round trip.
 */
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "core/base/rng.h"
#include "perf/bench.h"
#include "perf/bench_fabric.h"
#include "perf/gossip_node.h"
#include "perf/progress.h"
#include "perf/udp_echo.h"

enum { WARM_UP = 20, RUN_MAX = 256 };

static const uint64_t second_ns = 1000000000;
static const uint64_t patience_ns = 20 * UINT64_C(1000000000), idle_ns = 300000000;

/* Shared by the three processes. */
struct gossip_bench {
    struct gossip_node origin, peer;
    uint32_t insertions, run;
    uint64_t gap_ns; /* the random while is below it */
    struct rng rng;  /* the origin's alone */
    uint64_t insert_at_ns;
    /* Pairs of processes: the origin writes inserted_ns and names of i, then inserted = i + 1; the peer reads them, then writes seen
     * = i + 1. */
    _Atomic uint32_t inserted, seen;
    uint64_t inserted_ns, names[RUN_MAX];
    atomic_bool may_insert, is_met;
    _Atomic uint64_t sent_bytes; /* by the origin */
    double delays_us[]; /* [insertions], of those seen after the warm-up */
};

static uint64_t origin_turn(void *self, struct gossip_node *node, uint64_t now_ns)
{
    struct gossip_bench *b = self;
    struct transport_stats stats;
    node->transport->ops->stats(node->transport, &stats);
    atomic_store_explicit(&b->sent_bytes, stats.sent_bytes, memory_order_relaxed);
    uint32_t inserted = atomic_load_explicit(&b->inserted, memory_order_relaxed);
    if (!atomic_load_explicit(&b->may_insert, memory_order_acquire) || inserted == WARM_UP + b->insertions)
        return UINT64_MAX;
    if (atomic_load_explicit(&b->seen, memory_order_acquire) < inserted) /* pairs with peer_turn */
        return now_ns + b->gap_ns / 4;
    if (!b->insert_at_ns)
        b->insert_at_ns = now_ns + rng_below(&b->rng, b->gap_ns);
    if (now_ns < b->insert_at_ns)
        return b->insert_at_ns;
    for (uint32_t i = 0; i < b->run; i++)
        b->names[i] = rng_u64(&b->rng);
    b->insert_at_ns = 0;
    b->inserted_ns = perf_now_ns();
    node->digest.added(node->digest.self, 1, b->names, b->run);
    atomic_store_explicit(&b->inserted, inserted + 1, memory_order_release); /* pairs with peer_turn */
    return now_ns + b->gap_ns / 4;
}

static bool has_all(const struct gossip_node *node, const uint64_t *names, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        if (!node->digest.held_elsewhere(node->digest.self, names[i]))
            return false;
    return true;
}

static uint64_t peer_turn(void *self, struct gossip_node *node, uint64_t now_ns)
{
    struct gossip_bench *b = self;
    struct cluster_peer_info info;
    if (cluster_peer(node->cluster, 0, &info) == 0 && info.routable)
        atomic_store_explicit(&b->is_met, true, memory_order_relaxed);
    uint32_t seen = atomic_load_explicit(&b->seen, memory_order_relaxed);
    bool is_waiting = atomic_load_explicit(&b->inserted, memory_order_acquire) > seen; /* pairs with origin_turn */
    if (!is_waiting || !has_all(node, b->names, b->run))
        return UINT64_MAX;
    if (seen >= WARM_UP)
        b->delays_us[seen - WARM_UP] = (double)(perf_now_ns() - b->inserted_ns) / 1e3;
    atomic_store_explicit(&b->seen, seen + 1, memory_order_release); /* pairs with origin_turn */
    return UINT64_MAX;
}

static void pause_for(uint64_t ns)
{
    struct timespec pause = {.tv_sec = (time_t)(ns / second_ns), .tv_nsec = (long)(ns % second_ns)};
    nanosleep(&pause, NULL);
}

static int check_nodes(struct gossip_bench *b, struct error *err)
{
    int rc = gossip_node_check(&b->origin, err);
    return rc ? rc : gossip_node_check(&b->peer, err);
}

/* Looks now and then whether the nodes are done. */
static int wait_for_seen(struct gossip_bench *b, uint32_t n, struct error *err)
{
    uint64_t changed_ns = perf_now_ns();
    for (uint32_t before = 0;;) {
        uint32_t seen = atomic_load_explicit(&b->seen, memory_order_acquire);
        if (seen >= n)
            return 0;
        if (seen != before)
            changed_ns = perf_now_ns();
        before = seen;
        if (perf_now_ns() - changed_ns > patience_ns)
            return error_set(err, HS_ERR_TIMEOUT, "insertion %u was not seen within 20 s", seen);
        int rc = check_nodes(b, err);
        if (rc)
            return rc;
        progress_show("insertion %u of %u", seen, n);
        pause_for(5000000);
    }
}

static int wait_for_meeting(struct gossip_bench *b, struct error *err)
{
    uint64_t start_ns = perf_now_ns();
    while (!atomic_load_explicit(&b->is_met, memory_order_relaxed)) {
        int rc = check_nodes(b, err);
        if (rc)
            return rc;
        if (perf_now_ns() - start_ns > patience_ns)
            return error_set(err, HS_ERR_TIMEOUT, "the two nodes did not meet within 20 s");
        pause_for(5000000);
    }
    return 0;
}

static int start(struct gossip_bench *b, const struct perf_config *config, struct error *err)
{
    b->origin = (struct gossip_node){.config = config, .name = "origin", .serves = true, .on_turn = origin_turn, .self = b};
    b->peer = (struct gossip_node){.config = config, .name = "peer", .joins = &b->origin, .on_turn = peer_turn, .self = b};
    int rc = gossip_node_start(&b->origin, err);
    return rc ? rc : gossip_node_start(&b->peer, err);
}

struct gossip_bytes {
    double idle_per_s, per_block; /* per_block: beyond what would have been sent anyway */
};

static int measure(struct gossip_bench *b, struct gossip_bytes *bytes, struct error *err)
{
    int rc = wait_for_meeting(b, err);
    if (rc)
        return rc;
    uint64_t start_ns = perf_now_ns(), start_bytes = atomic_load_explicit(&b->sent_bytes, memory_order_relaxed);
    pause_for(idle_ns);
    uint64_t idle_bytes = atomic_load_explicit(&b->sent_bytes, memory_order_relaxed) - start_bytes;
    bytes->idle_per_s = (double)idle_bytes * 1e9 / (double)(perf_now_ns() - start_ns);

    start_ns = perf_now_ns();
    start_bytes = atomic_load_explicit(&b->sent_bytes, memory_order_relaxed);
    atomic_store_explicit(&b->may_insert, true, memory_order_release); /* pairs with origin_turn */
    rc = wait_for_seen(b, WARM_UP + b->insertions, err);
    double busy_bytes = (double)(atomic_load_explicit(&b->sent_bytes, memory_order_relaxed) - start_bytes);
    double seconds = (double)(perf_now_ns() - start_ns) / 1e9;
    bytes->per_block = (busy_bytes - bytes->idle_per_s * seconds) / (WARM_UP + b->insertions) / b->run;
    return rc;
}

/* ---- beside it ---- */

struct reference {
    const char *name; /* outlives the report */
    struct samples times_us;
};

enum { REFERENCE_BYTES = 256 }; /* about one small digest */

/* Over sockets between two that sleep, as nodes do; elsewhere what the fabric's bare program can. */
static int measure_reference(const struct perf_config *config, struct reference *out, struct error *err)
{
    static char name[64];
    uint32_t n;
    const struct fabric_side *sides = fabric_bare_sides(&n);
    for (uint32_t i = 0; i < n; i++) {
        if (!sides[i].fabric || sides[i].perftest || strcmp(sides[i].fabric, config->fabric) != 0 || strcmp(config->fabric, "sockets") == 0)
            continue;
        bool reads = sides[i].patterns & FABRIC_READ;
        struct fabric_job job = {.config = config,
                                 .pattern = reads ? FABRIC_READ : FABRIC_PING,
                                 .bytes = REFERENCE_BYTES,
                                 .senders = 1,
                                 .control = -1,
                                 .cpu = UINT32_MAX};
        struct fabric_result result;
        snprintf(name, sizeof name, "%s, %s", sides[i].name, reads ? "one-sided read" : "round trip");
        out->name = name;
        int rc = fabric_measure(&sides[i], &job, NULL, &result, err);
        if (rc == 0) {
            samples_append(&out->times_us, &result.times_us);
            fabric_result_fini(&result);
        }
        return rc;
    }
    out->name = "bare UDP round trip";
    return udp_echo_measure(config->insertions, REFERENCE_BYTES, config->gossip_interval_ns, &out->times_us, err);
}

/* ---- rows ---- */

static void add_row(struct report *report, const char *metric, const char *unit, struct samples *samples, struct reference *beside)
{
    struct report_row *row = report_add(report, "two nodes", metric, unit, samples, samples->n > 1);
    if (!row)
        return;
    if (beside) {
        samples_sort(&beside->times_us);
        report_compare(row, beside->name, samples_median(&beside->times_us), false);
    }
    report_print_row(report, row);
}

static void add_one(struct report *report, const char *metric, const char *unit, double value)
{
    struct samples one = {0};
    samples_add(&one, value);
    add_row(report, metric, unit, &one, NULL);
    samples_fini(&one);
}

static void add_delays(struct report *report, const struct gossip_bench *b, struct reference *beside)
{
    struct samples delays_us = {0};
    for (uint32_t i = 0; i < b->insertions; i++)
        samples_add(&delays_us, b->delays_us[i]);
    add_row(report, "insertion to visibility", "us", &delays_us, beside);
    samples_fini(&delays_us);
}

static void note_options(const struct perf_config *config, struct report *report)
{
    report_option(report, "fabric", json_string(config->fabric));
    report_option(report, "gossip_interval_us", json_real((double)config->gossip_interval_ns / 1e3));
    report_option(report, "insertions", json_integer(config->insertions));
    report_option(report, "run", json_integer(config->run));
    report_option(report, "seed", json_integer((json_int_t)config->seed));
}

int bench_gossip(const struct perf_config *config, struct report *report, struct error *err)
{
    size_t size = sizeof(struct gossip_bench) + config->insertions * sizeof(double);
    if (!fabric_is_known(config->fabric))
        return error_set(err, HS_ERR_INVALID, "--fabric: \"%s\" is not a fabric; give one of %s", config->fabric, fabric_names());
    struct gossip_bench *b = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (b == MAP_FAILED)
        return error_set(err, HS_ERR_NO_MEMORY, "%s", error_name(HS_ERR_NO_MEMORY));
    b->insertions = config->insertions;
    b->run = config->run;
    b->gap_ns = 2 * config->gossip_interval_ns;
    rng_seed(&b->rng, config->seed);
    struct reference beside = {0};
    struct gossip_bytes bytes = {0};
    int rc = measure_reference(config, &beside, err);
    if (rc == 0)
        rc = start(b, config, err);
    if (rc == 0)
        rc = measure(b, &bytes, err);
    gossip_node_stop(&b->peer);
    gossip_node_stop(&b->origin);
    if (rc == 0) {
        progress_clear();
        note_options(config, report);
        add_delays(report, b, &beside);
        add_row(report, beside.name, "us", &beside.times_us, NULL);
        add_one(report, "sent per block", "bytes", bytes.per_block);
        add_one(report, "sent when idle", "bytes/s", bytes.idle_per_s);
    }
    samples_fini(&beside.times_us);
    munmap(b, size);
    return rc;
}

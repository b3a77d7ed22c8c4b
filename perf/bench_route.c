/* The route benchmark: what one request costs at its entry node before it goes anywhere: naming its blocks and choosing a node. */
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/panic.h"
#include "core/base/rng.h"
#include "core/cache/block_hash.h"
#include "perf/bench.h"
#include "perf/progress.h"
#include "perf/route_group.h"

enum {
    PAGE_TOKENS = 16,
    UNDER_WAY = 64, /* requests that were routed and are not finished */
    CASES = 3,
    FLUSH_BYTES = 128 << 20,
    PER_CALL_NS = 1000000, /* on the cluster's clock: a thousand requests a second */
};

enum route_case { CASE_RANDOM, CASE_COLD, CASE_EQUAL };

static const char *const case_names[CASES] = {"random depths", "cold", "all equal"};

struct route_bench {
    struct route_group group;
    struct block_hash_key key;
    uint8_t namespace_id[NAMESPACE_BYTES];
    uint32_t n_tokens, n_blocks;
    uint32_t n_prompts[CASES];
    uint32_t *tokens[CASES]; /* [n_prompts][n_tokens] */
    uint64_t *blocks;        /* [n_blocks] of the request at hand */
    struct route_ticket tickets[UNDER_WAY];
    uint32_t n_routed;
    uint8_t *flush; /* [FLUSH_BYTES] */
    uint64_t heap_bytes, replica_names;
};

struct route_times {
    double hash_us, decide_us;
};

/* Kept whole, so that a profiler can be told to look at nothing else. */
__attribute__((noinline)) static struct route_times route_call(struct route_bench *b, const uint32_t *tokens,
                                                               struct route_ticket *ticket)
{
    uint64_t start_ns = perf_now_ns();
    uint32_t n = block_hash_chain(&b->key, b->namespace_id, tokens, b->n_tokens, PAGE_TOKENS, b->blocks);
    uint64_t hashed_ns = perf_now_ns();
    struct route_query query = {.blocks = b->blocks, .n_blocks = n, .n_tokens = b->n_tokens, .expected_output_tokens = 128};
    int rc = cluster_route(b->group.cluster, &query, ticket);
    uint64_t decided_ns = perf_now_ns();
    hs_assert(rc == 0);
    return (struct route_times){(double)(hashed_ns - start_ns) / 1e3, (double)(decided_ns - hashed_ns) / 1e3};
}

static void fill_random(struct rng *rng, uint32_t *tokens, size_t n)
{
    for (size_t i = 0; i < n; i++)
        tokens[i] = (uint32_t)rng_below(rng, 32000);
}

/*
 * A peer's set: a random depth of every prompt of the first case, all of those of the third, and names of prompts that nobody asks
 * for. Deeper first would be no advertised set: each chain comes head first.
 */
static int tell_peer(struct route_bench *b, uint32_t peer, const uint64_t *random_blocks, const uint64_t *equal_blocks, uint32_t n,
                     uint64_t *names, struct rng *rng, struct error *err)
{
    uint32_t at = 0;
    for (uint32_t i = 0; i < b->n_prompts[CASE_EQUAL]; i++, at += b->n_blocks)
        memcpy(names + at, equal_blocks + (size_t)i * b->n_blocks, b->n_blocks * sizeof *names);
    for (uint32_t i = 0; i < b->n_prompts[CASE_RANDOM]; i++) {
        uint32_t depth = (uint32_t)rng_below(rng, b->n_blocks + 1);
        if (depth > n - at)
            depth = n - at;
        memcpy(names + at, random_blocks + (size_t)i * b->n_blocks, depth * sizeof *names);
        at += depth;
    }
    while (at < n)
        names[at++] = rng_u64(rng);
    return route_group_tell(&b->group, peer, names, n, err);
}

static uint64_t *name_prompts(struct route_bench *b, enum route_case which)
{
    uint64_t *all = malloc((size_t)b->n_prompts[which] * b->n_blocks * sizeof *all);
    for (uint32_t i = 0; all && i < b->n_prompts[which]; i++)
        block_hash_chain(&b->key, b->namespace_id, b->tokens[which] + (size_t)i * b->n_tokens, b->n_tokens, PAGE_TOKENS,
                         all + (size_t)i * b->n_blocks);
    return all;
}

static uint64_t heap_bytes(void)
{
    struct mallinfo2 info = mallinfo2();
    return info.uordblks + info.hblkhd;
}

static int tell_all(struct route_bench *b, const struct perf_config *config, struct error *err)
{
    struct rng rng;
    rng_seed(&rng, config->seed + 1);
    uint64_t *random_blocks = name_prompts(b, CASE_RANDOM), *equal_blocks = name_prompts(b, CASE_EQUAL);
    uint64_t *names = malloc((size_t)config->blocks * sizeof *names);
    int rc = random_blocks && equal_blocks && names ? 0 : error_set(err, HS_ERR_NO_MEMORY, "out of memory for the peers' sets");
    uint64_t before = heap_bytes();
    if (rc == 0)
        rc = route_group_init(&b->group, config->peers, PAGE_TOKENS, config->peers * config->blocks, config->seed, err);
    for (uint32_t peer = 0; rc == 0 && peer < config->peers; peer++) {
        progress_show("telling of peer %u of %u", peer + 1, config->peers);
        rc = tell_peer(b, peer, random_blocks, equal_blocks, config->blocks, names, &rng, err);
    }
    b->heap_bytes = heap_bytes() - before;
    b->replica_names = (uint64_t)config->peers * config->blocks;
    free(names);
    free(random_blocks);
    free(equal_blocks);
    return rc;
}

static int prepare(struct route_bench *b, const struct perf_config *config, struct error *err)
{
    struct rng rng;
    rng_seed(&rng, config->seed);
    b->n_tokens = config->tokens;
    b->n_blocks = config->tokens / PAGE_TOKENS;
    /* Half of a peer's set belongs to the first case (a prompt takes half its blocks on average), a quarter to the third. */
    uint32_t of_random = config->blocks / b->n_blocks, of_equal = config->blocks / 4 / b->n_blocks;
    b->n_prompts[CASE_RANDOM] = of_random < 256 ? of_random : 256;
    b->n_prompts[CASE_EQUAL] = of_equal < 64 ? of_equal : 64;
    b->n_prompts[CASE_COLD] = 256;
    if (!of_equal)
        return error_set(err, HS_ERR_INVALID, "--blocks: %u is too few for prompts of %u tokens; give %u or more", config->blocks,
                         config->tokens, 4 * b->n_blocks);
    uint8_t group_key[32] = {1};
    block_hash_key_derive(group_key, &b->key);
    bool good = true;
    for (int i = 0; i < CASES; i++) {
        size_t n = (size_t)b->n_prompts[i] * b->n_tokens;
        b->tokens[i] = malloc(n * sizeof *b->tokens[i]);
        if (b->tokens[i])
            fill_random(&rng, b->tokens[i], n);
        good &= b->tokens[i] != NULL;
    }
    b->blocks = malloc(b->n_blocks * sizeof *b->blocks);
    b->flush = malloc(FLUSH_BYTES);
    if (!good || !b->blocks || !b->flush)
        return error_set(err, HS_ERR_NO_MEMORY, "out of memory for the prompts");
    memset(b->flush, 1, FLUSH_BYTES);
    return tell_all(b, config, err);
}

static void release(struct route_bench *b)
{
    route_group_fini(&b->group);
    for (int i = 0; i < CASES; i++)
        free(b->tokens[i]);
    free(b->blocks);
    free(b->flush);
}

/* Writes every cache line of a buffer larger than the caches. */
static void flush_caches(struct route_bench *b)
{
    for (size_t i = 0; i < FLUSH_BYTES; i += 64)
        b->flush[i]++;
}

static struct route_times one_request(struct route_bench *b, const uint32_t *tokens)
{
    struct route_ticket *ticket = &b->tickets[b->n_routed++ % UNDER_WAY];
    cluster_route_finished(b->group.cluster, ticket, ROUTE_DONE, 0);
    b->group.now_ns += PER_CALL_NS;
    return route_call(b, tokens, ticket);
}

static void add_row(struct report *report, const char *name, const char *metric, struct samples *samples)
{
    const struct report_row *row = report_add(report, name, metric, "us", samples, true);
    if (row)
        report_print_row(report, row);
    samples_fini(samples);
}

static void run_case(struct route_bench *b, enum route_case which, bool flushed, uint32_t calls, struct report *report)
{
    char name[48];
    struct samples hashing = {0}, deciding = {0}, whole = {0};
    snprintf(name, sizeof name, "%s%s", case_names[which], flushed ? ", caches flushed" : "");
    for (uint32_t i = 0; i < UNDER_WAY + calls; i++) {
        if (flushed && i >= UNDER_WAY)
            flush_caches(b);
        struct route_times times = one_request(b, b->tokens[which] + (size_t)(i % b->n_prompts[which]) * b->n_tokens);
        if (i < UNDER_WAY)
            continue; /* until as many are under way as in the steady state */
        samples_add(&hashing, times.hash_us);
        samples_add(&deciding, times.decide_us);
        samples_add(&whole, times.hash_us + times.decide_us);
    }
    add_row(report, name, "hashing", &hashing);
    add_row(report, name, "deciding", &deciding);
    add_row(report, name, "both", &whole);
}

static void note_options(const struct perf_config *config, struct report *report)
{
    report_option(report, "tokens", json_integer(config->tokens));
    report_option(report, "page_tokens", json_integer(PAGE_TOKENS));
    report_option(report, "peers", json_integer(config->peers));
    report_option(report, "blocks", json_integer(config->blocks));
    report_option(report, "calls", json_integer(config->calls));
    report_option(report, "under_way", json_integer(UNDER_WAY));
    report_option(report, "seed", json_integer((json_int_t)config->seed));
}

/* No row where the allocator does not tell what it holds (a sanitizer's). */
static void report_memory(const struct route_bench *b, struct report *report)
{
    if (!b->heap_bytes)
        return;
    struct samples memory = {0};
    samples_add(&memory, (double)b->heap_bytes / (double)b->replica_names);
    const struct report_row *row = report_add(report, "memory", "per replicated block", "bytes", &memory, false);
    if (row)
        report_print_row(report, row);
    samples_fini(&memory);
}

int bench_route(const struct perf_config *config, struct report *report, struct error *err)
{
    struct route_bench *b = calloc(1, sizeof *b);
    if (!b)
        return error_set(err, HS_ERR_NO_MEMORY, "%s", error_name(HS_ERR_NO_MEMORY));
    int rc = prepare(b, config, err);
    if (rc == 0) {
        progress_clear();
        note_options(config, report);
        report_memory(b, report);
        for (int which = 0; which < CASES; which++) {
            if (config->caches & PERF_CACHES_WARM)
                run_case(b, which, false, config->calls, report);
            if (config->caches & PERF_CACHES_FLUSHED)
                run_case(b, which, true, config->calls, report);
        }
    }
    release(b);
    free(b);
    return rc;
}

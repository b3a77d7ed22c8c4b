/* Digests read one-sidedly: the same ends as by message, whatever the reads bring, and without a question to the origin. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "core/base/log.h"
#include "core/cluster/region.h"
#include "tests/unit/cluster/digests.h"

static const struct world_link rdma = {.delay_ns = 5000, .jitter_ns = 3000, .reads_pages = true};
static const struct world_link torn = {.delay_ns = 5000, .jitter_ns = 3000, .reads_pages = true, .torn = 0.5};
static const struct world_link rough = {
    .delay_ns = 100000, .jitter_ns = 400000, .loss = 0.15, .duplication = 0.15, .reads_pages = true, .torn = 0.2};

static double metric(uint32_t node, const char *name)
{
    return world_metric(&digests.world.nodes[node], name);
}

/* Questions by message, from anybody: PULL and PAGE_REQUEST. */
static uint64_t questions(void)
{
    return digests.world.kind_messages[WIRE_PULL] + digests.world.kind_messages[WIRE_PAGE_REQUEST];
}

static bool only_probes(struct world *world, uint32_t from, uint32_t to, const uint8_t *data, size_t len)
{
    return data[0] == WIRE_DIGEST; /* no push arrives: what is known was read */
}

static void churn(uint32_t n_nodes, uint32_t rounds)
{
    for (uint32_t round = 0; round < rounds; round++) {
        uint32_t node = (uint32_t)rng_below(&digests.rng, n_nodes);
        if (rng_below(&digests.rng, 3))
            digests_add(node, 1 + (uint32_t)rng_below(&digests.rng, 200));
        else
            digests_drop(node, (uint32_t)rng_below(&digests.rng, 200));
        world_run(&digests.world, rng_below(&digests.rng, 30) * MS);
    }
}

static void test_changes_are_read(void **state)
{
    digests_start(4, 101, &rdma);
    world_run(&digests.world, SECOND);
    digests.world.is_dropped = only_probes;
    for (int i = 0; i < 5; i++) {
        digests_add(2, 62);
        assert_true(digests_until_equal(SECOND) <= 105 * MS); /* one interval at rest */
        digests_drop(2, 30);
        assert_true(digests_until_equal(SECOND) <= 25 * MS); /* quicker while something changes */
    }
    assert_int_equal(questions(), 0);
    digests_stop();
}

/* With a short interval a change is there after one read, pushes or not. */
static void test_short_interval(void **state)
{
    struct cluster_config config = world_config();
    config.gossip_interval_ns = 200000;
    for (int pushes = 0; pushes < 2; pushes++) {
        digests_start_with(3, 102, &rdma, &config);
        world_run(&digests.world, SECOND);
        digests.world.is_dropped = pushes ? NULL : only_probes;
        uint64_t worst_ns = 0;
        for (int i = 0; i < 200; i++) {
            uint64_t name = rng_u64(&digests.rng), from_ns = digests.world.now_ns;
            struct world_node *origin = &digests.world.nodes[0], *reader = &digests.world.nodes[1];
            origin->digest.added(origin->digest.self, 1, &name, 1);
            world_kick(origin);
            while (!reader->digest.held_elsewhere(reader->digest.self, name))
                world_run(&digests.world, 1000);
            uint64_t took_ns = digests.world.now_ns - from_ns;
            worst_ns = took_ns > worst_ns ? took_ns : worst_ns;
            world_run(&digests.world, 1000000 + rng_below(&digests.rng, 400000));
        }
        printf("    %s: known after %.0f us at most\n", pushes ? "read and pushed" : "read", (double)worst_ns / 1e3);
        assert_true(worst_ns <= (pushes ? 60000 : 400000));
        assert_int_equal(questions(), 0);
        digests_stop();
    }
}

static void test_large_digest_is_read(void **state)
{
    digests_start(2, 103, &rdma);
    struct cluster_config config = world_config();
    world_crash(&digests.world, 1);
    for (int i = 0; i < 256; i++) {
        digests_add(0, 256);
        world_run(&digests.world, 5 * MS);
    }
    world_run(&digests.world, 5 * SECOND);
    memset(digests.world.kind_messages, 0, sizeof digests.world.kind_messages);
    world_boot(&digests.world, 1, &config);
    uint64_t took_ns = digests_until_equal(10 * SECOND);
    printf("    65,536 blocks after %.0f ms, %.0f reads of %.0f bytes\n", (double)took_ns / 1e6, metric(1, "hearsay_digest_reads_total "),
           metric(1, "hearsay_digest_read_bytes_total "));
    assert_int_equal(digests.held[0].len, 65536);
    assert_int_equal(world_view(&digests.world, 1, 0).replica_blocks, 65536);
    assert_int_equal(questions(), 0);
    assert_int_equal(digests.world.kind_messages[WIRE_MANIFEST] + digests.world.kind_messages[WIRE_PAGE], 0);
    assert_true(metric(1, "hearsay_digest_read_bytes_total ") >= 8 * 65536);
    assert_true(metric(1, "hearsay_digest_read_failures_total ") == 0);
    digests_stop();
}

static void test_writer_during_reads(void **state)
{
    for (uint64_t seed = 110; seed < 114; seed++) {
        digests_start(3, seed, &rdma);
        churn(3, 100);
        struct cluster_config config = world_config();
        world_crash(&digests.world, 2); /* and the newcomer reads a snapshot that goes on changing */
        digests_forget(2);
        for (int i = 0; i < 120; i++) {
            digests_add(0, 200);
            digests_drop(0, 150);
            world_run(&digests.world, 5 * MS);
        }
        world_boot(&digests.world, 2, &config);
        for (int i = 0; i < 100; i++) {
            digests_add(0, 40);
            digests_drop(0, 40);
            world_run(&digests.world, 3 * MS);
        }
        digests_until_equal(5 * SECOND);
        assert_true(metric(2, "hearsay_digest_reads_total ") > 100);
        digests_stop();
    }
}

static void test_torn_reads(void **state)
{
    struct cluster_config config = world_config();
    config.gossip_interval_ns = MS;
    digests_start_with(3, 120, &torn, &config);
    churn(3, 150);
    digests_until_equal(5 * SECOND);
    printf("    %llu of %llu reads repeated\n", (unsigned long long)digests.world.nodes[1].torn_reads,
           (unsigned long long)digests.world.nodes[1].reads);
    assert_true(digests.world.nodes[1].torn_reads > 20);
    assert_true(metric(1, "hearsay_digest_read_failures_total ") > 0); /* one in 32 is torn five times */
    digests_stop();
}

static void test_rough_links(void **state)
{
    for (uint64_t seed = 130; seed < 134; seed++) {
        digests_start(5, seed, &rough);
        churn(5, 150);
        digests_until_equal(10 * SECOND);
        digests_stop();
    }
}

static void test_restart_and_flush(void **state)
{
    digests_start(3, 140, &rdma);
    digests_add(0, 200);
    digests_until_equal(SECOND);
    cluster_new_epoch(digests.world.nodes[0].cluster);
    digests_forget(0);
    digests_add(0, 3);
    digests_until_equal(SECOND);
    struct cluster_config config = world_config();
    for (int i = 0; i < 3; i++) { /* the region of the old process is gone, and reads of it under way */
        digests_add(0, 100);
        world_run(&digests.world, 203000);
        world_crash(&digests.world, 0);
        digests_forget(0);
        world_boot(&digests.world, 0, &config);
        assert_true(world_run_until(&digests.world, world_all_routable, 10 * SECOND));
        digests_add(0, 10);
        digests_until_equal(2 * SECOND);
    }
    digests_stop();
}

/* ---- reads that do not help ---- */

enum lie { LIE_STATUS, LIE_EMPTY, LIE_CUT, LIE_OTHER_PAGE, LIE_RELAY, LIE_OLD, LIE_PAGES_TORN, LIE_SILENCE, LIES };
static enum lie lie;
static uint8_t first_seen[BLOCK_SET_PAGES + 1][4][16384];
static uint32_t first_len[BLOCK_SET_PAGES + 1][4];

static int spoil(struct world *world, uint32_t reader, uint32_t origin, uint32_t region, uint32_t page, uint8_t *data, uint32_t *len)
{
    if (origin != 0 || *len < 20)
        return 0;
    switch (lie) {
    case LIE_STATUS: return HS_ERR_NOT_FOUND;
    case LIE_EMPTY: *len = 0; return 0;
    case LIE_CUT: *len -= 1 + (uint32_t)rng_below(&world->rng, *len); return 0;
    case LIE_OTHER_PAGE: /* another page's number, or another boot's epoch */
        data[region == REGION_SNAPSHOT && page < REGION_MANIFEST ? 22 : 5] ^= 1;
        return 0;
    case LIE_RELAY: /* a header that asks to be passed on */
        if (region != REGION_SNAPSHOT)
            data[WIRE_DIGEST_HOPS_AT] = 3;
        return 0;
    case LIE_OLD: /* for ever what was there first */
        assert_true(*len <= sizeof first_seen[page][region]);
        if (!first_len[page][region]) {
            first_len[page][region] = *len;
            memcpy(first_seen[page][region], data, *len);
        }
        if (first_len[page][region] <= *len) {
            *len = first_len[page][region];
            memcpy(data, first_seen[page][region], *len);
        }
        return 0;
    case LIE_PAGES_TORN: return region == REGION_HEAD ? 0 : HS_ERR_AUTH; /* the header is fine, what it promises never comes */
    case LIE_SILENCE: return 1; /* no read ends, as when no queue pair for reads comes about */
    case LIES: break;
    }
    return 0;
}

static void test_messages_take_over(void **state)
{
    for (lie = 0; lie < LIES; lie++) {
        memset(first_len, 0, sizeof first_len);
        digests_start(3, 150 + (uint64_t)lie, &rdma);
        digests.world.spoil = spoil;
        digests.world.is_dropped = NULL;
        for (int i = 0; i < 100; i++) {
            digests_add(0, 200);
            digests_drop(0, 100);
            digests_add(1, 5);
            world_run(&digests.world, 10 * MS);
        }
        struct cluster_config config = world_config();
        world_crash(&digests.world, 2);
        digests_forget(2);
        world_boot(&digests.world, 2, &config);
        world_run(&digests.world, 2 * SECOND);
        uint64_t took_ns = digests_until_equal(10 * SECOND);
        printf("    lie %d: equal %.0f ms later, %.0f failures\n", lie, (double)took_ns / 1e6, metric(2, "hearsay_digest_read_failures_total "));
        if (lie != LIE_OLD)
            assert_true(metric(2, "hearsay_digest_read_failures_total ") > 0);
        if (lie == LIE_STATUS || lie == LIE_EMPTY || lie == LIE_CUT || lie == LIE_PAGES_TORN || lie == LIE_SILENCE)
            assert_true(metric(2, "hearsay_gossip_pulls_total ") > 0);
        assert_int_equal((int)(metric(0, "hearsay_gossip_relays_total ") + metric(2, "hearsay_gossip_relays_total ")), 0);
        digests.world.spoil = NULL; /* afterwards reads serve again */
        digests_stop();
    }
}

/* An origin that cannot publish (no memory for it) is asked by message, and a reader that cannot read asks. */
static void test_one_side_cannot(void **state)
{
    for (uint32_t broken = 0; broken < 2; broken++) {
        digests_start(2, 160, &rdma);
        struct cluster_config config = world_config();
        world_crash(&digests.world, broken);
        digests.world.link.reads_pages = false; /* as long as it starts */
        world_boot(&digests.world, broken, &config);
        digests.world.link.reads_pages = true;
        assert_true(world_run_until(&digests.world, world_all_routable, 10 * SECOND));
        churn(2, 100);
        digests_until_equal(5 * SECOND);
        digests_stop();
    }
}

static void test_byte_rate_holds_for_reads(void **state)
{
    struct cluster_config config = world_config();
    config.gossip_bytes_per_s = 20000;
    digests_start_with(2, 170, &rdma, &config);
    world_run(&digests.world, SECOND);
    double before = metric(1, "hearsay_digest_read_bytes_total ");
    uint64_t from_ns = digests.world.now_ns;
    for (int i = 0; i < 100; i++) {
        digests_add(0, 250);
        world_run(&digests.world, 20 * MS);
    }
    digests_until_equal(60 * SECOND);
    double seconds = (double)(digests.world.now_ns - from_ns) / 1e9, bytes = metric(1, "hearsay_digest_read_bytes_total ") - before;
    printf("    %.0f bytes read in %.1f s\n", bytes, seconds);
    assert_true(bytes + (double)digests.world.gossip_bytes[0][1] <= 2 * (seconds * 20000 + 5000 + 4500)); /* each side's own allowance */
    digests_stop();
}

/* Whether a page is a header, which is given; write_head puts a changed one in its place. */
static bool read_head(uint32_t region, const uint8_t *data, uint32_t len, struct wire_header *out)
{
    struct wire_message message;
    if (region != REGION_HEAD || wire_decode(data, len, &message) != 0)
        return false;
    *out = message.digest.header;
    return true;
}

static void write_head(const struct wire_header *header, uint8_t *data, uint32_t len)
{
    struct writer w;
    writer_init(&w, data, len);
    wire_begin_digest(&w, header, 0, header->sequence + 1);
    assert_int_equal(w.len, len);
}

static uint32_t stated_blocks;

/* A header that states another number of blocks. */
static int wrong_blocks(struct world *world, uint32_t reader, uint32_t origin, uint32_t region, uint32_t page, uint8_t *data, uint32_t *len)
{
    struct wire_header header;
    if (!read_head(region, data, *len, &header))
        return 0;
    header.n_blocks = stated_blocks;
    write_head(&header, data, *len);
    return 0;
}

/* ---- digests that do not fit together ---- */

static uint32_t n_read_of_origin;

static bool no_gossip(struct world *world, uint32_t from, uint32_t to, const uint8_t *data, size_t len)
{
    return data[0] >= WIRE_DIGEST && data[0] <= WIRE_PAGE;
}

/* One name of each page is missing, so that no state of the replica has the checksum that the header states. */
static int short_pages(struct world *world, uint32_t reader, uint32_t origin, uint32_t region, uint32_t page, uint8_t *data, uint32_t *len)
{
    struct wire_message message;
    n_read_of_origin += origin == 0;
    if (origin == 0 && region == REGION_SNAPSHOT && page < REGION_MANIFEST && wire_decode(data, *len, &message) == 0 && message.page.n)
        *len -= 8;
    return 0;
}

/* A header that promises changes which never come. */
static int promises(struct world *world, uint32_t reader, uint32_t origin, uint32_t region, uint32_t page, uint8_t *data, uint32_t *len)
{
    struct wire_header header;
    n_read_of_origin += origin == 0;
    if (origin || !read_head(region, data, *len, &header))
        return 0;
    header.sequence += 100;
    write_head(&header, data, *len);
    return 0;
}

static void test_what_does_not_fit_is_not_read_for_ever(void **state)
{
    for (int i = 0; i < 2; i++) {
        digests_start(2, 172, &rdma);
        struct cluster_config config = world_config();
        world_crash(&digests.world, 1);
        for (int changes = 0; changes < 4; changes++) { /* more than there are blocks: the snapshot is shorter */
            digests_add(0, 250);
            world_run(&digests.world, 100 * MS);
            digests_drop(0, 250);
            world_run(&digests.world, 100 * MS);
        }
        digests_add(0, 100);
        world_run(&digests.world, SECOND);
        digests.world.spoil = i ? promises : short_pages;
        digests.world.is_dropped = no_gossip; /* messages would bring the truth */
        world_boot(&digests.world, 1, &config);
        world_run(&digests.world, 10 * SECOND);
        n_read_of_origin = 0;
        world_run(&digests.world, 10 * SECOND);
        printf("    %u reads in 10 s, %u of %zu blocks\n", n_read_of_origin, world_view(&digests.world, 1, 0).replica_blocks, digests.held[0].len);
        assert_true(n_read_of_origin <= 10 * (10 + 257 + 8)); /* headers; every second a manifest with its pages, or the log */
        assert_int_equal(world_view(&digests.world, 1, 0).state, CLUSTER_PEER_ALIVE);
        digests.world.spoil = NULL;
        digests.world.is_dropped = NULL;
        if (!i)
            digests_until_equal(40 * SECOND);
        digests_stop();
    }
}

/* A header that states more blocks than there can be: what its pages may cost is not believed to be as much. */
static void test_too_many_blocks_are_not_paid_for(void **state)
{
    digests_start(2, 173, &rdma);
    struct cluster_config config = world_config();
    world_crash(&digests.world, 1);
    digests_add(0, 250);
    world_run(&digests.world, SECOND);
    cluster_new_epoch(digests.world.nodes[0].cluster); /* so that the log does not begin where the reader is */
    digests_forget(0);
    for (int i = 0; i < 70; i++) {
        digests_add(0, 256);
        world_run(&digests.world, 300 * MS);
    }
    stated_blocks = UINT32_MAX;
    digests.world.spoil = wrong_blocks;
    digests.world.is_dropped = only_probes;
    world_boot(&digests.world, 1, &config);
    printf("    equal after %.0f ms\n", (double)digests_until_equal(30 * SECOND) / 1e6);
    digests_stop();
}

/* Pages longer than the header lets a reader expect: they count against the rate all the same. */
static void test_byte_rate_holds_for_longer_pages(void **state)
{
    struct cluster_config config = world_config();
    config.gossip_bytes_per_s = 20000;
    digests_start_with(2, 171, &rdma, &config);
    world_crash(&digests.world, 1);
    for (int i = 0; i < 32; i++)
        digests_add(0, 256);
    world_run(&digests.world, 10 * SECOND);
    stated_blocks = 1;
    digests.world.spoil = wrong_blocks;
    digests.world.is_dropped = only_probes;
    uint64_t from_ns = digests.world.now_ns;
    world_boot(&digests.world, 1, &config);
    digests_until_equal(60 * SECOND);
    double seconds = (double)(digests.world.now_ns - from_ns) / 1e9, bytes = metric(1, "hearsay_digest_read_bytes_total ");
    printf("    %.0f bytes read in %.1f s\n", bytes, seconds);
    assert_true(bytes > 8 * 8192);
    assert_true(bytes <= seconds * 20000 + 5000 + 16 * 300); /* what may go at once, and a batch */
    digests_stop();
}

static void test_idle_origin_hears_nothing(void **state)
{
    digests_start(3, 180, &rdma);
    digests_add(0, 200);
    world_run(&digests.world, 3 * SECOND);
    memset(digests.world.gossip_bytes, 0, sizeof digests.world.gossip_bytes);
    double reads = metric(1, "hearsay_digest_reads_total ");
    world_run(&digests.world, 10 * SECOND);
    reads = (metric(1, "hearsay_digest_reads_total ") - reads) / 10 / 2;
    printf("    %llu bytes/s to each peer at rest, %.1f headers read of each a second\n",
           (unsigned long long)(digests.world.gossip_bytes[0][1] / 10), reads);
    assert_true(digests.world.gossip_bytes[0][1] / 10 < 2500);
    assert_true(reads >= 8 && reads <= 12);
    digests_stop();
}

static void test_large_group(void **state)
{
    digests_start(40, 190, &rdma);
    world_run(&digests.world, 3 * SECOND);
    digests_add(7, 50);
    digests_until_equal(2 * SECOND);
    double before = metric(3, "hearsay_digest_reads_total ");
    world_run(&digests.world, 5 * SECOND);
    double per_s = (metric(3, "hearsay_digest_reads_total ") - before) / 5;
    printf("    %.0f reads a second among 40 nodes at rest\n", per_s);
    assert_true(per_s <= 16 * 10 + 20); /* as among 16 */
    churn(40, 40);
    digests_until_equal(3 * SECOND);
    digests_stop();
}

int main(void)
{
    log_setup(LOG_LEVEL_ERROR, LOG_FORMAT_TEXT);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_changes_are_read),
        cmocka_unit_test(test_short_interval),
        cmocka_unit_test(test_large_digest_is_read),
        cmocka_unit_test(test_writer_during_reads),
        cmocka_unit_test(test_torn_reads),
        cmocka_unit_test(test_rough_links),
        cmocka_unit_test(test_restart_and_flush),
        cmocka_unit_test(test_messages_take_over),
        cmocka_unit_test(test_one_side_cannot),
        cmocka_unit_test(test_byte_rate_holds_for_reads),
        cmocka_unit_test(test_byte_rate_holds_for_longer_pages),
        cmocka_unit_test(test_what_does_not_fit_is_not_read_for_ever),
        cmocka_unit_test(test_too_many_blocks_are_not_paid_for),
        cmocka_unit_test(test_idle_origin_hears_nothing),
        cmocka_unit_test(test_large_group),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

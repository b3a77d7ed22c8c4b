#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "core/base/rng.h"
#include "core/cluster/advert.h"
#include "core/cluster/replica.h"

static uint64_t name_of(uint64_t i)
{
    struct rng rng;
    rng_seed(&rng, i + 1);
    return rng_u64(&rng);
}

static void add_chain(struct advert *a, uint64_t parent, uint32_t first, uint32_t n)
{
    uint64_t names[64];
    for (uint32_t i = 0; i < n; i++)
        names[i] = name_of(first + i);
    advert_add(a, parent, names, n);
}

static void assert_advertised(const struct advert *a, const uint32_t *blocks, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        assert_true(block_set_has(advert_set(a), name_of(blocks[i])));
}

static void test_budget_takes_heads_first(void **state)
{
    struct advert *a = advert_create(0);
    add_chain(a, 1, 0, 10);   /* depth 0 to 9 */
    add_chain(a, 2, 100, 10); /* another root */
    assert_int_equal(advert_pump(a, 4), 4);
    assert_advertised(a, (uint32_t[]){0, 100, 1, 101}, 4);
    assert_true(advert_pending(a));
    assert_int_equal(advert_pump(a, 1000), 16);
    assert_false(advert_pending(a));
    advert_destroy(a);
}

static void test_waiting_block_removed_costs_nothing(void **state)
{
    struct advert *a = advert_create(0);
    add_chain(a, 1, 0, 3);
    uint64_t last = name_of(2);
    advert_remove(a, &last, 1);
    assert_int_equal(advert_pump(a, 1000), 2);
    assert_int_equal(advert_sequence(a), 2);
    advert_destroy(a);
}

static void test_cap_displaces_the_deepest(void **state)
{
    struct advert *a = advert_create(4);
    add_chain(a, 1, 0, 6);
    advert_pump(a, 1000);
    assert_int_equal(block_set_len(advert_set(a)), 4);
    add_chain(a, 2, 100, 2); /* two heads: depth 0 and 1 */
    assert_true(advert_pending(a));
    assert_true(advert_waiting(a) == 4 && advert_displaced(a) == 0);
    advert_pump(a, 1000);
    assert_true(advert_waiting(a) == 4 && advert_displaced(a) == 2);
    assert_int_equal(block_set_len(advert_set(a)), 4);
    assert_advertised(a, (uint32_t[]){0, 1, 100, 101}, 4);
    /* What was displaced comes back when there is room. */
    uint64_t gone[] = {name_of(101), name_of(100)};
    advert_remove(a, gone, 2);
    advert_pump(a, 1000);
    assert_advertised(a, (uint32_t[]){2, 3}, 2);
    assert_false(block_set_has(advert_set(a), name_of(4)));
    advert_destroy(a);
}

/* Blocks deeper than the last depth that is told apart: displaced leaf first, they come back the other way round. */
static void test_deep_blocks_come_back_in_order(void **state)
{
    enum { DEPTH = 300 };
    struct advert *a = advert_create(DEPTH);
    for (uint32_t i = 0; i < DEPTH; i++)
        add_chain(a, i ? name_of(i - 1) : 1, i, 1);
    assert_int_equal(advert_pump(a, 1000), DEPTH);
    for (uint32_t k = 0; k < 3; k++)
        add_chain(a, 1, 1000 + k, 1); /* three heads displace three of the chain */
    advert_pump(a, 1000);
    for (uint32_t i = 0; i < DEPTH; i++)
        assert_int_equal(block_set_has(advert_set(a), name_of(i)), i < DEPTH - 3);
    for (uint32_t k = 0; k < 3; k++) {
        uint64_t head = name_of(1000 + k);
        advert_remove(a, &head, 1);
        advert_pump(a, 1);
        for (uint32_t i = 0; i < DEPTH; i++)
            assert_int_equal(block_set_has(advert_set(a), name_of(i)), i < DEPTH - 2 + k);
    }
    advert_destroy(a);
}

/* Chains grow far past the last depth that is told apart, branch, and lose leaves, at a cap and a narrow budget: whoever is
 * advertised has all of its ancestors advertised. */
static void test_advertised_set_is_closed_under_prefixes(void **state)
{
    enum { N = 3000, CAP = 700 };
    static uint32_t parents[N], children[N]; /* of block i; parents[i] == i: a root */
    static bool held[N];
    struct rng rng;
    rng_seed(&rng, 5);
    struct advert *a = advert_create(CAP);
    uint32_t displaced = 0;
    for (uint32_t i = 0; i < N; i++) {
        uint32_t near = i > 8 ? i - 1 - (uint32_t)rng_below(&rng, 8) : i;
        parents[i] = rng_below(&rng, 500) == 0 || !held[near] ? i : near;
        uint64_t name = name_of(i);
        advert_add(a, parents[i] == i ? 1 : name_of(parents[i]), &name, 1);
        held[i] = true;
        children[parents[i]] += parents[i] != i;
        uint32_t leaf = (uint32_t)rng_below(&rng, i + 1);
        if (held[leaf] && !children[leaf] && leaf + 10 < i) {
            uint64_t gone = name_of(leaf);
            advert_remove(a, &gone, 1);
            held[leaf] = false;
            children[parents[leaf]] -= parents[leaf] != leaf;
        }
        if (i % 400 == 399) { /* many short heads, which displace deep blocks */
            for (uint64_t k = 0; k < 40; k++) {
                uint64_t head = name_of(100000 + i * 100 + k);
                advert_add(a, 1, &head, 1);
            }
            displaced += block_set_len(advert_set(a)) == CAP;
        }
        advert_pump(a, (uint32_t)rng_below(&rng, 6));
        for (uint32_t k = 0; i % 10 == 0 && k <= i; k++)
            if (parents[k] != k && block_set_has(advert_set(a), name_of(k)))
                assert_true(block_set_has(advert_set(a), name_of(parents[k])));
    }
    assert_true(displaced > 2);
    advert_destroy(a);
}

static struct wire_delta delta_from(const struct advert *a, uint64_t first, uint8_t *buffer, size_t cap)
{
    struct writer w;
    writer_init(&w, buffer, cap);
    uint64_t next = advert_write_runs(a, first, &w);
    struct wire_delta delta = {.first = first, .n_changes = (uint32_t)(next - first)};
    reader_init(&delta.runs, buffer, w.len);
    return delta;
}

static void send_manifest(const struct advert *a, struct replica *r)
{
    uint64_t checksums[BLOCK_SET_PAGES];
    for (uint32_t page = 0; page < BLOCK_SET_PAGES; page++)
        checksums[page] = block_set_page_checksum(advert_set(a), page);
    replica_apply_manifest(r, advert_sequence(a), (const uint8_t *)checksums);
}

static void send_stale_pages(const struct advert *a, struct replica *r, uint32_t at_most)
{
    static uint64_t names[4096];
    for (uint32_t page = 0; page < BLOCK_SET_PAGES && at_most; page++) {
        if (!r->stale[page])
            continue;
        struct wire_page message = {.epoch = r->epoch, .sequence = advert_sequence(a), .page = page};
        message.n = block_set_page_names(advert_set(a), page, names, 4096);
        message.names = (const uint8_t *)names;
        replica_apply_page(r, &message);
        at_most--;
    }
}

static void assert_equal_sets(const struct advert *a, const struct replica *r)
{
    assert_int_equal(block_set_len(advert_set(a)), replica_blocks(r));
    assert_true(block_set_checksum(advert_set(a)) == block_set_checksum(r->set));
}

/* An origin with one chain of n blocks, all advertised, and a replica of it that has heard of none. */
struct pair {
    struct advert *a;
    struct replica_budget budget;
    struct replica r;
    uint8_t buffer[2048];
    uint64_t names[64]; /* of the chain */
};

static void start_pair(struct pair *p, uint32_t n, uint32_t max_blocks)
{
    *p = (struct pair){.a = advert_create(0), .budget = {.max_blocks = max_blocks}};
    replica_init(&p->r, &p->budget);
    assert_int_equal(replica_enter_epoch(&p->r, (struct wire_epoch){9, 1}), 0);
    for (uint32_t i = 0; i < n; i++)
        p->names[i] = name_of(i);
    advert_add(p->a, 1, p->names, n);
    assert_int_equal(advert_pump(p->a, n), n);
}

static void end_pair(struct pair *p)
{
    replica_fini(&p->r);
    advert_destroy(p->a);
}

/* The origin's changes from `first` on reach the replica; returns how many were news, as replica_apply_delta does. */
static int send_delta(struct pair *p, uint64_t first)
{
    struct wire_delta delta = delta_from(p->a, first, p->buffer, sizeof p->buffer);
    return replica_apply_delta(&p->r, &delta);
}

static void tell_target(struct pair *p, uint64_t sequence)
{
    replica_set_target(&p->r, sequence, block_set_checksum(advert_set(p->a)));
}

/* An origin that changes all the time, and a replica that gets deltas old, doubled, cut and late, manifests and pages at random
 * moments. Whenever it says that it needs nothing, it must be equal to the origin. */
static void test_replica_follows_at_random(void **state)
{
    struct rng rng;
    rng_seed(&rng, 77);
    struct advert *a = advert_create(3000);
    struct replica_budget budget = {.max_blocks = 1u << 20};
    struct replica r;
    replica_init(&r, &budget);
    assert_int_equal(replica_enter_epoch(&r, (struct wire_epoch){9, 1}), 0);
    uint32_t equal = 0;
    for (int round = 0; round < 20000; round++) {
        uint64_t name = name_of(rng_below(&rng, 6000));
        if (rng_below(&rng, 3))
            advert_add(a, rng_below(&rng, 2) ? 1 : name_of(rng_below(&rng, 6000)), &name, 1);
        else
            advert_remove(a, &name, 1);
        if (rng_below(&rng, 4) == 0)
            advert_pump(a, (uint32_t)rng_below(&rng, 30));
        uint8_t buffer[400];
        if (rng_below(&rng, 3) == 0) {
            uint64_t back = rng_below(&rng, 40), at = r.sequence + 1 + rng_below(&rng, 3);
            uint64_t first = at > back + 1 ? at - back : 1;
            if (advert_covers(a, first)) {
                struct wire_delta delta = delta_from(a, first, buffer, 20 + rng_below(&rng, sizeof buffer - 20));
                replica_apply_delta(&r, &delta);
            }
        }
        if (rng_below(&rng, 200) == 0)
            send_manifest(a, &r);
        if (rng_below(&rng, 10) == 0)
            send_stale_pages(a, &r, 1 + (uint32_t)rng_below(&rng, 100));
        replica_set_target(&r, advert_sequence(a), block_set_checksum(advert_set(a)));
        unsigned need = replica_need(&r);
        assert_false(need & REPLICA_MANIFEST);
        if (!need) {
            assert_equal_sets(a, &r);
            equal++;
        }
        assert_int_equal(budget.blocks, replica_blocks(&r));
    }
    assert_true(equal > 100);
    replica_fini(&r);
    assert_int_equal(budget.blocks, 0);
    advert_destroy(a);
}

/* A page of more names than are listed at once: what the origin has dropped is dropped, wherever it stands among those it has. */
static void test_large_page(void **state)
{
    enum { NAMES = 1000, KEPT = 600 };
    static uint64_t names[NAMES];
    for (uint64_t i = 0; i < NAMES; i++)
        names[i] = UINT64_C(7) << 56 | i << 32;
    for (int drops_first = 0; drops_first < 2; drops_first++) {
        struct replica_budget budget = {.max_blocks = NAMES};
        struct replica r;
        struct wire_page whole = {.epoch = {9, 1}, .sequence = NAMES, .page = 7, .n = NAMES, .names = (const uint8_t *)names}, rest = whole;
        uint64_t checksums[BLOCK_SET_PAGES] = {[7] = 1};
        rest.sequence++;
        rest.n = KEPT;
        rest.names = (const uint8_t *)(names + (drops_first ? NAMES - KEPT : 0));
        replica_init(&r, &budget);
        assert_int_equal(replica_enter_epoch(&r, whole.epoch), 0);
        replica_apply_manifest(&r, whole.sequence, (const uint8_t *)checksums);
        assert_true(replica_apply_page(&r, &whole));
        assert_int_equal(replica_blocks(&r), NAMES);
        replica_apply_manifest(&r, rest.sequence, (const uint8_t *)checksums);
        assert_true(replica_apply_page(&r, &rest));
        assert_int_equal(replica_blocks(&r), KEPT);
        assert_int_equal(budget.blocks, KEPT);
        for (uint32_t i = 0; i < NAMES; i++)
            assert_int_equal(block_set_has(r.set, names[i]), drops_first ? i >= NAMES - KEPT : i < KEPT);
        replica_fini(&r);
    }
}

static void test_gap_and_duplicates(void **state)
{
    struct pair p;
    start_pair(&p, 5, 100);
    advert_remove(p.a, &p.names[2], 1);
    assert_int_equal(send_delta(&p, 3), 0);
    assert_int_equal(send_delta(&p, 1), 6);
    assert_int_equal(send_delta(&p, 1), 0);
    assert_int_equal(send_delta(&p, 3), 0);
    assert_equal_sets(p.a, &p.r);
    assert_int_equal(replica_match(&p.r, p.names, 5), 2); /* 1-2-(3 gone)-4-5 matches two */
    /* An older epoch of the same boot is refused, a newer one starts empty. */
    assert_int_equal(replica_enter_epoch(&p.r, (struct wire_epoch){9, 0}), HS_ERR_INVALID);
    assert_int_equal(replica_enter_epoch(&p.r, (struct wire_epoch){9, 2}), 0);
    assert_int_equal(replica_blocks(&p.r), 0);
    end_pair(&p);
}

static void test_correction_heals_by_checksum(void **state)
{
    struct pair p;
    start_pair(&p, 5, 100);
    send_delta(&p, 1);
    tell_target(&p, 5);
    assert_int_equal(replica_need(&p.r), 0);
    replica_correct(&p.r, p.names, 5, 1);
    assert_int_equal(replica_match(&p.r, p.names, 5), 1);
    assert_int_equal(replica_need(&p.r), REPLICA_MANIFEST);
    send_manifest(p.a, &p.r);
    assert_int_equal(replica_need(&p.r), REPLICA_PAGES);
    send_stale_pages(p.a, &p.r, 100);
    assert_int_equal(replica_need(&p.r), 0);
    assert_equal_sets(p.a, &p.r);
    end_pair(&p);
}

static void test_memory_cap_holds(void **state)
{
    struct pair p;
    start_pair(&p, 50, 20);
    assert_int_equal(send_delta(&p, 1), 50);
    tell_target(&p, 50);
    assert_int_equal(replica_blocks(&p.r), 20);
    assert_int_equal(replica_need(&p.r), 0); /* no use in fetching what has no room */
    /* When the origin drops most of it there is room again, and the rest is repaired. */
    advert_remove(p.a, p.names, 40);
    assert_int_equal(send_delta(&p, 51), 40);
    tell_target(&p, 90);
    assert_int_equal(replica_need(&p.r), REPLICA_MANIFEST);
    send_manifest(p.a, &p.r);
    send_stale_pages(p.a, &p.r, BLOCK_SET_PAGES);
    assert_int_equal(replica_need(&p.r), 0);
    assert_equal_sets(p.a, &p.r);
    end_pair(&p);
}

/* A peer that tells of more than its share leaves room for the others; what it may have is repaired like any other. */
static void test_one_peer_has_a_share(void **state)
{
    struct pair greedy;
    struct advert *b = advert_create(0);
    struct replica other;
    start_pair(&greedy, 50, 40);
    greedy.budget.max_of_one = 20;
    replica_init(&other, &greedy.budget);
    replica_enter_epoch(&other, (struct wire_epoch){8, 1});
    send_delta(&greedy, 1);
    tell_target(&greedy, 50);
    assert_int_equal(replica_blocks(&greedy.r), 20);
    assert_int_equal(replica_need(&greedy.r), 0); /* and it is not asked again and again */
    assert_true(greedy.budget.left_out_of_one == 30 && greedy.budget.left_out == 0);
    add_chain(b, 2, 1000, 20);
    advert_pump(b, 100);
    struct wire_delta delta = delta_from(b, 1, greedy.buffer, sizeof greedy.buffer);
    replica_apply_delta(&other, &delta);
    assert_equal_sets(b, &other);
    add_chain(b, 3, 2000, 1);
    advert_pump(b, 100);
    delta = delta_from(b, 21, greedy.buffer, sizeof greedy.buffer);
    replica_apply_delta(&other, &delta);
    assert_true(greedy.budget.left_out_of_one == 30 && greedy.budget.left_out == 1); /* now all of it is taken */
    advert_remove(greedy.a, greedy.names, 40);
    send_delta(&greedy, 51);
    tell_target(&greedy, 90);
    assert_int_equal(replica_need(&greedy.r), REPLICA_MANIFEST);
    send_manifest(greedy.a, &greedy.r);
    send_stale_pages(greedy.a, &greedy.r, BLOCK_SET_PAGES);
    assert_equal_sets(greedy.a, &greedy.r);
    end_pair(&greedy);
    replica_fini(&other);
    advert_destroy(b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_budget_takes_heads_first),
        cmocka_unit_test(test_waiting_block_removed_costs_nothing),
        cmocka_unit_test(test_cap_displaces_the_deepest),
        cmocka_unit_test(test_deep_blocks_come_back_in_order),
        cmocka_unit_test(test_advertised_set_is_closed_under_prefixes),
        cmocka_unit_test(test_replica_follows_at_random),
        cmocka_unit_test(test_large_page),
        cmocka_unit_test(test_gap_and_duplicates),
        cmocka_unit_test(test_correction_heals_by_checksum),
        cmocka_unit_test(test_memory_cap_holds),
        cmocka_unit_test(test_one_peer_has_a_share),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

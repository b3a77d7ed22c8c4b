#include "tests/conform/page_tests.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/base/error.h"
#include "core/base/rng.h"
#include "tests/conform/fabric.h"

enum { REGION = 2, PAGES = 8, PAGE_BYTES = 4096, READS = 400, CLOSING_READS = 8 };

/* What the last reads brought to node 0. */
struct reading {
    uint32_t done, whole, torn;
    uint64_t version, newest[PAGES];
    uint8_t data[PAGE_BYTES];
    uint32_t len;
};

static void on_read(void *arg, const struct transport_event *event)
{
    struct reading *reading = arg;
    reading->done++;
    reading->version = event->version;
    reading->len = event->len;
    assert_true(event->len <= PAGE_BYTES);
    if (event->status == 0 && event->len > 0)
        memcpy(reading->data, event->data, event->len);
}

static bool has_read(struct world *world, void *arg)
{
    (void)world;
    return ((struct reading *)arg)->done > 0;
}

/* Skips the test where the fabric reads no pages, which then has to say so of everything. */
static void pair_that_reads(struct world *world, struct reading *reading, uint32_t *to_b)
{
    uint32_t to_a;
    world_pair(world, to_b, &to_a);
    struct transport *a = world_node(world, 0)->transport, *b = world_node(world, 1)->transport;
    struct transport_info info;
    a->ops->info(a, &info);
    if (!info.reads_pages) {
        assert_int_equal(b->ops->publish(b, REGION, PAGES, PAGE_BYTES), HS_ERR_UNSUPPORTED);
        assert_int_equal(b->ops->write_page(b, REGION, 0, "x", 1), HS_ERR_UNSUPPORTED);
        assert_int_equal(a->ops->read_page(a, *to_b, REGION, 0, 0, 9), HS_ERR_UNSUPPORTED);
        print_message("          this transport reads no pages of peers\n");
        skip();
    }
    *reading = (struct reading){.done = 0};
    world_node(world, 0)->on_read = on_read;
    world_node(world, 0)->on_read_arg = reading;
    assert_int_equal(b->ops->publish(b, REGION, PAGES, PAGE_BYTES), 0);
}

/* The status with which the read of a page ends. */
static int read_one(struct world *world, struct reading *reading, uint32_t peer, uint32_t region, uint32_t page, uint32_t expected)
{
    static uint64_t cookie = UINT64_C(0x1234567800000000);
    struct transport *a = world_node(world, 0)->transport;
    reading->done = 0;
    assert_int_equal(a->ops->read_page(a, peer, region, page, expected, ++cookie), 0);
    assert_true(world_run_until(world, has_read, reading, 10000));
    assert_int_equal(reading->done, 1);
    assert_true(world_node(world, 0)->read_cookie == cookie);
    return world_node(world, 0)->read_status;
}

static void write_random(struct transport *origin, uint32_t page, uint32_t number, uint32_t len, uint8_t data[PAGE_BYTES])
{
    struct rng rng;
    rng_seed(&rng, number);
    for (uint32_t i = 0; i < PAGE_BYTES; i++)
        data[i] = (uint8_t)rng_below(&rng, 256);
    assert_int_equal(origin->ops->write_page(origin, REGION, page, data, len), 0);
}

static uint64_t received_messages(struct world *world, uint32_t node)
{
    struct transport_stats stats;
    struct transport *transport = world_node(world, node)->transport;
    transport->ops->stats(transport, &stats);
    return stats.received_messages;
}

void test_pages(void **state)
{
    struct world *world = *state;
    static struct reading reading;
    uint8_t data[PAGE_BYTES];
    uint32_t to_b;
    pair_that_reads(world, &reading, &to_b);
    struct transport *a = world_node(world, 0)->transport, *b = world_node(world, 1)->transport;
    uint64_t before = received_messages(world, 1);
    assert_int_equal(read_one(world, &reading, to_b, REGION, 0, 0), 0); /* nothing written yet */
    assert_int_equal(reading.len, 0);
    assert_int_equal(reading.version, 1);
    static const uint32_t lengths[] = {1, 15, 64, 700, 4095, PAGE_BYTES, 0};
    for (uint32_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        static const uint32_t expected[] = {0, 64, 5000}; /* unknown, often too little, too much */
        write_random(b, 3, i, lengths[i], data);
        for (uint32_t e = 0; e < 3; e++) {
            assert_int_equal(read_one(world, &reading, to_b, REGION, 3, expected[e]), 0);
            assert_int_equal(reading.len, lengths[i]);
            assert_int_equal(reading.version, i + 2);
            assert_memory_equal(reading.data, data, lengths[i]);
        }
    }
    assert_int_equal(read_one(world, &reading, to_b, REGION, PAGES, 0), HS_ERR_RANGE);
    assert_int_equal(read_one(world, &reading, to_b, REGION, UINT32_MAX, 0), HS_ERR_RANGE);
    assert_int_equal(read_one(world, &reading, to_b, REGION + 1, 0, 0), HS_ERR_NOT_FOUND);
    assert_int_equal(read_one(world, &reading, to_b, REGION, 3, 0), 0); /* an error spoils nothing */
    assert_int_equal(b->ops->write_page(b, REGION, PAGES, data, 1), HS_ERR_RANGE);
    assert_int_equal(b->ops->write_page(b, REGION, 0, data, PAGE_BYTES + 1), HS_ERR_RANGE);
    assert_int_equal(b->ops->write_page(b, REGION + 1, 0, data, 1), HS_ERR_NOT_FOUND);
    assert_int_equal(b->ops->publish(b, TRANSPORT_REGIONS, 1, 1), HS_ERR_LIMIT);
    assert_int_equal(b->ops->publish(b, REGION, 1, TRANSPORT_PAGE_BYTES + 1), HS_ERR_LIMIT);
    assert_int_equal(a->ops->read_page(a, 1000, REGION, 0, 0, 1), HS_ERR_CLOSED);
    assert_true(received_messages(world, 1) == before); /* its owner had no part in all this */
    struct transport_stats stats;
    a->ops->stats(a, &stats);
    assert_true(stats.reads == 3 * sizeof lengths / sizeof *lengths + 2);
}

void test_pages_published_again(void **state)
{
    struct world *world = *state;
    static struct reading reading;
    uint8_t data[PAGE_BYTES];
    uint32_t to_b;
    pair_that_reads(world, &reading, &to_b);
    struct transport *b = world_node(world, 1)->transport;
    for (uint32_t i = 0; i < 6; i++) {
        uint32_t bytes = i % 2 ? 64 : PAGE_BYTES;
        write_random(b, 0, 100 + i, i % 2 ? 64 : 3000, data);
        assert_int_equal(read_one(world, &reading, to_b, REGION, 0, 0), 0);
        assert_memory_equal(reading.data, data, reading.len);
        assert_int_equal(reading.version, 2);
        bytes = PAGE_BYTES + 64 - bytes; /* of the next */
        assert_int_equal(b->ops->publish(b, REGION, PAGES - i, bytes), 0);
    }
    assert_int_equal(read_one(world, &reading, to_b, REGION, PAGES - 1, 0), HS_ERR_RANGE); /* fewer than at first */
}

static bool is_up_again(struct world *world, void *arg)
{
    (void)arg;
    return world_node(world, 0)->n_up == 1 && world_node(world, 0)->ups[0] + world_node(world, 0)->ups[1] == 2;
}

void test_pages_of_a_restarted_peer(void **state)
{
    struct world *world = *state;
    static struct reading reading;
    uint8_t data[PAGE_BYTES];
    uint32_t to_b;
    pair_that_reads(world, &reading, &to_b);
    write_random(world_node(world, 1)->transport, 1, 5, 500, data);
    assert_int_equal(read_one(world, &reading, to_b, REGION, 1, 0), 0);
    world_stop(world, 1);
    world_start(world, 1, false);
    assert_true(world_run_until(world, is_up_again, NULL, 20000));
    struct transport *b = world_node(world, 1)->transport;
    assert_int_equal(read_one(world, &reading, to_b, REGION, 1, 0), HS_ERR_NOT_FOUND); /* what the earlier process had is gone */
    assert_int_equal(b->ops->publish(b, REGION, PAGES, PAGE_BYTES), 0);
    write_random(b, 1, 6, 600, data);
    assert_int_equal(read_one(world, &reading, to_b, REGION, 1, 0), 0);
    assert_int_equal(reading.len, 600);
    assert_memory_equal(reading.data, data, 600);
}

static bool all_closed(struct world *world, void *arg)
{
    (void)arg;
    return world_node(world, 0)->reads_done == CLOSING_READS;
}

/* Whoever asked for a read hears of its end, also when the peer is let go meanwhile. */
void test_reads_of_a_closed_peer(void **state)
{
    struct world *world = *state;
    static struct reading reading;
    uint32_t to_b;
    pair_that_reads(world, &reading, &to_b);
    struct transport *a = world_node(world, 0)->transport;
    for (uint32_t i = 0; i < CLOSING_READS; i++)
        assert_int_equal(a->ops->read_page(a, to_b, REGION, i, 0, i), 0);
    a->ops->close_peer(a, to_b);
    assert_true(world_run_until(world, all_closed, NULL, 1000));
    int last = world_node(world, 0)->read_status;
    assert_true(last == HS_ERR_CLOSED || last == 0); /* in memory they are done at once */
    world_run_ms(world, 300);
    assert_int_equal(world_node(world, 0)->reads_done, CLOSING_READS);
    world_node(world, 0)->up[to_b] = false; /* closing brings no event */
    world_node(world, 0)->n_up = 0;
}

/* All words of a page are one number, so that a mixture shows; its length depends on it, too. */
static void write_number(struct transport *origin, uint32_t page, uint64_t number)
{
    uint64_t content[PAGE_BYTES / 8];
    for (size_t i = 0; i < PAGE_BYTES / 8; i++)
        content[i] = number;
    assert_int_equal(origin->ops->write_page(origin, REGION, page, content, PAGE_BYTES - (uint32_t)(number % 64) * 8), 0);
}

static void on_number(void *arg, const struct transport_event *event)
{
    struct reading *reading = arg;
    uint32_t page = (uint32_t)event->cookie;
    reading->done++;
    if (event->status == HS_ERR_AUTH) { /* torn each time: to be asked for by message */
        reading->torn++;
        return;
    }
    assert_int_equal(event->status, 0);
    assert_true(event->version >= reading->newest[page]);
    reading->newest[page] = event->version;
    uint64_t first = 0, word;
    if (event->len > 0)
        memcpy(&first, event->data, 8);
    assert_int_equal(event->len, event->version == 1 ? 0 : PAGE_BYTES - (first % 64) * 8);
    for (size_t i = 0; i < event->len; i += 8) {
        memcpy(&word, event->data + i, 8);
        assert_true(word == first);
    }
    reading->whole++;
}

/* Reads all pages again and again while the origin changes them, in bursts that the device's reads fall into. */
static void read_all(struct world *world, struct reading *reading, uint32_t peer, uint32_t writes_each)
{
    struct transport *a = world_node(world, 0)->transport, *b = world_node(world, 1)->transport;
    static uint64_t number;
    reading->done = reading->whole = reading->torn = 0;
    for (uint32_t asked = 0, steps = 0; reading->done < READS; steps++) {
        while (asked < READS && asked - reading->done < PAGES) { /* one of each page: of two at once either may see the older content */
            assert_int_equal(a->ops->read_page(a, peer, REGION, asked % PAGES, 0, asked % PAGES), 0);
            asked++;
        }
        for (uint32_t i = 0; i < writes_each; i++, number++)
            write_number(b, (uint32_t)(number % PAGES), number);
        world_step(world);
        assert_true(steps < 2000000);
    }
}

void test_pages_under_a_writer(void **state)
{
    struct world *world = *state;
    static struct reading reading;
    uint32_t to_b;
    pair_that_reads(world, &reading, &to_b);
    world_node(world, 0)->on_read = on_number;
    read_all(world, &reading, to_b, 50);
    struct transport_stats stats;
    struct transport *a = world_node(world, 0)->transport;
    a->ops->stats(a, &stats);
    print_message("          %u pages whole, %u torn each time, %llu reads repeated\n", reading.whole, reading.torn,
                  (unsigned long long)stats.torn_reads);
    assert_int_equal(reading.whole + reading.torn, READS);
    read_all(world, &reading, to_b, 0); /* and with nobody writing, every one is whole */
    assert_int_equal(reading.whole, READS);
}

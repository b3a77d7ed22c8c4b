#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <pthread.h>
#include <sched.h>

#include "core/base/ring.h"

static void *item_of(uintptr_t value)
{
    return (void *)value;
}

static void test_capacity_and_order(void **unused)
{
    struct ring *ring = ring_create(5);
    assert_non_null(ring);
    uintptr_t pushed = 0;
    while (ring_push(ring, item_of(pushed + 1)))
        pushed++;
    assert_true(pushed >= 5 && pushed < 16);
    assert_int_equal(ring_len(ring), pushed);
    for (uintptr_t i = 1; i <= pushed; i++)
        assert_ptr_equal(ring_pop(ring), item_of(i));
    assert_null(ring_pop(ring));
    ring_destroy(ring);
}

/* More threads than CPUs, on most machines: a producer that is put off must not hold the others up. */
enum { PRODUCERS = 3, ITEMS = 20000 };

struct producer {
    pthread_t thread;
    struct ring *ring;
    uintptr_t id;
};

static void *produce(void *arg)
{
    struct producer *p = arg;
    for (uintptr_t i = 1; i <= ITEMS; i++)
        while (!ring_push(p->ring, item_of(p->id << 32 | i)))
            sched_yield();
    return NULL;
}

static void test_each_producers_items_arrive_once_in_order(void **unused)
{
    struct ring *ring = ring_create(64);
    struct producer producers[PRODUCERS];
    for (uintptr_t i = 0; i < PRODUCERS; i++) {
        producers[i] = (struct producer){.ring = ring, .id = i};
        assert_int_equal(pthread_create(&producers[i].thread, NULL, produce, &producers[i]), 0);
    }
    uintptr_t last[PRODUCERS] = {0};
    for (uint32_t received = 0; received < PRODUCERS * ITEMS;) {
        uintptr_t item = (uintptr_t)ring_pop(ring);
        if (!item) {
            sched_yield();
            continue;
        }
        uintptr_t id = item >> 32;
        assert_true(id < PRODUCERS);
        assert_int_equal(item & 0xffffffff, last[id] + 1);
        last[id]++;
        received++;
    }
    for (int i = 0; i < PRODUCERS; i++)
        pthread_join(producers[i].thread, NULL);
    assert_null(ring_pop(ring));
    ring_destroy(ring);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_capacity_and_order),
        cmocka_unit_test(test_each_producers_items_arrive_once_in_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Items shared out among workers: who takes which, and that each is taken once however many take at a time. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <pthread.h>

#include "core/cpu/work_share.h"

enum { WORKERS = 3, ITEMS = 30000, ROUNDS = 20 };

static struct work_share shares[WORKERS];
static _Atomic uint32_t times_taken[ITEMS];

static void share_out(uint32_t n)
{
    for (uint32_t w = 0; w < WORKERS; w++)
        work_share_set(&shares[w], (struct work_run){n * w / WORKERS, n * (w + 1) / WORKERS});
}

static void assert_taken(uint32_t worker, uint32_t n, uint32_t first, uint32_t end)
{
    struct work_run run;
    assert_true(work_share_take(shares, WORKERS, worker, n, &run));
    assert_int_equal(run.first, first);
    assert_int_equal(run.end, end);
}

static void test_own_front_first_then_backs_of_others(void **state)
{
    struct work_run run;
    share_out(15); /* 0 .. 4, 5 .. 9, 10 .. 14 */
    assert_taken(1, 2, 5, 7);
    assert_taken(1, 2, 7, 9);
    assert_int_equal(work_share_left(&shares[1]).first, 9);
    assert_int_equal(work_share_left(&shares[1]).end, 10);
    assert_taken(1, 2, 9, 10);
    assert_taken(1, 2, 13, 15); /* the next worker's */
    assert_taken(2, 2, 10, 12);
    assert_taken(1, 4, 12, 13);
    assert_taken(1, 2, 3, 5); /* after the last worker comes the first */
    assert_taken(0, 9, 0, 3);
    assert_false(work_share_take(shares, WORKERS, 0, 1, &run));
}

static void *take_all(void *arg)
{
    const uint32_t worker = *(const uint32_t *)arg;
    for (struct work_run run; work_share_take(shares, WORKERS, worker, 1 + worker, &run);)
        for (uint32_t i = run.first; i < run.end; i++)
            atomic_fetch_add(&times_taken[i], 1);
    return NULL;
}

static void test_each_item_is_taken_once(void **state)
{
    for (uint32_t round = 0; round < ROUNDS; round++) {
        pthread_t threads[WORKERS];
        uint32_t numbers[WORKERS];
        share_out(ITEMS);
        for (uint32_t w = 0; w < WORKERS; w++) {
            numbers[w] = w;
            assert_int_equal(pthread_create(&threads[w], NULL, take_all, &numbers[w]), 0);
        }
        for (uint32_t w = 0; w < WORKERS; w++)
            pthread_join(threads[w], NULL);
        for (uint32_t i = 0; i < ITEMS; i++)
            assert_int_equal(times_taken[i], round + 1);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_own_front_first_then_backs_of_others),
        cmocka_unit_test(test_each_item_is_taken_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

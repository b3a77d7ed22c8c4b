#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "net/dpdk/neighbours.h"

static const uint8_t mac_a[FRAME_MAC_BYTES] = {2, 0, 0, 0, 0, 10}, mac_b[FRAME_MAC_BYTES] = {2, 0, 0, 0, 0, 11};
enum { A = 0x0a00000a };

static int setup(void **state)
{
    *state = calloc(1, sizeof(struct neighbours));
    return *state == NULL;
}

static int teardown(void **state)
{
    free(*state);
    return 0;
}

static void test_asked_until_heard(void **state)
{
    struct neighbour *n = neighbours_get(*state, A, 1000);
    assert_false(n->known);
    assert_true(neighbour_ask(n, 1000));
    assert_false(neighbour_ask(n, 1000 + NEIGHBOUR_ASK_US - 1));
    assert_true(neighbour_ask(n, 1000 + NEIGHBOUR_ASK_US));
    assert_true(neighbour_heard(n, mac_a, 3, 200000));
    assert_true(n->known);
    assert_int_equal(n->port, 3);
    assert_false(neighbour_ask(n, 200000 + NEIGHBOUR_STALE_US - 1));
    assert_false(neighbour_heard(n, mac_a, 3, 300000)); /* no news */
    assert_ptr_equal(neighbours_find(*state, A), n);
}

static void test_stale_then_gone(void **state)
{
    struct neighbour *n = neighbours_get(*state, A, 1000);
    neighbour_heard(n, mac_a, 0, 1000);
    uint64_t now = 1000 + NEIGHBOUR_STALE_US;
    for (int i = 0; i < NEIGHBOUR_MOST_UNANSWERED; i++, now += NEIGHBOUR_ASK_US) {
        assert_true(neighbour_ask(n, now));
        assert_true(n->known); /* traffic goes on meanwhile */
    }
    assert_true(neighbour_ask(n, now));
    assert_false(n->known);
    assert_true(neighbour_heard(n, mac_b, 1, now)); /* back with another card, on another port */
    assert_true(n->known);
    assert_memory_equal(n->mac, mac_b, FRAME_MAC_BYTES);
    assert_false(neighbour_ask(n, now + 1));
}

static void test_link_down(void **state)
{
    struct neighbour *a = neighbours_get(*state, A, 1), *b = neighbours_get(*state, A + 1, 1);
    neighbour_heard(a, mac_a, 0, 1);
    neighbour_heard(b, mac_b, 1, 1);
    neighbours_forget_port(*state, 1);
    assert_true(a->known);
    assert_false(b->known);
}

static void test_bounded(void **state)
{
    struct neighbour *n = neighbours_get(*state, A, 1);
    neighbour_heard(n, mac_a, 0, 1);
    for (uint32_t i = 0; i < 100000; i++) {
        neighbours_get(*state, A, 2 + i); /* the one in use stays */
        assert_non_null(neighbours_get(*state, 0x0b000000 + i, 2 + i));
    }
    n = neighbours_find(*state, A);
    assert_non_null(n);
    assert_true(n->known);
    assert_null(neighbours_find(*state, 0x0b000000));
    assert_non_null(neighbours_find(*state, 0x0b000000 + 99999));
    assert_null(neighbours_find(*state, 0));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_asked_until_heard, setup, teardown),
        cmocka_unit_test_setup_teardown(test_stale_then_gone, setup, teardown),
        cmocka_unit_test_setup_teardown(test_link_down, setup, teardown),
        cmocka_unit_test_setup_teardown(test_bounded, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Datagrams in pieces, and address handles that outlive their use. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "core/base/rng.h"
#include "net/verbs/ud_handles.h"
#include "net/verbs/ud_pieces.h"

enum { ROOM = 4096, BUFFERS = 200, SIZE = 100 };

static uint8_t memory[BUFFERS][ROOM];
static bool held[BUFFERS]; /* by the table */

static void release(void *buffer)
{
    size_t i = (size_t)((uint8_t(*)[ROOM])buffer - memory);
    assert_true(i < BUFFERS && held[i]);
    held[i] = false;
}

static uint32_t n_held(void)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < BUFFERS; i++)
        n += held[i];
    return n;
}

static int make_table(void **state)
{
    static struct ud_assemblies table;
    table = (struct ud_assemblies){.cap = UD_ASSEMBLIES, .release = release};
    memset(held, 0, sizeof held);
    *state = &table;
    return 0;
}

static struct carrier_address source_of(uint8_t last)
{
    return (struct carrier_address){.bytes = {0x1b, 0x9e, 10, 77, 0, last}, .len = 6};
}

/* The byte at that place of a datagram. */
static uint8_t expected(uint32_t source, uint32_t number, uint32_t at)
{
    return (uint8_t)(source * 131 + number * 29 + at * 7 + at / 251);
}

/* Piece i of a datagram arrives in a free buffer. Returns the datagram's length if that made it whole and right, else 0. */
static uint32_t arrive(struct ud_assemblies *table, uint8_t from, uint16_t number, uint32_t total, uint32_t i, uint64_t now_ns)
{
    struct carrier_address source = source_of(from);
    uint32_t n = (total + SIZE - 1) / SIZE, len = i + 1 < n ? SIZE : total - i * SIZE, free_one = 0, whole_len = 0;
    struct ud_piece piece = {.number = number, .size = SIZE, .index = (uint8_t)i, .last = i + 1 == n};
    uint8_t *data, *whole;
    while (held[free_one])
        free_one++;
    assert_true(free_one < BUFFERS);
    held[free_one] = true;
    data = memory[free_one] + 64;
    memset(memory[free_one], 0xee, ROOM);
    for (uint32_t k = 0; k < len; k++)
        data[k] = expected(from, number, i * SIZE + k);
    void *buffer = ud_assemble(table, &source, &piece, memory[free_one], data, len, ROOM - 64, now_ns, &whole, &whole_len);
    if (buffer == NULL)
        return 0;
    for (uint32_t k = 0; k < whole_len; k++)
        assert_int_equal(whole[k], expected(from, number, k));
    assert_ptr_equal(whole, (uint8_t *)buffer + 64);
    release(buffer); /* ours by now */
    return whole_len;
}

static void test_orders(void **state)
{
    struct ud_assemblies *table = *state;
    static const uint8_t orders[6][3] = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};
    for (uint16_t k = 0; k < 6; k++) {
        assert_int_equal(arrive(table, 1, k, 250, orders[k][0], 1), 0);
        assert_int_equal(arrive(table, 1, k, 250, orders[k][1], 1), 0);
        assert_int_equal(arrive(table, 1, k, 250, orders[k][0], 1), 0); /* twice */
        assert_int_equal(n_held(), 1);
        assert_int_equal(arrive(table, 1, k, 250, orders[k][2], 1), 250);
        assert_int_equal(n_held(), 0);
    }
    for (uint32_t i = 0; i < UD_MAX_PIECES; i++) /* as many as there can be */
        assert_int_equal(arrive(table, 1, 9, UD_MAX_PIECES * SIZE, i, 1), i + 1 < UD_MAX_PIECES ? 0 : UD_MAX_PIECES * SIZE);
}

/* Many at a time, from several, of one number, shuffled: each is put together of its own pieces. */
static void test_mixed(void **state)
{
    struct ud_assemblies *table = *state;
    struct rng rng;
    rng_seed(&rng, 20261130);
    struct {
        uint8_t from;
        uint16_t number;
        uint32_t i;
    } pieces[8 * 4 * 3], swap;
    uint32_t n = 0, whole = 0;
    for (uint8_t from = 0; from < 8; from++)
        for (uint16_t number = 0; number < 4; number++)
            for (uint32_t i = 0; i < 3; i++, n++) {
                pieces[n].from = from;
                pieces[n].number = number;
                pieces[n].i = i;
            }
    for (uint32_t k = n; k > 1; k--) {
        uint32_t j = (uint32_t)rng_below(&rng, k);
        swap = pieces[k - 1];
        pieces[k - 1] = pieces[j];
        pieces[j] = swap;
    }
    for (uint32_t k = 0; k < n; k++)
        whole += arrive(table, pieces[k].from, pieces[k].number, 201 + pieces[k].from, pieces[k].i, 1) == 201u + pieces[k].from;
    assert_int_equal(whole, 32);
    assert_int_equal(n_held(), 0);
}

static void test_bounds(void **state)
{
    struct ud_assemblies *table = *state;
    for (uint16_t number = 0; number < UD_ASSEMBLIES + 10; number++) {
        arrive(table, 1, number, 250, 0, number + 1);
        assert_true(n_held() <= UD_ASSEMBLIES);
    }
    assert_int_equal(table->n, UD_ASSEMBLIES);
    arrive(table, 1, 9, 250, 1, 1000); /* was given up for a newer one; this begins it anew, at the cost of 10 */
    assert_int_equal(arrive(table, 1, 9, 250, 2, 1000), 0);
    assert_int_equal(arrive(table, 1, 11, 250, 1, 1000), 0);
    assert_int_equal(arrive(table, 1, 11, 250, 2, 1000), 250);
    ud_assemblies_expire(table, 40);
    assert_int_equal(n_held(), table->n);
    for (uint32_t i = 0; i < table->n; i++)
        assert_true(table->all[i].since_ns >= 40);
    ud_assemblies_expire(table, UINT64_MAX);
    assert_int_equal(n_held(), 0);
    assert_int_equal(table->n, 0);
}

/* Further from the beginning than a buffer is long. */
static void test_too_long(void **state)
{
    struct ud_assemblies *table = *state;
    struct carrier_address source = source_of(1);
    struct ud_piece piece = {.number = 1, .size = 2000, .index = 2};
    uint8_t *whole;
    uint32_t len;
    held[0] = true;
    assert_null(ud_assemble(table, &source, &piece, memory[0], memory[0], 2000, ROOM, 1, &whole, &len));
    assert_int_equal(n_held(), 0);
    assert_int_equal(table->n, 0);
}

/* ---- handles ---- */

static int destroyed[4];

static void destroy(void *handle)
{
    (*(int *)handle)++;
}

static void test_handles(void **state)
{
    (void)state;
    struct ud_handles handles = {.destroy = destroy};
    struct ud_path *paths[4];
    for (uint32_t i = 0; i < 4; i++)
        assert_non_null(paths[i] = ud_path_make(&handles, &destroyed[i], 1024));
    paths[1]->used_until = 5;
    paths[2]->used_until = 9;
    paths[3]->used_until = 17;
    ud_handles_done(&handles, 4);
    for (uint32_t i = 0; i < 4; i++)
        ud_path_retire(paths[i]);
    assert_int_equal(destroyed[0], 1); /* nothing names it */
    assert_int_equal(destroyed[1] + destroyed[2] + destroyed[3], 0);
    ud_handles_done(&handles, 8);
    assert_int_equal(destroyed[1], 1);
    assert_int_equal(destroyed[2], 0);
    ud_handles_done(&handles, 9);
    assert_int_equal(destroyed[2], 1);
    ud_handles_done(&handles, UINT64_MAX);
    assert_int_equal(destroyed[3], 1);
    assert_null(handles.retired);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_orders, make_table), cmocka_unit_test_setup(test_mixed, make_table),
        cmocka_unit_test_setup(test_bounds, make_table), cmocka_unit_test_setup(test_too_long, make_table),
        cmocka_unit_test(test_handles),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* The row budget on made-up machines, and the prediction of step times. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "core/serve/scheduler_roofline.h"

/* A machine that takes max(floor, rows * row) and attention on top: flat, then rising. */
struct machine {
    double floor_us, row_us, context_us; /* context: per 1024 positions */
};

static void step(struct roofline *roofline, const struct machine *m, uint32_t prefill, uint32_t decode, uint64_t context)
{
    double rows = prefill + decode, us = rows * m->row_us > m->floor_us ? rows * m->row_us : m->floor_us;
    us += m->context_us * (double)context / 1024;
    struct roofline_sample sample = {
        .prefill_rows = prefill, .decode_rows = decode, .context = context, .duration_ns = (uint64_t)(us * 1e3)};
    roofline_observe(roofline, &sample);
}

static uint32_t settle(const struct machine *m, uint32_t max_rows, uint64_t context_per_row)
{
    struct roofline roofline;
    roofline_init(&roofline, max_rows, 0);
    for (int i = 0; i < 200; i++) {
        uint32_t rows = roofline_budget(&roofline);
        step(&roofline, m, rows, 0, rows * context_per_row);
        if (i % 3 == 0)
            step(&roofline, m, 0, 4, 4 * context_per_row);
    }
    return roofline_budget(&roofline);
}

static void the_batch_grows_to_the_knee(void **state)
{
    /* A memory-bound machine whose time is flat up to 512 rows. */
    const struct machine wide = {.floor_us = 5120, .row_us = 10};
    assert_in_range(settle(&wide, 4096, 0), 512, 1024);
    assert_int_equal(settle(&wide, 300, 0), 256); /* what the backend takes */
    /* A small core: every row costs the same from 8 on; larger steps gain nothing. */
    const struct machine small = {.floor_us = 8000, .row_us = 1000};
    assert_in_range(settle(&small, 4096, 0), 64, 128);
    /* A wide machine that is slow: a step of 512 rows would take a second. */
    const struct machine slow = {.floor_us = 100000, .row_us = 2000};
    assert_in_range(settle(&slow, 4096, 0), 32, 64);
    const struct machine crawling = {.floor_us = 100000, .row_us = 50000};
    assert_int_equal(settle(&crawling, 4096, 0), 16);
    /* Long contexts are no reason for small steps. */
    const struct machine attentive = {.floor_us = 5120, .row_us = 10, .context_us = 4};
    assert_in_range(settle(&attentive, 4096, 1000), 512, 1024);
}

/* Rows beside so many decodes, on a machine that has seen steps of all sizes. */
static uint32_t beside(const struct machine *m, uint32_t n_decodes)
{
    struct roofline roofline;
    roofline_init(&roofline, 512, 0);
    for (uint32_t rows = 1; rows <= 512; rows += 1 + rows / 8)
        step(&roofline, m, rows / 2, rows - rows / 2, 0);
    roofline.budget = 512; /* which would bound it */
    return roofline_budget_beside(&roofline, n_decodes);
}

static void decodes_wait_at_most_twice_as_long(void **state)
{
    /* Flat up to 256 rows, then rising: a step of 512 takes twice as long as one decode. */
    const struct machine wide = {.floor_us = 5120, .row_us = 20};
    assert_in_range(beside(&wide, 1), 256, 512);
    /* From 8 rows on each costs the same: about twice the decodes, or 16 rows where the floor allows them. */
    const struct machine small = {.floor_us = 8000, .row_us = 1000};
    assert_in_range(beside(&small, 1), 10, 22);
    assert_in_range(beside(&small, 16), 26, 38);
    assert_in_range(beside(&small, 64), 100, 140);
    /* Nothing measured yet, or fixed: the plain budget. */
    struct roofline roofline;
    roofline_init(&roofline, 512, 0);
    assert_int_equal(roofline_budget_beside(&roofline, 4), roofline_budget(&roofline));
    roofline_init(&roofline, 512, 48);
    for (int i = 0; i < 20; i++)
        step(&roofline, &small, 0, 4, 0);
    assert_int_equal(roofline_budget_beside(&roofline, 4), 48);
}

static void a_slow_hour_passes(void **state)
{
    struct roofline roofline;
    const struct machine good = {.floor_us = 8000, .row_us = 1000}, busy = {.floor_us = 80000, .row_us = 10000};
    roofline_init(&roofline, 512, 0);
    for (int i = 0; i < 100; i++)
        step(&roofline, &busy, roofline_budget(&roofline), 0, 0);
    assert_int_equal(roofline_budget(&roofline), 16);
    for (int i = 0; i < 100; i++)
        step(&roofline, &good, roofline_budget(&roofline), 0, 0);
    assert_in_range(roofline_budget(&roofline), 64, 128);
}

static void a_fixed_budget_is_kept(void **state)
{
    struct roofline roofline;
    const struct machine wide = {.floor_us = 5120, .row_us = 10};
    roofline_init(&roofline, 256, 100);
    for (int i = 0; i < 50; i++)
        step(&roofline, &wide, 100, 0, 0);
    assert_int_equal(roofline_budget(&roofline), 100);
    roofline_init(&roofline, 64, 100);
    assert_int_equal(roofline_budget(&roofline), 64);
}

static void predictions_are_close_on_a_linear_machine(void **state)
{
    struct roofline roofline;
    roofline_init(&roofline, 1024, 0);
    assert_int_equal(roofline_predict_ns(&roofline, 10, 0), 0);
    for (uint32_t i = 0; i < 300; i++) {
        uint32_t rows = 1 + i * 37 % 200;
        uint64_t context = (uint64_t)rows * (i * 91 % 2000);
        struct roofline_sample sample = {
            .prefill_rows = rows > 8 ? rows : 0, .decode_rows = rows > 8 ? 0 : rows, .context = context};
        sample.duration_ns = 2000000 + rows * 50000ull + context * 20;
        roofline_observe(&roofline, &sample);
    }
    for (uint32_t rows = 1; rows < 200; rows += 50) {
        double truth = 2000000 + rows * 50000.0 + rows * 1000 * 20.0;
        double predicted = (double)roofline_predict_ns(&roofline, rows, rows * 1000);
        assert_true(predicted > 0.9 * truth && predicted < 1.1 * truth);
    }
}

static void rates_are_measured(void **state)
{
    struct roofline roofline;
    roofline_init(&roofline, 1024, 0);
    assert_true(roofline_prefill_tokens_per_s(&roofline) == 0 && roofline_decode_step_s(&roofline) == 0);
    const struct machine m = {.floor_us = 2000, .row_us = 100};
    for (int i = 0; i < 40; i++) {
        step(&roofline, &m, 100, 0, 0);
        step(&roofline, &m, 0, 3, 0);
    }
    assert_true(roofline_prefill_tokens_per_s(&roofline) > 9900 && roofline_prefill_tokens_per_s(&roofline) < 10100);
    for (int i = 0; i < 200; i++)
        step(&roofline, &m, 10, 0, 0); /* tails of cached prompts, which cost a row twice as much */
    assert_true(roofline_prefill_tokens_per_s(&roofline) > 9900 && roofline_prefill_tokens_per_s(&roofline) < 10100);
    assert_true(roofline_decode_step_s(&roofline) > 0.0019f && roofline_decode_step_s(&roofline) < 0.0021f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_batch_grows_to_the_knee),
        cmocka_unit_test(decodes_wait_at_most_twice_as_long),
        cmocka_unit_test(a_slow_hour_passes),
        cmocka_unit_test(a_fixed_budget_is_kept),
        cmocka_unit_test(predictions_are_close_on_a_linear_machine),
        cmocka_unit_test(rates_are_measured),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

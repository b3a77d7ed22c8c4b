#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "core/base/rng.h"
#include "core/serve/http/stop_strings.h"

/* The naive model: looks at the whole text so far after each byte. */
static uint32_t naive_complete(const char *const *stops, size_t n, const char *text, size_t len)
{
    uint32_t best = 0;
    for (size_t i = 0; i < n; i++) {
        size_t k = strlen(stops[i]);
        if (k <= len && memcmp(text + len - k, stops[i], k) == 0 && k > best)
            best = (uint32_t)k;
    }
    return best;
}

static uint32_t naive_held(const char *const *stops, size_t n, const char *text, size_t len)
{
    uint32_t best = 0;
    for (size_t i = 0; i < n; i++)
        for (size_t k = 1; k < strlen(stops[i]) && k <= len; k++)
            if (memcmp(text + len - k, stops[i], k) == 0 && k > best)
                best = (uint32_t)k;
    return best;
}

static void test_agrees_with_a_naive_search(void **unused)
{
    static const char *const sets[][STOP_STRINGS_MAX] = {
        {"aab", "abab"}, {"a"}, {"aaaa", "aab", "b"}, {"abcabd", "cab", "bc", "ddd"}, {"abacabad"},
    };
    struct rng rng;
    rng_seed(&rng, 11);
    for (size_t s = 0; s < sizeof sets / sizeof *sets; s++) {
        size_t n = 0;
        struct stop_set set = {0};
        for (; n < STOP_STRINGS_MAX && sets[s][n]; n++)
            assert_int_equal(stop_set_add(&set, sets[s][n], strlen(sets[s][n])), 0);
        for (int round = 0; round < 2000; round++) {
            char text[40];
            struct stop_matcher matcher = {.set = &set};
            for (size_t len = 1; len <= sizeof text; len++) {
                text[len - 1] = (char)('a' + rng_below(&rng, 4));
                uint32_t complete = stop_matcher_feed(&matcher, (uint8_t)text[len - 1]);
                assert_int_equal(complete, naive_complete(sets[s], n, text, len));
                if (complete)
                    break;
                assert_int_equal(stop_matcher_held(&matcher), naive_held(sets[s], n, text, len));
            }
        }
        stop_set_fini(&set);
    }
}

static void test_no_strings_hold_nothing(void **unused)
{
    struct stop_set set = {0};
    struct stop_matcher matcher = {.set = &set};
    assert_int_equal(stop_matcher_feed(&matcher, 'a'), 0);
    assert_int_equal(stop_matcher_held(&matcher), 0);
    stop_set_fini(&set);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_agrees_with_a_naive_search),
        cmocka_unit_test(test_no_strings_hold_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

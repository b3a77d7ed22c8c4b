#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "core/base/rng.h"
#include "core/base/u64_map.h"

enum { KEYS = 512 };

/* The naive model: an array over a small set of keys. */
struct model {
    bool present[KEYS];
    uint64_t value[KEYS];
    size_t len;
};

static uint64_t key_of(uint64_t index, int pattern)
{
    switch (pattern) {
    case 0:
        return index;
    case 1:
        return index << 40;
    default:
        return UINT64_MAX - index * 4096;
    }
}

static void check_all(const struct u64_map *map, const struct model *model, int pattern)
{
    assert_int_equal(map->len, model->len);
    for (uint64_t i = 0; i < KEYS; i++) {
        const uint64_t *value = u64_map_get(map, key_of(i, pattern));
        assert_int_equal(value != NULL, model->present[i]);
        if (value)
            assert_int_equal(*value, model->value[i]);
    }
    size_t cursor = 0, seen = 0;
    uint64_t key, value;
    while (u64_map_next(map, &cursor, &key, &value)) {
        seen++;
        assert_int_equal(*u64_map_get(map, key), value);
    }
    assert_int_equal(seen, model->len);
}

static void test_agrees_with_a_naive_model(void **unused)
{
    for (int pattern = 0; pattern < 3; pattern++) {
        struct u64_map map = {0};
        struct model model = {0};
        struct rng rng;
        rng_seed(&rng, 7 + (uint64_t)pattern);
        for (int step = 0; step < 20000; step++) {
            uint64_t i = rng_below(&rng, KEYS), key = key_of(i, pattern);
            bool filling = step / 2500 % 2 == 0; /* alternate growth and decay */
            if (rng_below(&rng, 4) < (filling ? 3 : 1)) {
                uint64_t value = rng_u64(&rng);
                assert_int_equal(u64_map_put(&map, key, value), 0);
                model.len += !model.present[i];
                model.present[i] = true;
                model.value[i] = value;
            } else {
                assert_int_equal(u64_map_remove(&map, key), model.present[i]);
                model.len -= model.present[i];
                model.present[i] = false;
            }
            if (step % 500 == 0)
                check_all(&map, &model, pattern);
        }
        check_all(&map, &model, pattern);
        u64_map_fini(&map);
    }
}

static void test_empty_map(void **unused)
{
    struct u64_map map = {0};
    size_t cursor = 0;
    uint64_t key, value;
    assert_null(u64_map_get(&map, 0));
    assert_false(u64_map_remove(&map, 0));
    assert_false(u64_map_next(&map, &cursor, &key, &value));
    u64_map_fini(&map);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_agrees_with_a_naive_model),
        cmocka_unit_test(test_empty_map),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

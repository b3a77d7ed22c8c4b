#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "core/base/rng.h"
#include "core/cache/page_pool.h"
#include "tests/unit/cache/fail_malloc.h"

enum { N_PAGES = 37 };

static void test_every_page_once(void **state)
{
    struct page_pool *pool = page_pool_create(N_PAGES);
    bool seen[N_PAGES] = {false};
    assert_int_equal(page_pool_total_pages(pool), N_PAGES);
    for (uint32_t i = 0; i < N_PAGES; i++) {
        assert_int_equal(page_pool_free_pages(pool), N_PAGES - i);
        uint32_t page = page_pool_alloc(pool);
        assert_true(page < N_PAGES && !seen[page]);
        assert_int_equal(page_pool_owners(pool, page), 1);
        seen[page] = true;
    }
    assert_int_equal(page_pool_alloc(pool), PAGE_NONE);
    page_pool_unref(pool, 5);
    assert_int_equal(page_pool_alloc(pool), 5);
    page_pool_destroy(pool);
}

static void test_no_pages(void **state)
{
    struct page_pool *pool = page_pool_create(0);
    assert_int_equal(page_pool_alloc(pool), PAGE_NONE);
    page_pool_destroy(pool);
    page_pool_destroy(NULL);
}

struct notices {
    uint32_t pinned[N_PAGES], unpinned[N_PAGES];
};

static void on_pinned(void *self, uint32_t page)
{
    ((struct notices *)self)->pinned[page]++;
}

static void on_unpinned(void *self, uint32_t page)
{
    ((struct notices *)self)->unpinned[page]++;
}

static void test_watcher_sees_pins_of_cached_pages(void **state)
{
    struct page_pool *pool = page_pool_create(N_PAGES);
    struct notices notices = {0};
    page_pool_watch(pool, &(struct page_pool_watcher){.pinned = on_pinned, .unpinned = on_unpinned, .self = &notices});
    uint32_t page = page_pool_alloc(pool);
    page_pool_ref(pool, page);
    page_pool_unref(pool, page);
    assert_int_equal(notices.pinned[page] + notices.unpinned[page], 0);
    page_pool_set_cached(pool, page, true);
    assert_true(page_pool_is_cached(pool, page));
    assert_int_equal(page_pool_unpinned_pages(pool), 1);
    page_pool_ref(pool, page);
    page_pool_ref(pool, page);
    assert_int_equal(notices.pinned[page], 1);
    assert_int_equal(page_pool_unpinned_pages(pool), 0);
    page_pool_unref(pool, page);
    assert_int_equal(notices.unpinned[page], 0);
    page_pool_unref(pool, page);
    assert_int_equal(notices.unpinned[page], 1);
    assert_int_equal(page_pool_unpinned_pages(pool), 1);
    page_pool_set_cached(pool, page, false);
    assert_int_equal(page_pool_unpinned_pages(pool), 0);
    page_pool_unref(pool, page);
    assert_int_equal(page_pool_free_pages(pool), N_PAGES);
    page_pool_destroy(pool);
}

/* Random references against plain counts. */
static void test_counts_owners(void **state)
{
    struct page_pool *pool = page_pool_create(N_PAGES);
    uint32_t owners[N_PAGES] = {0};
    struct rng rng;
    rng_seed(&rng, 20260101);
    for (uint32_t i = 0; i < 20000; i++) {
        uint32_t page = (uint32_t)rng_below(&rng, N_PAGES);
        if (rng_below(&rng, 3) == 0) {
            page = page_pool_alloc(pool);
            if (page != PAGE_NONE)
                assert_int_equal(owners[page]++, 0);
        } else if (owners[page] > 0 && rng_below(&rng, 2)) {
            page_pool_unref(pool, page);
            owners[page]--;
        } else if (owners[page] > 0) {
            page_pool_ref(pool, page);
            owners[page]++;
        }
        uint32_t n_free = 0;
        for (uint32_t p = 0; p < N_PAGES; p++) {
            assert_int_equal(page_pool_owners(pool, p), owners[p]);
            n_free += owners[p] == 0;
        }
        assert_int_equal(page_pool_free_pages(pool), n_free);
    }
    page_pool_destroy(pool);
}

static void test_create_without_memory(void **state)
{
    for (uint32_t n = 1; n <= 3; n++) {
        fail_malloc_after(n);
        assert_null(page_pool_create(N_PAGES));
        assert_true(fail_malloc_done());
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_page_once),
        cmocka_unit_test(test_no_pages),
        cmocka_unit_test(test_watcher_sees_pins_of_cached_pages),
        cmocka_unit_test(test_counts_owners),
        cmocka_unit_test(test_create_without_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

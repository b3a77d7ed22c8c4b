/* Pages as a reader's device brings them: whole, torn, forged, under another key, with lengths that lie. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/base/error.h"
#include "core/base/rng.h"
#include "net/verbs/pages.h"

enum { N = 4, BYTES = 1000, IMAGE = BYTES + PAGES_OVERHEAD };
enum { LENGTH_AT = 8, CIPHER_AT = 12 }; /* docs/protocol-verbs.md, section 3 */

static const uint8_t group_key[SEAL_KEY_BYTES] = "the group key of this test";

struct both {
    struct pages *pages;
    struct pages_reader_key key;
    uint8_t out[BYTES];
    uint32_t len;
    uint64_t version;
};

static void make_key(const uint8_t *group, uint64_t boot, uint32_t region, uint32_t publication, uint8_t key[SEAL_KEY_BYTES])
{
    uint8_t root[SEAL_KEY_BYTES];
    pages_root(group, root);
    pages_key(root, boot, region, publication, key);
}

static int setup(void **state)
{
    static struct both both;
    uint8_t key[SEAL_KEY_BYTES];
    make_key(group_key, 77, 2, 1, key);
    both = (struct both){.pages = NULL};
    pages_reader_key_init(&both.key, key);
    *state = &both;
    return pages_create(N, BYTES, key, &both.pages);
}

static int teardown(void **state)
{
    struct both *both = *state;
    pages_destroy(both->pages);
    pages_reader_key_fini(&both->key);
    return 0;
}

static uint8_t *image_of(const struct both *both, uint32_t page)
{
    size_t bytes;
    uint8_t *memory = pages_memory(both->pages, &bytes);
    assert_int_equal(bytes, N * pages_stride(BYTES));
    return memory + page * pages_stride(BYTES);
}

static int open_as(struct both *both, uint32_t page, const uint8_t *image, size_t len)
{
    return pages_open(&both->key, page, BYTES, image, len, both->out, &both->len, &both->version);
}

static int open_page(struct both *both, uint32_t page)
{
    return open_as(both, page, image_of(both, page), IMAGE);
}

static void fill(uint8_t data[BYTES], uint64_t seed)
{
    struct rng rng;
    rng_seed(&rng, seed);
    for (int i = 0; i < BYTES; i++)
        data[i] = (uint8_t)rng_below(&rng, 256);
}

static void test_whole(void **state)
{
    struct both *both = *state;
    uint8_t data[BYTES];
    assert_int_equal(open_page(both, 0), 0);
    assert_int_equal(both->len, 0);
    assert_int_equal(both->version, 1);
    for (uint32_t len = 0; len <= BYTES; len += 50) {
        fill(data, len);
        assert_int_equal(pages_write(both->pages, 3, data, len), 0);
        assert_int_equal(open_page(both, 3), 0);
        assert_int_equal(both->len, len);
        assert_int_equal(both->version, len / 50 + 2);
        assert_memory_equal(both->out, data, len);
    }
    assert_int_equal(pages_write(both->pages, N, data, 1), HS_ERR_RANGE);
    assert_int_equal(pages_write(both->pages, 0, data, BYTES + 1), HS_ERR_RANGE);
}

/* What a device may bring while the page is written: bytes of two versions in any mixture. None but the two is taken. */
static void test_torn(void **state)
{
    struct both *both = *state;
    uint8_t data[BYTES], before[IMAGE], after[IMAGE], torn[IMAGE];
    struct rng rng;
    rng_seed(&rng, 5);
    fill(data, 1);
    assert_int_equal(pages_write(both->pages, 1, data, BYTES), 0);
    memcpy(before, image_of(both, 1), IMAGE);
    fill(data, 2);
    assert_int_equal(pages_write(both->pages, 1, data, BYTES), 0);
    memcpy(after, image_of(both, 1), IMAGE);
    for (size_t cut = 1; cut < IMAGE; cut++) {
        memcpy(torn, after, cut);
        memcpy(torn + cut, before + cut, IMAGE - cut);
        bool is_one = memcmp(torn, after, IMAGE) == 0 || memcmp(torn, before, IMAGE) == 0;
        assert_int_equal(open_as(both, 1, torn, IMAGE), is_one ? 0 : HS_ERR_AUTH);
    }
    for (int round = 0; round < 2000; round++) { /* and by cache lines, in any order */
        for (size_t at = 0; at < IMAGE; at += 64)
            memcpy(torn + at, (rng_below(&rng, 2) ? after : before) + at, IMAGE - at < 64 ? IMAGE - at : 64);
        bool is_one = memcmp(torn, after, IMAGE) == 0 || memcmp(torn, before, IMAGE) == 0;
        assert_int_equal(open_as(both, 1, torn, IMAGE), is_one ? 0 : HS_ERR_AUTH);
    }
    assert_int_equal(open_as(both, 1, before, IMAGE), 0);
}

static void test_forged(void **state)
{
    struct both *both = *state;
    uint8_t data[BYTES], image[IMAGE];
    fill(data, 3);
    assert_int_equal(pages_write(both->pages, 2, data, 40), 0);
    memcpy(image, image_of(both, 2), IMAGE);
    for (size_t bit = 0; bit < (40 + PAGES_OVERHEAD) * 8; bit++) {
        image[bit / 8] ^= (uint8_t)(1 << bit % 8);
        int status = open_as(both, 2, image, IMAGE);
        assert_int_equal(status, HS_ERR_AUTH);
        image[bit / 8] ^= (uint8_t)(1 << bit % 8);
    }
    assert_int_equal(open_as(both, 2, image, IMAGE), 0);
    assert_int_equal(open_as(both, 3, image, IMAGE), HS_ERR_AUTH); /* a page stands for no other */
}

static void test_lengths_that_lie(void **state)
{
    struct both *both = *state;
    uint8_t data[BYTES], image[IMAGE];
    fill(data, 4);
    assert_int_equal(pages_write(both->pages, 0, data, 500), 0);
    memcpy(image, image_of(both, 0), IMAGE);
    for (size_t len = 0; len < IMAGE; len++) { /* the beginning of it alone: known to be more, once its header is there */
        uint8_t *exact = malloc(len ? len : 1);
        assert_non_null(exact);
        memcpy(exact, image, len);
        int status = open_as(both, 0, exact, len);
        assert_int_equal(status, len < PAGES_OVERHEAD ? HS_ERR_AUTH : len < 500 + PAGES_OVERHEAD ? HS_ERR_RANGE : 0);
        if (status == HS_ERR_RANGE)
            assert_int_equal(both->len, 500);
        free(exact);
    }
    static const uint32_t lies[] = {0, 499, 501, BYTES, BYTES + 1, UINT32_MAX};
    for (size_t i = 0; i < sizeof lies / sizeof *lies; i++) {
        memcpy(image + LENGTH_AT, &lies[i], 4);
        assert_int_equal(open_as(both, 0, image, IMAGE), HS_ERR_AUTH);
    }
    memcpy(image, image_of(both, 0), IMAGE);
    for (int cipher = 0; cipher < 256; cipher++) {
        bool is_own = image_of(both, 0)[CIPHER_AT] == cipher;
        image[CIPHER_AT] = (uint8_t)cipher;
        assert_int_equal(open_as(both, 0, image, IMAGE), is_own ? 0 : HS_ERR_AUTH);
    }
}

/* Of another group, boot, region or publication: nothing opens, and the same content at the same version looks otherwise. */
static void test_keys_differ(void **state)
{
    struct both *both = *state;
    uint8_t data[BYTES], key[SEAL_KEY_BYTES], image[IMAGE];
    fill(data, 6);
    assert_int_equal(pages_write(both->pages, 0, data, BYTES), 0);
    memcpy(image, image_of(both, 0), IMAGE);
    for (int which = 0; which < 5; which++) {
        make_key(which == 0 ? NULL : group_key, which == 1 ? 78 : 77, which == 2 ? 3 : 2, which == 3 ? 2 : 1, key);
        pages_reader_key_init(&both->key, key);
        assert_int_equal(open_as(both, 0, image, IMAGE), which == 4 ? 0 : HS_ERR_AUTH);
        struct pages *again;
        assert_int_equal(pages_create(1, BYTES, key, &again), 0);
        assert_int_equal(pages_write(again, 0, data, BYTES), 0);
        size_t bytes, alike = 0;
        const uint8_t *other = pages_memory(again, &bytes);
        for (size_t i = PAGES_HEADER_BYTES; i < IMAGE; i++)
            alike += other[i] == image[i];
        assert_true(which == 4 ? alike == IMAGE - PAGES_HEADER_BYTES : alike < 30); /* of random bytes four are */
        pages_destroy(again);
    }
}

static void test_limits(void **state)
{
    (void)state;
    struct pages *pages;
    uint8_t key[SEAL_KEY_BYTES] = {0};
    assert_int_equal(pages_create(0, 1, key, &pages), HS_ERR_LIMIT);
    assert_int_equal(pages_create(1, 0, key, &pages), HS_ERR_LIMIT);
    assert_int_equal(pages_create(TRANSPORT_REGION_PAGES + 1, 1, key, &pages), HS_ERR_LIMIT);
    assert_int_equal(pages_create(1, TRANSPORT_PAGE_BYTES + 1, key, &pages), HS_ERR_LIMIT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_whole, setup, teardown),
        cmocka_unit_test_setup_teardown(test_torn, setup, teardown),
        cmocka_unit_test_setup_teardown(test_forged, setup, teardown),
        cmocka_unit_test_setup_teardown(test_lengths_that_lie, setup, teardown),
        cmocka_unit_test_setup_teardown(test_keys_differ, setup, teardown),
        cmocka_unit_test(test_limits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

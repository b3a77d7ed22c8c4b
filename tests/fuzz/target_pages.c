/*
 * What the verbs fabric takes from outside besides sealed packets. The first byte says which: even, a page as a device may bring it (then a
 * page's number, how the sealed page is changed: pairs of place and byte, and how much of it came); odd, a control message.
 */
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "net/verbs/control.h"
#include "net/verbs/pages.h"
#include "tests/fuzz/fuzz.h"

enum { PAGES = 4, BYTES = 200, IMAGE = BYTES + PAGES_OVERHEAD };

static void open_changed(struct pages *pages, struct pages_reader_key *key, struct reader *in)
{
    uint32_t page = read_u8(in) % PAGES, as = read_u8(in) % PAGES, len;
    size_t came = read_u16(in) % (IMAGE + 1), stride = pages_stride(BYTES), bytes;
    const uint8_t *original = (const uint8_t *)pages_memory(pages, &bytes) + page * stride;
    uint8_t *image = fuzz_copy(original, came), out[BYTES], content[BYTES];
    uint64_t version;
    while (reader_left(in) >= 2 && came > 0) {
        size_t at = read_u8(in) % came;
        image[at] = read_u8(in);
    }
    int status = pages_open(key, as, BYTES, image, came, out, &len, &version);
    bool is_whole = page == as && came >= page * 50 + (size_t)PAGES_OVERHEAD && memcmp(image, original, page * 50 + (size_t)PAGES_OVERHEAD) == 0;
    hs_assert((status == 0) == is_whole);
    if (status == 0) {
        memset(content, (int)page, sizeof content);
        hs_assert(len == page * 50 && version == 2 && memcmp(out, content, len) == 0);
    }
    hs_assert(status == 0 || status == HS_ERR_AUTH || (status == HS_ERR_RANGE && len <= BYTES));
    free(image);
}

static void open_page(struct reader *in)
{
    struct pages *pages;
    struct pages_reader_key key = {.ready = false};
    uint8_t bytes[SEAL_KEY_BYTES] = {9}, content[BYTES];
    hs_assert(pages_create(PAGES, BYTES, bytes, &pages) == 0);
    pages_reader_key_init(&key, bytes);
    for (uint32_t page = 0; page < PAGES; page++) {
        memset(content, (int)page, sizeof content);
        hs_assert(pages_write(pages, page, content, page * 50) == 0);
    }
    open_changed(pages, &key, in);
    pages_reader_key_fini(&key);
    pages_destroy(pages);
}

static void decode_control(const uint8_t *data, size_t len)
{
    struct control control, again;
    uint8_t *copy = fuzz_copy(data, len), encoded[CONTROL_MAX_BYTES];
    if (control_decode(copy, len, &control) == 0) {
        size_t n = control_encode(&control, encoded);
        hs_assert(n == len && control_decode(encoded, n, &again) == 0 && memcmp(&control, &again, sizeof control) == 0);
    }
    free(copy);
}

int fuzz_pages(const uint8_t *data, size_t len)
{
    struct reader in;
    reader_init(&in, data, len);
    if (read_u8(&in) % 2 == 0)
        open_page(&in);
    else
        decode_control(data + 1, len - 1);
    return 0;
}

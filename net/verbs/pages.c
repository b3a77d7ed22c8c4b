#include "net/verbs/pages.h"

#include <endian.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/codec.h"
#include "core/base/error.h"
#include "core/base/panic.h"

enum { VERSION_BITS = 44 }; /* the page's number is above them in the nonce */

struct pages {
    uint8_t *memory;
    uint64_t *versions;
    uint32_t n, content_bytes;
    struct seal_key key;
};

struct page_header {
    uint64_t version;
    uint32_t len;
    uint8_t cipher;
};

static const uint8_t public_key[SEAL_KEY_BYTES] = "hearsay: no group key was given";

void pages_root(const uint8_t *group_key, uint8_t out[SEAL_KEY_BYTES])
{
    static const char label[] = "hearsay page root 1";
    crypto_generichash_blake2b(out, SEAL_KEY_BYTES, (const uint8_t *)label, sizeof label - 1, group_key ? group_key : public_key,
                               SEAL_KEY_BYTES);
}

void pages_key(const uint8_t root[SEAL_KEY_BYTES], uint64_t boot_id, uint32_t region, uint32_t publication, uint8_t out[SEAL_KEY_BYTES])
{
    uint8_t label[16];
    memcpy(label, &boot_id, sizeof boot_id);
    memcpy(label + 8, &region, sizeof region);
    memcpy(label + 12, &publication, sizeof publication);
    crypto_generichash_blake2b(out, SEAL_KEY_BYTES, label, sizeof label, root, SEAL_KEY_BYTES);
}

/* Associated data: the header and which page it is, so that no page stands for another. */
static void write_header(const struct page_header *header, uint32_t page, uint8_t out[PAGES_HEADER_BYTES + 4])
{
    struct writer w;
    writer_init(&w, out, PAGES_HEADER_BYTES + 4);
    write_u64(&w, header->version);
    write_u32(&w, header->len);
    write_u8(&w, header->cipher);
    write_u8(&w, 0);
    write_u16(&w, 0);
    write_u32(&w, page);
    hs_assert(!w.failed);
}

static uint64_t nonce_of(uint32_t page, uint64_t version)
{
    return (uint64_t)page << VERSION_BITS | version;
}

/* ---- origin ---- */

int pages_create(uint32_t n, uint32_t content_bytes, const uint8_t key[SEAL_KEY_BYTES], struct pages **out)
{
    if (n == 0 || n > TRANSPORT_REGION_PAGES || content_bytes == 0 || content_bytes > TRANSPORT_PAGE_BYTES)
        return HS_ERR_LIMIT;
    struct pages *pages = calloc(1, sizeof *pages);
    if (pages == NULL)
        return HS_ERR_NO_MEMORY;
    uint32_t ciphers = seal_ciphers_available();
    pages->n = n;
    pages->content_bytes = content_bytes;
    pages->versions = calloc(n, sizeof *pages->versions);
    pages->memory = aligned_alloc(4096, (n * pages_stride(content_bytes) + 4095) & ~(size_t)4095);
    int status = pages->versions != NULL && pages->memory != NULL
                     ? seal_key_init(&pages->key, seal_cipher_choose(ciphers, ciphers), key, true)
                     : HS_ERR_NO_MEMORY;
    for (uint32_t i = 0; status == 0 && i < n; i++)
        status = pages_write(pages, i, NULL, 0);
    if (status != 0) {
        pages_destroy(pages);
        return status;
    }
    *out = pages;
    return 0;
}

void pages_destroy(struct pages *pages)
{
    if (pages == NULL)
        return;
    seal_key_fini(&pages->key);
    free(pages->versions);
    free(pages->memory);
    free(pages);
}

int pages_write(struct pages *pages, uint32_t page, const void *data, uint32_t len)
{
    if (page >= pages->n || len > pages->content_bytes)
        return HS_ERR_RANGE;
    struct page_header header = {.version = ++pages->versions[page], .len = len, .cipher = (uint8_t)pages->key.cipher};
    uint8_t *slot = pages->memory + page * pages_stride(pages->content_bytes), bound[PAGES_HEADER_BYTES + 4];
    write_header(&header, page, bound);
    memcpy(slot, bound, PAGES_HEADER_BYTES);
    return seal_encrypt(&pages->key, nonce_of(page, header.version), bound, sizeof bound, len ? data : bound, len, slot + PAGES_HEADER_BYTES);
}

void *pages_memory(const struct pages *pages, size_t *bytes)
{
    *bytes = pages->n * pages_stride(pages->content_bytes);
    return pages->memory;
}

/* ---- reader ---- */

void pages_reader_key_init(struct pages_reader_key *key, const uint8_t bytes[SEAL_KEY_BYTES])
{
    pages_reader_key_fini(key);
    memcpy(key->bytes, bytes, SEAL_KEY_BYTES);
}

void pages_reader_key_fini(struct pages_reader_key *key)
{
    if (key->ready)
        seal_key_fini(&key->seal);
    sodium_memzero(key, sizeof *key);
}

static int prepare(struct pages_reader_key *key, enum seal_cipher cipher)
{
    if (key->ready && key->seal.cipher == cipher)
        return 0;
    if (key->ready)
        seal_key_fini(&key->seal);
    int status = seal_key_init(&key->seal, cipher, key->bytes, false);
    key->ready = status == 0;
    return status;
}

static bool can_open(const struct pages_reader_key *key, uint8_t cipher)
{
    bool is_ready = key->ready && key->seal.cipher == (enum seal_cipher)cipher; /* as it was the time before */
    return is_ready || (cipher < 32 && (seal_ciphers_available() & UINT32_C(1) << cipher));
}

int pages_open(struct pages_reader_key *key, uint32_t page, uint32_t content_bytes, const uint8_t *image, size_t image_len, uint8_t *out,
               uint32_t *len, uint64_t *version)
{
    struct page_header header;
    struct reader r;
    if (image_len < PAGES_OVERHEAD)
        return HS_ERR_AUTH;
    reader_init(&r, image, PAGES_HEADER_BYTES);
    header.version = read_u64(&r);
    header.len = read_u32(&r);
    header.cipher = read_u8(&r);
    if (header.len > content_bytes || header.version >> VERSION_BITS != 0 || (image[13] | image[14] | image[15]) != 0 ||
        !can_open(key, header.cipher))
        return HS_ERR_AUTH;
    uint8_t bound[PAGES_HEADER_BYTES + 4];
    uint32_t page_le = htole32(page);
    memcpy(bound, image, PAGES_HEADER_BYTES);
    memcpy(bound + PAGES_HEADER_BYTES, &page_le, sizeof page_le);
    *len = header.len;
    if (header.len > image_len - PAGES_OVERHEAD)
        return HS_ERR_RANGE;
    int status = prepare(key, (enum seal_cipher)header.cipher);
    if (status != 0)
        return status;
    *version = header.version;
    return seal_decrypt(&key->seal, nonce_of(page, header.version), bound, sizeof bound, image + PAGES_HEADER_BYTES,
                        header.len + SEAL_TAG_BYTES, out);
}

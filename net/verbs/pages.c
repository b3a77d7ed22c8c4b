#include "net/verbs/pages.h"

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

void pages_key(const uint8_t *group_key, uint64_t boot_id, uint32_t region, uint8_t out[SEAL_KEY_BYTES])
{
    uint8_t label[32] = "hearsay page key";
    memcpy(label + 16, &boot_id, sizeof boot_id);
    memcpy(label + 24, &region, sizeof region);
    crypto_generichash_blake2b(out, SEAL_KEY_BYTES, label, sizeof label, group_key ? group_key : public_key, SEAL_KEY_BYTES);
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
    if (n == 0 || n > PAGES_MAX || content_bytes == 0 || content_bytes > PAGES_MAX_BYTES)
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
    if (status != 0) {
        pages_destroy(pages);
        return status;
    }
    for (uint32_t i = 0; i < n; i++)
        pages_write(pages, i, NULL, 0);
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

void pages_write(struct pages *pages, uint32_t page, const void *data, uint32_t len)
{
    hs_assert(page < pages->n && len <= pages->content_bytes);
    struct page_header header = {.version = ++pages->versions[page], .len = len, .cipher = (uint8_t)pages->key.cipher};
    uint8_t *slot = pages->memory + page * pages_stride(pages->content_bytes), bound[PAGES_HEADER_BYTES + 4];
    write_header(&header, page, bound);
    memcpy(slot, bound, PAGES_HEADER_BYTES);
    int status = seal_encrypt(&pages->key, nonce_of(page, header.version), bound, sizeof bound, len ? data : bound, len,
                              slot + PAGES_HEADER_BYTES);
    hs_assert(status == 0);
}

const void *pages_memory(const struct pages *pages, size_t *bytes)
{
    *bytes = pages->n * pages_stride(pages->content_bytes);
    return pages->memory;
}

/* ---- reader ---- */

struct slot {
    bool taken;
    uint32_t peer, region, page, tries;
    uint64_t cookie;
    uint8_t key[SEAL_KEY_BYTES];
};

struct page_reader {
    struct transport *transport;
    uint8_t *memory; /* [slots][stride] */
    uint8_t *plain;  /* [content_bytes], of the last result */
    struct slot *slots;
    uint32_t n_slots, content_bytes, tag;
    uint64_t retries;
};

int page_reader_create(struct transport *transport, uint32_t content_bytes, uint32_t slots, uint32_t tag, struct page_reader **out)
{
    if (slots == 0 || content_bytes == 0 || content_bytes > PAGES_MAX_BYTES)
        return HS_ERR_LIMIT;
    struct page_reader *reader = calloc(1, sizeof *reader);
    if (reader == NULL)
        return HS_ERR_NO_MEMORY;
    size_t bytes = (slots * pages_stride(content_bytes) + 4095) & ~(size_t)4095;
    *reader = (struct page_reader){.transport = transport, .n_slots = slots, .content_bytes = content_bytes, .tag = tag};
    reader->memory = aligned_alloc(4096, bytes);
    reader->plain = malloc(content_bytes);
    reader->slots = calloc(slots, sizeof *reader->slots);
    int status = reader->memory != NULL && reader->plain != NULL && reader->slots != NULL
                     ? transport->ops->register_memory(transport, reader->memory, bytes)
                     : HS_ERR_NO_MEMORY;
    if (status != 0) {
        page_reader_destroy(reader);
        return status;
    }
    *out = reader;
    return 0;
}

void page_reader_destroy(struct page_reader *reader)
{
    if (reader == NULL)
        return;
    if (reader->slots != NULL)
        sodium_memzero(reader->slots, reader->n_slots * sizeof *reader->slots);
    free(reader->slots);
    free(reader->plain);
    free(reader->memory);
    free(reader);
}

static uint8_t *memory_of(const struct page_reader *reader, uint32_t i)
{
    return reader->memory + i * pages_stride(reader->content_bytes);
}

static int start(struct page_reader *reader, uint32_t i)
{
    const struct slot *slot = &reader->slots[i];
    size_t stride = pages_stride(reader->content_bytes);
    return reader->transport->ops->read(reader->transport, slot->peer, slot->region, slot->page * (uint64_t)stride, memory_of(reader, i),
                                        (uint32_t)stride, (uint64_t)reader->tag << 32 | i);
}

int page_reader_ask(struct page_reader *reader, uint32_t peer, uint32_t region, uint32_t page, const uint8_t key[SEAL_KEY_BYTES],
                    uint64_t cookie)
{
    uint32_t i = 0;
    while (i < reader->n_slots && reader->slots[i].taken)
        i++;
    if (i == reader->n_slots)
        return HS_ERR_BUSY;
    if (page >= PAGES_MAX)
        return HS_ERR_RANGE;
    reader->slots[i] = (struct slot){.peer = peer, .region = region, .page = page, .cookie = cookie};
    memcpy(reader->slots[i].key, key, SEAL_KEY_BYTES);
    int status = start(reader, i);
    reader->slots[i].taken = status == 0;
    return status;
}

/* Checks what was read; HS_ERR_AUTH for anything but a page as its origin wrote it. */
static int open_page(struct page_reader *reader, uint32_t i, struct page_result *out)
{
    const struct slot *slot = &reader->slots[i];
    const uint8_t *memory = memory_of(reader, i);
    struct page_header header;
    struct reader r;
    reader_init(&r, memory, PAGES_HEADER_BYTES);
    header.version = read_u64(&r);
    header.len = read_u32(&r);
    header.cipher = read_u8(&r);
    if (header.len > reader->content_bytes || header.version >> VERSION_BITS != 0 ||
        !(seal_ciphers_available() & (header.cipher < 32 ? 1u << header.cipher : 0)))
        return HS_ERR_AUTH;
    uint8_t bound[PAGES_HEADER_BYTES + 4];
    struct seal_key key;
    write_header(&header, slot->page, bound);
    if (memcmp(bound, memory, PAGES_HEADER_BYTES) != 0)
        return HS_ERR_AUTH;
    int status = seal_key_init(&key, (enum seal_cipher)header.cipher, slot->key, false);
    if (status != 0)
        return status;
    status = seal_decrypt(&key, nonce_of(slot->page, header.version), bound, sizeof bound, memory + PAGES_HEADER_BYTES,
                          header.len + SEAL_TAG_BYTES, reader->plain);
    seal_key_fini(&key);
    if (status != 0)
        return HS_ERR_AUTH;
    out->version = header.version;
    out->data = reader->plain;
    out->len = header.len;
    return 0;
}

bool page_reader_event(struct page_reader *reader, const struct transport_event *event, struct page_result *out)
{
    uint32_t i = (uint32_t)event->cookie;
    if (event->kind != TRANSPORT_READ_DONE || event->cookie >> 32 != reader->tag || i >= reader->n_slots || !reader->slots[i].taken)
        return false;
    struct slot *slot = &reader->slots[i];
    struct page_result result = {
        .peer = slot->peer, .region = slot->region, .page = slot->page, .cookie = slot->cookie, .status = event->status};
    if (result.status == 0)
        result.status = open_page(reader, i, &result);
    if (event->status == 0 && result.status == HS_ERR_AUTH && ++slot->tries < PAGES_TRIES) {
        reader->retries++;
        result.status = start(reader, i);
        if (result.status == 0)
            return false;
    }
    slot->taken = false;
    *out = result;
    return true;
}

uint64_t page_reader_retries(const struct page_reader *reader)
{
    return reader->retries;
}

/*
 * Pages that change, published for one-sided reads: each carries a version and is sealed, so that a reader knows a torn page, or one
 * that somebody forged, from a whole one. Nothing orders the bytes of a remote read; only the tag decides.
 *
 *     origin   pages_write -> | version, length, cipher | sealed content, tag | ...  -> transport publish
 *     reader   page_reader_ask -> transport read -> torn: again, a few times -> result, or HS_ERR_AUTH: ask by message
 *
 * The key comes from the group's key, the origin's boot id and the region's number (pages_key), so every member can read and check what every
 * origin publishes; a version is used once per page and boot, which makes the nonces unique. The seal is that of net/seal.h; the page's number
 * and header are authenticated with it.
 *
 * Threading: an origin's pages are written by one thread, in which no lock is held against readers on other machines; a reader belongs to
 * the thread of its transport. Ownership: pages and readers own their memory, which must outlive the transports that have it
 * registered. Errors: HS_ERR_*.
 */
#ifndef HEARSAY_NET_VERBS_PAGES_H
#define HEARSAY_NET_VERBS_PAGES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/port/transport.h"
#include "net/seal.h"

enum { PAGES_HEADER_BYTES = 16, PAGES_MAX = 1 << 20, PAGES_MAX_BYTES = 1 << 20, PAGES_TRIES = 5 };

/* Bytes of a page of so much content in a region. */
static inline size_t pages_stride(uint32_t content_bytes)
{
    return (PAGES_HEADER_BYTES + (size_t)content_bytes + SEAL_TAG_BYTES + 63) & ~(size_t)63;
}

/* group_key: [32], or NULL for a group without one. */
void pages_key(const uint8_t *group_key, uint64_t boot_id, uint32_t region, uint8_t out[SEAL_KEY_BYTES]);

struct pages;
/* n pages of at most content_bytes each, all empty at version 1: once for each key, or nonces come again, so that a region published
 * anew in one boot takes another number. HS_ERR_LIMIT, HS_ERR_NO_MEMORY. */
int pages_create(uint32_t n, uint32_t content_bytes, const uint8_t key[SEAL_KEY_BYTES], struct pages **out);
void pages_destroy(struct pages *pages);
/* Replaces a page's content by len bytes; its version grows by one. */
void pages_write(struct pages *pages, uint32_t page, const void *data, uint32_t len);
/* What to publish. */
const void *pages_memory(const struct pages *pages, size_t *bytes);

struct page_result {
    uint32_t peer, region, page;
    uint64_t cookie, version;
    int status; /* 0; HS_ERR_AUTH: torn or forged each time; what the transport's read said */
    const uint8_t *data; /* until the next call of the reader */
    uint32_t len;
};

struct page_reader;
/* Reads pages of content_bytes, at most slots at once. Registers its memory with the transport; its READ_DONE cookies have `tag` in their
 * upper 32 bits. HS_ERR_UNSUPPORTED where the transport reads no remote memory. */
int page_reader_create(struct transport *transport, uint32_t content_bytes, uint32_t slots, uint32_t tag, struct page_reader **out);
void page_reader_destroy(struct page_reader *reader);
/* 0 or HS_ERR_BUSY (all slots taken), HS_ERR_CLOSED and others of read. key: of that origin and region. */
int page_reader_ask(struct page_reader *reader, uint32_t peer, uint32_t region, uint32_t page, const uint8_t key[SEAL_KEY_BYTES],
                    uint64_t cookie);
/* Takes a READ_DONE of this reader. True: *out is set; false: not ours, or the page is being read again. */
bool page_reader_event(struct page_reader *reader, const struct transport_event *event, struct page_result *out);
/* Reads begun again because a page was torn. */
uint64_t page_reader_retries(const struct page_reader *reader);

#endif

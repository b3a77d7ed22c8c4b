/*
 * A region's pages as they lie in memory that peers read one-sidedly: each carries a version and is sealed, so that a reader knows a torn
 * page, or one that somebody forged, from a whole one. Nothing orders the bytes of a remote read; only the tag decides.
 *
 *     origin   pages_write -> | version, length, cipher | sealed content, tag | ...  -> read by peers' devices
 *     reader   the bytes that came -> pages_open: content and version, or HS_ERR_AUTH: read again
 *
 * The key comes from the group's key (pages_root), the origin's boot id, the region's number and the number of the publication (pages_key),
 * so every member can read what every origin publishes; a version is used once per page and publication, which makes the nonces unique. The
 * seal is that of net/seal.h; the page's number and header are authenticated with it.
 *
 * Threading: an origin's pages are written by one thread, in which no lock is held against readers on other machines. Ownership: pages own
 * their memory. Errors: HS_ERR_*.
 */
#ifndef HEARSAY_NET_VERBS_PAGES_H
#define HEARSAY_NET_VERBS_PAGES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/port/transport.h"
#include "net/seal.h"

enum { PAGES_HEADER_BYTES = 16, PAGES_OVERHEAD = PAGES_HEADER_BYTES + SEAL_TAG_BYTES };

/* Bytes from one page of so much content to the next. */
static inline size_t pages_stride(uint32_t content_bytes)
{
    return (PAGES_OVERHEAD + (size_t)content_bytes + 63) & ~(size_t)63;
}

/* What all keys of a group's pages are made from. group_key: [32], or NULL for a group without one. */
void pages_root(const uint8_t *group_key, uint8_t out[SEAL_KEY_BYTES]);
/* publication: counts those of one boot, of any region. */
void pages_key(const uint8_t root[SEAL_KEY_BYTES], uint64_t boot_id, uint32_t region, uint32_t publication, uint8_t out[SEAL_KEY_BYTES]);

struct pages;
/* n pages of at most content_bytes each, all empty at version 1. HS_ERR_LIMIT, HS_ERR_NO_MEMORY. */
int pages_create(uint32_t n, uint32_t content_bytes, const uint8_t key[SEAL_KEY_BYTES], struct pages **out);
void pages_destroy(struct pages *pages);
/* Replaces a page's content by len bytes; its version grows by one. 0 or HS_ERR_RANGE. */
int pages_write(struct pages *pages, uint32_t page, const void *data, uint32_t len);
/* What is to be readable. */
void *pages_memory(const struct pages *pages, size_t *bytes);

/* A reader's key, with what is prepared from it once. Zero-initialised before init; fini wipes it. */
struct pages_reader_key {
    uint8_t bytes[SEAL_KEY_BYTES];
    struct seal_key seal;
    bool ready; /* seal is, for its cipher */
};

void pages_reader_key_init(struct pages_reader_key *key, const uint8_t bytes[SEAL_KEY_BYTES]);
void pages_reader_key_fini(struct pages_reader_key *key);

/*
 * Opens the first image_len bytes of a page of at most content_bytes. 0: out[content_bytes] has *len bytes of content, as of *version.
 * HS_ERR_AUTH: anything but a page as its origin wrote it. HS_ERR_RANGE: it is longer than image_len; *len says how long, unauthenticated
 * but at most content_bytes. HS_ERR_NO_MEMORY.
 */
int pages_open(struct pages_reader_key *key, uint32_t page, uint32_t content_bytes, const uint8_t *image, size_t image_len, uint8_t *out,
               uint32_t *len, uint64_t *version);

#endif

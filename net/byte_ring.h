/*
 * A queue of bytes that grows: a power of two of memory, positions absolute (they never wrap, the memory does), so that who remembers one
 * finds its bytes again after the ring has grown.
 *
 * Zero-initialised it is empty and has no memory; byte_ring_fini frees. Threading: its owner's.
 */
#ifndef HEARSAY_NET_BYTE_RING_H
#define HEARSAY_NET_BYTE_RING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct byte_ring {
    uint8_t *bytes;
    uint64_t cap, tail, head; /* bytes [tail, head) are queued */
};

/* Room for `wanted` bytes in all, at least first_cap (a power of two); false: out of memory, nothing has changed. */
bool byte_ring_grow(struct byte_ring *ring, uint64_t wanted, uint64_t first_cap);
void byte_ring_fini(struct byte_ring *ring);

static inline uint64_t byte_ring_used(const struct byte_ring *ring)
{
    return ring->head - ring->tail;
}

/* Where the byte at a position lies; up to byte_ring_to_end it lies in one piece. */
static inline uint8_t *byte_ring_at(const struct byte_ring *ring, uint64_t position)
{
    return ring->bytes + (position & (ring->cap - 1));
}

static inline uint64_t byte_ring_to_end(const struct byte_ring *ring, uint64_t position)
{
    return ring->cap - (position & (ring->cap - 1));
}

/* The room is there. */
static inline void byte_ring_write(struct byte_ring *ring, const void *data, size_t len)
{
    const uint8_t *from = data;
    while (len > 0) {
        uint64_t to_end = byte_ring_to_end(ring, ring->head);
        size_t n = len < to_end ? len : to_end;
        memcpy(byte_ring_at(ring, ring->head), from, n);
        ring->head += n;
        from += n;
        len -= n;
    }
}

#endif

#include "net/byte_ring.h"

#include <stdlib.h>

bool byte_ring_grow(struct byte_ring *ring, uint64_t wanted, uint64_t first_cap)
{
    uint64_t cap = ring->cap ? ring->cap : first_cap;
    while (cap < wanted)
        cap *= 2;
    if (cap == ring->cap)
        return true;
    struct byte_ring grown = {.bytes = malloc(cap), .cap = cap, .tail = ring->tail, .head = ring->tail};
    if (grown.bytes == NULL)
        return false;
    for (uint64_t at = ring->tail; at < ring->head;) { /* piece by piece: both rings wrap */
        uint64_t n = byte_ring_to_end(ring, at);
        if (n > ring->head - at)
            n = ring->head - at;
        byte_ring_write(&grown, byte_ring_at(ring, at), n);
        at += n;
    }
    free(ring->bytes);
    *ring = grown;
    return true;
}

void byte_ring_fini(struct byte_ring *ring)
{
    free(ring->bytes);
    *ring = (struct byte_ring){0};
}

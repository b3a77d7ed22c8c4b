/*
 * How a ring of events grows. Rings here have a power of two of places and positions that only go up; position p lies at p & (cap - 1).
 * Inline, as it stands on the message path's edge. Threading: pure.
 */
#ifndef HEARSAY_NET_EVENT_RING_H
#define HEARSAY_NET_EVENT_RING_H

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { EVENT_RING_FIRST = 256 };

/* A ring twice as large that holds [from .. to) of the old one, which is freed; *cap is the new one's. NULL: out of memory, nothing has changed. */
static inline void *event_ring_grow(void *ring, uint32_t *cap, size_t element, uint64_t from, uint64_t to)
{
    uint32_t more = *cap ? *cap * 2 : EVENT_RING_FIRST;
    uint8_t *grown = malloc(more * element);
    if (grown == NULL)
        return NULL;
    for (uint64_t i = from; i < to; i++)
        memcpy(grown + (i & (more - 1)) * element, (const uint8_t *)ring + (i & (*cap - 1)) * element, element);
    free(ring);
    *cap = more;
    return grown;
}

#endif

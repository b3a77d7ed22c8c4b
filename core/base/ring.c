#include "core/base/ring.h"

#include <ck_ring.h>
#include <stdlib.h>

struct ring {
    ck_ring_t indices;
    ck_ring_buffer_t *slots;
};

struct ring *ring_create(uint32_t capacity)
{
    uint32_t size = 4; /* ck_ring keeps one slot empty and wants a power of two of at least four */
    while (size - 1 < capacity) {
        if (size > UINT32_MAX / 4)
            return NULL;
        size *= 2;
    }
    struct ring *ring = NULL;
    if (posix_memalign((void **)&ring, CK_MD_CACHELINE, sizeof *ring))
        return NULL;
    ring->slots = calloc(size, sizeof *ring->slots);
    if (!ring->slots) {
        free(ring);
        return NULL;
    }
    ck_ring_init(&ring->indices, size);
    return ring;
}

void ring_destroy(struct ring *ring)
{
    if (!ring)
        return;
    free(ring->slots);
    free(ring);
}

bool ring_push(struct ring *ring, void *item)
{
    return ck_ring_enqueue_mpsc(&ring->indices, ring->slots, item);
}

void *ring_pop(struct ring *ring)
{
    void *item = NULL;
    return ck_ring_dequeue_mpsc(&ring->indices, ring->slots, &item) ? item : NULL;
}

uint32_t ring_len(const struct ring *ring)
{
    return ck_ring_size(&ring->indices);
}

#include "core/base/ring.h"

#include <ck_ring.h>
#include <stdlib.h>

/* ThreadSanitizer cannot see the order that ck_ring's assembly makes, so it is told: a push before the pop that takes the item. */
#if defined(__SANITIZE_THREAD__)
#include <sanitizer/tsan_interface.h>
#define ORDER_BEFORE(address) __tsan_release(address)
#define ORDER_AFTER(address) __tsan_acquire(address)
#else
#define ORDER_BEFORE(address) ((void)(address))
#define ORDER_AFTER(address) ((void)(address))
#endif

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
    ORDER_BEFORE(ring);
    return ck_ring_enqueue_mpsc(&ring->indices, ring->slots, item);
}

void *ring_pop(struct ring *ring)
{
    void *item = NULL;
    if (!ck_ring_dequeue_mpsc(&ring->indices, ring->slots, &item))
        return NULL;
    ORDER_AFTER(ring);
    return item;
}

uint32_t ring_len(const struct ring *ring)
{
    return ck_ring_size(&ring->indices);
}

#include "core/base/ring.h"

#include <stdatomic.h>
#include <stdlib.h>

/*
 * Bounded queue with a turn number in every slot (D. Vyukov, "Bounded MPMC queue", 2010). Nobody waits for anybody: a producer that is
 * put off between claiming its slot and filling it delays only the consumer, and only at that slot. Rings whose producers publish in the
 * order of their claims (ck_ring's MPSC) make the others spin meanwhile; with more threads than CPUs that grows into a convoy which
 * costs a time slice an item.
 *
 *     turn == position           the slot is free for the producer that claims `position`
 *     turn == position + 1       filled; the consumer at `position` may take it
 *     turn == position + size    taken; free for the next round
 */
enum { CACHE_LINE = 64 };

struct slot {
    _Atomic uint64_t turn;
    void *item;
};

struct ring {
    _Alignas(CACHE_LINE) _Atomic uint64_t head; /* next position to claim */
    _Alignas(CACHE_LINE) _Atomic uint64_t tail; /* next position to take; written by the consumer alone */
    _Alignas(CACHE_LINE) uint64_t mask;
    struct slot *slots;
};

struct ring *ring_create(uint32_t capacity)
{
    uint64_t size = 2;
    while (size < capacity)
        size *= 2;
    struct ring *ring = NULL;
    if (posix_memalign((void **)&ring, CACHE_LINE, sizeof *ring))
        return NULL;
    ring->slots = calloc(size, sizeof *ring->slots);
    if (!ring->slots) {
        free(ring);
        return NULL;
    }
    ring->mask = size - 1;
    atomic_init(&ring->head, 0);
    atomic_init(&ring->tail, 0);
    for (uint64_t i = 0; i < size; i++)
        atomic_init(&ring->slots[i].turn, i);
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
    uint64_t position = atomic_load_explicit(&ring->head, memory_order_relaxed);
    for (;;) {
        struct slot *slot = &ring->slots[position & ring->mask];
        uint64_t turn = atomic_load_explicit(&slot->turn, memory_order_acquire); /* pairs with ring_pop's store: the slot is empty */
        if (turn == position) {
            if (atomic_compare_exchange_weak_explicit(&ring->head, &position, position + 1, memory_order_relaxed, memory_order_relaxed)) {
                slot->item = item;
                atomic_store_explicit(&slot->turn, position + 1, memory_order_release); /* pairs with ring_pop's load */
                return true;
            }
        } else if ((int64_t)(turn - position) < 0) {
            return false; /* not taken since the round before: full */
        } else {
            position = atomic_load_explicit(&ring->head, memory_order_relaxed);
        }
    }
}

void *ring_pop(struct ring *ring)
{
    uint64_t position = atomic_load_explicit(&ring->tail, memory_order_relaxed);
    struct slot *slot = &ring->slots[position & ring->mask];
    if (atomic_load_explicit(&slot->turn, memory_order_acquire) != position + 1) /* pairs with ring_push's store */
        return NULL;
    void *item = slot->item;
    atomic_store_explicit(&slot->turn, position + ring->mask + 1, memory_order_release); /* pairs with ring_push's load */
    atomic_store_explicit(&ring->tail, position + 1, memory_order_relaxed);
    return item;
}

uint32_t ring_len(const struct ring *ring)
{
    uint64_t tail = atomic_load_explicit(&ring->tail, memory_order_relaxed);
    uint64_t head = atomic_load_explicit(&ring->head, memory_order_relaxed);
    return (uint32_t)(head - tail);
}

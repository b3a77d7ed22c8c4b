/*
 * Bounded lock-free rings of pointers between threads.
 *
 * ring_push is for any number of producers, ring_pop for one consumer. A full ring refuses and the caller says what
 * happens then. Order is kept per producer. The store that publishes an item pairs with the consumer's load in ring_pop.
 */
#ifndef HEARSAY_BASE_RING_H
#define HEARSAY_BASE_RING_H

#include <stdbool.h>
#include <stdint.h>

struct ring;

/* Room for at least capacity items (rounded up to a power of two). NULL when out of memory. */
struct ring *ring_create(uint32_t capacity);
void ring_destroy(struct ring *ring); /* items left inside are the caller's */
bool ring_push(struct ring *ring, void *item); /* false: full */
void *ring_pop(struct ring *ring);             /* NULL: empty */
uint32_t ring_len(const struct ring *ring);    /* a moment's view */

#endif

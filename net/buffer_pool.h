/*
 * Recycled memory of the receiving side: opened datagrams, shared by counted references, and messages put together from
 * fragments. Grows by slabs up to a bound, so that the hot path allocates nothing. A datagram opened where its carrier has it takes no memory
 * but for the count; the carrier bounds how many there are. Belongs to one thread.
 */
#ifndef HEARSAY_NET_BUFFER_POOL_H
#define HEARSAY_NET_BUFFER_POOL_H

#include <stdint.h>

#include "core/port/carrier.h"

/* A received datagram, opened. Shared by the events and slots that point into it. */
struct receive_buffer {
    struct receive_buffer *next;
    uint8_t *data;
    void *kept; /* of the carrier, which has the data; NULL: it follows here */
    uint32_t references;
};

/* A message put together from fragments. */
struct message_buffer {
    struct message_buffer *next;
    uint32_t capacity;
    uint8_t data[];
};

struct buffer_pool {
    struct carrier *carrier; /* set by the owner, where it keeps what carriers have */
    struct receive_buffer *free_list, *free_kept; /* kept: those without memory of their own */
    void *slabs;
    uint32_t buffer_bytes, n_buffers, max_buffers, n_messages;
    struct message_buffer *messages;
};

void buffer_pool_init(struct buffer_pool *pool, uint32_t buffer_bytes, uint64_t max_bytes);
void buffer_pool_fini(struct buffer_pool *pool);
struct receive_buffer *buffer_pool_get(struct buffer_pool *pool); /* one reference, or NULL at the bound */
/* The same for data in what the carrier has let us keep, which goes back to it with the last reference, or at once if NULL is returned: no memory. */
struct receive_buffer *buffer_pool_get_kept(struct buffer_pool *pool, void *kept, uint8_t *data);
void buffer_pool_unref(struct buffer_pool *pool, struct receive_buffer *buffer);
/* Memory that it has taken for received datagrams. */
uint64_t buffer_pool_bytes(const struct buffer_pool *pool);
struct message_buffer *buffer_pool_get_message(struct buffer_pool *pool, uint32_t len);
void buffer_pool_put_message(struct buffer_pool *pool, struct message_buffer *message);

#endif

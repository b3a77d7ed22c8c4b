#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>

#include "core/base/panic.h"
#include "net/buffer_pool.h"

enum { SLAB_BUFFERS = 64, KEPT_MESSAGES = 8, MIN_MESSAGE = 16384 };

struct slab {
    struct slab *next;
    /* SLAB_BUFFERS buffers follow */
};

static size_t stride(const struct buffer_pool *pool)
{
    return (sizeof(struct receive_buffer) + pool->buffer_bytes + 15) & ~(size_t)15;
}

void buffer_pool_init(struct buffer_pool *pool, uint32_t buffer_bytes, uint64_t max_bytes)
{
    *pool = (struct buffer_pool){.buffer_bytes = buffer_bytes};
    pool->max_buffers = (uint32_t)(max_bytes / stride(pool));
}

void buffer_pool_fini(struct buffer_pool *pool)
{
    while (pool->slabs != NULL) {
        struct slab *slab = pool->slabs;
        pool->slabs = slab->next;
        free(slab);
    }
    while (pool->free_kept != NULL) {
        struct receive_buffer *buffer = pool->free_kept;
        pool->free_kept = buffer->next;
        free(buffer);
    }
    while (pool->messages != NULL) {
        struct message_buffer *message = pool->messages;
        pool->messages = message->next;
        free(message);
    }
}

static bool grow(struct buffer_pool *pool)
{
    if (pool->n_buffers + SLAB_BUFFERS > pool->max_buffers)
        return false;
    size_t head = (sizeof(struct slab) + 15) & ~(size_t)15;
    struct slab *slab = malloc(head + SLAB_BUFFERS * stride(pool));
    if (slab == NULL)
        return false;
    slab->next = pool->slabs;
    pool->slabs = slab;
    pool->n_buffers += SLAB_BUFFERS;
    for (int i = 0; i < SLAB_BUFFERS; i++) {
        struct receive_buffer *buffer = (struct receive_buffer *)((uint8_t *)slab + head + (size_t)i * stride(pool));
        buffer->data = (uint8_t *)(buffer + 1);
        buffer->kept = NULL;
        buffer->next = pool->free_list;
        pool->free_list = buffer;
    }
    return true;
}

struct receive_buffer *buffer_pool_get(struct buffer_pool *pool)
{
    if (pool->free_list == NULL && !grow(pool))
        return NULL;
    struct receive_buffer *buffer = pool->free_list;
    pool->free_list = buffer->next;
    buffer->references = 1;
    return buffer;
}

struct receive_buffer *buffer_pool_get_kept(struct buffer_pool *pool, void *kept, uint8_t *data)
{
    struct receive_buffer *buffer = pool->free_kept;
    if (buffer != NULL)
        pool->free_kept = buffer->next;
    else if ((buffer = malloc(sizeof *buffer)) == NULL)
        pool->carrier->ops->release(pool->carrier, kept);
    if (buffer != NULL)
        *buffer = (struct receive_buffer){.data = data, .kept = kept, .references = 1};
    return buffer;
}

void buffer_pool_unref(struct buffer_pool *pool, struct receive_buffer *buffer)
{
    hs_assert(buffer->references > 0);
    if (--buffer->references > 0)
        return;
    struct receive_buffer **list = buffer->kept != NULL ? &pool->free_kept : &pool->free_list;
    if (buffer->kept != NULL)
        pool->carrier->ops->release(pool->carrier, buffer->kept);
    buffer->next = *list;
    *list = buffer;
}

uint64_t buffer_pool_bytes(const struct buffer_pool *pool)
{
    return pool->n_buffers * (uint64_t)stride(pool);
}

struct message_buffer *buffer_pool_get_message(struct buffer_pool *pool, uint32_t len)
{
    for (struct message_buffer **at = &pool->messages; *at != NULL; at = &(*at)->next) {
        if ((*at)->capacity >= len) {
            struct message_buffer *message = *at;
            *at = message->next;
            pool->n_messages--;
            return message;
        }
    }
    uint32_t capacity = MIN_MESSAGE;
    while (capacity < len)
        capacity *= 2;
    struct message_buffer *message = malloc(sizeof *message + capacity);
    if (message != NULL)
        message->capacity = capacity;
    return message;
}

void buffer_pool_put_message(struct buffer_pool *pool, struct message_buffer *message)
{
    if (pool->n_messages == KEPT_MESSAGES) {
        free(message);
        return;
    }
    message->next = pool->messages;
    pool->messages = message;
    pool->n_messages++;
}

/*
 * Watches the sockets of suspended connections: libmicrohttpd does not notice a client that leaves meanwhile. Also gives
 * its owner a tick while some watched thing has a deadline.
 *
 * An item is known by its id, never by its descriptor, so an event that comes late finds nothing. The callbacks run on the
 * watcher's thread under its lock: once watcher_remove has returned, none runs for that item. Lock order: watcher, then item.
 */
#ifndef HEARSAY_SERVE_HTTP_WATCHER_H
#define HEARSAY_SERVE_HTTP_WATCHER_H

#include <stdbool.h>
#include <stdint.h>

struct watcher;

struct watcher_ops {
    void (*gone)(void *item); /* the peer closed its side */
    void (*tick)(void *item); /* about ten times a second, for items added with has_deadline */
};

/* NULL when descriptors, memory or threads are out. */
struct watcher *watcher_create(const struct watcher_ops *ops);
void watcher_destroy(struct watcher *watcher); /* no items may be left */
/* 0 or HS_ERR_NO_MEMORY, HS_ERR_IO. */
int watcher_add(struct watcher *watcher, int fd, uint64_t id, void *item, bool has_deadline);
/* Must come before fd is closed. Harmless for ids that are not there. */
void watcher_remove(struct watcher *watcher, int fd, uint64_t id);
uint32_t watcher_count(struct watcher *watcher);
/* Calls visit for every item, under the lock like the callbacks. */
void watcher_visit(struct watcher *watcher, void (*visit)(void *item));

#endif

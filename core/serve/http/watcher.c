#include "core/serve/http/watcher.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "core/base/error.h"
#include "core/base/u64_map.h"

enum { TICK_MS = 100, EVENTS = 64 };

#define WAKE_ID UINT64_MAX

struct watched {
    void *item;
    bool has_deadline;
};

struct watcher {
    struct watcher_ops ops;
    pthread_t thread;
    pthread_mutex_t lock;
    struct u64_map items; /* id -> struct watched * */
    uint32_t n_deadlines;
    int epoll_fd, wake_fd;
    _Atomic bool stopping;
};

static void wake(struct watcher *w)
{
    uint64_t one = 1;
    if (write(w->wake_fd, &one, sizeof one) < 0) {
        /* The counter is at its limit: the thread is awake anyway. */
    }
}

static void notice(struct watcher *w, uint64_t id)
{
    if (id == WAKE_ID) {
        uint64_t count;
        if (read(w->wake_fd, &count, sizeof count) < 0) {
            /* Another wake-up was read already. */
        }
        return;
    }
    pthread_mutex_lock(&w->lock);
    uint64_t *value = u64_map_get(&w->items, id);
    if (value)
        w->ops.gone(((struct watched *)(uintptr_t)*value)->item);
    pthread_mutex_unlock(&w->lock);
}

/* Calls tick for the items with deadlines; returns how many there are. */
static uint32_t tick_all(struct watcher *w)
{
    size_t cursor = 0;
    uint64_t id, value;
    pthread_mutex_lock(&w->lock);
    while (w->n_deadlines && u64_map_next(&w->items, &cursor, &id, &value)) {
        struct watched *watched = (struct watched *)(uintptr_t)value;
        if (watched->has_deadline)
            w->ops.tick(watched->item);
    }
    uint32_t n = w->n_deadlines;
    pthread_mutex_unlock(&w->lock);
    return n;
}

static void *watch(void *arg)
{
    struct watcher *w = arg;
    while (!atomic_load_explicit(&w->stopping, memory_order_acquire)) {
        struct epoll_event events[EVENTS];
        int timeout = tick_all(w) ? TICK_MS : -1;
        int n = epoll_wait(w->epoll_fd, events, EVENTS, timeout);
        for (int i = 0; i < n; i++)
            notice(w, events[i].data.u64);
    }
    return NULL;
}

struct watcher *watcher_create(const struct watcher_ops *ops)
{
    struct watcher *w = calloc(1, sizeof *w);
    if (!w)
        return NULL;
    w->ops = *ops;
    pthread_mutex_init(&w->lock, NULL);
    w->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    w->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    struct epoll_event event = {.events = EPOLLIN, .data.u64 = WAKE_ID};
    if (w->epoll_fd < 0 || w->wake_fd < 0 || epoll_ctl(w->epoll_fd, EPOLL_CTL_ADD, w->wake_fd, &event))
        goto fail;
    if (pthread_create(&w->thread, NULL, watch, w))
        goto fail;
    return w;
fail:
    if (w->wake_fd >= 0)
        close(w->wake_fd);
    if (w->epoll_fd >= 0)
        close(w->epoll_fd);
    pthread_mutex_destroy(&w->lock);
    free(w);
    return NULL;
}

void watcher_destroy(struct watcher *w)
{
    if (!w)
        return;
    atomic_store_explicit(&w->stopping, true, memory_order_release);
    wake(w);
    pthread_join(w->thread, NULL);
    close(w->wake_fd);
    close(w->epoll_fd);
    u64_map_fini(&w->items);
    pthread_mutex_destroy(&w->lock);
    free(w);
}

int watcher_add(struct watcher *w, int fd, uint64_t id, void *item, bool has_deadline)
{
    struct watched *watched = malloc(sizeof *watched);
    if (!watched)
        return HS_ERR_NO_MEMORY;
    *watched = (struct watched){item, has_deadline};
    /* One shot: a closed peer stays closed, and level-triggered it would wake the thread without end. */
    struct epoll_event event = {.events = EPOLLRDHUP | EPOLLONESHOT, .data.u64 = id};
    pthread_mutex_lock(&w->lock);
    int rc = u64_map_put(&w->items, id, (uintptr_t)watched);
    if (!rc && epoll_ctl(w->epoll_fd, EPOLL_CTL_ADD, fd, &event)) {
        u64_map_remove(&w->items, id);
        rc = HS_ERR_IO;
    }
    if (!rc)
        w->n_deadlines += has_deadline;
    pthread_mutex_unlock(&w->lock);
    if (rc)
        free(watched);
    else if (has_deadline)
        wake(w);
    return rc;
}

void watcher_remove(struct watcher *w, int fd, uint64_t id)
{
    pthread_mutex_lock(&w->lock);
    uint64_t *value = u64_map_get(&w->items, id);
    if (value) {
        struct watched *watched = (struct watched *)(uintptr_t)*value;
        w->n_deadlines -= watched->has_deadline;
        free(watched);
        u64_map_remove(&w->items, id);
        epoll_ctl(w->epoll_fd, EPOLL_CTL_DEL, fd, NULL);
    }
    pthread_mutex_unlock(&w->lock);
}

uint32_t watcher_count(struct watcher *w)
{
    pthread_mutex_lock(&w->lock);
    uint32_t n = (uint32_t)w->items.len;
    pthread_mutex_unlock(&w->lock);
    return n;
}

void watcher_visit(struct watcher *w, void (*visit)(void *item))
{
    size_t cursor = 0;
    uint64_t id, value;
    pthread_mutex_lock(&w->lock);
    while (u64_map_next(&w->items, &cursor, &id, &value))
        visit(((struct watched *)(uintptr_t)value)->item);
    pthread_mutex_unlock(&w->lock);
}

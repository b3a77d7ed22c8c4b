#include "core/serve/inbox.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "core/base/log.h"
#include "core/base/ring.h"

enum item_kind { ITEM_REQUEST = 0, ITEM_QUERY = 1 }; /* in the lowest bit of the ring's pointers */

/* A question to the node, or an address to join (answer is NULL). */
struct inbox_query {
    enum node_query query;
    void (*answer)(void *user, int status, const char *json);
    void *user;
    char address[TRANSPORT_ADDRESS_TEXT];
};

struct node_inbox {
    struct ring *ring;
    int wake_fd;
    atomic_bool closed;
    atomic_bool cancels; /* some request's cancel_wanted was set; pairs with the exchange in drain */
};

struct node_inbox *node_inbox_create(uint32_t capacity)
{
    struct node_inbox *inbox = calloc(1, sizeof *inbox);
    if (!inbox)
        return NULL;
    inbox->wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    inbox->ring = ring_create(capacity);
    if (inbox->wake_fd < 0 || !inbox->ring) {
        if (inbox->wake_fd >= 0)
            close(inbox->wake_fd);
        ring_destroy(inbox->ring);
        free(inbox);
        return NULL;
    }
    return inbox;
}

static void *tagged(struct inbox_query *query)
{
    return (void *)((uintptr_t)query | ITEM_QUERY);
}

static struct inbox_query *as_query(void *item)
{
    return (uintptr_t)item & ITEM_QUERY ? (struct inbox_query *)((uintptr_t)item & ~(uintptr_t)ITEM_QUERY) : NULL;
}

void node_inbox_destroy(struct node_inbox *inbox)
{
    if (!inbox)
        return;
    void *item;
    while ((item = ring_pop(inbox->ring))) {
        struct inbox_query *query = as_query(item);
        if (query) {
            if (query->answer)
                query->answer(query->user, HS_ERR_CLOSED, "{}");
            free(query);
        } else {
            struct request *request = item;
            struct request_event event = {.kind = REQUEST_FAILED, .status = HS_ERR_CLOSED, .text = "the node is stopping"};
            request->on_event(request->user, request, &event);
        }
    }
    ring_destroy(inbox->ring);
    close(inbox->wake_fd);
    free(inbox);
}

int node_inbox_wake_fd(const struct node_inbox *inbox)
{
    return inbox->wake_fd;
}

static void wake(struct node_inbox *inbox)
{
    uint64_t one = 1;
    /* Fails only when the counter is full, and then the loop is awake. */
    ssize_t n = write(inbox->wake_fd, &one, sizeof one);
    (void)n;
}

static int put(struct node_inbox *inbox, void *item)
{
    if (atomic_load_explicit(&inbox->closed, memory_order_acquire))
        return HS_ERR_CLOSED;
    if (!ring_push(inbox->ring, item))
        return HS_ERR_BUSY;
    wake(inbox);
    return 0;
}

int node_inbox_submit(struct node_inbox *inbox, struct request *request)
{
    return put(inbox, request);
}

void node_inbox_cancel(struct node_inbox *inbox, struct request *request)
{
    atomic_store_explicit(&request->cancel_wanted, true, memory_order_relaxed);
    atomic_store_explicit(&inbox->cancels, true, memory_order_release);
    wake(inbox);
}

static int put_query(struct node_inbox *inbox, const struct inbox_query *query)
{
    struct inbox_query *item = malloc(sizeof *item);
    if (!item)
        return HS_ERR_NO_MEMORY;
    *item = *query;
    int status = put(inbox, tagged(item));
    if (status < 0)
        free(item);
    return status;
}

int node_inbox_query(struct node_inbox *inbox, enum node_query query, void (*answer)(void *user, int status, const char *json),
                     void *user)
{
    return put_query(inbox, &(struct inbox_query){.query = query, .answer = answer, .user = user});
}

int node_inbox_join(struct node_inbox *inbox, const char *address)
{
    struct inbox_query query = {.answer = NULL};
    if ((size_t)snprintf(query.address, sizeof query.address, "%s", address) >= sizeof query.address)
        return HS_ERR_LIMIT;
    return put_query(inbox, &query);
}

static void join(struct node *node, const char *address)
{
    struct error err;
    if (node_join(node, address, &err))
        log_warn("start", "%s", err.text);
}

static void answer_query(struct node *node, const struct inbox_query *query)
{
    struct strbuf json = {0};
    int status = 0;
    switch (query->query) {
    case NODE_QUERY_CLUSTER:
        node_status_json(node, &json);
        break;
    case NODE_QUERY_TREE:
        node_tree_json(node, &json);
        break;
    case NODE_QUERY_DRAIN:
    case NODE_QUERY_UNDRAIN:
        node_drain(node, query->query == NODE_QUERY_DRAIN);
        break;
    case NODE_QUERY_FLUSH:
        node_flush(node);
        break;
    case NODE_QUERY_HEALTH:
        status = node_draining(node) ? HS_ERR_CLOSED : 0;
        break;
    }
    if (json.failed)
        query->answer(query->user, HS_ERR_NO_MEMORY, "{}");
    else
        query->answer(query->user, status, json.len ? json.data : "{}");
    strbuf_fini(&json);
}

uint32_t node_inbox_drain(struct node_inbox *inbox, struct node *node)
{
    uint64_t count;
    uint32_t n = 0;
    void *item;
    /* Emptied before the ring is looked at, so whatever comes later wakes again. */
    ssize_t bytes = read(inbox->wake_fd, &count, sizeof count);
    (void)bytes;
    bool cancels = atomic_exchange_explicit(&inbox->cancels, false, memory_order_acquire);
    while ((item = ring_pop(inbox->ring))) {
        struct inbox_query *query = as_query(item);
        if (query) {
            if (query->answer)
                answer_query(node, query);
            else
                join(node, query->address);
            free(query);
        } else {
            node_submit(node, item);
        }
        n++;
    }
    /* After the submissions: a request may be canceled while it is still in the ring. */
    if (cancels)
        node_cancel_wanted(node);
    return n + cancels;
}

void node_inbox_close(struct node_inbox *inbox)
{
    atomic_store_explicit(&inbox->closed, true, memory_order_release);
}

#include "core/serve/forward_outbox.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"

struct forward_outbox_item {
    struct forward_outbox_item *next;
    uint32_t peer;
    size_t len;
    uint8_t data[];
};

enum { PEERS_BLOCKED_AT_ONCE = 64 }; /* remembered during a flush; beyond them it stops */

void forward_outbox_fini(struct forward_outbox *outbox)
{
    while (outbox->head) {
        struct forward_outbox_item *item = outbox->head;
        outbox->head = item->next;
        free(item);
    }
    *outbox = (struct forward_outbox){0};
}

static int send_now(struct transport *transport, uint32_t peer, const uint8_t *data, size_t len)
{
    struct iovec piece = {.iov_base = (void *)data, .iov_len = len};
    return transport->ops->send(transport, peer, &piece, 1, 0);
}

static bool waits_for(const struct forward_outbox *outbox, uint32_t peer)
{
    for (const struct forward_outbox_item *item = outbox->head; item; item = item->next)
        if (item->peer == peer)
            return true;
    return false;
}

int forward_outbox_send(struct forward_outbox *outbox, struct transport *transport, uint32_t peer, const uint8_t *data, size_t len)
{
    if (!waits_for(outbox, peer)) {
        int status = send_now(transport, peer, data, len);
        if (status != HS_ERR_BUSY)
            return status;
    }
    if (outbox->bytes + len > FORWARD_OUTBOX_BYTES) {
        outbox->refused++;
        return HS_ERR_LIMIT;
    }
    struct forward_outbox_item *item = malloc(sizeof *item + len);
    if (!item)
        return HS_ERR_NO_MEMORY;
    item->next = NULL;
    item->peer = peer;
    item->len = len;
    memcpy(item->data, data, len);
    if (outbox->tail)
        outbox->tail->next = item;
    else
        outbox->head = item;
    outbox->tail = item;
    outbox->bytes += len;
    return 0;
}

/* Removes *link; `before` is the item in front of it. */
static void unlink_item(struct forward_outbox *outbox, struct forward_outbox_item **link, struct forward_outbox_item *before)
{
    struct forward_outbox_item *item = *link;
    *link = item->next;
    if (outbox->tail == item)
        outbox->tail = before;
    outbox->bytes -= item->len;
    free(item);
}

bool forward_outbox_flush(struct forward_outbox *outbox, struct transport *transport)
{
    uint32_t blocked[PEERS_BLOCKED_AT_ONCE], n_blocked = 0;
    bool sent = false;
    struct forward_outbox_item *before = NULL, **link = &outbox->head;
    while (*link) {
        struct forward_outbox_item *item = *link;
        bool skip = false;
        for (uint32_t i = 0; i < n_blocked && !skip; i++)
            skip = blocked[i] == item->peer;
        if (!skip && send_now(transport, item->peer, item->data, item->len) == HS_ERR_BUSY) {
            if (n_blocked == PEERS_BLOCKED_AT_ONCE)
                return sent;
            blocked[n_blocked++] = item->peer;
            skip = true;
        }
        if (skip) {
            before = item;
            link = &item->next;
        } else {
            unlink_item(outbox, link, before); /* gone, or to a peer that is down: its loss is told otherwise */
            sent = true;
        }
    }
    return sent;
}

void forward_outbox_drop(struct forward_outbox *outbox, uint32_t peer)
{
    struct forward_outbox_item *before = NULL, **link = &outbox->head;
    while (*link) {
        if ((*link)->peer == peer) {
            unlink_item(outbox, link, before);
        } else {
            before = *link;
            link = &(*link)->next;
        }
    }
}

/*
 * Messages that the transport could not take yet, kept in order for each peer, within a bound of bytes.
 *
 * A message goes straight to the transport unless one to the same peer waits already. Full: the newest is refused and its owner
 * decides. Memory is allocated only for what waits. Threading: node loop only.
 */
#ifndef HEARSAY_SERVE_FORWARD_OUTBOX_H
#define HEARSAY_SERVE_FORWARD_OUTBOX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/port/transport.h"

enum { FORWARD_OUTBOX_BYTES = 8 << 20 };

struct forward_outbox_item;

struct forward_outbox {
    struct forward_outbox_item *head, *tail;
    size_t bytes;
    uint64_t refused; /* messages for which there was no room */
};

void forward_outbox_fini(struct forward_outbox *outbox);
/* Sends or keeps. 0, HS_ERR_LIMIT (too long, or the outbox is full), HS_ERR_CLOSED (peer not up), HS_ERR_NO_MEMORY. */
int forward_outbox_send(struct forward_outbox *outbox, struct transport *transport, uint32_t peer, const uint8_t *data, size_t len);
/* Tries again what waits; true if anything went out. */
bool forward_outbox_flush(struct forward_outbox *outbox, struct transport *transport);
/* Forgets what waits for a peer. */
void forward_outbox_drop(struct forward_outbox *outbox, uint32_t peer);
static inline bool forward_outbox_empty(const struct forward_outbox *outbox)
{
    return !outbox->head;
}

#endif

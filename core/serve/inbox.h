/*
 * The bounded ring between the HTTP threads and the node loop (the submitting side is in request.h).
 *
 * A cancel takes no room in the ring, so it cannot fail: it raises a flag in the request, which its creator still owns, and one in the
 * inbox; draining then looks through the requests that are still alive in the node. After the final event nobody looks any more.
 * Threading: create and destroy while nobody else uses it; drain on the node's thread. destroy fails what was never drained.
 */
#ifndef HEARSAY_SERVE_INBOX_H
#define HEARSAY_SERVE_INBOX_H

#include <stdint.h>

#include "core/serve/node.h"
#include "core/serve/request.h"

/* wake_fd: an eventfd written when something is put in, owned by the inbox. NULL when out of memory. */
struct node_inbox *node_inbox_create(uint32_t capacity);
void node_inbox_destroy(struct node_inbox *inbox);
int node_inbox_wake_fd(const struct node_inbox *inbox);
/* Moves everything waiting into the node; returns how many entries. */
uint32_t node_inbox_drain(struct node_inbox *inbox, struct node *node);
/* The node will join the group through this address (numeric; node_join). From any thread. 0, HS_ERR_LIMIT, or as node_inbox_query. */
int node_inbox_join(struct node_inbox *inbox, const char *address);
/* From now on submissions are refused with HS_ERR_CLOSED. */
void node_inbox_close(struct node_inbox *inbox);

#endif

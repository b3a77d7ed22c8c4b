/*
 * The checkers, each for one kind of promise; they look inside the nodes and change nothing. What is broken goes to world_fail.
 *
 *     check_answers.c  events of requests                  check_wire.c     what a node sends
 *     check_pages.c    pages and their owners              check_tree.c     contents of prefix caches
 *     check_idle.c     bounds, and nothing is left of work that is done
 *     check_truth.c    what peers believe of each other once it is quiet
 *     check_region.c   pages that peers read               check_quiet.c    and once it is quiet, nothing spins
 *
 * Threading and errors as in world.h.
 */
#ifndef HEARSAY_TESTS_SIM_CHECK_H
#define HEARSAY_TESTS_SIM_CHECK_H

#include "tests/sim/world_internal.h"

/* check_answers.c */
bool check_event(void *client, struct request *request, const struct request_event *event);

/* check_wire.c */
struct wire_check *wire_check_create(struct world_node *node, const struct transport *transport);
void wire_check_destroy(struct wire_check *check);
void wire_check_send(struct wire_check *check, const struct transport *transport, uint32_t peer, const uint8_t *data, size_t len,
                     uint32_t flags);
void wire_check_peer_up(struct wire_check *check, uint32_t peer);
void wire_check_read(struct wire_check *check, uint32_t peer, uint32_t region, uint32_t page, uint32_t expected);
void wire_check_read_done(struct wire_check *check, const struct transport_event *event);
/* Messages of anti-entropy sent, reads begun, and headers read, under this number of a peer. */
struct wire_counts {
    uint64_t messages, reads, headers;
};
struct wire_counts wire_check_counts(const struct wire_check *check, uint32_t peer);

void check_pages(struct world_node *wn);
void check_tree(struct world_node *wn);
void check_names(struct world_node *wn); /* of the blocks in the tree, and that all are advertised */
void check_bounds(struct world_node *wn);
void check_idle(struct world_node *wn);
void check_describe(const struct world_node *wn); /* what it is at, as notes */
bool check_is_idle(const struct world_node *wn);
bool check_is_full(const struct world_node *wn); /* rightly refuses new requests */
bool check_believes(struct world_node *wn, struct world_node *other, char *why, size_t size);
/* After a page was written. */
void check_written(struct world_node *wn, uint32_t region, uint32_t page);
bool check_published(struct world_node *wn, char *why, size_t size); /* what peers would read is the truth */
void check_quiet(struct world *world); /* runs on for a while */

#endif

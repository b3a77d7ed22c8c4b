/*
 * One opened RDMA port with what all peers share on it: protection domain, completion queue with its channel, shared receive
 * queue, and slabs of registered buffers for sending and receiving, few and large, grown as peers come.
 *
 * A receive buffer is always in one of these places: the shared queue, a completion being looked at, events that point into it,
 * the list to be posted again, the free list. Threading: one thread. Errors: HS_ERR_* with one line; a refused registration
 * names the memlock limit and what is needed.
 */
#ifndef HEARSAY_NET_VERBS_RAIL_H
#define HEARSAY_NET_VERBS_RAIL_H

#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stdint.h>

#include "net/verbs/device_choice.h"

enum { RAIL_BUFFER_BYTES = 8256, RAIL_SLAB_BUFFERS = 128, RAIL_MAX_SLABS = 1024 };

struct verbs_buffer {
    struct verbs_buffer *next;
    struct verbs_rail *rail;
    uint8_t *data; /* [RAIL_BUFFER_BYTES] */
    uint32_t key, index, references;
    uint32_t peer;          /* from whom what it holds came; over datagrams, a place in the table of neighbours */
    uint32_t link_id;       /* while it holds a packet that used credit; 0: none */
    uint32_t queue_pair;    /* over datagrams: that it came from */
};

struct rail_slab {
    uint8_t *memory;
    size_t bytes;
    struct ibv_mr *mr;
    struct verbs_buffer buffers[RAIL_SLAB_BUFFERS];
};

struct verbs_rail {
    struct device_rail choice;
    struct ibv_context *context;
    struct ibv_pd *pd;
    struct ibv_comp_channel *channel;
    struct ibv_cq *cq;
    struct ibv_srq *srq;
    struct ibv_device_attr limits;
    uint32_t cq_entries, srq_entries, max_inline;
    uint32_t n_links;         /* that use it */
    uint32_t n_receives;      /* wanted in the shared queue or on their way through us */
    uint32_t n_receives_made; /* so many are */
    struct rail_slab **slabs;
    uint32_t n_slabs;
    struct verbs_buffer *free_list, *repost;
    uint32_t n_repost;
    bool armed, armed_for_own; /* the next completion makes an event; also of what we have begun, not only of what peers send */
    bool failed, active;
};

int rail_open(struct verbs_rail *rail, const struct device_rail *choice, uint32_t max_links, uint32_t receives_per_link,
              struct error *err);
void rail_close(struct verbs_rail *rail);
/* Room in the queues for so many completions, and so many receives posted. 0 or HS_ERR_LIMIT, HS_ERR_NO_MEMORY. */
int rail_reserve(struct verbs_rail *rail, uint32_t completions, uint32_t receives, struct error *err);
/* A buffer for sending, or NULL. */
struct verbs_buffer *rail_take(struct verbs_rail *rail);
void rail_give(struct verbs_rail *rail, struct verbs_buffer *buffer);
struct verbs_buffer *rail_buffer(const struct verbs_rail *rail, uint32_t index);
/* Marks a receive as to be posted again by rail_post; kept back when fewer are wanted by now. */
void rail_return(struct verbs_rail *rail, struct verbs_buffer *buffer);
/* Posts what was returned. False: the queue refused. */
bool rail_post(struct verbs_rail *rail);
enum rail_event { RAIL_SAME, RAIL_UP, RAIL_DOWN, RAIL_MOVED, RAIL_EMPTY, RAIL_FAILED };
/* The next thing that happened to the port or the device (rail_events.c), said in the log, with the rail as it is now. False: nothing more. */
bool rail_take_event(struct verbs_rail *rail, enum rail_event *out);
/* Asks to be told, once, as RAIL_EMPTY, when the shared receive queue has run empty. Not every device can. */
void rail_watch_receives(struct verbs_rail *rail);
/* Registers memory of the caller's; NULL with one line in err. */
struct ibv_mr *rail_register(struct verbs_rail *rail, void *base, size_t len, int access, struct error *err);

#endif

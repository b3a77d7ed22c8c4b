/*
 * What the files of the verbs transport have of each other; state.h draws and defines what it is made of.
 *
 * Threading: one thread. Errors: 0 or HS_ERR_*. A pair or a session may end in most of these calls; links are freed by verbs_link_end alone.
 */
#ifndef HEARSAY_NET_VERBS_INTERNAL_H
#define HEARSAY_NET_VERBS_INTERNAL_H

#include "net/verbs/state.h"

/* transport.c */
void verbs_timer_at(struct verbs *self, uint64_t when_ns);
/* Has the link looked at by the next poll: there may be something to send or to read. */
void verbs_activate(struct verbs_link *link);
void verbs_tell(struct verbs_link *link, const struct control *control);

/* events.c */
/* Keeps a place for an event that must not get lost for want of memory: all but messages have one. False: out of memory. */
bool verbs_events_keep(struct verbs *self);
/* Adds an event, with a reference to the buffer or the message that data lies in. False: out of memory, for a message. */
bool verbs_event(struct verbs *self, const struct transport_event *event, struct verbs_buffer *buffer, struct message_buffer *message);
void verbs_events_release(struct verbs *self); /* those handed out */
int verbs_events_take(struct verbs *self, struct transport_event *events, int n);
void verbs_events_drop(struct verbs *self, uint32_t peer);
void verbs_events_fini(struct verbs *self);
/* One reference less; the last one gives the receive back to its rail and the credit to its link. */
void verbs_buffer_unref(struct verbs *self, struct verbs_buffer *buffer);

/* pair.c: queue pairs from offer to end */
int verbs_pair_offer(struct verbs_link *link, enum control_pair which);
void verbs_pair_on_control(struct verbs_link *link, const struct control *control);
/* The other end is ready, as its word or its packet says. */
void verbs_pair_ready(struct verbs_link *link, enum control_pair which);
/* Ends the attempt and plans the next; the peer is told unless it told us. status: of PEER_DOWN, when messages were up. */
void verbs_pair_fail(struct verbs_link *link, enum control_pair which, int status, bool tell);
/* Ends it without a word or a plan. */
void verbs_pair_close(struct verbs_link *link, enum control_pair which);
void verbs_pair_timers(struct verbs_link *link, enum control_pair which);
/* Destroys dying pairs whose time is over, or all. */
void verbs_bury(struct verbs *self, bool all);
/* Connects our end to theirs, along link->route. */
void verbs_pair_connect(struct verbs_link *link, enum control_pair which, const struct control *offer);
/* Whose the queue pair is, or NULL: one that is gone. */
struct verbs_link *verbs_link_of(struct verbs *self, const struct verbs_rail *rail, uint32_t number, enum control_pair *which);

/* link.c */
void verbs_link_open(struct verbs *self, uint32_t peer, uint64_t boot_id);
/* The session is over; status of PEER_DOWN if messages were up, 0: no event. */
void verbs_link_end(struct verbs_link *link, int status);
void verbs_link_up(struct verbs_link *link);
void verbs_link_down(struct verbs_link *link, int status);
void verbs_link_control(struct verbs_link *link, const uint8_t *data, size_t len);
/* Forgets what belonged to the last pair of queues for messages. */
void verbs_link_reset(struct verbs_link *link);
void verbs_link_timers(struct verbs_link *link);

/* link_paths.c */
int verbs_paths_open(struct verbs *self); /* where there is somebody to ask */
/* Sets link->route. True: somebody is asked first, and verbs_pair_connect follows on the answer. */
bool verbs_path_awaited(struct verbs_link *link, const struct control *offer);
void verbs_path_forget(struct verbs_link *link);
/* Asks again where the last question came to nothing. */
void verbs_path_timer(struct verbs_link *link);
void verbs_paths_poll(struct verbs *self);

/* send.c */
bool verbs_send_at_once(struct verbs_link *link, enum packet_kind kind, const struct iovec *iov, int n, size_t len);
int verbs_queue(struct verbs_link *link, const struct iovec *iov, int n, size_t len);
int verbs_queue_unreliable(struct verbs_link *link, const struct iovec *iov, int n, size_t len);
void verbs_flush(struct verbs_link *link);
void verbs_drop_prepared(struct verbs_link *link);
void verbs_return_credit(struct verbs_link *link); /* told to the peer once the receive is posted again */
void verbs_on_sent(struct verbs_link *link); /* a signalled one, and those before it */
struct verbs_buffer *verbs_take_in_flight(struct verbs_link *link); /* all, as a chain */

/* receive.c */
void verbs_on_packet(struct verbs_link *link, struct verbs_buffer *buffer, uint32_t len);

/* read.c */
int verbs_publish(struct verbs *self, uint32_t region, uint32_t n_pages, uint32_t page_bytes);
int verbs_write_page(struct verbs *self, uint32_t region, uint32_t page, const void *data, uint32_t len);
int verbs_read_page(struct verbs_link *link, uint32_t region, uint32_t page, uint32_t expected, uint64_t cookie);
void verbs_reads_step(struct verbs_link *link);
void verbs_on_read(struct verbs_link *link, uint32_t number, enum ibv_wc_status status); /* number: low bits of the request's wr_id */
void verbs_on_query(struct verbs_link *link, const struct control *control);
void verbs_on_region(struct verbs_link *link, const struct control *control);
/* The pair is gone: what was posted waits again, or fails. */
void verbs_reads_interrupted(struct verbs_link *link);
void verbs_reads_refused(struct verbs_link *link, bool at_once);
void verbs_reads_end(struct verbs_link *link, int status);
bool verbs_reads_waiting(const struct verbs_link *link);
void verbs_regions_forget(struct verbs_link *link); /* where the peer's are */
void verbs_regions_fini(struct verbs *self);

/* counts.c */
int verbs_counts_open(struct verbs *self, struct error *err);
void verbs_counts_tell(struct verbs *self);

/* completions.c */
/* Takes completions, at most until many events wait; all: whatever is there. */
void verbs_completions(struct verbs *self, struct verbs_rail *rail, bool all);
uint64_t verbs_dense_ns(const struct verbs_rail *rail);
/* What needs a system call: completion channels, asynchronous events. */
void verbs_wakeups(struct verbs *self);
void verbs_async_events(struct verbs *self);
/* After a time without completions, has the next one make the descriptor readable. False: not yet, poll again. */
bool verbs_arm(struct verbs *self);
/* Whether completions typically come so soon after each other that nobody sleeps between them. */
static inline bool verbs_is_dense(const struct verbs *self)
{
    return self->typical_gap_ns < self->dense_ns && self->now_ns - self->busy_ns < 2 * self->dense_ns;
}

static inline bool verbs_link_usable(const struct verbs_link *link)
{
    return link->pairs[CONTROL_MESSAGES].state == PAIR_UP;
}

static inline uint64_t verbs_rail_index(const struct verbs *self, const struct verbs_rail *rail)
{
    return (uint64_t)(rail - self->rails);
}

#endif

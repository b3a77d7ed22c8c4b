/*
 * A node for the HTTP tests, behind the interface of core/serve/request.h: one thread that answers every request from a
 * script, a step at a time for all of them, as continuous batching does.
 */
#ifndef HEARSAY_TESTS_HTTP_FAKE_NODE_H
#define HEARSAY_TESTS_HTTP_FAKE_NODE_H

#include "core/serve/request.h"

struct fake_script {
    const uint32_t *tokens; /* the answer; ends with FINISH_STOP, or FINISH_LENGTH at max_tokens */
    uint32_t n_tokens;
    uint32_t per_event;     /* tokens in an event, 0: 1 */
    uint32_t repeats;       /* the answer's tokens so many times, 0: once */
    uint32_t cached_tokens;
    bool fails;             /* after fail_after tokens */
    uint32_t fail_after;
    int fail_status;
    const char *fail_text;
    uint32_t retry_after_s;
    bool no_start;          /* fails without a started event */
    int submit_status;      /* what node_inbox_submit returns */
    bool mute;              /* queries are never answered */
};

struct fake_counts {
    uint32_t submitted, active, finished, canceled, refused_events;
};

struct node_inbox *fake_node_create(void);
void fake_node_destroy(struct node_inbox *inbox);
/* Holds for requests that come later. */
void fake_node_script(struct node_inbox *inbox, const struct fake_script *script);
/* While paused, requests wait after their first event with tokens (or before it, if started is false). */
void fake_node_pause(struct node_inbox *inbox, bool paused);
/* Waits until `value` returned by read is at least the wanted one, at most ten seconds; whether it came to be. */
struct fake_counts fake_node_counts(struct node_inbox *inbox);
bool fake_node_wait_canceled(struct node_inbox *inbox, uint32_t n);
bool fake_node_wait_submitted(struct node_inbox *inbox, uint32_t n);
bool fake_node_wait_active(struct node_inbox *inbox, uint32_t n);
/* A copy of the last request handed over; pointers in it are stale, prompt[n_tokens] is a copy. */
struct request fake_node_last(struct node_inbox *inbox, uint32_t *prompt, uint32_t cap);

#endif

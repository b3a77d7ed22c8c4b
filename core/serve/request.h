/*
 * A request for one answer as the node sees it: token ids in, token ids out. Text is the HTTP edge's affair.
 *
 * Life:  HTTP thread creates it -> node_inbox_submit -> node loop (route, schedule or forward) -> events -> exactly one
 * REQUEST_FINISHED or REQUEST_FAILED event, after which the node never touches it again. An answer with n choices is n
 * requests that differ in sampling.choice.
 *
 * Ownership: the creator fills and frees it, not before the final event was delivered. The node reads
 * it only. Events are values; the arrays in them are valid during the call.
 * Threading: on_event is called from the node loop, must not block and must not call the node; an HTTP edge copies the
 * event into its own bounded ring and wakes its thread. If it cannot take more (slow reader) it returns false once: the
 * node then cancels the request and sends no further event than the final REQUEST_FAILED (HS_ERR_LIMIT), which is always taken.
 */
#ifndef HEARSAY_SERVE_REQUEST_H
#define HEARSAY_SERVE_REQUEST_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "core/port/backend.h"

enum { REQUEST_TENANT_BYTES = 64, REQUEST_NODE_NAME_BYTES = 64 };

enum finish_reason {
    FINISH_STOP,   /* the model ended the answer (a stop id; that token is not emitted) */
    FINISH_LENGTH, /* max_tokens or the context's end */
};

enum request_event_kind {
    REQUEST_STARTED,   /* chosen node, cached tokens: before the first token */
    REQUEST_SCORED,    /* echo with logprobs: results for prompt tokens 1 .. n_prompt-1, in order, in one or more events */
    REQUEST_TOKENS,    /* n_results further answer tokens */
    REQUEST_FINISHED,  /* reason */
    REQUEST_FAILED,    /* status; retry_after_s with HS_ERR_BUSY (all full: 429) */
};

struct request_event {
    enum request_event_kind kind;
    const struct row_result *results; /* [n_results] */
    uint32_t n_results;
    enum finish_reason reason;
    int status;                /* HS_ERR_BUSY: 429; HS_ERR_LIMIT: 400, can never fit; HS_ERR_CANCELED; others: 5xx */
    const char *text;          /* one line for the client with REQUEST_FAILED */
    uint32_t retry_after_s;
    uint32_t cached_tokens;    /* really found in cache by the computing node (STARTED) */
    const char *computed_by;   /* its name (STARTED) */
};

struct request {
    const uint32_t *tokens; /* [n_tokens] the prompt, at least one */
    uint32_t n_tokens;
    uint32_t max_tokens;    /* answer tokens at most; 0: score the prompt only (echo), then FINISHED with FINISH_LENGTH */
    bool ignore_eos;        /* stop_ids do not end the answer */
    bool score_prompt;      /* REQUEST_SCORED events wanted (echo with logprobs) */
    int32_t priority;       /* lower is earlier, 0 usual */
    struct sampling_params sampling; /* stop_ids: end-of-answer tokens; arrays owned by the request */
    uint8_t namespace_id[32];        /* hash of model fingerprint, tokenizer, adapter, tenant (if isolated), cache_salt */
    char tenant[REQUEST_TENANT_BYTES];
    uint64_t deadline_ns;   /* 0: none; in the node's env time */
    bool (*on_event)(void *user, struct request *request, const struct request_event *event);
    void *user;
    atomic_bool cancel_wanted; /* set by node_inbox_cancel, false at first */
};

/*
 * The HTTP edge's way to the node loop, thread-safe. The node's thread drains it (core/serve/inbox.h).
 */
struct node_inbox;

/* Hands a request over. 0; HS_ERR_BUSY when the ring is full (429); HS_ERR_CLOSED when draining or stopping (503). */
int node_inbox_submit(struct node_inbox *inbox, struct request *request);
/* The client is gone or needs no more (stop string): the node ends the work, here or at the peer, and sends the final event. Never fails; idempotent. Harmless after the final event was delivered but not after the request was freed. */
void node_inbox_cancel(struct node_inbox *inbox, struct request *request);

/*
 * What the edge may ask the node, answered on the node's thread: the callback receives JSON text valid during the call and a status, 0 or
 * HS_ERR_* (HEALTH: 0 when the node takes requests, HS_ERR_CLOSED when it drains). Returns 0, or HS_ERR_BUSY, HS_ERR_CLOSED,
 * HS_ERR_NO_MEMORY and the callback is never called. A query still waiting when the inbox goes is answered with HS_ERR_CLOSED.
 */
enum node_query { NODE_QUERY_CLUSTER, NODE_QUERY_TREE, NODE_QUERY_DRAIN, NODE_QUERY_UNDRAIN, NODE_QUERY_FLUSH, NODE_QUERY_HEALTH };
int node_inbox_query(struct node_inbox *inbox, enum node_query query, void (*answer)(void *user, int status, const char *json), void *user);

#endif

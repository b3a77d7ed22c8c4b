/*
 * The answer to one completion request: one node request for each choice, their events, and the text made of them.
 *
 *     on_event (node's thread) --> token_ring of the choice --> answer_poll (MHD's thread) --> text, chunks, logprobs
 *
 * Threading: on_event runs on the node's thread and takes the exchange's lock for a moment; everything else is MHD's
 * thread, except answer_cancel. Ownership: belongs to its exchange.
 */
#ifndef HEARSAY_SERVE_HTTP_ANSWER_H
#define HEARSAY_SERVE_HTTP_ANSWER_H

#include "core/serve/http/answer_text.h"
#include "core/serve/http/api_request.h"
#include "core/serve/http/api_response.h"
#include "core/serve/http/exchange.h"
#include "core/serve/http/token_ring.h"
#include "core/serve/request.h"

enum {
    ANSWER_STREAM_TOKENS = 1024, /* a choice's tokens that a slow reader may leave unread before its request is ended */
};

struct answer_prompt {
    struct token_list tokens;
    struct strbuf text; /* for echo */
};

struct answer_choice {
    struct answer *answer;
    struct request request;
    uint32_t index;
    const struct answer_prompt *prompt;

    /* guarded by the exchange's lock */
    struct token_ring ring;   /* answer tokens not taken yet */
    struct token_ring scored; /* prompt tokens 1 .. n-1 (echo with logprobs) */
    bool submitted, started, ended, canceled, overflowed;
    bool stop_found; /* by us, in the text */
    int status;
    enum finish_reason reason;
    uint32_t retry_after_s, cached_tokens;
    char failure[200];

    /* MHD's thread only */
    struct answer_text text;
    struct api_token *tokens;     /* taken and not yet written; only with logprobs */
    struct token_logprob *tops;   /* [cap_tokens][n_top_logprobs] */
    size_t n_tokens, cap_tokens;
    size_t n_echo;       /* prompt tokens in front of those */
    uint64_t n_released; /* usage */
    uint64_t offset;
    bool moving;   /* a token or the end was taken */
    bool begun;    /* something of it was written */
    bool complete; /* no more text will come */
    bool written;  /* with its finish reason */
};

struct answer {
    struct exchange *exchange;
    struct api_request api;
    struct answer_prompt *prompts;
    size_t n_prompts;
    struct answer_choice *choices; /* prompt 0's n, then prompt 1's ... */
    uint32_t n_choices;
    char id[48];
    struct api_answer_head head;
    bool wake_each;  /* for every token, not only at the end */
    bool stream_over;

    /* guarded by the exchange's lock */
    char computed_by[REQUEST_NODE_NAME_BYTES]; /* "" until a choice started */
};

enum answer_progress { ANSWER_WAITING, ANSWER_READY, ANSWER_FAILED };

/* Takes over api, also on failure. 0, or -1 with error filled. */
int answer_create(struct exchange *exchange, struct api_request *api, struct answer **out, struct api_error *error);
void answer_destroy(struct answer *answer); /* NULL is fine */
/* Hands the requests to the node. What it refuses shows up in answer_poll. */
void answer_submit(struct answer *answer);
/* Ends all work that is still under way. Any thread; NULL is fine. */
void answer_cancel(struct answer *answer);
/* Whether the node is done with all of it. The caller holds the exchange's lock. */
bool answer_ended_locked(const struct answer *answer);

/*
 * Looks at the events. READY: a stream may begin (the computing node is known), or a whole answer is complete. FAILED: error
 * filled, nothing was written yet.
 */
enum answer_progress answer_poll(struct answer *answer, struct api_error *error);
void answer_write_whole(struct answer *answer, struct strbuf *out);
/* Appends the events that can be written now; sets stream_over behind the last one. */
void answer_write_stream(struct answer *answer, struct strbuf *out);
void answer_computed_by(struct answer *answer, char out[REQUEST_NODE_NAME_BYTES]);

/* Shared by the files answer*.c. */
void answer_choice_cancel(struct answer_choice *choice);
/* Moves new tokens of a choice into its text; true if it failed, with error filled. */
bool answer_choice_advance(struct answer_choice *choice, struct api_error *error);
/* request.on_event */
bool answer_on_event(void *user, struct request *request, const struct request_event *event);

#endif

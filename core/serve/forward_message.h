/*
 * The messages of forwarding and their encoding (docs/protocol-forward.md).
 *
 *     entry                          peer
 *       | FORWARD id, attempt ------> |   tokens, sampling, limits
 *       | <------ ACCEPT or REFUSE    |   queued, or not (and how deep its queue is)
 *       | <-------------- STARTED     |   admitted to the batch: tokens found in cache
 *       | <-------------- RESULTS ... |   scored prompt tokens, then answer tokens, in order
 *       | <-------------- ALIVE   ... |   nothing new, still at it
 *       | <-- FINISHED or FAILED      |
 *       | CANCEL -------------------> |
 *
 * First byte of each is the kind, at or above CLUSTER_MESSAGE_LIMIT. Integers are little-endian or LEB128 as written in the page.
 * Decoding trusts nothing: every length is bounded before it is used, floats must be finite and in range, and what is left over is
 * an error. Arrays of a decoded message lie in the caller's scratch. Pure; any thread.
 */
#ifndef HEARSAY_SERVE_FORWARD_MESSAGE_H
#define HEARSAY_SERVE_FORWARD_MESSAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/serve/request.h"

enum forward_kind {
    FORWARD_REQUEST = 0x40,
    FORWARD_ACCEPT,
    FORWARD_REFUSE,
    FORWARD_STARTED,
    FORWARD_RESULTS,
    FORWARD_ALIVE,
    FORWARD_FINISHED,
    FORWARD_FAILED,
    FORWARD_CANCEL,
};

enum {
    FORWARD_MAX_STOP_IDS = 64,
    FORWARD_MAX_BIAS = 1024,
    FORWARD_MAX_RESULTS = 128, /* in one message */
    FORWARD_MAX_TEXT = 200,
    FORWARD_HOPS = 1,
};

enum forward_refusal { FORWARD_REFUSED_FULL, FORWARD_REFUSED_DRAINING, FORWARD_REFUSED_TOO_LARGE, FORWARD_REFUSED_INVALID };

struct forward_request {
    uint8_t hops;          /* already travelled, this one included */
    uint64_t remaining_ns; /* to the deadline; 0: none */
    uint32_t n_tokens, n_prompt, limit, n_scored;
    bool ignore_eos, score_prompt;
    int32_t priority;
    struct sampling_params sampling;
    uint8_t namespace_id[32];
    char tenant[REQUEST_TENANT_BYTES];
    const uint32_t *tokens; /* [n_tokens] */
};

struct forward_message {
    enum forward_kind kind;
    uint64_t id;      /* the entry's number of the request */
    uint32_t attempt; /* the entry's count of places tried: answers of an older one are dropped */
    union {
        struct forward_request request;
        struct {
            enum forward_refusal reason;
            uint32_t depth;
        } refuse;
        struct {
            uint32_t cached_tokens;
        } started;
        struct {
            bool scored;    /* of the prompt */
            uint32_t first; /* index of the first among scored or answer tokens */
            uint32_t n;
            const struct row_result *results;
        } results;
        struct {
            enum finish_reason reason;
            uint32_t n_answer; /* tokens of the whole answer */
        } finished;
        struct {
            int status;
            char text[FORWARD_MAX_TEXT + 1];
        } failed;
    };
};

/* Room for the arrays of a decoded message. */
struct forward_scratch {
    uint32_t *tokens; /* [cap_tokens]: longer requests are malformed */
    uint32_t cap_tokens;
    uint32_t stop_ids[FORWARD_MAX_STOP_IDS];
    struct logit_bias bias[FORWARD_MAX_BIAS];
    struct row_result results[FORWARD_MAX_RESULTS];
};

/* Whether a request fits the format at all (counts of stop ids and biases). */
bool forward_encodable(const struct sampling_params *sampling);
/* Bytes written to data[cap], or HS_ERR_LIMIT. */
int forward_encode(const struct forward_message *message, uint8_t *data, size_t cap);
/* 0 or HS_ERR_PROTOCOL. */
int forward_decode(const uint8_t *data, size_t len, struct forward_scratch *scratch, struct forward_message *out);

#endif

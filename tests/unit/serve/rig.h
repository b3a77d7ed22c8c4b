/*
 * A bench for nodes in tests: a clock set by hand, a backend that is the null backend with a spy in front, nodes alone or joined by
 * the in-process transport, and clients that collect their events.
 *
 * Threading: one thread. Ownership: rig_fini frees everything.
 */
#ifndef HEARSAY_TESTS_UNIT_SERVE_RIG_H
#define HEARSAY_TESTS_UNIT_SERVE_RIG_H

#include "core/null/null_backend.h"
#include "core/serve/node.h"
#include "net/net.h"

enum { RIG_MAX_NODES = 4, RIG_PAGE_TOKENS = 16, RIG_MAX_TOKENS = 2048 };

/* Looks on, counts, and fails steps on demand. */
struct spy {
    struct backend backend;
    struct backend *inner;
    uint64_t rows, steps;
    uint32_t largest_step;
    uint32_t fail_next; /* so many completions say HS_ERR_IO */
    bool hangs;         /* no step comes to an end */
};

struct rig_node {
    bool up;
    struct env env;
    struct metrics *metrics;
    struct transport *transport;
    struct spy spy;
    struct node *node;
    uint64_t next_ns;
};

struct rig {
    uint64_t now_ns, random;
    struct null_backend_config backend;
    struct node_config config;
    struct inproc_hub *hub;
    struct rig_node nodes[RIG_MAX_NODES];
    uint32_t n_nodes;
};

struct reply {
    struct rig *rig;
    struct request request;
    uint32_t tokens[RIG_MAX_TOKENS]; /* prompt, then answer */
    uint32_t n_tokens, n_scored;
    uint32_t score_errors;
    uint32_t cached_tokens;
    char computed_by[REQUEST_NODE_NAME_BYTES];
    uint32_t started, finals;
    bool finished, slow; /* slow: refuses the next token */
    enum finish_reason reason;
    int status;
    char text[200]; /* of the failure */
    uint32_t retry_after_s;
    uint64_t final_ns;
    uint32_t stop_id;
};

/* Sets defaults; change rig->backend and rig->config before rig_start. */
void rig_init(struct rig *rig);
/* n == 1 with joined false: a node without transport. */
void rig_start(struct rig *rig, uint32_t n, bool joined);
void rig_stop_node(struct rig *rig, uint32_t i);
void rig_fini(struct rig *rig);
/* Steps everything that is due, moving the clock to the next moment; false if nothing would ever happen again. */
bool rig_step(struct rig *rig);
void rig_run_ns(struct rig *rig, uint64_t ns);
/* Steps until the reply has its last event; asserts that it comes. */
void rig_finish(struct rig *rig, struct reply *reply);
/* Of hearsay_limit_hits_total, hearsay_limit_used and hearsay_limit. */
uint64_t rig_limit_hits(const struct rig *rig, uint32_t node, const char *limit);
int64_t rig_limit_used(const struct rig *rig, uint32_t node, const char *limit);
int64_t rig_limit(const struct rig *rig, uint32_t node, const char *limit);
uint64_t rig_counter(const struct rig *rig, uint32_t node, const char *name);
struct node_counts rig_counts(const struct rig *rig, uint32_t node);
/* Idle: no requests, and every page free or in the tree. */
void rig_assert_idle(const struct rig *rig, uint32_t node);

/* A request of n prompt tokens, token i being (first + i * 7) % 4000 + 10, and at most max_tokens of answer. */
void reply_init(struct rig *rig, struct reply *reply, uint32_t first, uint32_t n, uint32_t max_tokens);
void reply_submit(struct reply *reply, uint32_t node);
/* It finished, and its tokens and reason are a lone null backend's. */
void reply_assert_right(const struct reply *reply);
void reply_assert_failed(const struct reply *reply, int status);

#endif

/*
 * What the files of the simulated world share.
 *
 *     world.c          nodes' lives, time, one run         world_options.c  settings as options
 *     world_clock.c    clocks of the nodes                 world_draw.c     a random mix of troubles from a seed
 *     world_trouble.c  faults: planned, begun, ended       world_clients.c  requests
 *     world_backend.c  null backend with a shadow          world_tap.c      the wire, seen at each node's transport
 *     world_pages.c    one-sided reads                     world_lies.c     what liars say of themselves instead
 *
 * The checkers: check.h.
 */
#ifndef HEARSAY_TESTS_SIM_WORLD_INTERNAL_H
#define HEARSAY_TESTS_SIM_WORLD_INTERNAL_H

#include "core/base/rng.h"
#include "core/null/null_backend.h"
#include "core/port/transport.h"
#include "core/serve/node.h"
#include "net/sim_carrier.h"
#include "tests/sim/world.h"

enum { WORLD_HEADS = 6, WORLD_MAX_ANSWER = 80, WORLD_MAX_TAIL = 48, WORLD_PAGE_TOKENS = 16 };

struct world;
struct memory;
struct pager;

/* Why memory cannot be read for a while (world_pages.h), and what a digest's counts are instead of the truth (world_lies.c). */
enum blindness { BLIND_NOT, BLIND_SILENT, BLIND_BROKEN, BLIND_ABSENT, BLINDNESSES };
enum miscount { COUNTS_TRUE, COUNTS_NO_BLOCKS, COUNTS_MOST_BLOCKS, COUNTS_PROMISES, COUNTS_SHORT_PAGES, MISCOUNTS };

/* A node's own idea of time: it may start anywhere, run fast or slow, and jump ahead, never back. */
struct world_clock {
    uint64_t world_ns, local_ns; /* a moment on both */
    uint32_t per_mille;          /* its speed, 1000 is right */
};

struct world_node {
    struct world *world;
    uint32_t index;
    char name[32], address[32];
    /* what it is, over all its lives */
    uint32_t model, page_tokens, class;
    bool liar;
    enum miscount miscount;
    bool reads_pages, is_short; /* is_short: of memory to publish */
    enum route_mode route;
    struct null_backend_config backend_config;
    struct world_clock clock;
    /* its present life */
    bool up, draining;
    uint32_t stopped, n_blind; /* troubles that keep it from running, its memory from being read */
    enum blindness blindness;
    struct pager *pager;        /* NULL: no one-sided reads */
    struct memory *left_memory; /* of the life before */
    struct env env, random;
    struct metrics *metrics;
    struct carrier *carrier;     /* the transport's */
    struct transport *transport; /* tapped */
    struct backend *backend;     /* shadowed */
    struct node *node;
    uint64_t next_ns;     /* of world time: it wants to run then */
    uint64_t tree_seen;   /* completed steps at the last look into the tree */
    uint64_t rows[2];     /* computed by all its lives: before position world->head_end, and behind */
};

struct wire_check;
struct wire_counts;
struct writer;

enum client_state { CLIENT_PLANNED, CLIENT_WAITING, CLIENT_DONE };

struct client {
    struct world *world;
    uint32_t index;
    enum client_state state;
    struct request request;
    uint32_t *tokens; /* prompt, then the answer as it comes */
    uint32_t n_tokens;
    uint32_t n_scored;
    uint32_t stop_id;
    uint32_t model;  /* that it asks for */
    uint32_t entry;  /* UINT32_MAX at first: any node of the model */
    uint64_t arrive_ns, cancel_ns; /* cancel: UINT64_MAX: never */
    uint64_t timeout_ns;           /* of the request, from its submission; 0: none */
    uint64_t done_ns;
    uint32_t slow_after;           /* tokens it takes before it refuses; UINT32_MAX: all */
    uint32_t tries_left;           /* times that it comes again when it was refused */
    uint32_t n_forwards;           /* of this try */
    bool cancel_sent, started, refused, is_repeat, submitted, tried_before;
};

struct trouble; /* world_trouble.c */

struct world {
    struct world_config config;
    struct world_result *result;
    struct sim_net *net;
    struct world_reads *reads;
    struct rng rng;
    uint64_t now_ns;
    uint64_t streams; /* of random numbers given out */
    struct world_node nodes[WORLD_MAX_NODES];
    uint32_t n_nodes;
    struct client *clients; /* [cap_clients] */
    uint32_t n_clients, cap_clients, n_open;
    uint64_t clients_due_ns; /* no client does anything before */
    uint64_t last_event_ns;  /* a client heard something */
    struct wire_counts *headers_seen; /* check_quiet: [n_nodes][n_nodes] */
    uint64_t settled_at_ns;  /* when to look again whether all is settled */
    uint32_t *heads[WORLD_HEADS];
    uint32_t head_tokens[WORLD_HEADS];
    uint32_t head_end; /* see rows of world_node */
    struct trouble *troubles;
    uint32_t n_troubles;
    uint64_t troubles_due_ns, calm_ns; /* calm: the last trouble has ended */
    uint16_t blocked[WORLD_MAX_NODES][WORLD_MAX_NODES]; /* troubles that keep from's datagrams from to */
};

void world_fail(struct world *world, const char *format, ...) __attribute__((format(printf, 2, 3)));
void world_note(const struct world *world, const char *format, ...) __attribute__((format(printf, 2, 3)));
void world_trace(struct world *world, uint64_t value);

/* world.c: for scenarios too. create draws the planned requests and troubles; destroy may be given NULL. */
int world_create(const struct world_config *config, struct world_result *result, struct world **out);
void world_destroy(struct world *world);
/* Runs until done (may be NULL) says so, true, or limit_ns has come. Requests that make no headway are a failure. */
bool world_run_until(struct world *world, bool (*done)(struct world *), uint64_t limit_ns);
bool world_answered(struct world *world); /* no request is open, no trouble left, every node idle */
bool world_settled(struct world *world);  /* and all believe the truth of each other */
int world_start_node(struct world_node *wn);
void world_stop_node(struct world_node *wn, bool orderly);
bool world_node_serves(const struct world_node *wn);
bool world_node_runs(const struct world_node *wn);
void world_wake(struct world_node *wn);
bool world_same_kind(const struct world_node *a, const struct world_node *b); /* may compute for each other */
/* A number of a node's metrics. */
uint64_t world_counter(const struct world_node *wn, const char *name);

/* world_clock.c */
uint64_t clock_local_ns(const struct world_clock *clock, uint64_t world_ns);
uint64_t clock_world_ns(const struct world_clock *clock, uint64_t local_ns); /* when it will show that; UINT64_MAX stays */
void clock_jump(struct world_clock *clock, uint64_t world_ns, uint64_t by_ns);
int clock_env(struct world_node *wn);

/* world_trouble.c */
int troubles_create(struct world *world);
void troubles_destroy(struct world *world);
void troubles_step(struct world *world);

/* world_clients.c */
int clients_create(struct world *world);
void clients_destroy(struct world *world);
void clients_step(struct world *world);
/* All answers are asked for again, prompt and answer as the new prompt. */
int clients_repeat(struct world *world);
struct client *clients_by_seed(struct world *world, uint64_t seed);
/* One more request of given tokens. NULL: no room. */
struct client *clients_add(struct world *world, uint64_t arrive_ns, const uint32_t *tokens, uint32_t n_tokens, uint32_t max_tokens);

/* world_backend.c: owns inner. NULL when out of memory. */
struct backend *shadow_create(struct backend *inner, struct world_node *node);
/* The chain value of a slot as of completed steps. */
uint64_t shadow_slot(const struct backend *backend, uint32_t page, uint32_t slot);
uint64_t shadow_steps(const struct backend *backend);
uint64_t shadow_chain(uint64_t before, uint32_t token);

/* world_tap.c: owns inner; shows check_wire what passes. NULL when out of memory. */
struct transport *tap_create(struct transport *inner, struct world_node *node);
/* Of the life that runs. */
struct wire_check *tap_check(const struct transport *tap);

/* world_lies.c: whether the node says something else than the message, in *out. boot_id: its own. */
bool lies_falsify(const struct world_node *node, uint64_t boot_id, const uint8_t *data, size_t len, struct writer *out);

#endif

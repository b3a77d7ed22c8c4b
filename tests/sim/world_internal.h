/* What the files of the simulated world share: world.c (nodes, time), world_clients.c (requests and their checks), world_tap.c (the
 * wire). */
#ifndef HEARSAY_TESTS_SIM_WORLD_INTERNAL_H
#define HEARSAY_TESTS_SIM_WORLD_INTERNAL_H

#include "core/base/rng.h"
#include "core/null/null_backend.h"
#include "core/port/transport.h"
#include "core/serve/node.h"
#include "net/sim_carrier.h"
#include "tests/sim/world.h"

enum {
    WORLD_MAX_NODES = 16,
    WORLD_HEADS = 6,
    WORLD_MAX_PROMPT = 640,
    WORLD_MAX_ANSWER = 80,
    WORLD_CONTEXT = 1024,
    WORLD_PAGE_TOKENS = 16
};

struct world;

struct world_node {
    struct world *world;
    uint32_t index;
    char name[32], address[32];
    bool up, draining;
    uint64_t restart_ns, undrain_ns; /* UINT64_MAX: not planned */
    struct env env;
    struct metrics *metrics;
    struct transport *transport; /* tapped */
    struct backend *backend;
    struct node *node;
    uint64_t next_ns;
};

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
    uint32_t entry;
    uint64_t arrive_ns, cancel_ns; /* cancel: UINT64_MAX: never */
    uint32_t slow_after;           /* tokens it takes before it refuses; UINT32_MAX: all */
    bool cancel_sent, started, refused;
};

struct world {
    struct world_config config;
    struct world_result *result;
    struct null_backend_config backend;
    struct sim_net *net;
    struct rng rng;
    uint64_t now_ns;
    uint64_t streams; /* of random numbers given out */
    struct world_node nodes[WORLD_MAX_NODES];
    struct client *clients; /* [2 * n_requests]: the second half asks again */
    uint32_t n_clients, n_open;
    uint32_t heads[WORLD_HEADS][WORLD_MAX_PROMPT];
    uint32_t head_tokens[WORLD_HEADS];
    uint64_t *crash_ns, *drain_ns, *cut_ns;
    uint64_t mend_ns; /* of the one cut at a time; UINT64_MAX: none */
    uint32_t cut_a, cut_b;
};

void world_fail(struct world *world, const char *format, ...) __attribute__((format(printf, 2, 3)));
void world_trace(struct world *world, uint64_t value);

/* world_clients.c */
int clients_create(struct world *world);
void clients_destroy(struct world *world);
uint64_t clients_next_ns(const struct world *world);
void clients_step(struct world *world);
/* All answers are asked for again, prompt and answer as the new prompt. */
void clients_repeat(struct world *world);
struct client *clients_by_seed(struct world *world, uint64_t seed);

/* world_tap.c: owns inner; checks every forwarded request that passes. NULL when out of memory. */
struct transport *tap_create(struct transport *inner, struct world_node *node);

#endif

/* Random requests, and the check of every event against what a lone null backend answers. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "tests/sim/world_internal.h"

static const uint64_t SEED_BASE = 1000003; /* a request's sampling seed names it on the wire */

struct client *clients_by_seed(struct world *world, uint64_t seed)
{
    return seed >= SEED_BASE && seed - SEED_BASE < world->n_clients ? &world->clients[seed - SEED_BASE] : NULL;
}

static uint32_t random_token(struct world *world)
{
    return 1 + (uint32_t)rng_below(&world->rng, 4000);
}

static void done(struct client *client)
{
    client->state = CLIENT_DONE;
    client->world->n_open--;
}

/* What a lone node would say next. */
static uint32_t expected_token(const struct client *client)
{
    return null_backend_next_token(&client->world->backend, client->tokens, client->n_tokens, client->request.n_tokens,
                                   &client->request.sampling);
}

static uint32_t answer_tokens(const struct client *client)
{
    return client->n_tokens - client->request.n_tokens;
}

static void take_tokens(struct client *client, const struct request_event *event)
{
    struct world *world = client->world;
    for (uint32_t i = 0; i < event->n_results; i++) {
        uint32_t token = event->results[i].token, expected = expected_token(client);
        world_trace(world, token);
        if (token != expected)
            world_fail(world, "request %u: token %u of the answer is %u, a lone node gives %u", client->index,
                       answer_tokens(client), token, expected);
        if (token == client->stop_id && !client->request.ignore_eos)
            world_fail(world, "request %u: a stop token was emitted", client->index);
        if (answer_tokens(client) == client->request.max_tokens) {
            world_fail(world, "request %u: more tokens than asked for", client->index);
            return;
        }
        client->tokens[client->n_tokens++] = token;
        world->result->tokens++;
    }
}

static void take_scores(struct client *client, const struct request_event *event)
{
    for (uint32_t i = 0; i < event->n_results; i++) {
        if (client->n_scored + 1 >= client->request.n_tokens || event->results[i].token != client->tokens[client->n_scored + 1]) {
            world_fail(client->world, "request %u: score %u is of another token", client->index, client->n_scored);
            return;
        }
        client->n_scored++;
    }
}

static void check_finish(struct client *client, enum finish_reason reason)
{
    struct world *world = client->world;
    bool at_length = answer_tokens(client) == client->request.max_tokens;
    if (!client->started)
        world_fail(world, "request %u finished without having started", client->index);
    if (client->request.score_prompt && client->n_scored != client->request.n_tokens - 1)
        world_fail(world, "request %u: %u of %u scores", client->index, client->n_scored, client->request.n_tokens - 1);
    if (reason == FINISH_LENGTH && !at_length)
        world_fail(world, "request %u: ended for length after %u of %u tokens", client->index, answer_tokens(client),
                   client->request.max_tokens);
    if (reason == FINISH_STOP && (at_length || client->request.ignore_eos || expected_token(client) != client->stop_id))
        world_fail(world, "request %u: stopped without a stop token", client->index);
    world->result->answered++;
}

static void check_failure(struct client *client, const struct request_event *event)
{
    struct world *world = client->world;
    switch (event->status) {
    case HS_ERR_CANCELED:
        if (!client->cancel_sent)
            world_fail(world, "request %u: canceled by nobody", client->index);
        world->result->canceled++;
        break;
    case HS_ERR_LIMIT:
        if (!client->refused)
            world_fail(world, "request %u: cut off (%s)", client->index, event->text);
        world->result->too_slow++;
        break;
    case HS_ERR_TIMEOUT:
        if (!client->request.deadline_ns || world->now_ns < client->request.deadline_ns)
            world_fail(world, "request %u: timed out early", client->index);
        world->result->timed_out++;
        break;
    case HS_ERR_CLOSED:
        if (world->nodes[client->entry].up && !world->nodes[client->entry].draining)
            world_fail(world, "request %u: its node says that it is closed", client->index);
        world->result->crashed++;
        break;
    case HS_ERR_BUSY:
        if (!client->request.deadline_ns)
            world_fail(world, "request %u: refused (%s)", client->index, event->text);
        if (!event->retry_after_s)
            world_fail(world, "request %u: refused without a time to retry", client->index);
        world->result->refused++;
        break;
    default:
        world_fail(world, "request %u failed: %s (%s)", client->index, error_name(event->status), event->text);
    }
}

static bool on_event(void *user, struct request *request, const struct request_event *event)
{
    struct client *client = user;
    struct world *world = client->world;
    world_trace(world, world->now_ns);
    world_trace(world, (uint64_t)client->index << 8 | event->kind);
    if (client->state != CLIENT_WAITING) {
        world_fail(world, "request %u: an event of kind %d after the last", client->index, event->kind);
        return true;
    }
    switch (event->kind) {
    case REQUEST_STARTED:
        if (client->started)
            world_fail(world, "request %u: started twice", client->index);
        client->started = true;
        if (event->cached_tokens >= client->request.n_tokens + client->request.max_tokens)
            world_fail(world, "request %u: %u tokens from cache", client->index, event->cached_tokens);
        world->result->cached_tokens += event->cached_tokens;
        world->result->prompt_tokens += client->request.n_tokens;
        world_trace(world, event->cached_tokens);
        break;
    case REQUEST_SCORED:
        take_scores(client, event);
        break;
    case REQUEST_TOKENS:
        if (!client->started)
            world_fail(world, "request %u: tokens before the start", client->index);
        if (client->refused)
            world_fail(world, "request %u: tokens for a reader that had refused", client->index);
        take_tokens(client, event);
        client->refused = answer_tokens(client) > client->slow_after;
        return !client->refused;
    case REQUEST_FINISHED:
        check_finish(client, event->reason);
        done(client);
        break;
    case REQUEST_FAILED:
        check_failure(client, event);
        done(client);
        break;
    }
    return true;
}

static void make_sampling(struct world *world, struct client *client)
{
    struct sampling_params *s = &client->request.sampling;
    *s = (struct sampling_params){.top_p = 1, .repetition_penalty = 1, .seed = SEED_BASE + client->index};
    if (rng_below(&world->rng, 2))
        s->temperature = 0.8f;
    if (rng_below(&world->rng, 4) == 0)
        s->min_tokens = (uint32_t)rng_below(&world->rng, 20);
    client->stop_id = world->backend.stop_id;
    s->stop_ids = &client->stop_id;
    s->n_stop_ids = 1;
}

/* A head that others share, cut somewhere, and a tail of its own; sometimes whole pages exactly. */
static void make_prompt(struct world *world, struct client *client)
{
    uint32_t head = (uint32_t)rng_below(&world->rng, WORLD_HEADS);
    uint32_t n = world->head_tokens[head];
    if (rng_below(&world->rng, 4) == 0)
        n = (uint32_t)rng_below(&world->rng, n);
    uint32_t tail = (uint32_t)rng_below(&world->rng, 48);
    if (rng_below(&world->rng, 8) == 0)
        tail = (WORLD_PAGE_TOKENS - n % WORLD_PAGE_TOKENS) % WORLD_PAGE_TOKENS;
    if (n + tail == 0)
        tail = 1;
    memcpy(client->tokens, world->heads[head], n * sizeof(uint32_t));
    for (uint32_t i = 0; i < tail; i++)
        client->tokens[n + i] = random_token(world);
    client->n_tokens = n + tail;
}

static int make_client(struct world *world, uint32_t index, uint64_t arrive_ns)
{
    struct client *client = &world->clients[index];
    *client =
        (struct client){.world = world, .index = index, .arrive_ns = arrive_ns, .cancel_ns = UINT64_MAX, .slow_after = UINT32_MAX};
    client->tokens = malloc((WORLD_MAX_PROMPT + 2 * WORLD_MAX_ANSWER + 64) * sizeof(uint32_t));
    if (!client->tokens)
        return HS_ERR_NO_MEMORY;
    make_prompt(world, client);
    make_sampling(world, client);
    struct request *request = &client->request;
    request->tokens = client->tokens;
    request->n_tokens = client->n_tokens;
    request->max_tokens = 1 + (uint32_t)rng_below(&world->rng, WORLD_MAX_ANSWER);
    request->ignore_eos = rng_below(&world->rng, 3) == 0;
    request->score_prompt = rng_below(&world->rng, 12) == 0;
    if (request->score_prompt && rng_below(&world->rng, 2))
        request->max_tokens = 0;
    request->priority = (int32_t)rng_below(&world->rng, 3) - 1;
    request->namespace_id[0] = (uint8_t)rng_below(&world->rng, 2);
    snprintf(request->tenant, sizeof request->tenant, "tenant%u", (unsigned)rng_below(&world->rng, 3));
    request->on_event = on_event;
    request->user = client;
    if (rng_below(&world->rng, 10) == 0)
        client->cancel_ns = arrive_ns + rng_below(&world->rng, 150000000);
    if (rng_below(&world->rng, 20) == 0)
        client->slow_after = (uint32_t)rng_below(&world->rng, WORLD_MAX_ANSWER);
    if (rng_below(&world->rng, 20) == 0)
        request->deadline_ns = arrive_ns + 1 + rng_below(&world->rng, 400000000);
    return 0;
}

int clients_create(struct world *world)
{
    world->n_clients = world->config.n_requests;
    world->clients = calloc(2 * (size_t)world->n_clients + 1, sizeof *world->clients);
    if (!world->clients)
        return HS_ERR_NO_MEMORY;
    for (uint32_t h = 0; h < WORLD_HEADS; h++) {
        world->head_tokens[h] = 40 + (uint32_t)rng_below(&world->rng, 360);
        for (uint32_t i = 0; i < world->head_tokens[h]; i++)
            world->heads[h][i] = random_token(world);
    }
    /* Two heads share their beginning, so trees must split. */
    memcpy(world->heads[1], world->heads[0], 40 * sizeof(uint32_t));
    uint64_t at_ns = 500000000;
    for (uint32_t i = 0; i < world->n_clients; i++) {
        int status = make_client(world, i, at_ns);
        if (status < 0)
            return status;
        if (rng_below(&world->rng, 6)) /* else: at the same moment as the one before */
            at_ns += (uint64_t)(rng_unit(&world->rng) * 2e9 / world->config.rate_per_s);
    }
    world->n_open = world->n_clients;
    return 0;
}

void clients_destroy(struct world *world)
{
    for (uint32_t i = 0; world->clients && i < world->n_clients; i++)
        free(world->clients[i].tokens);
    free(world->clients);
}

void clients_repeat(struct world *world)
{
    uint32_t first = world->n_clients;
    for (uint32_t i = 0; i < first; i++) {
        struct client *old = &world->clients[i], *client = &world->clients[world->n_clients];
        if (old->request.score_prompt || old->n_tokens + 8 > WORLD_CONTEXT)
            continue;
        *client = (struct client){.world = world, .index = world->n_clients, .cancel_ns = UINT64_MAX, .slow_after = UINT32_MAX};
        client->tokens = malloc((old->n_tokens + 16) * sizeof(uint32_t));
        if (!client->tokens)
            return;
        memcpy(client->tokens, old->tokens, old->n_tokens * sizeof(uint32_t));
        client->n_tokens = old->n_tokens;
        client->request = old->request;
        client->request.tokens = client->tokens;
        client->request.n_tokens = old->n_tokens;
        client->request.max_tokens = 4;
        client->request.deadline_ns = 0;
        client->request.user = client;
        client->request.sampling.seed = SEED_BASE + client->index;
        client->request.sampling.stop_ids = &client->stop_id;
        client->stop_id = old->stop_id;
        client->arrive_ns = world->now_ns + (uint64_t)(i * 1e9 / world->config.rate_per_s);
        world->n_clients++;
        world->n_open++;
    }
}

static bool takes_requests(const struct world_node *node)
{
    return node->up && !node->draining;
}

static void submit(struct client *client)
{
    struct world *world = client->world;
    uint32_t entry = (uint32_t)rng_below(&world->rng, world->config.n_nodes);
    for (uint32_t i = 0; i < world->config.n_nodes && !takes_requests(&world->nodes[entry]); i++)
        entry = (entry + 1) % world->config.n_nodes;
    client->entry = entry;
    client->state = CLIENT_WAITING;
    node_submit(world->nodes[entry].node, &client->request);
}

void clients_step(struct world *world)
{
    for (uint32_t i = 0; i < world->n_clients; i++) {
        struct client *client = &world->clients[i];
        if (client->state == CLIENT_PLANNED && world->now_ns >= client->arrive_ns)
            submit(client);
        if (client->state == CLIENT_WAITING && world->now_ns >= client->cancel_ns && !client->cancel_sent) {
            client->cancel_sent = true;
            node_cancel(world->nodes[client->entry].node, &client->request);
            if (client->state != CLIENT_DONE)
                world_fail(world, "request %u: canceled, and no last event", client->index);
        }
    }
}

uint64_t clients_next_ns(const struct world *world)
{
    uint64_t next = UINT64_MAX;
    for (uint32_t i = 0; i < world->n_clients; i++) {
        const struct client *client = &world->clients[i];
        if (client->state == CLIENT_PLANNED && client->arrive_ns < next)
            next = client->arrive_ns;
        if (client->state == CLIENT_WAITING && !client->cancel_sent && client->cancel_ns < next)
            next = client->cancel_ns;
    }
    return next;
}

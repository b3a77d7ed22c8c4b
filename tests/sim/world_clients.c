/* Requests of clients: drawn, submitted, canceled, and asked again. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "tests/sim/check.h"

static const uint64_t SEED_BASE = 1000003; /* a request's sampling seed names it on the wire */
static const uint64_t FIRST_NS = 500000000, POSTPONE_NS = 50000000;
enum { SPARE_CLIENTS = 1024, REPEAT_TRIES = 100, REPEAT_TOKENS = 4 };

struct client *clients_by_seed(struct world *world, uint64_t seed)
{
    return seed >= SEED_BASE && seed - SEED_BASE < world->n_clients ? &world->clients[seed - SEED_BASE] : NULL;
}

static uint32_t random_token(struct world *world)
{
    return 1 + (uint32_t)rng_below(&world->rng, 4000);
}

static bool happens(struct world *world, double share)
{
    return rng_unit(&world->rng) < share;
}

/* A slot with a prompt and the usual settings; its tokens have room for the answer. */
struct client *clients_add(struct world *world, uint64_t arrive_ns, const uint32_t *tokens, uint32_t n_tokens, uint32_t max_tokens)
{
    if (world->n_clients == world->cap_clients)
        return NULL;
    struct client *client = &world->clients[world->n_clients];
    *client = (struct client){.world = world,
                              .index = world->n_clients,
                              .arrive_ns = arrive_ns,
                              .cancel_ns = UINT64_MAX,
                              .slow_after = UINT32_MAX,
                              .entry = UINT32_MAX,
                              .stop_id = 2};
    client->tokens = malloc((n_tokens + max_tokens + 1) * sizeof(uint32_t));
    if (!client->tokens)
        return NULL;
    memcpy(client->tokens, tokens, n_tokens * sizeof(uint32_t));
    client->n_tokens = n_tokens;
    struct request *request = &client->request;
    request->tokens = client->tokens;
    request->n_tokens = n_tokens;
    request->max_tokens = max_tokens;
    request->sampling = (struct sampling_params){
        .top_p = 1, .repetition_penalty = 1, .seed = SEED_BASE + client->index, .stop_ids = &client->stop_id, .n_stop_ids = 1};
    request->on_event = check_event;
    request->user = client;
    world->n_clients++;
    world->n_open++;
    if (arrive_ns < world->clients_due_ns)
        world->clients_due_ns = arrive_ns;
    return client;
}

/* A head that others share, cut somewhere, and a tail of its own; sometimes whole pages exactly. */
static uint32_t make_prompt(struct world *world, uint32_t *out)
{
    uint32_t head = (uint32_t)rng_below(&world->rng, WORLD_HEADS);
    uint32_t n = world->head_tokens[head];
    if (rng_below(&world->rng, 4) == 0)
        n = (uint32_t)rng_below(&world->rng, n);
    uint32_t tail = (uint32_t)rng_below(&world->rng, WORLD_MAX_TAIL);
    if (rng_below(&world->rng, 8) == 0)
        tail = (WORLD_PAGE_TOKENS - n % WORLD_PAGE_TOKENS) % WORLD_PAGE_TOKENS;
    if (n + tail == 0)
        tail = 1;
    memcpy(out, world->heads[head], n * sizeof(uint32_t));
    for (uint32_t i = 0; i < tail; i++)
        out[n + i] = random_token(world);
    return n + tail;
}

static void make_wishes(struct world *world, struct client *client)
{
    struct request *request = &client->request;
    struct sampling_params *s = &request->sampling;
    if (rng_below(&world->rng, 2))
        s->temperature = 0.8f;
    if (rng_below(&world->rng, 4) == 0)
        s->min_tokens = (uint32_t)rng_below(&world->rng, 20);
    request->ignore_eos = rng_below(&world->rng, 3) == 0;
    request->score_prompt = happens(world, world->config.score);
    if (request->score_prompt && rng_below(&world->rng, 2))
        request->max_tokens = 0;
    request->priority = (int32_t)rng_below(&world->rng, 3) - 1;
    request->namespace_id[0] = (uint8_t)rng_below(&world->rng, 2);
    snprintf(request->tenant, sizeof request->tenant, "tenant%u", (unsigned)rng_below(&world->rng, 3));
    client->model = (uint32_t)rng_below(&world->rng, world->config.models);
    client->tries_left = (uint32_t)rng_below(&world->rng, 3);
    if (happens(world, world->config.cancel))
        client->cancel_ns = client->arrive_ns + rng_below(&world->rng, 150000000);
    if (rng_below(&world->rng, 20) == 0)
        client->slow_after = (uint32_t)rng_below(&world->rng, WORLD_MAX_ANSWER);
    if (rng_below(&world->rng, 20) == 0)
        client->timeout_ns = 1 + rng_below(&world->rng, 400000000);
}

static int make_heads(struct world *world)
{
    for (uint32_t h = 0; h < WORLD_HEADS; h++) {
        uint32_t longest = world->config.head_tokens;
        world->head_tokens[h] = longest / 10 + 1 + (uint32_t)rng_below(&world->rng, longest - longest / 10);
        world->heads[h] = malloc((world->head_tokens[h] + 1) * sizeof(uint32_t));
        if (!world->heads[h])
            return HS_ERR_NO_MEMORY;
        for (uint32_t i = 0; i < world->head_tokens[h]; i++)
            world->heads[h][i] = random_token(world);
    }
    /* Two heads share their beginning, so trees must split. */
    uint32_t shorter = world->head_tokens[0] < world->head_tokens[1] ? world->head_tokens[0] : world->head_tokens[1];
    memcpy(world->heads[1], world->heads[0], shorter / 2 * sizeof(uint32_t));
    return 0;
}

int clients_create(struct world *world)
{
    uint32_t n = world->config.requests;
    world->clients_due_ns = UINT64_MAX;
    world->cap_clients = 2 * n + SPARE_CLIENTS;
    world->clients = calloc(world->cap_clients, sizeof *world->clients);
    uint32_t *prompt = malloc((world->config.head_tokens + WORLD_MAX_TAIL + 1) * sizeof *prompt);
    int status = world->clients && prompt ? make_heads(world) : HS_ERR_NO_MEMORY;
    uint64_t at_ns = FIRST_NS;
    for (uint32_t i = 0; status == 0 && i < n; i++) {
        uint32_t length = make_prompt(world, prompt);
        struct client *client = clients_add(world, at_ns, prompt, length, 1 + (uint32_t)rng_below(&world->rng, WORLD_MAX_ANSWER));
        if (client)
            make_wishes(world, client);
        else
            status = HS_ERR_NO_MEMORY;
        if (rng_below(&world->rng, 6)) /* else: at the same moment as the one before */
            at_ns += (uint64_t)(rng_unit(&world->rng) * 2e9 / world->config.rate);
    }
    free(prompt);
    return status;
}

void clients_destroy(struct world *world)
{
    for (uint32_t i = 0; world->clients && i < world->n_clients; i++)
        free(world->clients[i].tokens);
    for (uint32_t h = 0; h < WORLD_HEADS; h++)
        free(world->heads[h]);
    free(world->clients);
}

int clients_repeat(struct world *world)
{
    uint32_t first = world->n_clients;
    for (uint32_t i = 0; i < first; i++) {
        const struct client *old = &world->clients[i];
        if (old->request.score_prompt)
            continue;
        uint64_t at_ns = world->now_ns + (uint64_t)(i * 1e9 / world->config.rate);
        struct client *client = clients_add(world, at_ns, old->tokens, old->n_tokens, REPEAT_TOKENS);
        if (!client)
            return HS_ERR_NO_MEMORY;
        uint64_t seed = client->request.sampling.seed;
        client->request.sampling = old->request.sampling;
        client->request.sampling.seed = seed;
        client->request.sampling.stop_ids = &client->stop_id;
        client->request.ignore_eos = old->request.ignore_eos;
        memcpy(client->request.namespace_id, old->request.namespace_id, sizeof client->request.namespace_id);
        client->model = old->model;
        client->is_repeat = true;
        client->tries_left = REPEAT_TRIES;
    }
    return 0;
}

static bool choose_entry(struct client *client)
{
    struct world *world = client->world;
    if (client->entry != UINT32_MAX && world_node_serves(&world->nodes[client->entry]))
        return true;
    uint32_t start = (uint32_t)rng_below(&world->rng, world->n_nodes);
    for (uint32_t i = 0; i < world->n_nodes; i++) {
        const struct world_node *wn = &world->nodes[(start + i) % world->n_nodes];
        if (wn->model == client->model && world_node_serves(wn)) {
            client->entry = wn->index;
            return true;
        }
    }
    return false;
}

static void submit(struct client *client)
{
    struct world *world = client->world;
    if (!choose_entry(client)) {
        client->arrive_ns = world->now_ns + POSTPONE_NS;
        return;
    }
    struct world_node *entry = &world->nodes[client->entry];
    if (client->timeout_ns)
        client->request.deadline_ns = env_now_ns(&entry->env) + client->timeout_ns;
    client->state = CLIENT_WAITING;
    client->submitted = true;
    client->n_forwards = 0;
    world->last_event_ns = world->now_ns;
    node_submit(entry->node, &client->request);
    world_wake(entry);
}

static void cancel(struct client *client)
{
    struct world *world = client->world;
    struct world_node *entry = &world->nodes[client->entry];
    if (entry->stopped) {
        client->cancel_ns = world->now_ns + POSTPONE_NS; /* it notices when it goes on */
        return;
    }
    client->cancel_sent = true;
    node_cancel(entry->node, &client->request);
    world_wake(entry);
    if (client->state != CLIENT_DONE)
        world_fail(world, "request %u: canceled, and no last event", client->index);
}

void clients_step(struct world *world)
{
    if (world->now_ns < world->clients_due_ns)
        return;
    uint64_t due = UINT64_MAX;
    for (uint32_t i = 0; i < world->n_clients; i++) {
        struct client *client = &world->clients[i];
        if (client->state == CLIENT_PLANNED && world->now_ns >= client->arrive_ns)
            submit(client);
        if (client->state == CLIENT_WAITING && world->now_ns >= client->cancel_ns && !client->cancel_sent)
            cancel(client);
        if (client->state == CLIENT_PLANNED && client->arrive_ns < due)
            due = client->arrive_ns;
        if (client->state == CLIENT_WAITING && !client->cancel_sent && client->cancel_ns < due)
            due = client->cancel_ns;
    }
    world->clients_due_ns = due;
}

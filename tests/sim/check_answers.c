/*
 * Every event of a request: in order, exactly one last, tokens those of a lone node, failures only for a reason that the world made,
 * and nothing from cache that nobody in its namespace ever sent.
 */
#include <string.h>

#include "core/base/error.h"
#include "tests/sim/check.h"

static void done(struct client *client)
{
    client->state = CLIENT_DONE;
    client->done_ns = client->world->now_ns;
    client->world->n_open--;
}

static const struct world_node *entry_of(const struct client *client)
{
    return &client->world->nodes[client->entry];
}

/* What a lone node would say next. */
static uint32_t expected_token(const struct client *client)
{
    return null_backend_next_token(&entry_of(client)->backend_config, client->tokens, client->n_tokens, client->request.n_tokens,
                                   &client->request.sampling);
}

static uint32_t answer_tokens(const struct client *client)
{
    return client->n_tokens - client->request.n_tokens;
}

/* Tokens of the longest sequence at the entry: a pool may be smaller than the model's context. */
static uint32_t context_of(const struct client *client)
{
    const struct null_backend_config *backend = &entry_of(client)->backend_config;
    uint64_t pool = (uint64_t)backend->n_pages * backend->page_tokens;
    return pool < client->world->config.context ? (uint32_t)pool : client->world->config.context;
}

static bool fits(const struct client *client)
{
    uint32_t context = context_of(client), n = client->request.n_tokens;
    return n < context || (n == context && !client->request.max_tokens);
}

static uint32_t longest_answer(const struct client *client)
{
    uint32_t room = context_of(client) - client->request.n_tokens;
    return client->request.max_tokens < room ? client->request.max_tokens : room;
}

static uint32_t common_tokens(const struct client *a, const struct client *b)
{
    uint32_t n = a->n_tokens < b->n_tokens ? a->n_tokens : b->n_tokens, i = 0;
    while (i < n && a->tokens[i] == b->tokens[i])
        i++;
    return i;
}

/* What it found in cache was sent, or answered, in its own namespace before. */
static void check_sharing(struct client *client, uint32_t cached_tokens)
{
    struct world *world = client->world;
    uint32_t most = 0;
    if (client->tried_before || client->n_forwards > 1)
        return; /* it may find what it computed itself */
    for (uint32_t i = 0; i < world->n_clients && most < cached_tokens; i++) {
        const struct client *other = &world->clients[i];
        bool same = memcmp(other->request.namespace_id, client->request.namespace_id, sizeof client->request.namespace_id) == 0;
        if (other == client || !other->submitted || !same)
            continue;
        uint32_t common = common_tokens(client, other);
        most = common > most ? common : most;
    }
    if (cached_tokens > most)
        world_fail(world, "request %u: %u tokens from cache, of which its namespace knows %u", client->index, cached_tokens, most);
}

static void take_start(struct client *client, const struct request_event *event)
{
    struct world *world = client->world;
    if (client->started)
        world_fail(world, "request %u: started twice", client->index);
    client->started = true;
    if (event->cached_tokens >= client->request.n_tokens + client->request.max_tokens)
        world_fail(world, "request %u: %u tokens from cache", client->index, event->cached_tokens);
    check_sharing(client, event->cached_tokens);
    world->result->cached_tokens += event->cached_tokens;
    world->result->prompt_tokens += client->request.n_tokens;
    world_trace(world, event->cached_tokens);
}

static void take_tokens(struct client *client, const struct request_event *event)
{
    struct world *world = client->world;
    for (uint32_t i = 0; i < event->n_results; i++) {
        uint32_t token = event->results[i].token, expected = expected_token(client);
        world_trace(world, token);
        if (token != expected)
            world_fail(world, "request %u: token %u of the answer is %u, a lone node gives %u", client->index, answer_tokens(client), token,
                       expected);
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
        if (client->n_scored + 1 >= client->request.n_tokens ||
            event->results[i].token != client->tokens[client->n_scored + 1]) {
            world_fail(client->world, "request %u: score %u is of another token", client->index, client->n_scored);
            return;
        }
        client->n_scored++;
    }
}

static void check_finish(struct client *client, enum finish_reason reason)
{
    struct world *world = client->world;
    bool at_length = answer_tokens(client) == longest_answer(client);
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

/* All full: told when to come again, and it does. True: it will. */
static bool take_refusal(struct client *client, const struct request_event *event)
{
    struct world *world = client->world;
    if (!client->request.deadline_ns && !check_is_full(entry_of(client)))
        world_fail(world, "request %u: refused (%s) by a node with room", client->index, event->text);
    if (!event->retry_after_s)
        world_fail(world, "request %u: refused without a time to retry", client->index);
    if (client->n_scored || answer_tokens(client))
        world_fail(world, "request %u: refused in the middle of its answer", client->index);
    world->result->refused++;
    if (!client->tries_left) {
        if (client->is_repeat)
            world_fail(world, "request %u: refused again and again", client->index);
        return false;
    }
    client->tries_left--;
    client->tried_before = true;
    client->started = false;
    client->state = CLIENT_PLANNED;
    client->arrive_ns = world->now_ns + event->retry_after_s * 1000000000ull;
    if (client->arrive_ns < world->clients_due_ns)
        world->clients_due_ns = client->arrive_ns;
    return true;
}

/* At its deadline, not before, and not when something else happened to wake the node. */
static void check_time_out(struct client *client, uint64_t now_ns)
{
    static const uint64_t LATE_NS = 1000000;
    struct world *world = client->world;
    bool punctual = !world->config.stop && !world->config.jump;
    if (!client->request.deadline_ns || now_ns < client->request.deadline_ns)
        world_fail(world, "request %u: timed out early", client->index);
    else if (punctual && now_ns > client->request.deadline_ns + LATE_NS)
        world_fail(world, "request %u: timed out %.3f s late", client->index, (double)(now_ns - client->request.deadline_ns) / 1e9);
    world->result->timed_out++;
}

static void check_failure(struct client *client, const struct request_event *event)
{
    struct world *world = client->world;
    const struct world_node *entry = entry_of(client);
    switch (event->status) {
    case HS_ERR_CANCELED:
        if (!client->cancel_sent)
            world_fail(world, "request %u: canceled by nobody", client->index);
        world->result->canceled++;
        break;
    case HS_ERR_LIMIT:
        if (client->refused)
            world->result->too_slow++;
        else if (fits(client) || client->started)
            world_fail(world, "request %u: cut off (%s)", client->index, event->text);
        else
            world->result->too_long++;
        break;
    case HS_ERR_TIMEOUT:
        check_time_out(client, env_now_ns(&entry->env));
        break;
    case HS_ERR_CLOSED:
        if (entry->up)
            world_fail(world, "request %u: its node says that it is closed", client->index);
        world->result->crashed++;
        break;
    case HS_ERR_IO:
        if (world->config.fail == 0)
            world_fail(world, "request %u: %s", client->index, event->text);
        world->result->broke++;
        break;
    default:
        world_fail(world, "request %u failed: %s (%s)", client->index, error_name(event->status), event->text);
    }
}

bool check_event(void *user, struct request *request, const struct request_event *event)
{
    struct client *client = user;
    struct world *world = client->world;
    world->last_event_ns = world->now_ns;
    world_trace(world, world->now_ns);
    world_trace(world, (uint64_t)client->index << 8 | event->kind);
    if (client->state != CLIENT_WAITING) {
        world_fail(world, "request %u: an event of kind %d after the last", client->index, event->kind);
        return true;
    }
    switch (event->kind) {
    case REQUEST_STARTED:
        take_start(client, event);
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
        if (event->status == HS_ERR_BUSY && take_refusal(client, event))
            break;
        if (event->status != HS_ERR_BUSY)
            check_failure(client, event);
        done(client);
        break;
    }
    return true;
}

/*
 * A whole node against peers that say anything. The input is a list of orders, each an opcode and what it needs (rules
 * below); messages reach the node as if its transport had delivered them from an authenticated peer. Numbers of forwarded requests
 * cannot be guessed, so in an answer about one the numbers 0 to 7 stand for the latest that the node sent. Whatever peers say, each
 * of its own requests must get exactly one last event, and when the node goes nothing may be left.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/null/null_backend.h"
#include "core/serve/forward_message.h"
#include "core/serve/node.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/fuzz_env.h"

enum { PEERS = 4, EVENTS = 32, REQUESTS = 8, PROMPT = 96, IDS = 8 };
enum { ID_AT = 1, ID_END = ID_AT + 8 }; /* where a message of forwarding has its number */

enum opcode {
    OP_UP,      /* peer, boot id (1 byte) */
    OP_DOWN,    /* peer, status */
    OP_MESSAGE, /* peer, length (2 bytes), bytes */
    OP_TIME,    /* milliseconds (2 bytes) */
    OP_SUBMIT,  /* first token, prompt length, answer length, flags */
    OP_CANCEL,  /* request */
    OP_BUSY,    /* how many of the next sends are refused */
    OP_ADMIN,   /* drain, undrain, flush, status */
    OPCODES,
};

struct stand_in {
    struct transport transport;
    struct transport_event events[EVENTS];
    uint8_t *given[EVENTS], *kept[EVENTS]; /* messages waiting; those of the last poll */
    uint32_t n_events;
    uint64_t boot_ids[PEERS], ids[IDS];
    uint32_t busy, n_ids;
};

struct fuzzed_request {
    struct request request;
    uint32_t tokens[PROMPT], stop_id, finals;
};

struct world {
    uint64_t now_ns;
    struct fuzz_env source;
    struct env env;
    struct stand_in wire;
    struct backend *backend;
    struct metrics *metrics;
    struct node *node;
    struct fuzzed_request requests[REQUESTS];
    uint32_t n_requests;
};

static struct stand_in *stand_in_of(const struct transport *transport)
{
    return (struct stand_in *)(uintptr_t)transport;
}

static void wire_info(const struct transport *transport, struct transport_info *out)
{
    *out = (struct transport_info){
        .name = "fuzzed", .boot_id = 77, .max_message_bytes = 1 << 20, .max_unreliable_bytes = 1100, .local = "self:1"};
}

static int wire_resolve(struct transport *transport, const char *address, uint32_t *peer)
{
    if (strncmp(address, "peer", 4) != 0 || address[4] < '0' || address[4] >= '0' + PEERS)
        return HS_ERR_NOT_FOUND;
    *peer = (uint32_t)(address[4] - '0');
    return 0;
}

static int wire_address(const struct transport *transport, uint32_t peer, char *text, size_t size)
{
    snprintf(text, size, "peer%u:1", peer);
    return peer < PEERS ? 0 : HS_ERR_NOT_FOUND;
}

static void remember_id(struct stand_in *wire, const struct iovec *piece)
{
    const uint8_t *bytes = piece->iov_base;
    if (piece->iov_len >= ID_END && bytes[0] == FORWARD_REQUEST)
        memcpy(&wire->ids[wire->n_ids++ % IDS], bytes + ID_AT, sizeof *wire->ids);
}

static int wire_send(struct transport *transport, uint32_t peer, const struct iovec *iov, int n, uint32_t flags)
{
    struct stand_in *wire = stand_in_of(transport);
    volatile uint8_t sum = 0;
    hs_assert(peer < PEERS);
    for (int i = 0; i < n; i++)
        for (size_t k = 0; k < iov[i].iov_len; k++)
            sum = (uint8_t)(sum + ((const uint8_t *)iov[i].iov_base)[k]);
    if (!wire->boot_ids[peer])
        return HS_ERR_CLOSED;
    remember_id(wire, iov);
    if (wire->busy) {
        wire->busy--;
        return HS_ERR_BUSY;
    }
    return 0;
}

static void free_kept(struct stand_in *wire)
{
    for (uint32_t i = 0; i < EVENTS; i++) {
        free(wire->kept[i]);
        wire->kept[i] = NULL;
    }
}

static int wire_poll(struct transport *transport, uint64_t now_ns, struct transport_event *events, int n)
{
    struct stand_in *wire = stand_in_of(transport);
    uint32_t count = wire->n_events < (uint32_t)n ? wire->n_events : (uint32_t)n;
    free_kept(wire);
    memcpy(events, wire->events, count * sizeof *events);
    memcpy(wire->kept, wire->given, count * sizeof *wire->kept);
    wire->n_events -= count;
    memmove(wire->events, wire->events + count, wire->n_events * sizeof *events);
    memmove(wire->given, wire->given + count, wire->n_events * sizeof *wire->given);
    return (int)count;
}

static uint64_t wire_next_deadline_ns(const struct transport *transport)
{
    return UINT64_MAX;
}

static int wire_wait_fd(const struct transport *transport)
{
    return -1;
}

static void wire_close_peer(struct transport *transport, uint32_t peer)
{
    hs_assert(peer < PEERS);
    stand_in_of(transport)->boot_ids[peer] = 0;
}

static int wire_peer_stats(const struct transport *transport, uint32_t peer, struct transport_peer_stats *out)
{
    *out = (struct transport_peer_stats){.rtt_ns = 100000, .rtt_variance_ns = 10000};
    return peer < PEERS ? 0 : HS_ERR_NOT_FOUND;
}

static void wire_stats(const struct transport *transport, struct transport_stats *out)
{
    *out = (struct transport_stats){0};
}

static const struct transport_ops wire_ops = {
    .info = wire_info,
    .resolve = wire_resolve,
    .address = wire_address,
    .send = wire_send,
    .poll = wire_poll,
    .next_deadline_ns = wire_next_deadline_ns,
    .wait_fd = wire_wait_fd,
    .close_peer = wire_close_peer,
    .peer_stats = wire_peer_stats,
    .stats = wire_stats,
};

static bool on_event(void *user, struct request *request, const struct request_event *event)
{
    struct fuzzed_request *own = user;
    hs_assert(own->finals == 0);
    if (event->kind == REQUEST_FINISHED || event->kind == REQUEST_FAILED)
        own->finals++;
    hs_assert(event->kind != REQUEST_FAILED || (event->text && event->status < 0));
    return true;
}

static void world_open(struct world *world)
{
    static const struct null_backend_config backend = {
        .n_pages = 64, .n_vocab = 1000, .max_rows = 64, .fixed_ns = 1000000, .row_ns = 10000, .stop_every = 50, .stop_id = 2, .check_chains = true};
    struct node_config config = {.model_name = "m", .n_context = 512, .max_waiting = 8, .push_back_depth = 2};
    struct error err = {0};
    strcpy(config.cluster.name, "self");
    memset(config.cluster.fingerprint, 7, sizeof config.cluster.fingerprint);
    config.cluster.gossip_interval_ns = 10000000;
    config.cluster.max_replica_blocks = 4096;
    world->now_ns = 1000000000;
    world->source = (struct fuzz_env){&world->now_ns, 0};
    world->env = fuzz_env_of(&world->source);
    world->wire.transport.ops = &wire_ops;
    world->metrics = metrics_create();
    world->backend = null_backend_create(&backend, &world->env);
    hs_assert(world->metrics && world->backend);
    hs_assert(node_create(&config, &world->env, &world->wire.transport, world->backend, world->metrics, &world->node, &err) == 0);
}

static void world_close(struct world *world)
{
    node_destroy(world->node);
    for (uint32_t i = 0; i < world->n_requests; i++)
        hs_assert(world->requests[i].finals == 1);
    world->backend->ops->destroy(world->backend);
    metrics_destroy(world->metrics);
    free_kept(&world->wire);
    for (uint32_t i = 0; i < world->wire.n_events; i++)
        free(world->wire.given[i]);
}

static void step(struct world *world, uint64_t ms)
{
    uint64_t end = world->now_ns + ms * 1000000;
    for (int turns = 0; turns < 200 && world->now_ns <= end; turns++) {
        uint64_t next = node_step(world->node, world->now_ns);
        if (node_was_busy(world->node))
            continue;
        if (next > end)
            break;
        world->now_ns = next > world->now_ns ? next : world->now_ns + 1000;
    }
    if (world->now_ns < end)
        world->now_ns = end;
}

static void push(struct world *world, const struct transport_event *event, uint8_t *bytes)
{
    struct stand_in *wire = &world->wire;
    if (wire->n_events == EVENTS)
        node_step(world->node, world->now_ns);
    hs_assert(wire->n_events < EVENTS);
    wire->events[wire->n_events] = *event;
    wire->given[wire->n_events++] = bytes;
}

static void order_down(struct world *world, uint32_t peer, int status)
{
    if (!world->wire.boot_ids[peer])
        return;
    world->wire.boot_ids[peer] = 0;
    push(world, &(struct transport_event){.kind = TRANSPORT_PEER_DOWN, .peer = peer, .status = status}, NULL);
}

static void order_up(struct world *world, uint32_t peer, uint64_t boot_id)
{
    order_down(world, peer, HS_ERR_CANCELED);
    world->wire.boot_ids[peer] = boot_id + 1;
    push(world, &(struct transport_event){.kind = TRANSPORT_PEER_UP, .peer = peer, .boot_id = boot_id + 1}, NULL);
}

static void order_message(struct world *world, uint32_t peer, struct reader *in)
{
    size_t len = read_u16(in);
    if (len > reader_left(in))
        len = reader_left(in);
    const uint8_t *bytes = read_view(in, len);
    if (!world->wire.boot_ids[peer] || len == 0)
        return;
    uint8_t *copy = fuzz_copy(bytes, len);
    uint64_t id;
    if (len >= ID_END && copy[0] > FORWARD_REQUEST && (memcpy(&id, copy + ID_AT, sizeof id), id < IDS))
        memcpy(copy + ID_AT, &world->wire.ids[(world->wire.n_ids - 1 - id) % IDS], sizeof id);
    push(world,
         &(struct transport_event){
             .kind = TRANSPORT_MESSAGE, .peer = peer, .boot_id = world->wire.boot_ids[peer], .data = copy, .len = (uint32_t)len},
         copy);
}

static void order_submit(struct world *world, struct reader *in)
{
    uint8_t first = read_u8(in), n = read_u8(in), answer = read_u8(in), flags = read_u8(in);
    if (world->n_requests == REQUESTS)
        return;
    struct fuzzed_request *own = &world->requests[world->n_requests++];
    for (uint32_t i = 0; i < PROMPT; i++)
        own->tokens[i] = (first + i * 7) % 900 + 10;
    own->stop_id = 2;
    own->request = (struct request){.tokens = own->tokens,
                                    .n_tokens = n % PROMPT + 1,
                                    .max_tokens = answer,
                                    .score_prompt = flags & 1,
                                    .priority = (flags >> 1 & 3) - 1,
                                    .deadline_ns = flags & 8 ? world->now_ns + 50000000 : 0,
                                    .on_event = on_event,
                                    .user = own};
    own->request.sampling = (struct sampling_params){
        .top_p = 1, .repetition_penalty = 1, .stop_ids = &own->stop_id, .n_stop_ids = 1, .logprobs = flags & 16, .n_top_logprobs = flags & 16 ? 3 : 0};
    node_submit(world->node, &own->request);
}

static void order_admin(struct world *world, uint8_t what)
{
    struct strbuf text = {0};
    switch (what % 4) {
    case 0: node_drain(world->node, true); break;
    case 1: node_drain(world->node, false); break;
    case 2: node_flush(world->node); break;
    case 3:
        node_status_json(world->node, &text);
        node_tree_json(world->node, &text);
        metrics_write(world->metrics, &text);
        break;
    }
    strbuf_fini(&text);
}

static void obey(struct world *world, struct reader *in)
{
    enum opcode op = read_u8(in) % OPCODES;
    uint8_t which = read_u8(in);
    switch (op) {
    case OP_UP: order_up(world, which % PEERS, read_u8(in)); break;
    case OP_DOWN: order_down(world, which % PEERS, read_u8(in) & 1 ? HS_ERR_TIMEOUT : HS_ERR_CLOSED); break;
    case OP_MESSAGE: order_message(world, which % PEERS, in); break;
    case OP_TIME: step(world, which | (read_u8(in) & 0xF) << 8); break;
    case OP_SUBMIT:
        in->pos--; /* its first byte was taken already */
        order_submit(world, in);
        break;
    case OP_CANCEL:
        if (which < world->n_requests && world->requests[which].finals == 0)
            node_cancel(world->node, &world->requests[which].request);
        break;
    case OP_BUSY: world->wire.busy = which % 8; break;
    case OP_ADMIN: order_admin(world, which); break;
    case OPCODES: break;
    }
}

int fuzz_node(const uint8_t *data, size_t len)
{
    struct world *world = calloc(1, sizeof *world);
    hs_assert(world);
    struct reader in;
    reader_init(&in, data, len);
    world_open(world);
    for (int orders = 0; orders < 256 && reader_left(&in); orders++)
        obey(world, &in);
    step(world, 100);
    world_close(world);
    free(world);
    return 0;
}

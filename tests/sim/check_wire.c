/*
 * What a node sends and reads: no message above the transport's limits, gossip and reads within its byte rate, and a request travels one
 * hop, from the node that its client asked to one of the same model, page size and arithmetic class.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/cluster/internal.h"
#include "core/serve/forward_message.h"
#include "core/serve/node_internal.h"
#include "tests/sim/check.h"

enum { MAX_PEERS = 4096 };

/* Bytes that may pass: the rate, and a quarter of a second's worth at once. */
struct allowance {
    double level;
    uint64_t filled_ns;
};

/* Own account of the gossip to one peer, whose last message may go into debt, and of the bytes that reads have brought. */
struct account {
    struct allowance spent, brought;
    struct wire_counts counts;
};

struct wire_check {
    struct world_node *node;
    struct transport_info info;
    struct forward_scratch scratch;
    struct account accounts[MAX_PEERS];
};

struct wire_check *wire_check_create(struct world_node *node, const struct transport *transport)
{
    struct wire_check *check = calloc(1, sizeof *check);
    if (!check)
        return NULL;
    check->node = node;
    check->scratch.cap_tokens = node->world->config.context;
    check->scratch.tokens = calloc(check->scratch.cap_tokens, sizeof(uint32_t));
    transport->ops->info(transport, &check->info);
    if (!check->scratch.tokens) {
        free(check);
        return NULL;
    }
    return check;
}

void wire_check_destroy(struct wire_check *check)
{
    free(check->scratch.tokens);
    free(check);
}

void wire_check_peer_up(struct wire_check *check, uint32_t peer)
{
    if (peer < MAX_PEERS)
        check->accounts[peer] = (struct account){.counts = check->accounts[peer].counts};
}

static void fill(const struct wire_check *check, struct allowance *allowance)
{
    double rate = check->node->world->config.gossip_bytes, burst = rate / 4 > 4096 ? rate / 4 : 4096;
    uint64_t now_ns = env_now_ns(&check->node->env);
    allowance->level = allowance->filled_ns ? allowance->level + rate * (double)(now_ns - allowance->filled_ns) / 1e9 : burst;
    allowance->level = allowance->level < burst ? allowance->level : burst;
    allowance->filled_ns = now_ns ? now_ns : 1;
}

static void check_rate(struct wire_check *check, uint32_t peer, size_t len)
{
    static const double SLACK_BYTES = 64; /* questions for changes and for pages go together */
    struct allowance *spent = &check->accounts[peer].spent;
    fill(check, spent);
    if (spent->level < -SLACK_BYTES)
        world_fail(check->node->world, "%s: gossip of %zu bytes to peer %u while %.0f bytes over its rate", check->node->name, len, peer,
                   -spent->level);
    spent->level -= (double)len;
}

void wire_check_read(struct wire_check *check, uint32_t peer, uint32_t region, uint32_t page, uint32_t expected)
{
    const uint32_t n_pages[] = {1, REGION_LOG_PAGES, REGION_MANIFEST + 1};
    const struct member *m = member_by_peer(check->node->node->cluster, peer);
    if (region > REGION_SNAPSHOT || page >= n_pages[region] || !m) {
        world_fail(check->node->world, "%s reads page %u of region %u, which nobody has", check->node->name, page, region);
        return;
    }
    if (peer >= MAX_PEERS)
        return;
    check->accounts[peer].counts.reads++;
    check_rate(check, peer, region != REGION_HEAD ? expected : m->reads.head_bytes ? m->reads.head_bytes : REGION_HEAD_BYTES);
}

/* A batch may bring more than was expected of it, and what was asked for within a second may come at once. */
void wire_check_read_done(struct wire_check *check, const struct transport_event *event)
{
    enum { BATCH_BYTES = 17 * 4096, REGION_SHIFT = 16 };
    struct world_result *result = check->node->world->result;
    result->reads++;
    result->reads_failed += event->status != 0;
    if (event->peer >= MAX_PEERS || event->status != 0)
        return;
    struct account *account = &check->accounts[event->peer];
    account->counts.headers += (event->cookie >> REGION_SHIFT & 0xffff) == REGION_HEAD;
    fill(check, &account->brought);
    account->brought.level -= event->len;
    if (account->brought.level < -(double)check->node->world->config.gossip_bytes - BATCH_BYTES)
        world_fail(check->node->world, "%s: reads of peer %u brought %.0f bytes more than they may", check->node->name, event->peer,
                   -account->brought.level);
}

struct wire_counts wire_check_counts(const struct wire_check *check, uint32_t peer)
{
    return peer < MAX_PEERS ? check->accounts[peer].counts : (struct wire_counts){0};
}

static const struct world_node *node_at(const struct world *world, const struct transport *transport, uint32_t peer)
{
    char address[TRANSPORT_ADDRESS_TEXT];
    if (transport->ops->address(transport, peer, address, sizeof address) < 0)
        return NULL;
    for (uint32_t i = 0; i < world->n_nodes; i++)
        if (strcmp(world->nodes[i].address, address) == 0)
            return &world->nodes[i];
    return NULL;
}

static void check_forward(struct wire_check *check, const struct transport *transport, uint32_t peer, const struct forward_request *request)
{
    struct world_node *node = check->node;
    struct world *world = node->world;
    world->result->forwarded++;
    struct client *client = clients_by_seed(world, request->sampling.seed);
    if (!client || client->state != CLIENT_WAITING || client->entry != node->index || request->hops != 1)
        world_fail(world, "%s forwarded a request that did not enter there", node->name);
    else
        client->n_forwards++;
    const struct world_node *to = node_at(world, transport, peer);
    if (!to || to == node || !world_same_kind(node, to))
        world_fail(world, "%s forwarded a request to %s, which is of another kind", node->name, to ? to->name : "nobody");
}

void wire_check_send(struct wire_check *check, const struct transport *transport, uint32_t peer, const uint8_t *data, size_t len,
                     uint32_t flags)
{
    struct world *world = check->node->world;
    size_t limit = flags & TRANSPORT_UNRELIABLE ? check->info.max_unreliable_bytes : check->info.max_message_bytes;
    if (len > limit)
        world_fail(world, "%s sent %zu bytes in one message, more than %zu", check->node->name, len, limit);
    bool capped = len && (data[0] == WIRE_DIGEST || data[0] == WIRE_PULL || data[0] == WIRE_MANIFEST || data[0] == WIRE_PAGE_REQUEST ||
                          data[0] == WIRE_PAGE);
    if (capped && peer < MAX_PEERS) {
        check->accounts[peer].counts.messages++;
        check_rate(check, peer, len);
    }
    if (!len || data[0] < CLUSTER_MESSAGE_LIMIT)
        return;
    struct forward_message message;
    if (forward_decode(data, len, &check->scratch, &message) < 0)
        world_fail(world, "%s sent a malformed message of kind 0x%x", check->node->name, data[0]);
    else if (message.kind == FORWARD_REQUEST)
        check_forward(check, transport, peer, &message.request);
}

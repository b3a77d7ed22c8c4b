/*
 * What a node sends: no message above the transport's limits, gossip within its byte rate, and a request travels one hop, from the
 * node that its client asked to one of the same model, page size and arithmetic class.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/cluster/wire.h"
#include "core/serve/forward_message.h"
#include "tests/sim/world_internal.h"

enum { MAX_PEERS = 4096 };

/* Own account of the gossip to one peer: the rate, a quarter of a second at once, and the last message may go into debt. */
struct account {
    double level;
    uint64_t filled_ns;
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
        check->accounts[peer] = (struct account){0};
}

static void check_rate(struct wire_check *check, uint32_t peer, size_t len)
{
    static const double SLACK_BYTES = 1; /* of rounding */
    double rate = check->node->world->config.gossip_bytes, burst = rate / 4 > 4096 ? rate / 4 : 4096;
    uint64_t now_ns = env_now_ns(&check->node->env);
    struct account *account = &check->accounts[peer];
    account->level = account->filled_ns ? account->level + rate * (double)(now_ns - account->filled_ns) / 1e9 : burst;
    account->level = account->level < burst ? account->level : burst;
    account->filled_ns = now_ns ? now_ns : 1;
    if (account->level < -SLACK_BYTES)
        world_fail(check->node->world, "%s: gossip of %zu bytes to peer %u while %.0f bytes over its rate", check->node->name, len, peer,
                   -account->level);
    account->level -= (double)len;
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
    if (capped && peer < MAX_PEERS)
        check_rate(check, peer, len);
    if (!len || data[0] < CLUSTER_MESSAGE_LIMIT)
        return;
    struct forward_message message;
    if (forward_decode(data, len, &check->scratch, &message) < 0)
        world_fail(world, "%s sent a malformed message of kind 0x%x", check->node->name, data[0]);
    else if (message.kind == FORWARD_REQUEST)
        check_forward(check, transport, peer, &message.request);
}

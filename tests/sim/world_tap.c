/* A transport that passes everything on and looks at the forwarding messages that go out. */
#include <stdlib.h>
#include <string.h>

#include "core/serve/forward_message.h"
#include "tests/sim/world_internal.h"

struct tap {
    struct transport transport;
    struct transport *inner;
    struct world_node *node;
    struct forward_scratch scratch;
    uint32_t tokens[WORLD_CONTEXT];
    uint8_t joined[1 << 16];
};

static struct tap *tap_of(const struct transport *transport)
{
    return (struct tap *)transport;
}

/* A request may travel one hop: whoever sends it on is the node that its client asked. */
static void look(struct tap *tap, const struct iovec *iov, int n)
{
    size_t len = 0;
    for (int i = 0; i < n; i++) {
        if (len + iov[i].iov_len > sizeof tap->joined)
            return;
        memcpy(tap->joined + len, iov[i].iov_base, iov[i].iov_len);
        len += iov[i].iov_len;
    }
    if (!len || tap->joined[0] < FORWARD_REQUEST)
        return;
    struct world *world = tap->node->world;
    struct forward_message message;
    if (forward_decode(tap->joined, len, &tap->scratch, &message) < 0) {
        world_fail(world, "%s sent a malformed message of kind 0x%x", tap->node->name, tap->joined[0]);
        return;
    }
    if (message.kind != FORWARD_REQUEST)
        return;
    world->result->forwarded++;
    const struct client *client = clients_by_seed(world, message.request.sampling.seed);
    if (!client || client->state != CLIENT_WAITING || client->entry != tap->node->index || message.request.hops != 1)
        world_fail(world, "%s forwarded a request that did not enter there", tap->node->name);
}

static void tap_info(const struct transport *t, struct transport_info *out)
{
    tap_of(t)->inner->ops->info(tap_of(t)->inner, out);
}

static int tap_resolve(struct transport *t, const char *address, uint32_t *peer)
{
    return tap_of(t)->inner->ops->resolve(tap_of(t)->inner, address, peer);
}

static int tap_address(const struct transport *t, uint32_t peer, char *text, size_t size)
{
    return tap_of(t)->inner->ops->address(tap_of(t)->inner, peer, text, size);
}

static int tap_send(struct transport *t, uint32_t peer, const struct iovec *iov, int n, uint32_t flags)
{
    int status = tap_of(t)->inner->ops->send(tap_of(t)->inner, peer, iov, n, flags);
    if (status == 0)
        look(tap_of(t), iov, n);
    return status;
}

static int tap_poll(struct transport *t, uint64_t now_ns, struct transport_event *events, int n)
{
    return tap_of(t)->inner->ops->poll(tap_of(t)->inner, now_ns, events, n);
}

static uint64_t tap_next_deadline_ns(const struct transport *t)
{
    return tap_of(t)->inner->ops->next_deadline_ns(tap_of(t)->inner);
}

static int tap_wait_fd(const struct transport *t)
{
    return tap_of(t)->inner->ops->wait_fd(tap_of(t)->inner);
}

static int tap_register_memory(struct transport *t, void *base, size_t len)
{
    return tap_of(t)->inner->ops->register_memory(tap_of(t)->inner, base, len);
}

static int tap_publish(struct transport *t, uint32_t region, const void *base, size_t len)
{
    return tap_of(t)->inner->ops->publish(tap_of(t)->inner, region, base, len);
}

static int tap_read(struct transport *t, uint32_t peer, uint32_t region, uint64_t offset, void *dst, uint32_t len, uint64_t cookie)
{
    return tap_of(t)->inner->ops->read(tap_of(t)->inner, peer, region, offset, dst, len, cookie);
}

static void tap_close_peer(struct transport *t, uint32_t peer)
{
    tap_of(t)->inner->ops->close_peer(tap_of(t)->inner, peer);
}

static int tap_peer_stats(const struct transport *t, uint32_t peer, struct transport_peer_stats *out)
{
    return tap_of(t)->inner->ops->peer_stats(tap_of(t)->inner, peer, out);
}

static void tap_stats(const struct transport *t, struct transport_stats *out)
{
    tap_of(t)->inner->ops->stats(tap_of(t)->inner, out);
}

static void tap_destroy(struct transport *t)
{
    tap_of(t)->inner->ops->destroy(tap_of(t)->inner);
    free(t);
}

static const struct transport_ops TAP_OPS = {.info = tap_info,
                                             .resolve = tap_resolve,
                                             .address = tap_address,
                                             .send = tap_send,
                                             .poll = tap_poll,
                                             .next_deadline_ns = tap_next_deadline_ns,
                                             .wait_fd = tap_wait_fd,
                                             .register_memory = tap_register_memory,
                                             .publish = tap_publish,
                                             .read = tap_read,
                                             .close_peer = tap_close_peer,
                                             .peer_stats = tap_peer_stats,
                                             .stats = tap_stats,
                                             .destroy = tap_destroy};

struct transport *tap_create(struct transport *inner, struct world_node *node)
{
    struct tap *tap = calloc(1, sizeof *tap);
    if (!tap)
        return NULL;
    tap->transport.ops = &TAP_OPS;
    tap->inner = inner;
    tap->node = node;
    tap->scratch.tokens = tap->tokens;
    tap->scratch.cap_tokens = WORLD_CONTEXT;
    return &tap->transport;
}

/* A transport that passes everything on, shows the checkers what goes out, and lets a node that lies say something else. */
#include <stdlib.h>
#include <string.h>

#include "core/base/codec.h"
#include "core/base/error.h"
#include "tests/sim/check.h"

enum { LONGEST_LIE = 9000 };

struct tap {
    struct transport transport;
    struct transport *inner;
    struct world_node *node;
    struct wire_check *check;
    struct transport_info info;
    uint8_t *joined;
    size_t cap_joined;
};

static struct tap *tap_of(const struct transport *transport)
{
    return (struct tap *)transport;
}

/* The message in one piece; NULL: out of memory. */
static const uint8_t *join(struct tap *tap, const struct iovec *iov, int n, size_t *len)
{
    *len = 0;
    for (int i = 0; i < n; i++) {
        if (*len + iov[i].iov_len > tap->cap_joined) {
            size_t cap = 2 * (*len + iov[i].iov_len);
            uint8_t *grown = realloc(tap->joined, cap);
            if (!grown)
                return NULL;
            tap->joined = grown;
            tap->cap_joined = cap;
        }
        memcpy(tap->joined + *len, iov[i].iov_base, iov[i].iov_len);
        *len += iov[i].iov_len;
    }
    return tap->joined;
}

static int tap_send(struct transport *t, uint32_t peer, const struct iovec *iov, int n, uint32_t flags)
{
    struct tap *tap = tap_of(t);
    size_t len;
    const uint8_t *data = join(tap, iov, n, &len);
    if (!data)
        return HS_ERR_NO_MEMORY;
    uint8_t lies[LONGEST_LIE];
    struct writer w;
    writer_init(&w, lies, tap->info.max_unreliable_bytes < sizeof lies ? tap->info.max_unreliable_bytes : sizeof lies);
    if (lies_falsify(tap->node, tap->info.boot_id, data, len, &w)) {
        struct iovec false_one = {lies, w.len};
        return tap->inner->ops->send(tap->inner, peer, &false_one, 1, flags);
    }
    int status = tap->inner->ops->send(tap->inner, peer, iov, n, flags);
    if (status == 0)
        wire_check_send(tap->check, tap->inner, peer, data, len, flags);
    return status;
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

static void note_connection(const struct tap *tap, const struct transport_event *event)
{
    char address[TRANSPORT_ADDRESS_TEXT];
    tap->inner->ops->address(tap->inner, event->peer, address, sizeof address);
    world_note(tap->node->world, "%s: connection to %s is %s", tap->node->name, address,
               event->kind == TRANSPORT_PEER_UP ? "up" : error_name(event->status));
}

static int tap_poll(struct transport *t, uint64_t now_ns, struct transport_event *events, int n)
{
    int got = tap_of(t)->inner->ops->poll(tap_of(t)->inner, now_ns, events, n);
    for (int i = 0; i < got; i++) {
        if (events[i].kind == TRANSPORT_PEER_UP)
            wire_check_peer_up(tap_of(t)->check, events[i].peer);
        if (events[i].kind == TRANSPORT_PEER_UP || events[i].kind == TRANSPORT_PEER_DOWN)
            note_connection(tap_of(t), &events[i]);
        if (events[i].kind == TRANSPORT_READ_DONE)
            wire_check_read_done(tap_of(t)->check, &events[i]);
    }
    return got;
}

static uint64_t tap_next_deadline_ns(const struct transport *t)
{
    return tap_of(t)->inner->ops->next_deadline_ns(tap_of(t)->inner);
}

static int tap_wait_fd(const struct transport *t)
{
    return tap_of(t)->inner->ops->wait_fd(tap_of(t)->inner);
}

static int tap_publish(struct transport *t, uint32_t region, uint32_t n_pages, uint32_t page_bytes)
{
    return tap_of(t)->inner->ops->publish(tap_of(t)->inner, region, n_pages, page_bytes);
}

static int tap_write_page(struct transport *t, uint32_t region, uint32_t page, const void *data, uint32_t len)
{
    struct tap *tap = tap_of(t);
    uint8_t lies[LONGEST_LIE];
    struct writer w;
    writer_init(&w, lies, sizeof lies);
    if (lies_falsify(tap->node, tap->info.boot_id, data, len, &w))
        return tap->inner->ops->write_page(tap->inner, region, page, lies, (uint32_t)w.len);
    int status = tap->inner->ops->write_page(tap->inner, region, page, data, len);
    if (status == 0)
        check_written(tap->node, region, page);
    return status;
}

static int tap_read_page(struct transport *t, uint32_t peer, uint32_t region, uint32_t page, uint32_t expected, uint64_t cookie)
{
    int status = tap_of(t)->inner->ops->read_page(tap_of(t)->inner, peer, region, page, expected, cookie);
    if (status == 0)
        wire_check_read(tap_of(t)->check, peer, region, page, expected);
    return status;
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
    struct tap *tap = tap_of(t);
    tap->inner->ops->destroy(tap->inner);
    wire_check_destroy(tap->check);
    free(tap->joined);
    free(tap);
}

static const struct transport_ops TAP_OPS = {.info = tap_info,
                                             .resolve = tap_resolve,
                                             .address = tap_address,
                                             .send = tap_send,
                                             .poll = tap_poll,
                                             .next_deadline_ns = tap_next_deadline_ns,
                                             .wait_fd = tap_wait_fd,
                                             .publish = tap_publish,
                                             .write_page = tap_write_page,
                                             .read_page = tap_read_page,
                                             .close_peer = tap_close_peer,
                                             .peer_stats = tap_peer_stats,
                                             .stats = tap_stats,
                                             .destroy = tap_destroy};

struct wire_check *tap_check(const struct transport *t)
{
    return tap_of(t)->check;
}

struct transport *tap_create(struct transport *inner, struct world_node *node)
{
    struct tap *tap = calloc(1, sizeof *tap);
    if (!tap)
        return NULL;
    tap->transport.ops = &TAP_OPS;
    tap->inner = inner;
    tap->node = node;
    inner->ops->info(inner, &tap->info);
    tap->check = wire_check_create(node, inner);
    if (!tap->check) {
        free(tap);
        return NULL;
    }
    return &tap->transport;
}

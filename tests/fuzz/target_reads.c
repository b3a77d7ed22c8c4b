/*
 * A cluster that reads a peer's digest one-sidedly, and a peer that has anything in its pages. The input is a list of orders: an opcode and
 * what it needs. The peer is of boot id 2, alive from the start; reads are answered in the order in which they were asked for.
 */
#include <stdlib.h>
#include <string.h>

#include "core/cluster/cluster.h"
#include "core/cluster/wire.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/fuzz_env.h"

enum { PEER = 0, BOOT = 2, UNDER_WAY = 64, REGION_PAGES = 257 };

enum opcode {
    OP_ANSWER,  /* length (2 bytes), bytes: the next read brings them */
    OP_FAIL,    /* status */
    OP_MESSAGE, /* length (2 bytes), bytes */
    OP_TIME,    /* milliseconds */
    OP_RESTART, /* boot id: the peer comes back as another process */
    OPCODES,
};

struct world {
    struct transport transport;
    struct env env;
    struct cluster *cluster;
    struct fuzz_env source;
    uint64_t now_ns, boot_id, cookies[UNDER_WAY];
    uint32_t n_reads;
};

static struct world *world_of(const struct transport *transport)
{
    return (struct world *)(uintptr_t)transport;
}

static void stand_in_info(const struct transport *transport, struct transport_info *out)
{
    *out = (struct transport_info){.name = "fuzzed", .boot_id = 77, .max_message_bytes = 1 << 20, .max_unreliable_bytes = 1100,
                                   .local = "self:1", .reads_pages = true};
}

static int stand_in_resolve(struct transport *transport, const char *address, uint32_t *peer)
{
    *peer = PEER;
    return 0;
}

static int stand_in_address(const struct transport *transport, uint32_t peer, char *text, size_t size)
{
    hs_assert(size > 6);
    memcpy(text, "peer:1", 7);
    return 0;
}

static int stand_in_send(struct transport *transport, uint32_t peer, const struct iovec *iov, int n, uint32_t flags)
{
    return 0;
}

static int stand_in_publish(struct transport *transport, uint32_t region, uint32_t n_pages, uint32_t page_bytes)
{
    hs_assert(region < TRANSPORT_REGIONS && n_pages <= REGION_PAGES && page_bytes <= TRANSPORT_PAGE_BYTES);
    return 0;
}

static int stand_in_write_page(struct transport *transport, uint32_t region, uint32_t page, const void *data, uint32_t len)
{
    struct wire_message message; /* what we show to others is well-formed */
    hs_assert(wire_decode(data, len, &message) == 0);
    return 0;
}

static int stand_in_read_page(struct transport *transport, uint32_t peer, uint32_t region, uint32_t page, uint32_t expected, uint64_t cookie)
{
    struct world *world = world_of(transport);
    hs_assert(peer == PEER && region < TRANSPORT_REGIONS && page < REGION_PAGES);
    if (world->n_reads == UNDER_WAY) /* those that were given up */
        return HS_ERR_BUSY;
    world->cookies[world->n_reads++] = cookie;
    return 0;
}

static void stand_in_close_peer(struct transport *transport, uint32_t peer)
{
}

static int stand_in_peer_stats(const struct transport *transport, uint32_t peer, struct transport_peer_stats *out)
{
    *out = (struct transport_peer_stats){.rtt_ns = 10000, .rtt_variance_ns = 1000};
    return 0;
}

static const struct transport_ops stand_in_ops = {
    .info = stand_in_info,
    .resolve = stand_in_resolve,
    .address = stand_in_address,
    .send = stand_in_send,
    .publish = stand_in_publish,
    .write_page = stand_in_write_page,
    .read_page = stand_in_read_page,
    .close_peer = stand_in_close_peer,
    .peer_stats = stand_in_peer_stats,
};

static void step(struct world *world, uint64_t ms)
{
    uint64_t end_ns = world->now_ns + ms * 1000000;
    for (int turns = 0; turns < 100 && world->now_ns <= end_ns; turns++) {
        uint64_t next = cluster_step(world->cluster, world->now_ns);
        if (next > end_ns)
            break;
        world->now_ns = next > world->now_ns ? next : world->now_ns + 1000;
    }
    world->now_ns = end_ns;
}

static void give(struct world *world, const struct transport_event *event)
{
    cluster_on_event(world->cluster, event, world->now_ns);
    cluster_step(world->cluster, world->now_ns);
}

static void message(struct world *world, const uint8_t *bytes, size_t len)
{
    uint8_t *copy = fuzz_copy(bytes, len);
    give(world, &(struct transport_event){.kind = TRANSPORT_MESSAGE, .peer = PEER, .boot_id = world->boot_id, .data = copy, .len = (uint32_t)len});
    free(copy);
}

/* The next read ends; status 0: with the bytes. */
static void answer(struct world *world, int status, const uint8_t *bytes, size_t len)
{
    if (world->n_reads == 0)
        return;
    uint8_t *copy = fuzz_copy(bytes, len);
    struct transport_event done = {.kind = TRANSPORT_READ_DONE, .peer = PEER, .boot_id = world->boot_id, .status = status,
                                   .cookie = world->cookies[0], .version = 2, .data = copy, .len = (uint32_t)len};
    memmove(world->cookies, world->cookies + 1, --world->n_reads * sizeof *world->cookies);
    give(world, &done);
    free(copy);
}

static void come_up(struct world *world, uint64_t boot_id)
{
    uint8_t bytes[512];
    struct writer w;
    struct wire_hello hello = {.self = {.name = "peer", .address = "peer:1", .http_address = "peer:80", .boot_id = boot_id, .incarnation = 1}};
    while (world->n_reads > 0)
        answer(world, HS_ERR_CLOSED, NULL, 0);
    if (world->boot_id)
        give(world, &(struct transport_event){.kind = TRANSPORT_PEER_DOWN, .peer = PEER, .status = HS_ERR_CANCELED, .boot_id = world->boot_id});
    while (world->n_reads > 0)
        answer(world, HS_ERR_CLOSED, NULL, 0);
    world->boot_id = boot_id;
    give(world, &(struct transport_event){.kind = TRANSPORT_PEER_UP, .peer = PEER, .boot_id = boot_id});
    writer_init(&w, bytes, sizeof bytes);
    wire_write_hello(&w, &hello);
    message(world, bytes, w.len);
}

static void obey(struct world *world, struct reader *in)
{
    static const int statuses[] = {HS_ERR_NOT_FOUND, HS_ERR_RANGE, HS_ERR_AUTH, HS_ERR_IO, HS_ERR_LIMIT, HS_ERR_CLOSED};
    enum opcode op = read_u8(in) % OPCODES;
    size_t len = op == OP_ANSWER || op == OP_MESSAGE ? read_u16(in) : 0;
    if (len > reader_left(in))
        len = reader_left(in);
    const uint8_t *bytes = read_view(in, len);
    switch (op) {
    case OP_ANSWER: answer(world, 0, bytes, len); break;
    case OP_FAIL: answer(world, statuses[read_u8(in) % 6], NULL, 0); break;
    case OP_MESSAGE:
        if (len > 0)
            message(world, bytes, len);
        break;
    case OP_TIME: step(world, read_u8(in)); break;
    case OP_RESTART: come_up(world, BOOT + (uint64_t)(read_u8(in) & 3)); break;
    case OPCODES: break;
    }
}

int fuzz_reads(const uint8_t *data, size_t len)
{
    struct world *world = calloc(1, sizeof *world);
    hs_assert(world);
    struct cluster_config config = {.name = "self", .page_tokens = 16, .arithmetic = "null", .gossip_interval_ns = 10000000, .max_replica_blocks = 4096,
                                    .max_advertised_blocks = 4096};
    struct reader in;
    uint64_t names[2] = {5, UINT64_MAX};
    memset(config.fingerprint, 7, sizeof config.fingerprint);
    world->transport.ops = &stand_in_ops;
    world->now_ns = 1000000000;
    world->source = (struct fuzz_env){&world->now_ns, 0};
    world->env = fuzz_env_of(&world->source);
    hs_assert(cluster_create(&config, &world->env, &world->transport, NULL, NULL, &world->cluster) == 0);
    struct radix_listener tree = cluster_radix_listener(world->cluster);
    tree.added(tree.self, 1, names, 2);
    come_up(world, BOOT);
    reader_init(&in, data, len);
    for (int orders = 0; orders < 256 && reader_left(&in); orders++)
        obey(world, &in);
    step(world, 200);
    cluster_destroy(world->cluster);
    free(world);
    return 0;
}

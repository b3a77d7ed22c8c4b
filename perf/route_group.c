#include "perf/route_group.h"

#include <stdio.h>
#include <string.h>

#include "core/cluster/wire.h"

enum { RUN_NAMES = 900, OUR_BOOT_ID = 1, FIRST_BOOT_ID = 1000 };

static const char arithmetic[] = "f32 avx2";

static struct route_group *group_of(const struct transport *transport)
{
    return (struct route_group *)transport;
}

static void info(const struct transport *transport, struct transport_info *out)
{
    *out = (struct transport_info){
        .name = "dropped", .boot_id = OUR_BOOT_ID, .max_message_bytes = 1 << 20, .max_unreliable_bytes = 8192, .local = "here:1"};
}

static int resolve(struct transport *transport, const char *address, uint32_t *peer)
{
    return HS_ERR_NOT_FOUND;
}

static int address(const struct transport *transport, uint32_t peer, char *text, size_t size)
{
    snprintf(text, size, "peer%u:1", peer);
    return 0;
}

static int send_dropped(struct transport *transport, uint32_t peer, const struct iovec *iov, int n, uint32_t flags)
{
    group_of(transport)->sent_messages++;
    return 0;
}

static void close_peer(struct transport *transport, uint32_t peer)
{
}

static int peer_stats(const struct transport *transport, uint32_t peer, struct transport_peer_stats *out)
{
    *out = (struct transport_peer_stats){.rtt_ns = 100000 + 1000 * (uint64_t)peer, .rtt_variance_ns = 10000};
    return 0;
}

/* The cluster calls no other slot. */
static const struct transport_ops ops = {
    .info = info, .resolve = resolve, .address = address, .send = send_dropped, .close_peer = close_peer, .peer_stats = peer_stats};

static uint64_t env_now(void *self)
{
    return ((struct route_group *)self)->now_ns;
}

static uint64_t env_random(void *self)
{
    return rng_u64(&((struct route_group *)self)->rng);
}

static void deliver(struct route_group *group, uint32_t peer, const struct writer *w)
{
    struct transport_event event = {.kind = TRANSPORT_MESSAGE, .peer = peer, .data = w->data, .len = (uint32_t)w->len};
    cluster_on_event(group->cluster, &event, group->now_ns);
}

static void introduce(struct route_group *group, uint32_t peer)
{
    struct transport_event up = {.kind = TRANSPORT_PEER_UP, .peer = peer, .boot_id = FIRST_BOOT_ID + peer};
    cluster_on_event(group->cluster, &up, group->now_ns);
    struct wire_hello hello = {.self = {.boot_id = up.boot_id, .state = WIRE_ALIVE}};
    snprintf(hello.self.name, sizeof hello.self.name, "peer%u", peer);
    uint8_t buffer[512];
    struct writer w;
    writer_init(&w, buffer, sizeof buffer);
    wire_write_hello(&w, &hello);
    deliver(group, peer, &w);
}

int route_group_init(struct route_group *group, uint32_t n_peers, uint32_t page_tokens, uint32_t max_blocks, uint64_t seed,
                     struct error *err)
{
    *group = (struct route_group){.transport = {.ops = &ops}, .now_ns = 1000000000, .page_tokens = page_tokens};
    group->env = (struct env){env_now, env_random, group};
    rng_seed(&group->rng, seed);
    struct cluster_config config = {.name = "here", .page_tokens = page_tokens, .max_replica_blocks = max_blocks};
    memcpy(config.arithmetic, arithmetic, sizeof arithmetic);
    int rc = cluster_create(&config, &group->env, &group->transport, NULL, NULL, &group->cluster);
    if (rc)
        return error_set(err, rc, "the cluster cannot be made: %s", error_name(rc));
    for (uint32_t peer = 0; peer < n_peers; peer++)
        introduce(group, peer);
    return 0;
}

void route_group_fini(struct route_group *group)
{
    cluster_destroy(group->cluster);
    group->cluster = NULL;
}

int route_group_tell(struct route_group *group, uint32_t peer, const uint64_t *names, uint32_t n, struct error *err)
{
    struct block_set *whole = block_set_create(0); /* for its checksum: an origin states that of its set */
    for (uint32_t i = 0; whole && i < n; i++)
        block_set_add(whole, names[i]);
    struct wire_header header = {.epoch = {FIRST_BOOT_ID + peer, 0},
                                 .sequence = n,
                                 .checksum = whole ? block_set_checksum(whole) : 0,
                                 .n_blocks = n,
                                 .page_tokens = group->page_tokens,
                                 .load = {.running = 1, .prefill_tokens_per_s = 5000, .decode_step_s = 0.01f}};
    block_set_destroy(whole);
    memcpy(header.arithmetic, arithmetic, sizeof arithmetic);
    for (uint32_t at = 0; at < n;) {
        uint32_t run = n - at < RUN_NAMES ? n - at : RUN_NAMES;
        uint8_t buffer[RUN_NAMES * 8 + 512];
        struct writer w;
        header.stamp++;
        writer_init(&w, buffer, sizeof buffer);
        wire_begin_digest(&w, &header, 0, at + 1);
        wire_write_run(&w, false, names + at, run);
        deliver(group, peer, &w);
        at += run;
    }
    for (uint32_t i = 0; i < cluster_peers(group->cluster); i++) {
        struct cluster_peer_info seen;
        if (cluster_peer(group->cluster, i, &seen) == 0 && seen.peer == peer && seen.routable && seen.replica_blocks == n)
            return 0;
    }
    return error_set(err, HS_ERR_PROTOCOL, "peer %u: its %u blocks did not arrive", peer, n);
}

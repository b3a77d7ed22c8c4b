#include "core/cluster/cluster.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/log.h"
#include "core/base/panic.h"
#include "core/cluster/internal.h"

enum {
    DEFAULT_PUSH_BACK = 8,
    DEFAULT_BYTES_PER_S = 1 << 20,
    DEFAULT_REPLICA_BLOCKS = 1 << 20,
    DEFAULT_ADVERTISED_BLOCKS = 1 << 18,
};

static void set_defaults(struct cluster_config *config)
{
    if (!config->gossip_interval_ns)
        config->gossip_interval_ns = 100 * MS;
    if (!config->gossip_bytes_per_s)
        config->gossip_bytes_per_s = DEFAULT_BYTES_PER_S;
    if (!config->push_back_depth)
        config->push_back_depth = DEFAULT_PUSH_BACK;
    if (!config->max_replica_blocks)
        config->max_replica_blocks = DEFAULT_REPLICA_BLOCKS;
    if (!config->max_advertised_blocks)
        config->max_advertised_blocks = DEFAULT_ADVERTISED_BLOCKS;
    if (config->max_advertised_blocks > CLUSTER_MOST_ADVERTISED_BLOCKS)
        config->max_advertised_blocks = CLUSTER_MOST_ADVERTISED_BLOCKS;
    config->name[sizeof config->name - 1] = '\0';
    config->http_address[sizeof config->http_address - 1] = '\0';
    config->arithmetic[sizeof config->arithmetic - 1] = '\0';
}

int cluster_create(const struct cluster_config *config, const struct env *env, struct transport *transport, struct metrics *metrics,
                   const struct cluster_listener *listener, struct cluster **out)
{
    if (!config->page_tokens)
        return HS_ERR_INVALID;
    struct cluster *c = calloc(1, sizeof *c);
    if (!c)
        return HS_ERR_NO_MEMORY;
    c->config = *config;
    set_defaults(&c->config);
    c->env = env;
    c->transport = transport;
    if (listener)
        c->listener = *listener;
    transport->ops->info(transport, &c->info);
    rng_seed(&c->rng, env_random_u64(env));
    c->started_ns = env_now_ns(env);
    c->next_probe_ns = c->next_revive_ns = c->next_sync_ns = c->started_ns;
    c->budget.max_blocks = c->config.max_replica_blocks;
    c->budget.max_of_one = (c->config.max_replica_blocks + 1) / 2;
    c->probe_number = rng_u64(&c->rng) >> 1; /* acknowledgements of an earlier life match nothing */
    c->self_transmits = UINT32_MAX;
    c->books.repeat_share = 0.75; /* until known: a head that somebody has already is one that keeps coming */
    c->advert = advert_create(c->config.max_advertised_blocks);
    if (!metrics)
        metrics = c->own_metrics = metrics_create();
    c->metrics = metrics;
    if (!c->advert || !metrics || !cluster_metrics_register(c)) {
        cluster_destroy(c);
        return HS_ERR_NO_MEMORY;
    }
    region_open(c);
    *out = c;
    return 0;
}

void cluster_destroy(struct cluster *c)
{
    if (!c)
        return;
    c->listener = (struct cluster_listener){0};
    while (c->n_members)
        member_free(c, c->members[c->n_members - 1]);
    free(c->members);
    free(c->probe_order);
    free(c->books.candidates);
    u64_map_fini(&c->by_peer);
    u64_map_fini(&c->by_boot);
    advert_destroy(c->advert);
    if (c->own_metrics)
        metrics_destroy(c->own_metrics);
    free(c);
}

int cluster_join(struct cluster *c, const char *address, struct error *err)
{
    if (strcmp(address, c->info.local) == 0)
        return 0; /* a list of all nodes may name ourselves */
    uint32_t peer;
    int rc = c->transport->ops->resolve(c->transport, address, &peer);
    if (rc != 0)
        return error_set(err, rc, "cannot join through %s: %s", address,
                         rc == HS_ERR_NOT_FOUND ? "this name has no address of our --bind address's kind" : error_name(rc));
    struct member *m = member_by_peer(c, peer);
    if (!m)
        m = member_add(c, peer);
    if (!m)
        return error_set(err, HS_ERR_LIMIT, "cannot join through %s: more than %d members", address, MEMBERS_MAX);
    m->seed = true;
    return 0;
}

void cluster_leave(struct cluster *c)
{
    c->left = true;
    c->incarnation++;
    c->self_transmits = 0;
    uint8_t buffer[16];
    struct writer w;
    for (uint32_t i = 0; i < c->n_members; i++) {
        struct member *m = c->members[i];
        writer_init(&w, buffer, sizeof buffer);
        wire_write_leave(&w, c->incarnation);
        if (m->up)
            cluster_send(c, m, &w, 0);
    }
}

size_t cluster_datagram_bytes(const struct cluster *c)
{
    return c->info.max_unreliable_bytes < DATAGRAM_MAX ? c->info.max_unreliable_bytes : DATAGRAM_MAX;
}

int cluster_send(struct cluster *c, const struct member *m, const struct writer *w, uint32_t flags)
{
    hs_assert(!w->failed);
    struct iovec piece = {.iov_base = w->data, .iov_len = w->len};
    int rc = c->transport->ops->send(c->transport, m->peer, &piece, 1, flags);
    if (rc == 0)
        counter_add(c->count.sent_bytes, w->len);
    return rc;
}

/* A second way to the same process: the first one serves, what comes over the other is its too. */
static void add_alias(struct cluster *c, struct member *known, struct member *entry, uint32_t peer)
{
    if (entry) {
        known->seed |= entry->seed;
        member_free(c, entry);
    }
    if (!known->has_alias && u64_map_put(&c->by_peer, peer, (uintptr_t)known) == 0) {
        known->has_alias = true;
        known->alias = peer;
    }
}

/* The peer's process is known now. Two addresses may lead to one process, or to ourselves: those are not members of their own. */
static void on_peer_up(struct cluster *c, const struct transport_event *event, uint64_t now_ns)
{
    struct member *m = member_by_peer(c, event->peer);
    if (event->boot_id == c->info.boot_id) {
        c->transport->ops->close_peer(c->transport, event->peer);
        if (m)
            member_free(c, m);
        return;
    }
    struct member *known = member_by_boot(c, event->boot_id);
    if (known && known != m && known->up) {
        add_alias(c, known, m, event->peer);
        return;
    }
    if (known && known != m)
        member_forget(c, known);
    if (!m)
        m = member_add(c, event->peer);
    if (!m) {
        log_warn("cluster", "no room for another member: peer %u is left out", event->peer);
        return;
    }
    member_set_boot(c, m, event->boot_id, now_ns);
    m->up = true;
    m->pushed = advert_sequence(c->advert); /* what came before, it pulls */
    m->gossiped_ns = 0;
    m->bucket = (struct bucket){0};
    m->hello_ns = m->asked_ns = 0;
    m->asked_in_vain = 0;
    reads_reset(c, m);
    spread_hello(c, m, now_ns);
    swim_probe(c, m, now_ns);
}

static void on_peer_down(struct cluster *c, const struct transport_event *event, uint64_t now_ns)
{
    struct member *m = member_by_peer(c, event->peer);
    if (!m)
        c->transport->ops->close_peer(c->transport, event->peer); /* nobody else here would ever let it go */
    if (!m || !m->up || m->peer != event->peer)
        return;
    m->up = false;
    log_info("cluster", "connection to peer %s lost: %s", member_who(m), error_name(event->status));
    member_announce(c, m, true);
    if (m->state == CLUSTER_PEER_ALIVE) {
        swim_suspect(c, m, c->info.boot_id, now_ns);
        swim_probe(c, m, now_ns); /* others may still reach it */
    }
}

static void dispatch(struct cluster *c, struct member *m, const struct wire_message *message, const struct transport_event *event,
                     uint64_t now_ns)
{
    switch (message->kind) {
    case WIRE_HELLO:
        spread_on_hello(c, m, &message->hello, now_ns);
        break;
    case WIRE_MEMBERS:
        spread_apply(c, m, message->members, now_ns);
        break;
    case WIRE_PING:
    case WIRE_PING_REQUEST:
    case WIRE_ACK:
    case WIRE_NACK:
        swim_on_probe(c, m, message, now_ns);
        break;
    case WIRE_LEAVE:
        member_set_state(c, m, CLUSTER_PEER_LEFT, message->leave_incarnation, now_ns);
        break;
    case WIRE_DIGEST:
        sync_on_digest(c, m, &message->digest, event->data, event->len, now_ns);
        break;
    case WIRE_PULL:
        sync_on_pull(c, m, &message->pull, now_ns);
        break;
    case WIRE_MANIFEST:
        sync_on_manifest(c, m, &message->manifest, now_ns);
        break;
    case WIRE_PAGE_REQUEST:
        sync_on_page_request(c, m, &message->page_request, now_ns);
        break;
    case WIRE_PAGE:
        sync_on_page(c, m, &message->page, now_ns);
        break;
    case WIRE_INTENT:
        intent_on_message(c, &message->intent, now_ns);
        break;
    case WIRE_WEIGHTS:
        weights_on_message(c, m, message->weights);
        break;
    case WIRE_KINDS:
        break;
    }
}

bool cluster_on_event(struct cluster *c, const struct transport_event *event, uint64_t now_ns)
{
    if (event->kind == TRANSPORT_PEER_UP) {
        on_peer_up(c, event, now_ns);
        return true;
    }
    if (event->kind == TRANSPORT_PEER_DOWN) {
        on_peer_down(c, event, now_ns);
        return true;
    }
    if (event->kind == TRANSPORT_READ_DONE) {
        reads_on_done(c, event, now_ns);
        return true;
    }
    if (event->kind != TRANSPORT_MESSAGE || !event->len || event->data[0] >= CLUSTER_MESSAGE_LIMIT)
        return false;
    counter_add(c->count.received_bytes, event->len);
    struct member *m = member_by_peer(c, event->peer);
    struct wire_message message;
    if (wire_decode(event->data, event->len, &message) != 0) {
        counter_add(c->count.rejected, 1);
    } else if (m && m->up) {
        dispatch(c, m, &message, event, now_ns);
        swim_heard(c, m, now_ns);
    }
    return true;
}

uint64_t cluster_step(struct cluster *c, uint64_t now_ns)
{
    swim_step(c, now_ns);
    gossip_step(c, now_ns);
    uint64_t next = swim_next(c), gossip = gossip_next(c);
    if (gossip < next)
        next = gossip;
    for (uint32_t i = 0; i < c->n_members; i++) {
        uint64_t ask = sync_ask(c, c->members[i], now_ns), read = reads_step(c, c->members[i], now_ns);
        if (ask < next)
            next = ask;
        if (read < next)
            next = read;
    }
    if (now_ns >= c->next_metrics_ns) {
        c->next_metrics_ns = now_ns + SECOND;
        cluster_metrics_update(c, now_ns);
    }
    return next;
}

void cluster_set_load(struct cluster *c, const struct cluster_load *load)
{
    uint32_t depth = c->config.push_back_depth;
    bool push_back = c->push_back ? load->waiting > depth / 2 : load->waiting >= depth;
    push_back |= load->push_back;
    bool is_news = push_back != c->push_back || load->draining != c->load.draining || load->waiting != c->load.waiting ||
                   load->running != c->load.running;
    c->load_changed |= is_news;
    c->load_news += is_news;
    c->push_back = push_back;
    c->load = *load;
    /* A rate that is no number would make peers refuse the whole digest. */
    if (!isfinite(load->prefill_tokens_per_s) || load->prefill_tokens_per_s < 0)
        c->load.prefill_tokens_per_s = 0;
    if (!isfinite(load->decode_step_s) || load->decode_step_s < 0)
        c->load.decode_step_s = 0;
    c->load_version++;
}

static void on_added(void *self, uint64_t parent, const uint64_t *names, uint32_t n)
{
    advert_add(((struct cluster *)self)->advert, parent, names, n);
}

static void on_removed(void *self, const uint64_t *names, uint32_t n)
{
    advert_remove(((struct cluster *)self)->advert, names, n);
}

static bool held_elsewhere(void *self, uint64_t name)
{
    const struct cluster *c = self;
    for (uint32_t i = 0; i < c->n_members; i++)
        if (member_is_routable(c, c->members[i]) && replica_match(&c->members[i]->replica, &name, 1))
            return true;
    return false;
}

struct radix_listener cluster_radix_listener(struct cluster *c)
{
    return (struct radix_listener){.added = on_added, .removed = on_removed, .held_elsewhere = held_elsewhere, .self = c};
}

void cluster_new_epoch(struct cluster *c)
{
    advert_clear(c->advert);
    c->epoch_counter++;
    c->round_sequence = 0;
    c->load_changed = true; /* tell it in the next quick round */
    for (uint32_t i = 0; i < c->n_members; i++)
        c->members[i]->pushed = 0;
}

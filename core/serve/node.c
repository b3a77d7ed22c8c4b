#include "core/serve/node.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/log.h"
#include "core/base/panic.h"
#include "core/serve/admission.h"
#include "core/serve/node_internal.h"

enum {
    DEFAULT_MAX_SEQUENCES = 64,
    DEFAULT_MAX_WAITING = 1024,
    DEFAULT_PUSH_BACK = 8,
    SPARE_ENTRIES = 1024,      /* forwarded ones, beyond what can wait and run here */
    LONGEST_MESSAGE = 8 << 20, /* even if the transport could take more */
    EVENTS_PER_POLL = 64,
    POLLS_PER_STEP = 16,
};
static const uint64_t DEFAULT_FORWARD_TIMEOUT_NS = 5000000000u;
static const uint64_t RETRY_SEND_NS = 1000000u; /* while the outbox holds something */

/* The router asks the cluster who may take requests; nothing here waits for a newcomer. */
static void peer_alive(void *self, uint32_t peer)
{
}

static void peer_gone(void *self, uint32_t peer)
{
    forward_peer_lost(self, peer);
}

/* A node alone tells nobody. */
static void ignore_added(void *self, uint64_t parent, const uint64_t *names, uint32_t n)
{
}

static void ignore_removed(void *self, const uint64_t *names, uint32_t n)
{
}

/* An id has 16 bits for the slot. */
_Static_assert(NODE_MAX_WAITING + NODE_MAX_SEQUENCES + SPARE_ENTRIES <= UINT16_MAX, "entries have a number each");

static int check_config(struct node *node, struct error *err)
{
    struct node_config *c = &node->config;
    const struct backend_info *info = &node->backend_info;
    if (!info->n_pages || !info->page_tokens)
        return error_set(err, HS_ERR_INVALID, "the backend has no KV pages; give it memory for at least one sequence");
    if (!c->n_context)
        return error_set(err, HS_ERR_INVALID, "the context length is 0");
    uint64_t pool_tokens = (uint64_t)info->n_pages * info->page_tokens;
    if (c->n_context > pool_tokens) {
        log_warn("serve", "KV pages hold %" PRIu64 " tokens, so the longest sequence is that and not the model's %u", pool_tokens,
                 c->n_context);
        c->n_context = (uint32_t)pool_tokens;
    }
    if (!c->max_sequences)
        c->max_sequences = DEFAULT_MAX_SEQUENCES;
    if (!c->max_waiting)
        c->max_waiting = DEFAULT_MAX_WAITING;
    if (!c->push_back_depth)
        c->push_back_depth = c->cluster.push_back_depth ? c->cluster.push_back_depth : DEFAULT_PUSH_BACK;
    if (!c->forward_timeout_ns)
        c->forward_timeout_ns = DEFAULT_FORWARD_TIMEOUT_NS;
    if (c->max_waiting > NODE_MAX_WAITING || c->max_sequences > NODE_MAX_SEQUENCES)
        return error_set(err, HS_ERR_LIMIT, "max_waiting %u or max_sequences %u is too large; at most %d and %d", c->max_waiting,
                         c->max_sequences, NODE_MAX_WAITING, NODE_MAX_SEQUENCES);
    c->cluster.push_back_depth = c->push_back_depth;
    c->cluster.page_tokens = info->page_tokens;
    snprintf(c->cluster.arithmetic, sizeof c->cluster.arithmetic, "%s", info->arithmetic);
    return 0;
}

static int allocate_tables(struct node *node)
{
    node->max_services = node->config.max_waiting + node->config.max_sequences;
    node->max_entries = node->max_services + SPARE_ENTRIES;
    node->entries = calloc(node->max_entries, sizeof *node->entries);
    node->services = calloc(node->max_services, sizeof *node->services);
    if (!node->entries || !node->services)
        return HS_ERR_NO_MEMORY;
    for (uint32_t i = node->max_entries; i-- > 0;) {
        node->entries[i].next_free = node->free_entry;
        node->free_entry = &node->entries[i];
    }
    if (!node->transport)
        return 0;
    struct transport_info info;
    node->transport->ops->info(node->transport, &info);
    node->max_message_bytes = info.max_message_bytes < LONGEST_MESSAGE ? info.max_message_bytes : LONGEST_MESSAGE;
    node->encoded = malloc(node->max_message_bytes);
    node->scratch.cap_tokens =
        node->max_message_bytes; /* a token takes a byte at least: what is too long for us is read, and refused */
    node->scratch.tokens = calloc(node->scratch.cap_tokens, sizeof(uint32_t));
    return node->encoded && node->scratch.tokens ? 0 : HS_ERR_NO_MEMORY;
}

/* Cluster, then what reports to it, then the scheduler over all. */
static int build_parts(struct node *node, struct error *err)
{
    struct radix_listener listener = {.added = ignore_added, .removed = ignore_removed};
    if (node->transport) {
        struct cluster_listener heard = {.peer_alive = peer_alive, .peer_gone = peer_gone, .self = node};
        int status =
            cluster_create(&node->config.cluster, &node->env, node->transport, node->metrics.registry, &heard, &node->cluster);
        if (status < 0)
            return error_set(err, status, "cannot set up the group: %s", error_name(status));
        listener = cluster_radix_listener(node->cluster);
    }
    node->pool = page_pool_create(node->backend_info.n_pages);
    struct radix_config radix = {.page_tokens = node->backend_info.page_tokens,
                                 .max_bytes = node->config.tree_bytes,
                                 .hash_key = node->hash_key,
                                 .pool = node->pool,
                                 .listener = listener};
    node->tree = node->pool ? radix_create(&radix) : NULL;
    struct scheduler_config scheduler = {.backend = node->backend,
                                         .pool = node->pool,
                                         .tree = node->tree,
                                         .metrics = &node->metrics,
                                         .max_sequences = node->config.max_sequences,
                                         .max_waiting = node->config.max_waiting,
                                         .max_batch_tokens = node->config.max_batch_tokens};
    node->scheduler = node->tree ? scheduler_create(&scheduler) : NULL;
    return node->scheduler ? 0 : error_set(err, HS_ERR_NO_MEMORY, "out of memory for the node's tables");
}

int node_create(const struct node_config *config, const struct env *env, struct transport *transport, struct backend *backend,
                struct metrics *metrics, struct node **out, struct error *err)
{
    struct node *node = calloc(1, sizeof *node);
    if (!node)
        return error_set(err, HS_ERR_NO_MEMORY, "out of memory for the node");
    node->config = *config;
    node->env = *env;
    node->transport = transport;
    node->backend = backend;
    node->check_ns = UINT64_MAX;
    node->started_ns = env_now_ns(env);
    node->next_id = env_random_u64(env) >> 17; /* an earlier life's late messages will not match */
    backend->ops->info(backend, &node->backend_info);
    block_hash_key_derive(config->group_key, &node->hash_key);
    int status = check_config(node, err);
    if (status == 0 && (status = node_metrics_init(&node->metrics, metrics, config->model_name)) < 0)
        error_set(err, status, "out of memory for metrics");
    if (status == 0 && (status = allocate_tables(node)) < 0)
        error_set(err, status, "out of memory for the node's tables");
    if (status == 0)
        status = build_parts(node, err);
    if (status == 0 && (status = node_limits_init(node)) < 0)
        error_set(err, status, "out of memory for metrics");
    if (status < 0) {
        node_destroy(node);
        return status;
    }
    *out = node;
    return 0;
}

/* Peers hear it from us rather than by our silence; the poll hands it to the wire. */
static void say_goodbye(struct node *node, uint64_t now_ns)
{
    struct transport_event events[EVENTS_PER_POLL];
    cluster_leave(node->cluster);
    node->transport->ops->poll(node->transport, now_ns, events, EVENTS_PER_POLL);
}

void node_destroy(struct node *node)
{
    if (!node)
        return;
    uint64_t now_ns = env_now_ns(&node->env);
    if (node->cluster)
        say_goodbye(node, now_ns);
    for (uint32_t i = 0; node->entries && i < node->max_entries; i++)
        if (node->entries[i].state != ENTRY_FREE)
            entry_abort(&node->entries[i], HS_ERR_CLOSED, "the node is stopping", now_ns);
    for (uint32_t i = 0; node->services && i < node->max_services; i++)
        if (node->services[i].sequence)
            service_cancel(&node->services[i], now_ns);
    scheduler_destroy(node->scheduler);
    if (node->tree)
        radix_destroy(node->tree);
    if (node->pool)
        page_pool_destroy(node->pool);
    if (node->cluster)
        cluster_destroy(node->cluster);
    forward_outbox_fini(&node->outbox);
    node_metrics_fini(&node->metrics);
    free(node->encoded);
    free(node->scratch.tokens);
    free(node->services);
    free(node->entries);
    free(node);
}

int node_join(struct node *node, const char *address, struct error *err)
{
    if (!node->cluster)
        return error_set(err, HS_ERR_UNSUPPORTED, "this node has no transport and cannot join %s", address);
    return cluster_join(node->cluster, address, err);
}

bool node_find_peer(const struct node *node, uint32_t peer, struct cluster_peer_info *out)
{
    uint32_t n = cluster_peers(node->cluster);
    for (uint32_t i = 0; i < n; i++)
        if (cluster_peer(node->cluster, i, out) == 0 && out->peer == peer)
            return true;
    return false;
}

void node_look_at(struct node *node, uint64_t when_ns)
{
    if (when_ns < node->check_ns)
        node->check_ns = when_ns;
}

static void on_event(struct node *node, const struct transport_event *event, uint64_t now_ns)
{
    /* Whatever was under way between us is lost, whether or not the group has given the peer up already. */
    if (event->kind == TRANSPORT_PEER_DOWN)
        forward_peer_lost(node, event->peer);
    if (cluster_on_event(node->cluster, event, now_ns))
        return;
    if (event->kind == TRANSPORT_MESSAGE)
        forward_on_message(node, event->peer, event->data, event->len, now_ns);
}

static bool poll_transport(struct node *node, uint64_t now_ns)
{
    struct transport_event events[EVENTS_PER_POLL];
    bool any = false;
    for (int round = 0; round < POLLS_PER_STEP; round++) {
        int n = node->transport->ops->poll(node->transport, now_ns, events, EVENTS_PER_POLL);
        for (int i = 0; i < n; i++)
            on_event(node, &events[i], now_ns);
        any |= n > 0;
        if (n < EVENTS_PER_POLL)
            break;
    }
    return any;
}

/* What peers that went leave behind: their requests end, ours move on. They are told, as one that only counts as dead may hear it. */
static void settle_lost(struct node *node, uint64_t now_ns)
{
    if (!node->any_lost)
        return;
    node->any_lost = false;
    for (uint32_t i = 0; i < node->max_services; i++)
        if (node->services[i].sequence && node->services[i].lost)
            service_abandon(&node->services[i], HS_ERR_CLOSED, "its entry counts as dead here", now_ns);
    for (uint32_t i = 0; i < node->max_entries; i++) {
        struct entry *entry = &node->entries[i];
        if (entry->state != ENTRY_REMOTE || !entry->lost)
            continue;
        forward_send_cancel(node, entry->ticket.peer, entry->id, entry->attempt);
        entry_retry(entry, ROUTE_FAILED, 0, now_ns);
    }
}

static void check_times(struct node *node, uint64_t now_ns)
{
    if (now_ns < node->check_ns)
        return;
    node->check_ns = UINT64_MAX;
    for (uint32_t i = 0, seen = 0, n = node->n_entries; seen < n && i < node->max_entries; i++)
        if (node->entries[i].state != ENTRY_FREE) {
            seen++;
            node_look_at(node, entry_check(&node->entries[i], now_ns));
        }
    for (uint32_t i = 0, seen = 0, n = node->n_services; seen < n && i < node->max_services; i++)
        if (node->services[i].sequence) {
            seen++;
            node_look_at(node, service_check(&node->services[i], now_ns));
        }
}

static bool route_new(struct node *node, uint64_t now_ns)
{
    if (!node->n_routing)
        return false;
    for (uint32_t i = 0; node->n_routing && i < node->max_entries; i++)
        if (node->entries[i].state == ENTRY_ROUTE)
            entry_route(&node->entries[i], now_ns);
    return true;
}

static void update_load(struct node *node)
{
    struct scheduler_load s;
    scheduler_load(node->scheduler, &s);
    if (s.waiting >= node->config.push_back_depth) {
        if (!node->push_back)
            node_limit_hit(&node->limits, NODE_LIMIT_PUSH_BACK);
        node->push_back = true;
    } else if (s.waiting <= node->config.push_back_depth / 2) {
        node->push_back = false;
    }
    uint32_t free_pages = page_pool_free_pages(node->pool);
    node->load = (struct cluster_load){.waiting = s.waiting,
                                       .running = s.running,
                                       .prefill_tokens = s.prefill_tokens,
                                       .decode_tokens = s.decode_tokens,
                                       .prefill_tokens_per_s = s.prefill_tokens_per_s,
                                       .decode_step_s = s.decode_step_s,
                                       .free_pages = free_pages + radix_evictable_pages(node->tree),
                                       .total_pages = node->backend_info.n_pages,
                                       .push_back = node->push_back,
                                       .draining = node->draining};
    if (node->cluster)
        cluster_set_load(node->cluster, &node->load);
    struct node_metrics *m = &node->metrics;
    struct radix_stats stats;
    radix_stats(node->tree, &stats);
    gauge_set(m->waiting, s.waiting);
    gauge_set(m->running, s.running);
    gauge_set(m->budget_rows, s.budget_rows);
    gauge_set(m->cache_usage,
              (int64_t)((node->backend_info.n_pages - node->load.free_pages) * 1000000ull / node->backend_info.n_pages));
    gauge_set(m->pages_free, free_pages);
    gauge_set(m->pages_in_tree, (int64_t)stats.pages);
    gauge_set(m->forwarded, node->n_forwarded);
    gauge_set(m->computing_for_peers, node->n_services);
    counter_add(m->evicted_pages, stats.evicted_pages - node->evicted_seen);
    node->evicted_seen = stats.evicted_pages;
}

static uint64_t earlier(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* Events are out: to readers here, and to peers. */
static bool hand_out(struct node *node)
{
    if (node->config.after_events)
        node->config.after_events(node->config.after_events_arg);
    return node->transport && !forward_outbox_empty(&node->outbox) && forward_outbox_flush(&node->outbox, node->transport);
}

uint64_t node_step(struct node *node, uint64_t now_ns)
{
    uint64_t next = UINT64_MAX;
    /* First what a finished step brought and the next one: the backend and the readers wait for it, and a real model has driven
     * all that follows out of the caches. */
    bool busy = scheduler_poll(node->scheduler, now_ns);
    if (busy) {
        route_new(node, now_ns);
        scheduler_run(node->scheduler, now_ns);
        hand_out(node);
    }
    if (node->transport) {
        busy |= poll_transport(node, now_ns);
        next = cluster_step(node->cluster, now_ns);
        settle_lost(node, now_ns);
    }
    check_times(node, now_ns);
    busy |= route_new(node, now_ns);
    busy |= scheduler_run(node->scheduler, now_ns);
    busy |= hand_out(node);
    update_load(node);
    node_limits_update(node, now_ns);
    if (node->transport) {
        next = earlier(next, node->transport->ops->next_deadline_ns(node->transport));
        if (!forward_outbox_empty(&node->outbox))
            next = earlier(next, now_ns + RETRY_SEND_NS);
    }
    if (node->n_routing || node->any_lost)
        next = now_ns;
    next = earlier(next, node->backend->ops->next_deadline_ns(node->backend));
    node->busy = busy;
    return earlier(next, node->check_ns);
}

bool node_is_computing(const struct node *node)
{
    return scheduler_in_step(node->scheduler);
}

bool node_was_busy(const struct node *node)
{
    return node->busy;
}

void node_submit(struct node *node, struct request *request)
{
    entry_submit(node, request, env_now_ns(&node->env));
}

void node_cancel(struct node *node, struct request *request)
{
    for (uint32_t i = 0, seen = 0; seen < node->n_entries && i < node->max_entries; i++) {
        struct entry *entry = &node->entries[i];
        seen += entry->state != ENTRY_FREE;
        if (entry->state != ENTRY_FREE && entry->request == request) {
            entry_abort(entry, HS_ERR_CANCELED, "canceled", env_now_ns(&node->env));
            return;
        }
    }
}

void node_cancel_wanted(struct node *node)
{
    for (uint32_t i = 0, seen = 0, n = node->n_entries; seen < n && i < node->max_entries; i++) {
        struct entry *entry = &node->entries[i];
        seen += entry->state != ENTRY_FREE;
        if (entry->state != ENTRY_FREE && atomic_load_explicit(&entry->request->cancel_wanted, memory_order_relaxed))
            entry_abort(entry, HS_ERR_CANCELED, "canceled", env_now_ns(&node->env));
    }
}

int node_set_tenant_weight(struct node *node, const char *tenant, float weight)
{
    _Static_assert(CLUSTER_WEIGHTS_MAX == (int)ADMISSION_WEIGHTS && CLUSTER_TENANT_BYTES == (int)REQUEST_TENANT_BYTES, "told as they are");
    int rc = scheduler_set_weight(node->scheduler, tenant, weight);
    return rc < 0 || !node->cluster ? rc : cluster_set_weight(node->cluster, tenant, weight);
}

void node_drain(struct node *node, bool on)
{
    node->draining = on;
}

bool node_draining(const struct node *node)
{
    return node->draining;
}

bool node_drained(const struct node *node)
{
    return node->draining && !node->n_entries && !node->n_services && forward_outbox_empty(&node->outbox);
}

void node_flush(struct node *node)
{
    radix_flush(node->tree);
    if (node->cluster)
        cluster_new_epoch(node->cluster);
}

void node_counts(const struct node *node, struct node_counts *out)
{
    struct scheduler_load load;
    struct radix_stats stats;
    scheduler_load(node->scheduler, &load);
    radix_stats(node->tree, &stats);
    *out = (struct node_counts){.waiting = load.waiting,
                                .running = load.running,
                                .forwarded = node->n_forwarded,
                                .computing_for_peers = node->n_services,
                                .pages_total = page_pool_total_pages(node->pool),
                                .pages_free = page_pool_free_pages(node->pool),
                                .pages_in_tree = (uint32_t)stats.pages};
}

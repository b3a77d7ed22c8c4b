#include "tests/unit/cluster/world.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/panic.h"

enum event_kind { EVENT_MESSAGE, EVENT_UP, EVENT_ACT, EVENT_LOOK, EVENT_READ };
enum { READ_TRIES = 5 };

struct world_event {
    uint64_t at_ns, number;
    enum event_kind kind;
    uint32_t from, to;
    uint64_t from_boot, to_boot;
    uint8_t *data;
    uint32_t len;
    uint32_t region, page; /* of a read: LOOK is when it reaches the origin's memory, READ when it is back */
    uint64_t cookie, version;
    int status;
    void (*act)(void *arg);
    void *arg;
};

static bool before(const struct world_event *a, const struct world_event *b)
{
    return a->at_ns != b->at_ns ? a->at_ns < b->at_ns : a->number < b->number;
}

static void push(struct world *w, struct world_event event)
{
    if (w->n_events == w->cap_events) {
        w->cap_events = w->cap_events ? w->cap_events * 2 : 256;
        w->heap = realloc(w->heap, w->cap_events * sizeof *w->heap);
        hs_assert(w->heap);
    }
    event.number = w->event_number++;
    size_t i = w->n_events++;
    while (i && before(&event, &w->heap[(i - 1) / 2])) {
        w->heap[i] = w->heap[(i - 1) / 2];
        i = (i - 1) / 2;
    }
    w->heap[i] = event;
}

static struct world_event pop(struct world *w)
{
    struct world_event top = w->heap[0], last = w->heap[--w->n_events];
    size_t i = 0;
    for (;;) {
        size_t child = 2 * i + 1;
        if (child >= w->n_events)
            break;
        if (child + 1 < w->n_events && before(&w->heap[child + 1], &w->heap[child]))
            child++;
        if (!before(&w->heap[child], &last))
            break;
        w->heap[i] = w->heap[child];
        i = child;
    }
    w->heap[i] = last;
    return top;
}

static struct world_node *self_of(const struct transport *transport)
{
    return (struct world_node *)transport;
}

static void op_info(const struct transport *transport, struct transport_info *out)
{
    struct world_node *node = self_of(transport);
    *out = (struct transport_info){
        .name = "world", .boot_id = node->boot_id, .max_message_bytes = 1 << 20, .max_unreliable_bytes = 1200,
        .reads_pages = node->world->link.reads_pages};
    snprintf(out->local, sizeof out->local, "n%u:1", node->id);
}

static int op_resolve(struct transport *transport, const char *address, uint32_t *peer)
{
    struct world_node *node = self_of(transport);
    unsigned id;
    if (sscanf(address, "n%u:1", &id) != 1)
        return HS_ERR_PARSE;
    if (id >= node->world->n)
        return HS_ERR_NOT_FOUND;
    node->peers[id].wanted = true;
    *peer = id;
    return 0;
}

static int op_address(const struct transport *transport, uint32_t peer, char *text, size_t size)
{
    snprintf(text, size, "n%u:1", peer);
    return 0;
}

static uint64_t delay(struct world *w)
{
    return w->link.delay_ns + (w->link.jitter_ns ? rng_below(&w->rng, w->link.jitter_ns) : 0);
}

static void post(struct world *w, struct world_node *from, uint32_t to, const uint8_t *data, uint32_t len, uint64_t at_ns)
{
    struct world_event event = {.at_ns = at_ns, .kind = EVENT_MESSAGE, .from = from->id, .to = to, .len = len};
    event.from_boot = from->boot_id;
    event.to_boot = from->peers[to].boot_id;
    event.data = malloc(len ? len : 1);
    hs_assert(event.data);
    memcpy(event.data, data, len);
    push(w, event);
}

static int op_send(struct transport *transport, uint32_t peer, const struct iovec *iov, int n, uint32_t flags)
{
    struct world_node *node = self_of(transport);
    struct world *w = node->world;
    static uint8_t data[1 << 20];
    size_t len = 0;
    if (peer >= w->n || !node->peers[peer].up)
        return HS_ERR_CLOSED;
    for (int i = 0; i < n; i++) {
        if (len + iov[i].iov_len > (flags & TRANSPORT_UNRELIABLE ? 1200u : sizeof data))
            return HS_ERR_LIMIT;
        memcpy(data + len, iov[i].iov_base, iov[i].iov_len);
        len += iov[i].iov_len;
    }
    w->kind_messages[data[0]]++;
    w->kind_bytes[data[0]] += len;
    if (data[0] >= 8 && data[0] <= 12)
        w->gossip_bytes[node->id][peer] += len;
    if (w->is_dropped && w->is_dropped(w, node->id, peer, data, len))
        return 0;
    if (flags & TRANSPORT_UNRELIABLE) {
        if (rng_unit(&w->rng) >= w->link.loss)
            post(w, node, peer, data, (uint32_t)len, w->now_ns + delay(w));
        if (rng_unit(&w->rng) < w->link.duplication)
            post(w, node, peer, data, (uint32_t)len, w->now_ns + delay(w) + w->link.delay_ns);
        return 0;
    }
    uint64_t at_ns = w->now_ns + delay(w);
    while (rng_unit(&w->rng) < w->link.loss)
        at_ns += 2 * w->link.delay_ns + 10 * MS; /* a retransmission */
    if (at_ns <= node->peers[peer].last_delivery_ns)
        at_ns = node->peers[peer].last_delivery_ns + 1;
    node->peers[peer].last_delivery_ns = at_ns;
    post(w, node, peer, data, (uint32_t)len, at_ns);
    return 0;
}

/* ---- pages ---- */

static void withdraw(struct world_pages *region)
{
    for (uint32_t i = 0; region->pages && i < region->n; i++)
        free(region->pages[i].data);
    free(region->pages);
    *region = (struct world_pages){.pages = NULL};
}

static int op_publish(struct transport *transport, uint32_t region, uint32_t n_pages, uint32_t page_bytes)
{
    struct world_node *node = self_of(transport);
    if (!node->world->link.reads_pages)
        return HS_ERR_UNSUPPORTED;
    withdraw(&node->regions[region]);
    node->regions[region] = (struct world_pages){.pages = calloc(n_pages, sizeof(struct world_page)), .n = n_pages, .page_bytes = page_bytes};
    hs_assert(node->regions[region].pages);
    return 0;
}

static int op_write_page(struct transport *transport, uint32_t region, uint32_t page, const void *data, uint32_t len)
{
    struct world_pages *pages = &self_of(transport)->regions[region];
    hs_assert(pages->pages && page < pages->n && len <= pages->page_bytes);
    struct world_page *at = &pages->pages[page];
    at->data = realloc(at->data, len ? len : 1);
    hs_assert(at->data);
    memcpy(at->data, data, len);
    at->len = len;
    at->version++;
    return 0;
}

static int op_read_page(struct transport *transport, uint32_t peer, uint32_t region, uint32_t page, uint32_t expected, uint64_t cookie)
{
    struct world_node *node = self_of(transport);
    struct world *w = node->world;
    if (!w->link.reads_pages)
        return HS_ERR_UNSUPPORTED;
    if (!node->peers[peer].up)
        return HS_ERR_CLOSED;
    push(w, (struct world_event){.at_ns = w->now_ns + delay(w), .kind = EVENT_LOOK, .from = node->id, .to = peer, .from_boot = node->boot_id,
                                 .to_boot = node->peers[peer].boot_id, .region = region, .page = page, .cookie = cookie});
    return 0;
}

/* The read reaches the origin's memory: nobody there takes part, it need not even be stepped. */
static void look(struct world *w, struct world_event event)
{
    struct world_node *reader = &w->nodes[event.from], *origin = &w->nodes[event.to];
    const struct world_pages *region = &origin->regions[event.region];
    bool reaches = origin->cluster && origin->boot_id == event.to_boot && !w->cut[event.from][event.to] && !w->cut[event.to][event.from];
    event.status = !reaches ? HS_ERR_CLOSED : !region->pages ? HS_ERR_NOT_FOUND : event.page >= region->n ? HS_ERR_RANGE : 0;
    for (int tries = 1; event.status == 0 && rng_unit(&w->rng) < w->link.torn; tries++) {
        reader->torn_reads++;
        event.status = tries == READ_TRIES ? HS_ERR_AUTH : 0;
    }
    if (event.status == 0) {
        const struct world_page *page = &region->pages[event.page];
        event.data = malloc(page->len + 1);
        hs_assert(event.data);
        memcpy(event.data, page->data ? page->data : (const uint8_t *)"", page->len);
        event.len = page->len;
        event.version = page->version;
        if (w->spoil)
            event.status = w->spoil(w, event.from, event.to, event.region, event.page, event.data, &event.len);
    }
    if (event.status > 0) {
        free(event.data);
        return;
    }
    event.kind = EVENT_READ;
    event.at_ns = w->now_ns + delay(w);
    push(w, event);
}

static void op_close_peer(struct transport *transport, uint32_t peer)
{
    self_of(transport)->peers[peer].wanted = false;
}

static int op_peer_stats(const struct transport *transport, uint32_t peer, struct transport_peer_stats *out)
{
    return HS_ERR_UNSUPPORTED;
}

static const struct transport_ops ops = {
    .info = op_info,
    .resolve = op_resolve,
    .address = op_address,
    .send = op_send,
    .publish = op_publish,
    .write_page = op_write_page,
    .read_page = op_read_page,
    .close_peer = op_close_peer,
    .peer_stats = op_peer_stats,
};

static uint64_t env_now(void *self)
{
    return ((struct world_node *)self)->world->now_ns;
}

static uint64_t env_random(void *self)
{
    return rng_u64(&((struct world_node *)self)->world->rng);
}

static void on_alive(void *self, uint32_t peer)
{
    ((struct world_node *)self)->alive_calls++;
}

static void on_gone(void *self, uint32_t peer)
{
    ((struct world_node *)self)->gone_calls++;
}

static void hand(struct world_node *node, const struct transport_event *event)
{
    if (!node->cluster)
        return;
    cluster_on_event(node->cluster, event, node->world->now_ns);
    world_kick(node);
}

void world_kick(struct world_node *node)
{
    uint64_t now_ns = node->world->now_ns;
    uint64_t at_ns = node->is_slow ? now_ns - now_ns % node->slow_ns + node->slow_ns : now_ns;
    if (at_ns < node->wake_ns)
        node->wake_ns = at_ns;
}

static void set_down(struct world_node *node, uint32_t peer, int status)
{
    if (!node->peers[peer].up)
        return;
    node->peers[peer].up = false;
    struct transport_event event = {.kind = TRANSPORT_PEER_DOWN, .peer = peer, .status = status};
    hand(node, &event);
}

static void set_up(struct world_node *node, const struct world_node *other)
{
    struct world_peer *peer = &node->peers[other->id];
    if (peer->up && peer->boot_id == other->boot_id)
        return;
    set_down(node, other->id, HS_ERR_CLOSED);
    peer->up = true;
    peer->boot_id = other->boot_id;
    peer->silent_since_ns = node->world->now_ns;
    struct transport_event event = {.kind = TRANSPORT_PEER_UP, .peer = other->id, .boot_id = other->boot_id};
    hand(node, &event);
}

/* Handshakes, and the end of connections that nothing crosses. */
static void dial(struct world *w)
{
    for (uint32_t a = 0; a < w->n; a++)
        for (uint32_t b = 0; b < w->n; b++) {
            struct world_node *from = &w->nodes[a], *to = &w->nodes[b];
            struct world_peer *peer = &from->peers[b];
            if (!from->cluster)
                continue;
            bool reaches = to->cluster && !w->cut[a][b] && !w->cut[b][a];
            if (reaches && peer->up && peer->boot_id == to->boot_id)
                peer->silent_since_ns = w->now_ns;
            if (peer->up && w->now_ns - peer->silent_since_ns > w->down_after_ns)
                set_down(from, b, HS_ERR_TIMEOUT);
            if (reaches && peer->wanted && (!peer->up || peer->boot_id != to->boot_id)) {
                struct world_event event = {.at_ns = w->now_ns + 2 * delay(w), .kind = EVENT_UP, .from = a, .to = b};
                event.from_boot = from->boot_id;
                event.to_boot = to->boot_id;
                push(w, event);
            }
        }
    w->next_dial_ns = w->now_ns + 250 * MS;
}

static void deliver(struct world *w, struct world_event *event)
{
    struct world_node *from = &w->nodes[event->from], *to = &w->nodes[event->to];
    if (event->kind == EVENT_ACT) {
        event->act(event->arg);
        return;
    }
    if (event->kind == EVENT_LOOK) {
        look(w, *event);
        return;
    }
    if (event->kind == EVENT_READ) {
        from->reads++;
        struct transport_event done = {.kind = TRANSPORT_READ_DONE, .peer = event->to, .status = event->status, .boot_id = event->to_boot,
                                       .cookie = event->cookie, .version = event->version, .data = event->data, .len = event->len};
        if (from->cluster && from->boot_id == event->from_boot)
            hand(from, &done);
        free(event->data);
        return;
    }
    bool same = from->boot_id == event->from_boot && to->boot_id == event->to_boot && to->cluster;
    if (same && !w->cut[event->from][event->to] && event->kind == EVENT_UP) {
        set_up(to, from);
        set_up(from, to);
    } else if (event->kind == EVENT_MESSAGE && to->cluster && to->boot_id == event->to_boot && !w->cut[event->from][event->to] &&
               to->peers[event->from].up && to->peers[event->from].boot_id == event->from_boot) {
        if (to->is_slow && w->now_ns % to->slow_ns) { /* it looks at its network only now and then */
            event->at_ns = w->now_ns - w->now_ns % to->slow_ns + to->slow_ns;
            push(w, *event);
            return;
        }
        struct transport_event message = {.kind = TRANSPORT_MESSAGE, .peer = event->from, .data = event->data, .len = event->len};
        hand(to, &message);
    }
    free(event->data);
}

static uint64_t next_time(const struct world *w)
{
    uint64_t next = w->next_dial_ns;
    if (w->n_events && w->heap[0].at_ns < next)
        next = w->heap[0].at_ns;
    for (uint32_t i = 0; i < w->n; i++)
        if (w->nodes[i].cluster && w->nodes[i].wake_ns < next)
            next = w->nodes[i].wake_ns;
    return next;
}

static void advance(struct world *w)
{
    if (w->now_ns >= w->next_dial_ns)
        dial(w);
    while (w->n_events && w->heap[0].at_ns <= w->now_ns) {
        struct world_event event = pop(w);
        deliver(w, &event);
    }
    for (uint32_t i = 0; i < w->n; i++) {
        struct world_node *node = &w->nodes[i];
        if (!node->cluster || node->wake_ns > w->now_ns)
            continue;
        uint64_t next = cluster_step(node->cluster, w->now_ns);
        node->wake_ns = next > w->now_ns ? next : w->now_ns + 1;
        if (node->is_slow)
            node->wake_ns = node->wake_ns - node->wake_ns % node->slow_ns + node->slow_ns;
    }
}

bool world_run_until(struct world *w, bool (*condition)(struct world *world), uint64_t for_ns)
{
    uint64_t end_ns = w->now_ns + for_ns;
    for (;;) {
        advance(w);
        if (condition && condition(w))
            return true;
        uint64_t next = next_time(w);
        if (next > end_ns)
            break;
        w->now_ns = next > w->now_ns ? next : w->now_ns;
    }
    w->now_ns = end_ns;
    return condition && condition(w);
}

void world_run(struct world *w, uint64_t for_ns)
{
    world_run_until(w, NULL, for_ns);
}

void world_at(struct world *w, uint64_t at_ns, void (*act)(void *arg), void *arg)
{
    push(w, (struct world_event){.at_ns = at_ns, .kind = EVENT_ACT, .act = act, .arg = arg});
}

void world_boot(struct world *w, uint32_t id, const struct cluster_config *config)
{
    struct world_node *node = &w->nodes[id];
    hs_assert(!node->cluster);
    node->transport.ops = &ops;
    node->world = w;
    node->id = id;
    node->env = (struct env){.now_ns = env_now, .random_u64 = env_random, .self = node};
    node->config = *config;
    snprintf(node->config.name, sizeof node->config.name, "node%u", id);
    snprintf(node->config.http_address, sizeof node->config.http_address, "http%u:80", id);
    node->boot_id = rng_u64(&w->rng) | 1;
    memset(node->peers, 0, sizeof node->peers);
    node->metrics = metrics_create();
    struct cluster_listener listener = {on_alive, on_gone, node};
    int rc = cluster_create(&node->config, &node->env, &node->transport, node->metrics, &listener, &node->cluster);
    hs_assert(rc == 0);
    node->digest = cluster_radix_listener(node->cluster);
    node->wake_ns = w->now_ns;
    rc = cluster_join(node->cluster, id ? "n0:1" : w->n > 1 ? "n1:1" : "n0:1", NULL);
    hs_assert(rc == 0);
}

void world_crash(struct world *w, uint32_t id)
{
    struct world_node *node = &w->nodes[id];
    cluster_destroy(node->cluster);
    metrics_destroy(node->metrics);
    node->cluster = NULL;
    for (int i = 0; i < TRANSPORT_REGIONS; i++)
        withdraw(&node->regions[i]);
}

void world_start(struct world *w, uint32_t n, uint64_t seed, const struct cluster_config *config, const struct world_link *link)
{
    memset(w, 0, sizeof *w);
    rng_seed(&w->rng, seed);
    w->now_ns = SECOND;
    w->n = n;
    w->link = *link;
    w->down_after_ns = 3 * SECOND;
    for (uint32_t i = 0; i < n; i++)
        world_boot(w, i, config);
}

void world_stop(struct world *w)
{
    for (uint32_t i = 0; i < w->n; i++)
        if (w->nodes[i].cluster)
            world_crash(w, i);
    for (size_t i = 0; i < w->n_events; i++)
        free(w->heap[i].data);
    free(w->heap);
}

void world_partition(struct world *w, uint32_t split, bool is_cut)
{
    for (uint32_t a = 0; a < split; a++)
        for (uint32_t b = split; b < w->n; b++)
            w->cut[a][b] = w->cut[b][a] = is_cut;
}

struct cluster_config world_config(void)
{
    struct cluster_config config = {.page_tokens = 16, .mode = ROUTE_COST, .arithmetic = "f32-test"};
    memset(config.fingerprint, 7, sizeof config.fingerprint);
    return config;
}

struct cluster_peer_info world_view(struct world *w, uint32_t node, uint32_t other)
{
    struct cluster_peer_info info = {.state = CLUSTER_PEER_DEAD};
    for (uint32_t i = 0; i < cluster_peers(w->nodes[node].cluster); i++) {
        struct cluster_peer_info at;
        if (cluster_peer(w->nodes[node].cluster, i, &at) == 0 && at.peer == other)
            info = at;
    }
    return info;
}

bool world_all_routable(struct world *w)
{
    for (uint32_t a = 0; a < w->n; a++)
        for (uint32_t b = 0; b < w->n; b++)
            if (a != b && w->nodes[a].cluster && w->nodes[b].cluster && !world_view(w, a, b).routable)
                return false;
    return true;
}

double world_metric(struct world_node *node, const char *line_start)
{
    struct strbuf text = {0};
    metrics_write(node->metrics, &text);
    double value = -1;
    for (const char *line = strbuf_text(&text); line && *line; line = strchr(line, '\n'), line = line ? line + 1 : NULL)
        if (strncmp(line, line_start, strlen(line_start)) == 0)
            value = strtod(line + strlen(line_start), NULL);
    strbuf_fini(&text);
    return value;
}

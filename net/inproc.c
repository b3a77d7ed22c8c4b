/* The smallest whole implementation of transport.h: endpoints of one process, joined by queues of events. Nothing is lost. */
#include <stdlib.h>
#include <string.h>

#include "net/net.h"

enum {
    MAX_ENDPOINTS = 64,
    MAX_PEERS = 64,
    MAX_NAME = TRANSPORT_ADDRESS_TEXT,
    MAX_MESSAGE = 2 << 20,
    MAX_UNRELIABLE = 1152,
    READ_TRIES = 5
};
enum { QUEUE_MESSAGES = 4096, QUEUE_BYTES = 8 << 20 }; /* per receiver, beyond it send says BUSY */

struct node { /* a queued event with its message */
    struct node *next;
    struct transport_event event;
    uint8_t data[];
};

struct inproc_peer {
    char name[MAX_NAME];
    uint32_t number; /* place and turn: net.h */
    bool wanted, up, closed;
    struct transport_peer_stats stats;
};

struct page {
    uint8_t *data;
    uint32_t len;
    uint64_t version;
};

struct region {
    struct page *pages; /* NULL: not published */
    uint32_t n, page_bytes;
};

struct inproc {
    struct transport transport;
    struct inproc_hub *hub;
    char name[MAX_NAME];
    uint64_t boot_id;
    struct inproc_peer peers[MAX_PEERS];
    uint32_t n_peers, queued_messages, queued_bytes;
    uint32_t torn; /* so many looks at our pages find one half written */
    struct node *queue, **queue_tail, *given;
    struct region regions[TRANSPORT_REGIONS];
    struct transport_stats stats;
};

struct inproc_hub {
    struct inproc *endpoints[MAX_ENDPOINTS];
};

static struct inproc *self_of(const struct transport *transport)
{
    return (struct inproc *)(uintptr_t)transport;
}

static struct inproc *hub_find(const struct inproc_hub *hub, const char *name)
{
    for (int i = 0; i < MAX_ENDPOINTS; i++)
        if (hub->endpoints[i] != NULL && strcmp(hub->endpoints[i]->name, name) == 0)
            return hub->endpoints[i];
    return NULL;
}

static struct inproc_peer *peer_numbered(const struct inproc *self, uint32_t number)
{
    uint32_t place = net_peer_place(number);
    const struct inproc_peer *peer = &self->peers[place < MAX_PEERS ? place : 0];
    return place < self->n_peers && peer->number == number ? (struct inproc_peer *)(uintptr_t)peer : NULL;
}

/* The peer of that name, new if need be and then, when all places are taken, in a closed one's. NULL: no room. */
static struct inproc_peer *peer_get(struct inproc *self, const char *name)
{
    struct inproc_peer *closed = NULL;
    for (uint32_t i = 0; i < self->n_peers; i++) {
        struct inproc_peer *peer = &self->peers[i];
        if (strcmp(peer->name, name) == 0)
            return peer;
        if (peer->closed)
            closed = peer;
    }
    if (self->n_peers == MAX_PEERS && closed == NULL)
        return NULL;
    uint32_t number = self->n_peers < MAX_PEERS ? self->n_peers : net_peer_next_number(closed->number);
    struct inproc_peer *peer = self->n_peers < MAX_PEERS ? &self->peers[self->n_peers++] : closed;
    *peer = (struct inproc_peer){.number = number};
    memcpy(peer->name, name, strlen(name) + 1);
    return peer;
}

/* Queues an event; with iov, one that brings len bytes. */
static int push(struct inproc *to, const struct transport_event *event, const struct iovec *iov, int n, size_t len)
{
    struct node *node = malloc(sizeof *node + len);
    if (node == NULL)
        return HS_ERR_BUSY;
    *node = (struct node){.event = *event};
    size_t at = 0;
    for (int i = 0; i < n; i++) {
        if (iov[i].iov_len)
            memcpy(node->data + at, iov[i].iov_base, iov[i].iov_len);
        at += iov[i].iov_len;
    }
    if (n > 0) {
        node->event.data = node->data;
        node->event.len = (uint32_t)len;
    }
    if (event->kind == TRANSPORT_MESSAGE) {
        to->queued_messages++;
        to->queued_bytes += (uint32_t)len;
    }
    *to->queue_tail = node;
    to->queue_tail = &node->next;
    return 0;
}

static void connect_wanted(struct inproc *self)
{
    for (uint32_t i = 0; i < self->n_peers; i++) {
        struct inproc_peer *peer = &self->peers[i];
        struct inproc *other = peer->wanted && !peer->up ? hub_find(self->hub, peer->name) : NULL;
        struct inproc_peer *back = other != NULL && other != self ? peer_get(other, self->name) : NULL;
        if (back == NULL)
            continue;
        peer->up = back->up = true;
        peer->closed = back->closed = false;
        push(self, &(struct transport_event){.kind = TRANSPORT_PEER_UP, .peer = peer->number, .boot_id = other->boot_id}, NULL, 0,
             0);
        push(other, &(struct transport_event){.kind = TRANSPORT_PEER_UP, .peer = back->number, .boot_id = self->boot_id}, NULL, 0,
             0);
    }
}

static void disconnect(struct inproc *self, struct inproc_peer *peer)
{
    struct inproc *other = peer->up ? hub_find(self->hub, peer->name) : NULL;
    struct inproc_peer *back = other != NULL ? peer_get(other, self->name) : NULL;
    peer->up = false;
    if (back == NULL)
        return;
    back->up = false;
    struct transport_event down = {
        .kind = TRANSPORT_PEER_DOWN, .peer = back->number, .status = HS_ERR_CLOSED, .boot_id = self->boot_id};
    push(other, &down, NULL, 0, 0);
}

static void free_nodes(struct node *node)
{
    while (node != NULL) {
        struct node *next = node->next;
        free(node);
        node = next;
    }
}

static void inproc_info(const struct transport *transport, struct transport_info *out)
{
    const struct inproc *self = self_of(transport);
    *out = (struct transport_info){
        .name = "inproc", .boot_id = self->boot_id, .max_message_bytes = MAX_MESSAGE, .max_unreliable_bytes = MAX_UNRELIABLE,
        .reads_pages = true};
    memcpy(out->local, self->name, sizeof out->local);
}

static int inproc_resolve(struct transport *transport, const char *address, uint32_t *peer)
{
    struct inproc *self = self_of(transport);
    if (address[0] == '\0' || strlen(address) >= MAX_NAME)
        return HS_ERR_PARSE;
    struct inproc_peer *found = peer_get(self, address);
    if (found == NULL)
        return HS_ERR_LIMIT;
    found->wanted = true;
    found->closed = false;
    *peer = found->number;
    return 0;
}

static int inproc_address(const struct transport *transport, uint32_t number, char *text, size_t size)
{
    const struct inproc_peer *peer = peer_numbered(self_of(transport), number);
    if (peer == NULL)
        return HS_ERR_NOT_FOUND;
    size_t len = strlen(peer->name);
    if (len >= size)
        return HS_ERR_LIMIT;
    memcpy(text, peer->name, len + 1);
    return 0;
}

static struct inproc *live_peer(struct inproc *self, uint32_t number)
{
    const struct inproc_peer *peer = peer_numbered(self, number);
    return peer != NULL && peer->up ? hub_find(self->hub, peer->name) : NULL;
}

static int inproc_send(struct transport *transport, uint32_t peer, const struct iovec *iov, int n, uint32_t flags)
{
    struct inproc *self = self_of(transport), *other = live_peer(self, peer);
    if (other == NULL)
        return HS_ERR_CLOSED;
    size_t len = 0, limit = flags & TRANSPORT_UNRELIABLE ? MAX_UNRELIABLE : MAX_MESSAGE;
    for (int i = 0; i < n; i++) {
        if (iov[i].iov_len > limit - len)
            return HS_ERR_LIMIT;
        len += iov[i].iov_len;
    }
    if (other->queued_messages >= QUEUE_MESSAGES || other->queued_bytes + len > QUEUE_BYTES)
        return HS_ERR_BUSY;
    struct inproc_peer *back = peer_get(other, self->name);
    if (back == NULL)
        return HS_ERR_LIMIT;
    struct transport_event event = {.kind = TRANSPORT_MESSAGE, .peer = back->number, .boot_id = self->boot_id};
    int status = push(other, &event, iov, n, len);
    if (status != 0)
        return status;
    peer_numbered(self, peer)->stats.sent_messages++;
    self->stats.sent_messages++;
    self->stats.sent_bytes += len;
    return 0;
}

static int inproc_poll(struct transport *transport, uint64_t now_ns, struct transport_event *events, int n)
{
    (void)now_ns;
    struct inproc *self = self_of(transport);
    free_nodes(self->given);
    self->given = NULL;
    connect_wanted(self);
    int count = 0;
    while (count < n && self->queue != NULL) {
        struct node *node = self->queue;
        self->queue = node->next;
        if (self->queue == NULL)
            self->queue_tail = &self->queue;
        node->next = self->given;
        self->given = node;
        if (node->event.kind == TRANSPORT_MESSAGE) {
            self->queued_messages--;
            self->queued_bytes -= node->event.len;
            struct inproc_peer *peer = peer_numbered(self, node->event.peer);
            if (peer != NULL)
                peer->stats.received_messages++;
            self->stats.received_messages++;
            self->stats.received_bytes += node->event.len;
        }
        events[count++] = node->event;
    }
    return count;
}

static uint64_t inproc_next_deadline(const struct transport *transport)
{
    const struct inproc *self = self_of(transport);
    for (uint32_t i = 0; i < self->n_peers; i++) {
        const struct inproc_peer *peer = &self->peers[i];
        if (peer->wanted && !peer->up && strcmp(peer->name, self->name) != 0 && hub_find(self->hub, peer->name) != NULL)
            return 0;
    }
    return self->queue != NULL ? 0 : UINT64_MAX;
}

static int inproc_wait_fd(const struct transport *transport)
{
    (void)transport;
    return -1;
}

static void withdraw(struct region *region)
{
    for (uint32_t i = 0; region->pages != NULL && i < region->n; i++)
        free(region->pages[i].data);
    free(region->pages);
    *region = (struct region){.pages = NULL};
}

static int inproc_publish(struct transport *transport, uint32_t number, uint32_t n_pages, uint32_t page_bytes)
{
    if (number >= TRANSPORT_REGIONS || n_pages == 0 || n_pages > TRANSPORT_REGION_PAGES || page_bytes == 0 ||
        page_bytes > TRANSPORT_PAGE_BYTES)
        return HS_ERR_LIMIT;
    struct region *region = &self_of(transport)->regions[number], fresh = {.n = n_pages, .page_bytes = page_bytes};
    fresh.pages = calloc(n_pages, sizeof *fresh.pages);
    if (fresh.pages == NULL)
        return HS_ERR_NO_MEMORY;
    for (uint32_t i = 0; i < n_pages; i++)
        fresh.pages[i].version = 1;
    withdraw(region);
    *region = fresh;
    return 0;
}

static int inproc_write_page(struct transport *transport, uint32_t number, uint32_t page, const void *data, uint32_t len)
{
    const struct region *region = number < TRANSPORT_REGIONS ? &self_of(transport)->regions[number] : NULL;
    if (region == NULL || region->pages == NULL)
        return HS_ERR_NOT_FOUND;
    if (page >= region->n || len > region->page_bytes)
        return HS_ERR_RANGE;
    struct page *at = &region->pages[page];
    uint8_t *copy = realloc(at->data, len ? len : 1);
    if (copy == NULL)
        return HS_ERR_NO_MEMORY;
    if (len)
        memcpy(copy, data, len);
    *at = (struct page){.data = copy, .len = len, .version = at->version + 1};
    return 0;
}

/* The page, and the status with which a read of it ends. */
static int look_at_page(struct inproc *self, struct inproc *origin, uint32_t number, uint32_t page, struct page *out)
{
    const struct region *region = number < TRANSPORT_REGIONS ? &origin->regions[number] : NULL;
    if (region == NULL || region->pages == NULL)
        return HS_ERR_NOT_FOUND;
    if (page >= region->n)
        return HS_ERR_RANGE;
    for (int tries = 1; origin->torn > 0; tries++) {
        origin->torn--;
        if (tries == READ_TRIES)
            return HS_ERR_AUTH;
        self->stats.torn_reads++;
    }
    *out = region->pages[page];
    return 0;
}

static int inproc_read_page(struct transport *transport, uint32_t peer, uint32_t region, uint32_t page, uint32_t expected,
                            uint64_t cookie)
{
    (void)expected;
    struct inproc *self = self_of(transport), *other = live_peer(self, peer);
    if (other == NULL)
        return HS_ERR_CLOSED;
    struct page found = {.data = NULL};
    int status = look_at_page(self, other, region, page, &found);
    struct transport_event done = {.kind = TRANSPORT_READ_DONE,
                                   .peer = peer,
                                   .status = status,
                                   .boot_id = other->boot_id,
                                   .cookie = cookie,
                                   .version = found.version};
    struct iovec content = {.iov_base = found.data, .iov_len = found.len};
    self->stats.reads += status == 0;
    return push(self, &done, &content, status == 0, found.len);
}

void transport_inproc_tear(struct transport *transport, uint32_t looks)
{
    self_of(transport)->torn = looks;
}

static void inproc_close_peer(struct transport *transport, uint32_t number)
{
    struct inproc *self = self_of(transport);
    struct inproc_peer *peer = peer_numbered(self, number);
    if (peer == NULL)
        return;
    peer->wanted = false;
    peer->closed = true;
    disconnect(self, peer);
    for (struct node **at = &self->queue; *at != NULL;) { /* nothing that it sent before is handed out any more */
        struct node *node = *at;
        if (node->event.peer != number || node->event.kind == TRANSPORT_READ_DONE) { /* but the end of every read is told */
            at = &node->next;
            continue;
        }
        *at = node->next;
        if (node->event.kind == TRANSPORT_MESSAGE) {
            self->queued_messages--;
            self->queued_bytes -= node->event.len;
        }
        free(node);
    }
    self->queue_tail = &self->queue;
    while (*self->queue_tail != NULL)
        self->queue_tail = &(*self->queue_tail)->next;
}

static int inproc_peer_stats(const struct transport *transport, uint32_t number, struct transport_peer_stats *out)
{
    const struct inproc_peer *peer = peer_numbered(self_of(transport), number);
    if (peer == NULL)
        return HS_ERR_NOT_FOUND;
    *out = peer->stats;
    return 0;
}

static void inproc_stats(const struct transport *transport, struct transport_stats *out)
{
    *out = self_of(transport)->stats;
}

static void inproc_destroy(struct transport *transport)
{
    struct inproc *self = self_of(transport);
    for (uint32_t i = 0; i < self->n_peers; i++)
        disconnect(self, &self->peers[i]);
    for (int i = 0; i < MAX_ENDPOINTS; i++)
        if (self->hub->endpoints[i] == self)
            self->hub->endpoints[i] = NULL;
    for (int i = 0; i < TRANSPORT_REGIONS; i++)
        withdraw(&self->regions[i]);
    free_nodes(self->queue);
    free_nodes(self->given);
    free(self);
}

static const struct transport_ops inproc_ops = {
    .info = inproc_info,
    .resolve = inproc_resolve,
    .address = inproc_address,
    .send = inproc_send,
    .poll = inproc_poll,
    .next_deadline_ns = inproc_next_deadline,
    .wait_fd = inproc_wait_fd,
    .publish = inproc_publish,
    .write_page = inproc_write_page,
    .read_page = inproc_read_page,
    .close_peer = inproc_close_peer,
    .peer_stats = inproc_peer_stats,
    .stats = inproc_stats,
    .destroy = inproc_destroy,
};

struct inproc_hub *inproc_hub_create(void)
{
    return calloc(1, sizeof(struct inproc_hub));
}

void inproc_hub_destroy(struct inproc_hub *hub)
{
    free(hub);
}

int transport_inproc_create(struct inproc_hub *hub, const char *name, const struct env *env, struct transport **out,
                            struct error *err)
{
    if (name[0] == '\0' || strlen(name) >= MAX_NAME)
        return error_set(err, HS_ERR_INVALID, "in-process endpoint \"%s\": give a name of 1 to %d bytes", name, MAX_NAME - 1);
    if (hub_find(hub, name) != NULL)
        return error_set(err, HS_ERR_BUSY, "in-process endpoint \"%s\" is alive already: destroy it first", name);
    int slot = 0;
    while (slot < MAX_ENDPOINTS && hub->endpoints[slot] != NULL)
        slot++;
    if (slot == MAX_ENDPOINTS)
        return error_set(err, HS_ERR_LIMIT, "in-process endpoint \"%s\": the hub holds %d already", name, MAX_ENDPOINTS);
    struct inproc *self = calloc(1, sizeof *self);
    if (self == NULL)
        return error_set(err, HS_ERR_NO_MEMORY, "in-process endpoint \"%s\": out of memory", name);
    self->transport.ops = &inproc_ops;
    self->hub = hub;
    memcpy(self->name, name, strlen(name) + 1);
    self->boot_id = env_random_u64(env);
    self->queue_tail = &self->queue;
    hub->endpoints[slot] = self;
    *out = &self->transport;
    return 0;
}

#include "tests/sim/world_pages.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "core/base/panic.h"

enum { SOME_UNDER_WAY = 16, MANY_UNDER_WAY = 64, MOST_TORN = 5, MOST_TRIES = 7 };

static const uint64_t TRY_AGAIN_NS = 100000000, TEAR_NS = 1000, LINGER_NS = 3000000, GIVEN_UP_NS = 20000000000;

struct page {
    uint8_t *data;
    uint32_t len;
    uint64_t version, written_ns;
};

struct region {
    struct page *pages; /* NULL: not published */
    uint32_t n, page_bytes;
};

/* What a process has published. */
struct memory {
    uint64_t boot_id;
    struct region regions[TRANSPORT_REGIONS];
};

struct read {
    struct read *next;
    uint64_t due_ns;
    bool is_back;
    struct pager *reader;
    struct connection *connection; /* NULL: it is over */
    uint32_t peer, to;             /* the node there */
    uint64_t boot_id, cookie, version;
    uint32_t region, page, expected, torn, tries;
    int status;
    uint8_t *data;
    uint32_t len;
};

struct world_reads {
    struct rng rng;
    struct read *first; /* by due_ns */
};

/* A connection that is up. */
struct connection {
    struct connection *next;
    uint32_t peer, to, n_under_way;
    uint64_t boot_id;
};

struct pager {
    struct transport transport;
    struct transport *inner;
    struct world_node *node;
    struct memory *memory;
    struct connection *connections;
    struct read *done, **done_tail, *given; /* to be polled, and what the last poll gave */
};

static struct pager *pager_of(const struct transport *transport)
{
    return (struct pager *)(uintptr_t)transport;
}

/* ---- reads under way ---- */

struct world_reads *pages_open(uint64_t seed)
{
    struct world_reads *reads = calloc(1, sizeof *reads);
    if (reads)
        rng_seed(&reads->rng, seed ^ UINT64_C(0x0ae51ded4ead5));
    return reads;
}

static void free_read(struct read *read)
{
    free(read->data);
    free(read);
}

void pages_close(struct world_reads *reads)
{
    if (reads)
        hs_assert(!reads->first); /* their readers are gone */
    free(reads);
}

static void enqueue(struct world_reads *reads, struct read *read, uint64_t due_ns)
{
    struct read **at = &reads->first;
    read->due_ns = due_ns;
    while (*at && (*at)->due_ns <= due_ns)
        at = &(*at)->next;
    read->next = *at;
    *at = read;
}

static bool chance(struct world_reads *reads, double share)
{
    return share > 0 && rng_unit(&reads->rng) < share;
}

static uint64_t delay_ns(struct world *world)
{
    const struct world_config *c = &world->config;
    return 1 + c->read_ns + (c->read_jitter_ns ? rng_below(&world->reads->rng, c->read_jitter_ns + 1) : 0);
}

static void come_back(struct world *world, struct read *read, int status)
{
    read->is_back = true;
    read->status = status;
    enqueue(world->reads, read, world->now_ns + delay_ns(world));
}

static const struct memory *memory_of(const struct world_node *node, uint64_t boot_id)
{
    if (node->pager && node->pager->memory->boot_id == boot_id)
        return node->pager->memory;
    return node->left_memory && node->left_memory->boot_id == boot_id ? node->left_memory : NULL;
}

static bool is_cut_off(const struct world *world, const struct read *read)
{
    uint32_t from = read->reader->node->index;
    return world->blocked[from][read->to] || world->blocked[read->to][from];
}

/* Whether the read ends for a reason of the world's; else *status says what kind of failure, or 0. */
static bool is_lost(struct world *world, const struct world_node *to, int *status)
{
    static const int FAILURES[] = {HS_ERR_IO, HS_ERR_AUTH, HS_ERR_LIMIT, HS_ERR_NOT_FOUND};
    const struct world_config *c = &world->config;
    *status = to->blindness == BLIND_BROKEN ? HS_ERR_IO : to->blindness == BLIND_ABSENT ? HS_ERR_NOT_FOUND : 0;
    if (!*status && chance(world->reads, c->read_fail))
        *status = FAILURES[rng_below(&world->reads->rng, sizeof FAILURES / sizeof *FAILURES)];
    return to->blindness == BLIND_SILENT || chance(world->reads, c->read_lost);
}

/* 0, HS_ERR_BUSY: to be read once more, or how the read ends. */
static int take(struct world *world, struct read *read, const struct memory *memory)
{
    const struct region *region = &memory->regions[read->region];
    if (!region->pages)
        return HS_ERR_NOT_FOUND;
    if (read->page >= region->n)
        return HS_ERR_RANGE;
    const struct page *page = &region->pages[read->page];
    bool is_being_written = page->version > 1 && world->now_ns - page->written_ns < TEAR_NS;
    if (is_being_written || chance(world->reads, world->config.torn))
        return ++read->torn == MOST_TORN ? HS_ERR_AUTH : HS_ERR_BUSY;
    if (read->expected && page->len > read->expected) {
        read->expected = 0;
        return HS_ERR_BUSY;
    }
    read->data = malloc(page->len + 1);
    if (!read->data)
        return HS_ERR_LIMIT;
    memcpy(read->data, page->data ? page->data : (const uint8_t *)"", page->len);
    read->len = page->len;
    read->version = page->version;
    return 0;
}

static void look(struct world *world, struct read *read)
{
    const struct world_node *to = &world->nodes[read->to];
    const struct memory *memory = memory_of(to, read->boot_id);
    int status;
    if (is_cut_off(world, read)) {
        if (++read->tries == MOST_TRIES)
            come_back(world, read, HS_ERR_IO);
        else
            enqueue(world->reads, read, world->now_ns + TRY_AGAIN_NS);
    } else if (!memory || is_lost(world, to, &status)) {
        read->is_back = true;
        read->status = HS_ERR_IO;
        enqueue(world->reads, read, world->now_ns + rng_below(&world->reads->rng, GIVEN_UP_NS));
    } else if (status) {
        come_back(world, read, status);
    } else {
        status = take(world, read, memory);
        if (status == HS_ERR_BUSY)
            enqueue(world->reads, read, world->now_ns + delay_ns(world) + delay_ns(world));
        else
            come_back(world, read, status);
    }
}

static void finish(struct read *read)
{
    struct pager *reader = read->reader;
    if (read->connection)
        read->connection->n_under_way--;
    read->next = NULL;
    *reader->done_tail = read;
    reader->done_tail = &read->next;
}

void pages_advance(struct world *world)
{
    struct world_reads *reads = world->reads;
    while (reads->first && reads->first->due_ns <= world->now_ns) {
        struct read *read = reads->first;
        reads->first = read->next;
        if (read->is_back)
            finish(read);
        else
            look(world, read);
    }
}

uint64_t pages_next_ns(const struct world *world)
{
    return world->reads->first ? world->reads->first->due_ns : UINT64_MAX;
}

/* The connection is over: its reads end soon, most of them with nothing. peer UINT32_MAX: the reader is gone, and with it all of its. */
static void end_reads(struct pager *reader, uint32_t peer)
{
    struct world *world = reader->node->world;
    struct read *ended = NULL;
    for (struct read **at = &world->reads->first; *at;) {
        struct read *read = *at;
        if (read->reader != reader || (peer != UINT32_MAX && read->peer != peer)) {
            at = &read->next;
            continue;
        }
        *at = read->next;
        read->next = ended;
        ended = read;
    }
    while (ended) {
        struct read *read = ended;
        ended = read->next;
        if (peer == UINT32_MAX) {
            free_read(read);
            continue;
        }
        read->connection = NULL;
        bool is_answered = read->data && rng_below(&world->reads->rng, 2);
        read->status = is_answered ? read->status : HS_ERR_CLOSED;
        read->is_back = true;
        enqueue(world->reads, read, world->now_ns + rng_below(&world->reads->rng, LINGER_NS));
    }
}

/* ---- memory ---- */

static void withdraw(struct region *region)
{
    for (uint32_t i = 0; region->pages && i < region->n; i++)
        free(region->pages[i].data);
    free(region->pages);
    *region = (struct region){.pages = NULL};
}

static void free_memory(struct memory *memory)
{
    for (uint32_t i = 0; memory && i < TRANSPORT_REGIONS; i++)
        withdraw(&memory->regions[i]);
    free(memory);
}

void pages_crash(struct world_node *node)
{
    if (!node->pager || !rng_below(&node->world->reads->rng, 2))
        return;
    pages_bury(node);
    node->left_memory = node->pager->memory;
    node->pager->memory = NULL;
}

void pages_bury(struct world_node *node)
{
    free_memory(node->left_memory);
    node->left_memory = NULL;
}

bool pages_look(const struct world_node *node, uint32_t region, uint32_t page, struct memory_page *out)
{
    const struct region *at = node->pager ? &node->pager->memory->regions[region] : NULL;
    if (!at || !at->pages || page >= at->n)
        return false;
    *out = (struct memory_page){at->pages[page].data, at->pages[page].len, at->pages[page].version};
    return true;
}

bool pages_waiting(const struct world_node *node)
{
    return node->pager && node->pager->done;
}

/* ---- the transport ---- */

static void pager_info(const struct transport *t, struct transport_info *out)
{
    pager_of(t)->inner->ops->info(pager_of(t)->inner, out);
    out->reads_pages = true;
}

static int pager_resolve(struct transport *t, const char *address, uint32_t *peer)
{
    return pager_of(t)->inner->ops->resolve(pager_of(t)->inner, address, peer);
}

static int pager_address(const struct transport *t, uint32_t peer, char *text, size_t size)
{
    return pager_of(t)->inner->ops->address(pager_of(t)->inner, peer, text, size);
}

static int pager_send(struct transport *t, uint32_t peer, const struct iovec *iov, int n, uint32_t flags)
{
    return pager_of(t)->inner->ops->send(pager_of(t)->inner, peer, iov, n, flags);
}

static void disconnect(struct pager *pager, uint32_t peer)
{
    for (struct connection **at = &pager->connections; *at; at = &(*at)->next)
        if ((*at)->peer == peer) {
            struct connection *gone = *at;
            *at = gone->next;
            free(gone);
            end_reads(pager, peer);
            return;
        }
}

static void connect(struct pager *pager, const struct transport_event *event)
{
    const struct world *world = pager->node->world;
    char address[TRANSPORT_ADDRESS_TEXT] = "";
    disconnect(pager, event->peer);
    pager->inner->ops->address(pager->inner, event->peer, address, sizeof address);
    for (uint32_t i = 0; i < world->n_nodes; i++)
        if (strcmp(world->nodes[i].address, address) == 0) {
            struct connection *c = malloc(sizeof *c);
            hs_assert(c);
            *c = (struct connection){.next = pager->connections, .peer = event->peer, .to = i, .boot_id = event->boot_id};
            pager->connections = c;
        }
}

static void free_given(struct pager *pager)
{
    while (pager->given) {
        struct read *read = pager->given;
        pager->given = read->next;
        free_read(read);
    }
}

static int give_done(struct pager *pager, struct transport_event *events, int n)
{
    int got = 0;
    for (; got < n && pager->done; got++) {
        struct read *read = pager->done;
        pager->done = read->next;
        if (!pager->done)
            pager->done_tail = &pager->done;
        read->next = pager->given;
        pager->given = read;
        events[got] = (struct transport_event){.kind = TRANSPORT_READ_DONE,
                                               .peer = read->peer,
                                               .status = read->status,
                                               .boot_id = read->boot_id,
                                               .cookie = read->cookie};
        if (!read->status) {
            events[got].version = read->version;
            events[got].data = read->data;
            events[got].len = read->len;
        }
    }
    return got;
}

static int pager_poll(struct transport *t, uint64_t now_ns, struct transport_event *events, int n)
{
    struct pager *pager = pager_of(t);
    free_given(pager);
    int got = pager->inner->ops->poll(pager->inner, now_ns, events, n);
    for (int i = 0; i < got; i++)
        if (events[i].kind == TRANSPORT_PEER_UP)
            connect(pager, &events[i]);
        else if (events[i].kind == TRANSPORT_PEER_DOWN)
            disconnect(pager, events[i].peer);
    return got + give_done(pager, events + got, n - got);
}

static uint64_t pager_next_deadline_ns(const struct transport *t)
{
    return pager_of(t)->inner->ops->next_deadline_ns(pager_of(t)->inner);
}

static int pager_wait_fd(const struct transport *t)
{
    return pager_of(t)->inner->ops->wait_fd(pager_of(t)->inner);
}

static int pager_publish(struct transport *t, uint32_t number, uint32_t n_pages, uint32_t page_bytes)
{
    struct pager *pager = pager_of(t);
    if (number >= TRANSPORT_REGIONS || n_pages > TRANSPORT_REGION_PAGES || page_bytes > TRANSPORT_PAGE_BYTES)
        return HS_ERR_LIMIT;
    if (pager->node->is_short && number >= pager->node->index % 3)
        return HS_ERR_LIMIT; /* no memory for this one any more */
    struct region *region = &pager->memory->regions[number];
    withdraw(region);
    *region = (struct region){.pages = calloc(n_pages, sizeof *region->pages), .n = n_pages, .page_bytes = page_bytes};
    for (uint32_t i = 0; region->pages && i < n_pages; i++)
        region->pages[i].version = 1;
    return region->pages ? 0 : HS_ERR_NO_MEMORY;
}

static int pager_write_page(struct transport *t, uint32_t number, uint32_t index, const void *data, uint32_t len)
{
    struct pager *pager = pager_of(t);
    struct region *region = number < TRANSPORT_REGIONS ? &pager->memory->regions[number] : NULL;
    if (!region || !region->pages)
        return HS_ERR_NOT_FOUND;
    if (index >= region->n || len > region->page_bytes)
        return HS_ERR_RANGE;
    struct page *page = &region->pages[index];
    uint8_t *grown = realloc(page->data, len + 1);
    hs_assert(grown);
    memcpy(grown, data, len);
    *page = (struct page){.data = grown, .len = len, .version = page->version + 1, .written_ns = pager->node->world->now_ns};
    return 0;
}

static int pager_read_page(struct transport *t, uint32_t peer, uint32_t region, uint32_t page, uint32_t expected, uint64_t cookie)
{
    struct pager *pager = pager_of(t);
    struct world *world = pager->node->world;
    struct connection *c = pager->connections;
    while (c && c->peer != peer)
        c = c->next;
    if (!c)
        return HS_ERR_CLOSED;
    if (region >= TRANSPORT_REGIONS)
        return HS_ERR_NOT_FOUND;
    if (c->n_under_way == (pager->node->index % 2 ? SOME_UNDER_WAY : MANY_UNDER_WAY))
        return HS_ERR_BUSY;
    struct read *read = malloc(sizeof *read);
    if (!read)
        return HS_ERR_BUSY;
    *read = (struct read){.reader = pager,
                          .connection = c,
                          .peer = peer,
                          .to = c->to,
                          .boot_id = c->boot_id,
                          .region = region,
                          .page = page,
                          .expected = expected,
                          .cookie = cookie};
    c->n_under_way++;
    enqueue(world->reads, read, world->now_ns + delay_ns(world));
    return 0;
}

static void pager_close_peer(struct transport *t, uint32_t peer)
{
    disconnect(pager_of(t), peer);
    pager_of(t)->inner->ops->close_peer(pager_of(t)->inner, peer);
}

static int pager_peer_stats(const struct transport *t, uint32_t peer, struct transport_peer_stats *out)
{
    return pager_of(t)->inner->ops->peer_stats(pager_of(t)->inner, peer, out);
}

static void pager_stats(const struct transport *t, struct transport_stats *out)
{
    pager_of(t)->inner->ops->stats(pager_of(t)->inner, out);
}

static void pager_destroy(struct transport *t)
{
    struct pager *pager = pager_of(t);
    pager->inner->ops->destroy(pager->inner);
    end_reads(pager, UINT32_MAX);
    free_given(pager);
    pager->given = pager->done;
    free_given(pager);
    while (pager->connections) {
        struct connection *c = pager->connections;
        pager->connections = c->next;
        free(c);
    }
    free_memory(pager->memory);
    pager->node->pager = NULL;
    free(pager);
}

static const struct transport_ops PAGER_OPS = {.info = pager_info,
                                               .resolve = pager_resolve,
                                               .address = pager_address,
                                               .send = pager_send,
                                               .poll = pager_poll,
                                               .next_deadline_ns = pager_next_deadline_ns,
                                               .wait_fd = pager_wait_fd,
                                               .publish = pager_publish,
                                               .write_page = pager_write_page,
                                               .read_page = pager_read_page,
                                               .close_peer = pager_close_peer,
                                               .peer_stats = pager_peer_stats,
                                               .stats = pager_stats,
                                               .destroy = pager_destroy};

struct transport *pages_create(struct transport *inner, struct world_node *node)
{
    struct pager *pager = calloc(1, sizeof *pager);
    struct memory *memory = calloc(1, sizeof *memory);
    struct transport_info info;
    if (!pager || !memory) {
        free(pager);
        free(memory);
        return NULL;
    }
    inner->ops->info(inner, &info);
    memory->boot_id = info.boot_id;
    *pager = (struct pager){.transport.ops = &PAGER_OPS, .inner = inner, .node = node, .memory = memory, .done_tail = &pager->done};
    node->pager = pager;
    return &pager->transport;
}

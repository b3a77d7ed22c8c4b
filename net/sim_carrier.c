#include "net/sim_carrier.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/panic.h"
#include "core/base/rng.h"
#include "core/base/u64_map.h"

enum { SIM_MTU = 1452, SIM_QUEUE_BYTES = 256 * 1024 };

/* A datagram on the wire, in an inbox, or on the free list. */
struct flight {
    uint64_t due_ns, order; /* equal times are taken in order of sending */
    struct flight *next;
    uint32_t from, to, len;
    uint8_t data[];
};

struct link {
    struct sim_link faults;
    bool own, cut_by_call;
    uint64_t last_due_ns, wire_free_ns;
};

struct sim_carrier {
    struct carrier carrier;
    struct sim_net *net;
    uint32_t slot;
    struct flight *inbox, **inbox_tail, *given; /* given: handed out by the last receive */
    uint32_t n_waiting;
    struct carrier_stats stats;
};

struct endpoint {
    struct carrier_address address;
    struct sim_carrier *carrier; /* NULL: dead or not yet born */
    bool killed;
};

struct stream {
    struct sim_net *net;
    struct rng rng;
};

struct sim_net {
    uint64_t now_ns, order, seed;
    uint32_t mtu, n_endpoints, cap_endpoints;
    struct rng rng;
    struct sim_link default_link;
    struct endpoint *endpoints;
    struct u64_map slots;   /* hash of address -> endpoint; equal hashes sit at the next free key */
    struct u64_map links;   /* from << 32 | to -> struct link * */
    struct u64_map streams; /* number -> struct stream * */
    struct flight **heap;   /* least (due_ns, order) first */
    size_t heap_len, heap_cap;
    struct flight *free_list;
    uint32_t n_waiting; /* in inboxes */
    struct sim_net_stats stats;
};

/* ---- flights: a binary heap over recycled buffers ---- */

static bool earlier(const struct flight *a, const struct flight *b)
{
    return a->due_ns != b->due_ns ? a->due_ns < b->due_ns : a->order < b->order;
}

static bool heap_push(struct sim_net *net, struct flight *flight)
{
    if (net->heap_len == net->heap_cap) {
        size_t cap = net->heap_cap ? net->heap_cap * 2 : 256;
        struct flight **heap = realloc(net->heap, cap * sizeof *heap);
        if (heap == NULL)
            return false;
        net->heap = heap;
        net->heap_cap = cap;
    }
    size_t i = net->heap_len++;
    for (; i > 0 && earlier(flight, net->heap[(i - 1) / 2]); i = (i - 1) / 2)
        net->heap[i] = net->heap[(i - 1) / 2];
    net->heap[i] = flight;
    return true;
}

static struct flight *heap_pop(struct sim_net *net)
{
    struct flight *top = net->heap[0], *last = net->heap[--net->heap_len];
    size_t i = 0;
    for (;;) {
        size_t child = 2 * i + 1;
        if (child >= net->heap_len)
            break;
        if (child + 1 < net->heap_len && earlier(net->heap[child + 1], net->heap[child]))
            child++;
        if (!earlier(net->heap[child], last))
            break;
        net->heap[i] = net->heap[child];
        i = child;
    }
    net->heap[i] = last;
    return top;
}

static struct flight *flight_get(struct sim_net *net)
{
    struct flight *flight = net->free_list;
    if (flight != NULL)
        net->free_list = flight->next;
    else
        flight = malloc(sizeof *flight + net->mtu);
    return flight;
}

static void flight_put(struct sim_net *net, struct flight *flight)
{
    flight->next = net->free_list;
    net->free_list = flight;
}

static void flights_put(struct sim_net *net, struct flight *list)
{
    while (list != NULL) {
        struct flight *next = list->next;
        flight_put(net, list);
        list = next;
    }
}

/* ---- endpoints and links ---- */

static int address_from_text(const char *text, struct carrier_address *out)
{
    size_t len = strlen(text);
    if (len == 0 || len >= CARRIER_ADDRESS_BYTES || strchr(text, ':') == NULL)
        return HS_ERR_INVALID;
    *out = (struct carrier_address){.len = (uint8_t)len};
    memcpy(out->bytes, text, len);
    return 0;
}

static bool same_address(const struct carrier_address *a, const struct carrier_address *b)
{
    return a->len == b->len && memcmp(a->bytes, b->bytes, a->len) == 0;
}

/* The slot of an address, made when new. */
static int endpoint_slot(struct sim_net *net, const struct carrier_address *address, uint32_t *out)
{
    uint64_t key = UINT64_C(0xcbf29ce484222325); /* FNV-1a */
    for (uint32_t i = 0; i < address->len; i++)
        key = (key ^ address->bytes[i]) * UINT64_C(0x100000001b3);
    for (uint64_t *slot; (slot = u64_map_get(&net->slots, key)) != NULL; key++) {
        if (same_address(&net->endpoints[*slot].address, address)) {
            *out = (uint32_t)*slot;
            return 0;
        }
    }
    if (net->n_endpoints == net->cap_endpoints) {
        uint32_t cap = net->cap_endpoints ? net->cap_endpoints * 2 : 16;
        struct endpoint *endpoints = realloc(net->endpoints, cap * sizeof *endpoints);
        if (endpoints == NULL)
            return HS_ERR_NO_MEMORY;
        net->endpoints = endpoints;
        net->cap_endpoints = cap;
    }
    if (u64_map_put(&net->slots, key, net->n_endpoints) != 0)
        return HS_ERR_NO_MEMORY;
    net->endpoints[net->n_endpoints] = (struct endpoint){.address = *address};
    *out = net->n_endpoints++;
    return 0;
}

static struct link *link_between(struct sim_net *net, uint32_t from, uint32_t to)
{
    uint64_t key = (uint64_t)from << 32 | to;
    uint64_t *found = u64_map_get(&net->links, key);
    if (found != NULL)
        return (struct link *)(uintptr_t)*found;
    struct link *link = calloc(1, sizeof *link);
    if (link == NULL || u64_map_put(&net->links, key, (uintptr_t)link) != 0) {
        free(link);
        return NULL;
    }
    return link;
}

static int link_by_name(struct sim_net *net, const char *from, const char *to, struct link **out)
{
    struct carrier_address a, b;
    uint32_t from_slot, to_slot;
    int status = address_from_text(from, &a);
    if (status == 0)
        status = address_from_text(to, &b);
    if (status == 0)
        status = endpoint_slot(net, &a, &from_slot);
    if (status == 0)
        status = endpoint_slot(net, &b, &to_slot);
    if (status != 0)
        return status;
    *out = link_between(net, from_slot, to_slot);
    return *out ? 0 : HS_ERR_NO_MEMORY;
}

static const struct sim_link *faults_of(const struct sim_net *net, const struct link *link)
{
    return link->own ? &link->faults : &net->default_link;
}

/* ---- the wire ---- */

static bool chance(struct sim_net *net, double probability)
{
    return probability > 0 && rng_unit(&net->rng) < probability;
}

static void put_on_wire(struct sim_net *net, struct link *link, uint32_t from, uint32_t to, const uint8_t *data, uint32_t len)
{
    const struct sim_link *faults = faults_of(net, link);
    uint64_t due = net->now_ns;
    if (faults->bytes_per_s > 0) {
        uint64_t start = link->wire_free_ns > due ? link->wire_free_ns : due;
        uint64_t limit = faults->queue_bytes ? faults->queue_bytes : SIM_QUEUE_BYTES;
        if ((double)(start - due) * (double)faults->bytes_per_s / 1e9 > (double)limit) {
            net->stats.lost++;
            return;
        }
        link->wire_free_ns = start + (uint64_t)((double)len * 1e9 / (double)faults->bytes_per_s);
        due = link->wire_free_ns;
    }
    due += faults->delay_ns + (faults->jitter_ns ? rng_below(&net->rng, faults->jitter_ns + 1) : 0);
    if (chance(net, faults->reorder)) {
        due += faults->reorder_ns ? faults->reorder_ns : 1000000;
        net->stats.reordered++;
    } else {
        if (due < link->last_due_ns)
            due = link->last_due_ns;
        link->last_due_ns = due;
    }
    struct flight *flight = flight_get(net);
    if (flight == NULL)
        return;
    *flight = (struct flight){.due_ns = due, .order = net->order++, .from = from, .to = to, .len = len};
    memcpy(flight->data, data, len);
    if (len > 0 && chance(net, faults->corrupt)) {
        uint64_t bit = rng_below(&net->rng, (uint64_t)len * 8);
        flight->data[bit / 8] ^= (uint8_t)(1u << bit % 8);
        net->stats.corrupted++;
    }
    if (!heap_push(net, flight))
        flight_put(net, flight);
}

static struct sim_carrier *self_of(const struct carrier *carrier)
{
    return (struct sim_carrier *)(uintptr_t)carrier;
}

static int sim_send(struct carrier *carrier, const struct carrier_datagram *datagrams, uint32_t n)
{
    struct sim_carrier *self = self_of(carrier);
    struct sim_net *net = self->net;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t to;
        struct link *link = NULL;
        net->stats.sent++;
        self->stats.sent_datagrams++;
        self->stats.sent_bytes += datagrams[i].len;
        if (datagrams[i].len > net->mtu || endpoint_slot(net, &datagrams[i].address, &to) != 0 ||
            (link = link_between(net, self->slot, to)) == NULL) {
            self->stats.dropped_datagrams++;
            continue;
        }
        const struct sim_link *faults = faults_of(net, link);
        if (faults->cut || link->cut_by_call || net->endpoints[self->slot].killed) {
            net->stats.cut++;
        } else if (chance(net, faults->loss)) {
            net->stats.lost++;
        } else {
            bool twice = chance(net, faults->duplicate);
            put_on_wire(net, link, self->slot, to, datagrams[i].data, datagrams[i].len);
            if (twice) {
                net->stats.duplicated++;
                put_on_wire(net, link, self->slot, to, datagrams[i].data, datagrams[i].len);
            }
        }
    }
    return (int)n;
}

static int sim_receive(struct carrier *carrier, struct carrier_datagram *datagrams, uint32_t n)
{
    struct sim_carrier *self = self_of(carrier);
    flights_put(self->net, self->given);
    self->given = NULL;
    uint32_t count = 0;
    while (count < n && self->inbox != NULL) {
        struct flight *flight = self->inbox;
        self->inbox = flight->next;
        if (self->inbox == NULL)
            self->inbox_tail = &self->inbox;
        flight->next = self->given;
        self->given = flight;
        datagrams[count++] = (struct carrier_datagram){
            .address = self->net->endpoints[flight->from].address, .data = flight->data, .len = flight->len};
        self->stats.received_datagrams++;
        self->stats.received_bytes += flight->len;
        self->n_waiting--;
        self->net->n_waiting--;
    }
    return (int)count;
}

static uint32_t sim_mtu(const struct carrier *carrier)
{
    return self_of(carrier)->net->mtu;
}

static int sim_resolve(struct carrier *carrier, const char *text, struct carrier_address *out)
{
    (void)carrier;
    return address_from_text(text, out) == 0 ? 0 : HS_ERR_PARSE;
}

static void sim_format(const struct carrier *carrier, const struct carrier_address *address, char *text, size_t size)
{
    (void)carrier;
    size_t len = address->len < size ? address->len : size - 1;
    memcpy(text, address->bytes, len);
    text[len] = '\0';
}

static void sim_local(const struct carrier *carrier, char *text, size_t size)
{
    const struct sim_carrier *self = self_of(carrier);
    sim_format(carrier, &self->net->endpoints[self->slot].address, text, size);
}

static int sim_wait_fd(const struct carrier *carrier)
{
    (void)carrier;
    return -1;
}

static void sim_stats(const struct carrier *carrier, struct carrier_stats *out)
{
    *out = self_of(carrier)->stats;
}

static void sim_destroy(struct carrier *carrier)
{
    struct sim_carrier *self = self_of(carrier);
    for (struct flight *flight = self->inbox; flight != NULL; flight = flight->next)
        self->net->n_waiting--;
    flights_put(self->net, self->inbox);
    flights_put(self->net, self->given);
    self->net->endpoints[self->slot].carrier = NULL;
    free(self);
}

static const struct carrier_ops sim_ops = {
    .mtu = sim_mtu,
    .resolve = sim_resolve,
    .format = sim_format,
    .send = sim_send,
    .receive = sim_receive,
    .local = sim_local,
    .wait_fd = sim_wait_fd,
    .stats = sim_stats,
    .destroy = sim_destroy,
};

int sim_carrier_create(struct sim_net *net, const char *name, struct carrier **out, struct error *err)
{
    struct carrier_address address;
    uint32_t slot;
    if (address_from_text(name, &address) != 0)
        return error_set(err, HS_ERR_INVALID, "simulated endpoint \"%s\": give a short name with a colon, such as node1:7070",
                         name);
    if (endpoint_slot(net, &address, &slot) != 0)
        return error_set(err, HS_ERR_NO_MEMORY, "simulated endpoint \"%s\": out of memory", name);
    if (net->endpoints[slot].carrier != NULL)
        return error_set(err, HS_ERR_BUSY, "simulated endpoint \"%s\" is alive already: destroy its carrier first", name);
    struct sim_carrier *self = calloc(1, sizeof *self);
    if (self == NULL)
        return error_set(err, HS_ERR_NO_MEMORY, "simulated endpoint \"%s\": out of memory", name);
    self->carrier.ops = &sim_ops;
    self->net = net;
    self->slot = slot;
    self->inbox_tail = &self->inbox;
    net->endpoints[slot].carrier = self;
    net->endpoints[slot].killed = false;
    *out = &self->carrier;
    return 0;
}

/* ---- the net ---- */

struct sim_net *sim_net_create(const struct sim_net_config *config)
{
    struct sim_net *net = calloc(1, sizeof *net);
    if (net == NULL)
        return NULL;
    net->seed = config->seed;
    net->mtu = config->mtu ? config->mtu : SIM_MTU;
    net->default_link = config->link;
    rng_seed(&net->rng, config->seed);
    return net;
}

void sim_net_destroy(struct sim_net *net)
{
    if (net == NULL)
        return;
    for (uint32_t i = 0; i < net->n_endpoints; i++)
        hs_assert(net->endpoints[i].carrier == NULL);
    while (net->heap_len > 0)
        free(heap_pop(net));
    while (net->free_list != NULL) {
        struct flight *next = net->free_list->next;
        free(net->free_list);
        net->free_list = next;
    }
    size_t cursor = 0;
    uint64_t key, value;
    while (u64_map_next(&net->links, &cursor, &key, &value))
        free((struct link *)(uintptr_t)value);
    cursor = 0;
    while (u64_map_next(&net->streams, &cursor, &key, &value))
        free((struct stream *)(uintptr_t)value);
    u64_map_fini(&net->slots);
    u64_map_fini(&net->links);
    u64_map_fini(&net->streams);
    free(net->endpoints);
    free(net->heap);
    free(net);
}

void sim_net_advance(struct sim_net *net, uint64_t now_ns)
{
    if (now_ns > net->now_ns)
        net->now_ns = now_ns;
    while (net->heap_len > 0 && net->heap[0]->due_ns <= net->now_ns) {
        struct flight *flight = heap_pop(net);
        struct sim_carrier *carrier = net->endpoints[flight->to].carrier;
        if (carrier == NULL || net->endpoints[flight->to].killed) {
            net->stats.lost++;
            flight_put(net, flight);
            continue;
        }
        net->stats.delivered++;
        net->n_waiting++;
        carrier->n_waiting++;
        flight->next = NULL;
        *carrier->inbox_tail = flight;
        carrier->inbox_tail = &flight->next;
    }
}

uint64_t sim_net_now_ns(const struct sim_net *net)
{
    return net->now_ns;
}

uint64_t sim_net_next_event_ns(const struct sim_net *net)
{
    return net->n_waiting > 0 ? net->now_ns : sim_net_next_flight_ns(net);
}

uint64_t sim_net_next_flight_ns(const struct sim_net *net)
{
    return net->heap_len > 0 ? net->heap[0]->due_ns : UINT64_MAX;
}

uint32_t sim_carrier_waiting(const struct carrier *carrier)
{
    return self_of(carrier)->n_waiting;
}

void sim_net_set_default_link(struct sim_net *net, const struct sim_link *link)
{
    net->default_link = *link;
}

int sim_net_set_link(struct sim_net *net, const char *from, const char *to, const struct sim_link *faults)
{
    struct link *link;
    int status = link_by_name(net, from, to, &link);
    if (status != 0)
        return status;
    link->faults = *faults;
    link->own = true;
    return 0;
}

int sim_net_get_link(struct sim_net *net, const char *from, const char *to, struct sim_link *out)
{
    struct link *link;
    int status = link_by_name(net, from, to, &link);
    if (status != 0)
        return status;
    *out = *faults_of(net, link);
    out->cut |= link->cut_by_call;
    return 0;
}

int sim_net_set_cut(struct sim_net *net, const char *a, const char *b, bool cut)
{
    struct carrier_address address;
    uint32_t slot, other = 0;
    int status = address_from_text(a, &address);
    if (status == 0)
        status = endpoint_slot(net, &address, &slot);
    if (status == 0 && b != NULL) {
        status = address_from_text(b, &address);
        if (status == 0)
            status = endpoint_slot(net, &address, &other);
    }
    if (status != 0)
        return status;
    for (uint32_t i = b ? other : 0; i < (b ? other + 1 : net->n_endpoints); i++) {
        struct link *there = link_between(net, slot, i), *back = link_between(net, i, slot);
        if (there == NULL || back == NULL)
            return HS_ERR_NO_MEMORY;
        there->cut_by_call = back->cut_by_call = cut;
    }
    return 0;
}

int sim_net_kill(struct sim_net *net, const char *name)
{
    struct carrier_address address;
    uint32_t slot;
    int status = address_from_text(name, &address);
    if (status == 0)
        status = endpoint_slot(net, &address, &slot);
    if (status == 0)
        net->endpoints[slot].killed = true;
    return status;
}

void sim_net_stats(const struct sim_net *net, struct sim_net_stats *out)
{
    *out = net->stats;
}

/* ---- env ---- */

static uint64_t stream_now(void *self)
{
    return ((struct stream *)self)->net->now_ns;
}

static uint64_t stream_random(void *self)
{
    return rng_u64(&((struct stream *)self)->rng);
}

int sim_net_env(struct sim_net *net, uint64_t number, struct env *out)
{
    uint64_t *found = u64_map_get(&net->streams, number);
    struct stream *stream = found ? (struct stream *)(uintptr_t)*found : NULL;
    if (stream == NULL) {
        stream = calloc(1, sizeof *stream);
        if (stream == NULL || u64_map_put(&net->streams, number, (uintptr_t)stream) != 0) {
            free(stream);
            return HS_ERR_NO_MEMORY;
        }
        stream->net = net;
        rng_seed(&stream->rng, net->seed ^ (number + 1) * UINT64_C(0x9e3779b97f4a7c15));
    }
    *out = (struct env){.now_ns = stream_now, .random_u64 = stream_random, .self = stream};
    return 0;
}

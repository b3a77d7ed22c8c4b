#include "net/verbs/ud_neighbours.h"

#include <sodium.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"

enum { CANDIDATES = 8 };

int ud_neighbours_init(struct ud_neighbours *table, uint32_t cap, const uint8_t hash_key[16])
{
    *table = (struct ud_neighbours){.all = calloc(cap, sizeof *table->all), .cap = cap, .n_rails = UD_MAX_PORTS};
    memcpy(table->hash_key, hash_key, sizeof table->hash_key);
    return table->all != NULL ? 0 : HS_ERR_NO_MEMORY;
}

void ud_neighbour_drop_path(struct ud_neighbour *n, uint32_t rail)
{
    if (n->paths[rail] != NULL)
        ud_path_retire(n->paths[rail]);
    n->paths[rail] = NULL;
    n->routes[rail] = (struct path_route){.recorded = false};
}

static void drop_paths(struct ud_neighbour *n)
{
    for (uint32_t i = 0; i < UD_MAX_PORTS; i++) {
        ud_neighbour_drop_path(n, i);
        n->questions[i] = (struct path_retry){.due_ns = 0};
    }
}

void ud_neighbours_fini(struct ud_neighbours *table)
{
    for (uint32_t i = 0; i < table->n; i++)
        drop_paths(&table->all[i]);
    free(table->all);
    u64_map_fini(&table->by_address);
    *table = (struct ud_neighbours){.all = NULL};
}

static uint64_t hash(const struct ud_neighbours *table, const struct carrier_address *address)
{
    uint64_t value;
    crypto_shorthash((uint8_t *)&value, address->bytes, address->len, table->hash_key);
    return value;
}

bool ud_neighbour_is_at(const struct ud_neighbour *n, const struct carrier_address *address)
{
    return n->address.len == address->len && memcmp(n->address.bytes, address->bytes, address->len) == 0;
}

struct ud_neighbour *ud_neighbours_find(const struct ud_neighbours *table, const struct carrier_address *address)
{
    const uint64_t *at = u64_map_get(&table->by_address, hash(table, address));
    return at != NULL && ud_neighbour_is_at(&table->all[*at], address) ? &table->all[*at] : NULL;
}

/* A place for a newcomer: a free one, or that of a neighbour which can go. */
static struct ud_neighbour *make_room(struct ud_neighbours *table)
{
    struct ud_neighbour *oldest = NULL;
    if (table->n < table->cap)
        return &table->all[table->n];
    for (uint32_t i = 0; i < CANDIDATES && i < table->n; i++) {
        struct ud_neighbour *candidate = &table->all[table->hand];
        table->hand = (table->hand + 1) % table->n;
        if (candidate->n_waiting == 0 && (oldest == NULL || candidate->used_ns < oldest->used_ns))
            oldest = candidate;
    }
    if (oldest != NULL) {
        drop_paths(oldest);
        u64_map_remove(&table->by_address, hash(table, &oldest->address));
    }
    return oldest;
}

struct ud_neighbour *ud_neighbours_get(struct ud_neighbours *table, const struct carrier_address *address, uint64_t now_ns)
{
    struct ud_neighbour *n = ud_neighbours_find(table, address);
    if (n != NULL)
        return n;
    n = make_room(table);
    if (n == NULL || u64_map_put(&table->by_address, hash(table, address), (uint64_t)(n - table->all)) != 0)
        return NULL; /* one whose entry is gone is found by its place alone, and goes first */
    table->n += n == &table->all[table->n];
    *n = (struct ud_neighbour){.address = *address, .used_ns = now_ns};
    return n;
}

bool ud_neighbour_ask_due(struct ud_neighbour *n, uint64_t now_ns)
{
    if (n->asking && now_ns - n->asked_ns < UD_ASK_AGAIN_NS)
        return false;
    if (!n->known)
        return true;
    if (n->unanswered_ns == 0 || now_ns - n->unanswered_ns < UD_SILENCE_NS)
        return false;
    n->rail++; /* whoever uses it takes it modulo the rails there are */
    n->unanswered_ns = now_ns;
    return true;
}

static bool is_from(const struct ud_neighbour *n, uint32_t rail, uint32_t queue_pair)
{
    return rail < n->n_ports && n->ports[rail].queue_pair == queue_pair; /* numbers of other rails may be the same */
}

bool ud_neighbour_heard(struct ud_neighbour *n, uint32_t rail, uint32_t queue_pair, uint64_t now_ns)
{
    if (is_from(n, rail, queue_pair))
        return false;
    bool asked = n->asked_ns != 0 && now_ns - n->asked_ns < UD_ASK_AGAIN_NS;
    n->doubted = n->known && (n->doubted || n->asking || !asked);
    return n->known && !asked;
}

void ud_neighbour_answered(struct ud_neighbour *n, uint32_t rail, uint32_t queue_pair, uint64_t now_ns)
{
    if (!is_from(n, rail, queue_pair))
        return;
    bool answered = rail == n->rail % n->n_ports;
    if (!answered && n->unanswered_ns != 0 && now_ns - n->unanswered_ns >= UD_FOLLOW_NS) {
        n->rail = rail; /* its other ports may be down */
        answered = true;
    }
    if (answered)
        n->unanswered_ns = 0;
}

static bool same_ports(const struct ud_neighbour *n, const struct ud_word *tell, uint32_t n_ports)
{
    bool same = n->n_ports == n_ports;
    for (uint32_t i = 0; same && i < n->n_ports; i++) {
        const struct ud_port *a = &n->ports[i], *b = &tell->ports[i];
        same = memcmp(a->gid, b->gid, 16) == 0 && a->queue_pair == b->queue_pair && a->queue_key == b->queue_key && a->lid == b->lid &&
               a->mtu_bytes == b->mtu_bytes && a->infiniband == b->infiniband;
    }
    return same;
}

/* The place in the table goes into the nonce: the answer may come from another of the neighbour's addresses. */
void ud_neighbour_ask(struct ud_neighbours *table, struct ud_neighbour *n, uint64_t now_ns, const uint64_t random[2], struct ud_word *out)
{
    if (!n->asking) {
        uint32_t place = (uint32_t)(n - table->all);
        memcpy(n->nonce, random, UD_NONCE_BYTES);
        memcpy(n->nonce, &place, sizeof place);
    }
    n->asking = true; /* with the same nonce until it is answered: an answer may take longer than we wait to ask again */
    n->asked_ns = now_ns;
    *out = (struct ud_word){.type = UD_ASK};
    memcpy(out->nonce, n->nonce, UD_NONCE_BYTES);
}

struct ud_neighbour *ud_neighbours_told(struct ud_neighbours *table, const struct ud_word *tell, bool *moved)
{
    uint32_t place;
    memcpy(&place, tell->nonce, sizeof place);
    struct ud_neighbour *n = place < table->n ? &table->all[place] : NULL;
    if (n == NULL || tell->type != UD_TELL || !n->asking || memcmp(n->nonce, tell->nonce, UD_NONCE_BYTES) != 0)
        return NULL;
    uint32_t n_ports = tell->n_ports < table->n_rails ? tell->n_ports : table->n_rails; /* the others are of no use to us */
    *moved = !same_ports(n, tell, n_ports);
    if (*moved)
        drop_paths(n);
    memcpy(n->ports, tell->ports, sizeof n->ports);
    n->n_ports = n_ports;
    n->known = true;
    n->doubted = n->asking = false;
    return n;
}

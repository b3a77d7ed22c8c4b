#include <string.h>

#include "core/cluster/internal.h"

enum { TELL_MAX = 16 }; /* peers told of one placement; in larger groups the rendezvous order covers the rest */

static const double linger_s = 2; /* past ready: by then the digest says it */
static const double linger_max_s = 60;

static struct intent *find(struct cluster *c, uint64_t id)
{
    for (int i = 0; i < INTENTS_MAX; i++)
        if (c->books.intents[i].id == id)
            return &c->books.intents[i];
    return NULL;
}

/* A free slot, else the one that expires first. */
static struct intent *slot(struct cluster *c, uint64_t now_ns)
{
    struct intent *best = &c->books.intents[0];
    for (int i = 0; i < INTENTS_MAX; i++) {
        struct intent *at = &c->books.intents[i];
        if (!at->id || at->expires_ns <= now_ns)
            return at;
        if (at->expires_ns < best->expires_ns)
            best = at;
    }
    limit_hit(c->count.limits[CLUSTER_LIMIT_INTENTS], 1);
    return best;
}

static uint64_t *blocks_of(struct cluster *c, const struct intent *intent)
{
    return c->books.intent_blocks[intent - c->books.intents];
}

static void tell(struct cluster *c, const struct intent *intent, uint32_t ttl_ms, uint32_t ready_ms)
{
    uint8_t buffer[64 + WIRE_INTENT_BLOCKS_MAX * 8];
    struct writer w;
    writer_init(&w, buffer, sizeof buffer);
    struct wire_intent message = {.id = intent->id,
                                  .target_boot_id = intent->target_boot_id,
                                  .ttl_ms = ttl_ms,
                                  .ready_ms = ready_ms,
                                  .uncached_tokens = intent->uncached_tokens,
                                  .n = ttl_ms ? intent->n : 0};
    wire_write_intent(&w, &message, blocks_of(c, intent));
    uint32_t told = 0, start = c->n_members ? (uint32_t)rng_below(&c->rng, c->n_members) : 0;
    for (uint32_t i = 0; i < c->n_members && told < TELL_MAX; i++) {
        struct member *m = c->members[(start + i) % c->n_members];
        if (member_is_routable(c, m) && cluster_send(c, m, &w, TRANSPORT_UNRELIABLE) == 0)
            told++;
    }
    counter_add(c->count.intents, told);
}

static uint64_t after(uint64_t now_ns, double seconds)
{
    return now_ns + (uint64_t)((seconds < linger_max_s ? seconds : linger_max_s) * 1e9);
}

void intent_announce(struct cluster *c, const struct route_query *query, const struct route_ticket *ticket, uint64_t boot_id,
                     double ready_s, uint64_t now_ns)
{
    struct intent *intent = slot(c, now_ns);
    *intent = (struct intent){.id = ticket->intent_id,
                              .target_boot_id = boot_id,
                              .ours = true,
                              .heard_ns = now_ns,
                              .ready_ns = after(now_ns, ready_s),
                              .expires_ns = after(now_ns, ready_s + linger_s),
                              .uncached_tokens = ticket->uncached_tokens,
                              .n = query->n_blocks < WIRE_INTENT_BLOCKS_MAX ? query->n_blocks : WIRE_INTENT_BLOCKS_MAX,
                              .first = query->n_blocks ? query->blocks[0] : 0};
    memcpy(blocks_of(c, intent), query->blocks, intent->n * sizeof *query->blocks);
    tell(c, intent, (uint32_t)((intent->expires_ns - now_ns) / MS), (uint32_t)((intent->ready_ns - now_ns) / MS));
}

void intent_revoke(struct cluster *c, uint64_t id)
{
    struct intent *intent = find(c, id);
    if (!intent || !intent->ours)
        return;
    tell(c, intent, 0, 0);
    intent->id = 0;
}

void intent_restart(struct cluster *c, uint64_t id, double ready_s, uint64_t now_ns)
{
    struct intent *intent = find(c, id);
    if (!intent)
        return;
    intent->ready_ns = after(now_ns, ready_s);
    intent->expires_ns = after(now_ns, ready_s + linger_s);
}

void intent_on_message(struct cluster *c, const struct wire_intent *message, uint64_t now_ns)
{
    struct intent *intent = message->id ? find(c, message->id) : NULL;
    if (intent && intent->ours)
        return;
    if (!message->ttl_ms || !message->id) {
        if (intent)
            intent->id = 0;
        return;
    }
    if (!intent)
        intent = slot(c, now_ns);
    *intent = (struct intent){.id = message->id,
                              .target_boot_id = message->target_boot_id,
                              .heard_ns = now_ns,
                              .ready_ns = after(now_ns, message->ready_ms / 1e3),
                              .expires_ns = after(now_ns, message->ttl_ms / 1e3),
                              .uncached_tokens = message->uncached_tokens,
                              .n = message->n,
                              .first = message->n ? wire_name(message->blocks, 0) : 0};
    memcpy(blocks_of(c, intent), message->blocks, message->n * sizeof(uint64_t));
}

void intents_forget(struct cluster *c, uint64_t target_boot_id)
{
    for (int i = 0; i < INTENTS_MAX; i++)
        if (c->books.intents[i].target_boot_id == target_boot_id)
            c->books.intents[i].id = 0;
}

/* Names are chained: if the i-th are equal, so are all before. */
static uint32_t common_prefix(const uint64_t *blocks, uint32_t n, const struct route_query *query)
{
    uint32_t low = 0, high = n < query->n_blocks ? n : query->n_blocks;
    while (low < high) {
        uint32_t middle = low + (high - low + 1) / 2;
        if (blocks[middle - 1] == query->blocks[middle - 1])
            low = middle;
        else
            high = middle - 1;
    }
    return low;
}

void intents_look(struct cluster *c, const struct route_query *query, uint64_t now_ns)
{
    for (int i = 0; i < INTENTS_MAX; i++) {
        const struct intent *intent = &c->books.intents[i];
        bool matches = intent->id && intent->n && query->n_blocks && intent->first == query->blocks[0];
        if (!matches || intent->expires_ns <= now_ns)
            continue;
        struct member *m = member_by_boot(c, intent->target_boot_id);
        if (!m && intent->target_boot_id != c->info.boot_id)
            continue;
        struct outlook *outlook = m ? &m->outlook : &c->books.self;
        uint32_t n = common_prefix(blocks_of(c, intent), intent->n, query);
        bool sooner = n && n == outlook->promised_blocks && intent->ready_ns < outlook->promised_ready_ns;
        if (n > outlook->promised_blocks || sooner) {
            outlook->promised_blocks = n;
            outlook->promised_ready_ns = intent->ready_ns;
        }
    }
}

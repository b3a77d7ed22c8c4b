/*
 * Anti-entropy, the speaking side. In rounds: each round sends a digest (our header and the changes not yet sent) to peers.
 *
 * Up to DIRECT_PEERS peers all of them are told in every round, each from where it stands. In larger groups a round goes to
 * 4 + log2(n) peers in turn, and who learns something new from it relays the datagram once to as many random peers
 * (infect and die), a bounded number of hops; the few that this misses see the gap at the origin's next header in their turn and
 * pull from the origin. So one change costs a node at most 4 + log2(n) datagrams, whether it made the change or relays it.
 *
 * Where peers read our digest one-sidedly, rounds only carry news, at once, and a sign of life now and then.
 */
#include <string.h>

#include "core/cluster/internal.h"

enum { DIRECT_PEERS = 16, PUSH_DATAGRAMS = 8, CHANGE_BYTES = 9 };

static const uint64_t quick_interval_ns = 10 * MS;
static const uint64_t sign_of_life_ns = 300 * MS; /* to peers that read us */
static const uint64_t asked_lately_ns = 5 * SECOND;
static const double fast_link_s = 0.020;

struct wire_epoch gossip_epoch(const struct cluster *c)
{
    return (struct wire_epoch){c->info.boot_id, c->epoch_counter};
}

static double rate(const struct cluster *c)
{
    return (double)c->config.gossip_bytes_per_s;
}

/* A quarter of a second's worth may go at once, and never less than one round of small digests. */
static double burst(const struct cluster *c)
{
    double quarter = rate(c) / 4;
    return quarter > 4096 ? quarter : 4096;
}

static void fill_bucket(const struct cluster *c, struct bucket *bucket, uint64_t now_ns)
{
    if (!bucket->filled_ns)
        bucket->level = burst(c);
    else
        bucket->level += rate(c) * (double)(now_ns - bucket->filled_ns) / 1e9;
    if (bucket->level > burst(c))
        bucket->level = burst(c);
    bucket->filled_ns = now_ns;
}

bool gossip_take(struct cluster *c, struct member *m, size_t bytes, uint64_t now_ns)
{
    fill_bucket(c, &m->bucket, now_ns);
    if (m->bucket.level <= 0)
        limit_hit(c->count.limits[CLUSTER_LIMIT_GOSSIP_BYTES], 1);
    if (m->bucket.level <= 0)
        return false; /* the last message may have gone into debt, so that a page larger than the burst is not stuck for ever */
    m->bucket.level -= (double)bytes;
    return true;
}

void gossip_charge(struct cluster *c, struct member *m, size_t bytes, uint64_t now_ns)
{
    fill_bucket(c, &m->bucket, now_ns);
    m->bucket.level -= (double)bytes;
}

/* Rounds and relays leave the lower half to questions and their answers: else a short interval at a low rate would say nothing but
 * headers for ever, and what is missed would never be made good. */
bool gossip_has_spare(struct cluster *c, struct member *m, uint64_t now_ns)
{
    fill_bucket(c, &m->bucket, now_ns);
    return m->bucket.level > burst(c) / 2;
}

void gossip_fill_header(struct cluster *c, struct wire_header *out)
{
    *out = (struct wire_header){
        .epoch = gossip_epoch(c),
        .stamp = ++c->stamp,
        .sequence = advert_sequence(c->advert),
        .checksum = block_set_checksum(advert_set(c->advert)),
        .n_blocks = block_set_len(advert_set(c->advert)),
        .page_tokens = c->config.page_tokens,
        .load = c->load,
    };
    out->load.push_back = c->push_back;
    memcpy(out->fingerprint, c->config.fingerprint, sizeof out->fingerprint);
    memcpy(out->arithmetic, c->config.arithmetic, sizeof out->arithmetic);
}

uint64_t gossip_push(struct cluster *c, struct member *m, uint64_t first, uint8_t hops, uint32_t max_datagrams, uint64_t now_ns)
{
    if (!advert_covers(c->advert, first))
        first = advert_sequence(c->advert) + 1; /* the header alone: the peer will see that it is behind */
    for (uint32_t i = 0; i < max_datagrams; i++) {
        uint8_t buffer[DATAGRAM_MAX];
        struct writer w;
        struct wire_header header;
        writer_init(&w, buffer, cluster_datagram_bytes(c));
        gossip_fill_header(c, &header);
        wire_begin_digest(&w, &header, hops, first);
        uint64_t next = advert_write_runs(c->advert, first, &w);
        if (!gossip_take(c, m, w.len, now_ns) || cluster_send(c, m, &w, TRANSPORT_UNRELIABLE) != 0)
            break;
        first = next;
        if (first > advert_sequence(c->advert))
            break;
    }
    return first;
}

static bool has_spare_for_round(struct cluster *c, struct member *m, uint64_t now_ns)
{
    bool has_spare = !reads_are_starved(m) && gossip_has_spare(c, m, now_ns);
    m->reads.round_went |= has_spare;
    return has_spare;
}

static bool hears_us(const struct member *m)
{
    return m->up && (m->state == CLUSTER_PEER_ALIVE || m->state == CLUSTER_PEER_SUSPECT);
}

static uint32_t count_hearers(const struct cluster *c)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < c->n_members; i++)
        n += hears_us(c->members[i]);
    return n;
}

static uint32_t fan_out(uint32_t n)
{
    uint32_t bits = 0;
    for (; n > 1; n /= 2)
        bits++;
    return 4 + bits;
}

/* Hops after which 4 + log2(n) per hop have reached n peers, and two more for what overlaps. */
static uint8_t hops_for(uint32_t n)
{
    uint8_t hops = 2;
    for (uint64_t reached = 1; reached < n; reached *= fan_out(n))
        hops++;
    return hops;
}

static bool has_changed(const struct cluster *c)
{
    return advert_sequence(c->advert) != c->round_sequence || c->load_changed;
}

static uint64_t interval(const struct cluster *c)
{
    bool quick = has_changed(c) && quick_interval_ns < c->config.gossip_interval_ns;
    return quick ? quick_interval_ns : c->config.gossip_interval_ns;
}

/* Of whom it is not known better: a peer that cannot read asks by message. */
static bool is_read_by(const struct cluster *c, const struct member *m, uint64_t now_ns)
{
    return c->region.published && (!m->asked_ns || now_ns - m->asked_ns >= asked_lately_ns);
}

static void push_direct(struct cluster *c, struct member *m, bool is_quick, uint64_t now_ns)
{
    bool slow_link = m->rtt_s > fast_link_s;
    if (is_quick && slow_link && now_ns - m->gossiped_ns < c->config.gossip_interval_ns)
        return;
    bool has_news = m->pushed < advert_sequence(c->advert) || c->load_changed;
    if (!has_news && is_read_by(c, m, now_ns) && now_ns - m->gossiped_ns < sign_of_life_ns)
        return; /* it reads our header when it likes */
    if (!has_spare_for_round(c, m, now_ns))
        return;
    m->gossiped_ns = c->spoke_ns = now_ns;
    m->pushed = gossip_push(c, m, m->pushed + 1, 0, PUSH_DATAGRAMS, now_ns) - 1;
}

static void round_direct(struct cluster *c, bool is_quick, uint64_t now_ns)
{
    for (uint32_t i = 0; i < c->n_members; i++)
        if (hears_us(c->members[i]))
            push_direct(c, c->members[i], is_quick, now_ns);
}

static void round_epidemic(struct cluster *c, uint32_t n, uint64_t now_ns)
{
    uint32_t targets = fan_out(n), tried = 0;
    for (; targets && tried < c->n_members; tried++) {
        struct member *m = c->members[(c->round_at + tried) % c->n_members];
        if (!hears_us(m))
            continue;
        targets--;
        c->spoke_ns = now_ns;
        if (has_spare_for_round(c, m, now_ns))
            m->pushed = gossip_push(c, m, c->round_sequence + 1, hops_for(n), PUSH_DATAGRAMS, now_ns) - 1;
    }
    c->round_at = (c->round_at + tried) % c->n_members;
}

void gossip_relay(struct cluster *c, const struct member *from, const struct wire_digest *digest, const uint8_t *data, size_t len,
                  uint64_t now_ns)
{
    if (!digest->hops_left || len > DATAGRAM_MAX)
        return;
    uint8_t copy[DATAGRAM_MAX];
    memcpy(copy, data, len);
    copy[WIRE_DIGEST_HOPS_AT]--;
    struct writer w = {.data = copy, .cap = len, .len = len};
    uint32_t targets = fan_out(count_hearers(c));
    for (uint32_t tries = 4 * targets; tries && targets; tries--) {
        struct member *m = c->members[rng_below(&c->rng, c->n_members)];
        if (m == from || !hears_us(m) || m->boot_id == digest->header.epoch.boot_id || !has_spare_for_round(c, m, now_ns) ||
            !gossip_take(c, m, len, now_ns))
            continue;
        targets--;
        cluster_send(c, m, &w, TRANSPORT_UNRELIABLE);
        counter_add(c->count.relays, 1);
    }
}

static void pump(struct cluster *c, uint64_t now_ns)
{
    fill_bucket(c, &c->pump, now_ns);
    uint32_t budget = (uint32_t)(c->pump.level / CHANGE_BYTES);
    uint32_t changes = advert_pump(c->advert, budget);
    c->pump.level -= (double)changes * CHANGE_BYTES;
}

/* Where peers read us, rounds without news tell nobody anything, so that news need not wait for its turn. */
static uint64_t due_ns(const struct cluster *c)
{
    uint64_t from_ns = c->region.published && has_changed(c) && c->spoke_ns < c->round_ns ? c->spoke_ns : c->round_ns;
    return from_ns + interval(c);
}

uint64_t gossip_near_round(const struct cluster *c, uint64_t at_ns, uint64_t slack_ns)
{
    uint64_t round_ns = c->round_ns + c->config.gossip_interval_ns;
    uint64_t apart_ns = at_ns < round_ns ? round_ns - at_ns : at_ns - round_ns;
    return apart_ns <= slack_ns ? round_ns : at_ns;
}

void gossip_step(struct cluster *c, uint64_t now_ns)
{
    pump(c, now_ns);
    if (now_ns >= due_ns(c) && !c->left) {
        region_refresh(c);
        bool is_quick = interval(c) < c->config.gossip_interval_ns;
        uint32_t n = count_hearers(c);
        if (n <= DIRECT_PEERS)
            round_direct(c, is_quick, now_ns);
        else
            round_epidemic(c, n, now_ns);
        c->round_ns = now_ns;
        c->round_sequence = advert_sequence(c->advert);
        c->load_changed = false;
        counter_add(c->count.rounds, 1);
    }
    c->region_due_ns = region_step(c, now_ns);
}

uint64_t gossip_next(const struct cluster *c)
{
    uint64_t next = due_ns(c) < c->region_due_ns ? due_ns(c) : c->region_due_ns;
    if (advert_pending(c->advert) && c->pump.filled_ns + quick_interval_ns < next)
        next = c->pump.filled_ns + quick_interval_ns;
    return next;
}

/*
 * Anti-entropy, the listening side, and what the origin answers. The listener drives: it knows what it lacks, asks, and asks again
 * when no answer came; the origin keeps nothing per listener but its byte rate, so an answer cut short by the rate is just a part.
 * Where peers' pages can be read one-sidedly, it reads instead of asking, and asks only when that fails (reads.h).
 */
#include <string.h>

#include "core/base/log.h"
#include "core/cluster/internal.h"

enum { PULL_DATAGRAMS = 32 };

static const uint64_t grace_ns = 2 * MS; /* pushes under way may fill a gap by themselves */
static const uint64_t ask_floor_ns = 20 * MS;
static const uint64_t longest_hold_ns = 1 * SECOND;
enum { ASKED_FREELY = 4 };

static void log_mismatch(struct cluster *c, struct member *m)
{
    const struct wire_header *header = &m->header;
    if (m->mismatch_logged || !m->name[0])
        return; /* a header that overtook the hello is told with a later one, by name */
    m->mismatch_logged = true;
    if (memcmp(header->fingerprint, c->config.fingerprint, sizeof header->fingerprint) != 0)
        log_warn("cluster", "peer %s serves another model (fingerprint %02x%02x%02x%02x, ours %02x%02x%02x%02x): not routed to",
                 m->name, header->fingerprint[0], header->fingerprint[1], header->fingerprint[2], header->fingerprint[3],
                 c->config.fingerprint[0], c->config.fingerprint[1], c->config.fingerprint[2], c->config.fingerprint[3]);
    else if (header->page_tokens != c->config.page_tokens)
        log_warn("cluster", "peer %s has another page size (%u tokens, ours %u): not routed to; start all with one --page-tokens",
                 m->name, header->page_tokens, c->config.page_tokens);
    else
        log_warn("cluster", "peer %s computes in another arithmetic class (%s, ours %s): not routed to under --same-bits", m->name,
                 header->arithmetic, c->config.arithmetic);
}

static bool is_compatible(const struct cluster *c, const struct wire_header *header)
{
    return memcmp(header->fingerprint, c->config.fingerprint, sizeof header->fingerprint) == 0 &&
           header->page_tokens == c->config.page_tokens &&
           (!c->config.same_bits || strcmp(header->arithmetic, c->config.arithmetic) == 0);
}

static void take_header(struct cluster *c, struct member *m, const struct wire_header *header, uint64_t now_ns)
{
    if (m->has_header && header->stamp <= m->header.stamp)
        return;
    m->header = *header;
    m->has_header = true;
    m->header_ns = now_ns;
    m->compatible = is_compatible(c, header);
    if (!m->compatible)
        log_mismatch(c, m);
    member_announce(c, m, false);
}

static bool is_out(const struct member *m)
{
    return m->state == CLUSTER_PEER_DEAD || m->state == CLUSTER_PEER_LEFT;
}

void sync_begin(struct cluster *c, struct member *m, uint64_t now_ns)
{
    gossip_push(c, m, advert_sequence(c->advert) + 1, 0, 1, now_ns);
    m->ask_at_ns = now_ns + grace_ns;
}

static unsigned needs(const struct member *m)
{
    return m->has_header ? replica_need(&m->replica) : REPLICA_DELTAS; /* whose answer is a header, as no epoch is known */
}

/* Notes what the last message did to the replica, and when to ask for what it still lacks. */
static void settle(struct cluster *c, struct member *m, uint64_t now_ns)
{
    if (replica_need(&m->replica) == 0) {
        m->replica_ns = now_ns;
        m->ask_at_ns = 0;
        m->asked_in_vain = 0;
    } else if (!m->ask_at_ns) {
        m->ask_at_ns = now_ns + grace_ns;
    }
    if (m->replica_gauge)
        gauge_set(m->replica_gauge, replica_blocks(&m->replica));
}

void sync_on_digest(struct cluster *c, struct member *from, const struct wire_digest *digest, const uint8_t *data, size_t len,
                    uint64_t now_ns)
{
    const struct wire_header *header = &digest->header;
    struct member *m = member_by_boot(c, header->epoch.boot_id);
    if (!m || is_out(m))
        return;
    take_header(c, m, header, now_ns);
    /* Names of another model or page size mean nothing here. */
    if (!m->compatible || replica_enter_epoch(&m->replica, header->epoch) != 0)
        return;
    uint32_t applied = replica_apply_delta(&m->replica, &digest->delta);
    replica_set_target(&m->replica, header->sequence, header->checksum);
    settle(c, m, now_ns);
    if (applied)
        gossip_relay(c, from, digest, data, len, now_ns);
}

void sync_on_pull(struct cluster *c, struct member *from, const struct wire_pull *pull, uint64_t now_ns)
{
    from->asked_ns = now_ns;
    uint64_t sequence = advert_sequence(c->advert);
    bool same_epoch = wire_epoch_equal(pull->epoch, gossip_epoch(c)) && pull->have <= sequence;
    if (!same_epoch) {
        gossip_push(c, from, sequence + 1, 0, 1, now_ns);
        return;
    }
    uint64_t behind = sequence - pull->have;
    bool deltas_serve = advert_covers(c->advert, pull->have + 1) && behind <= block_set_len(advert_set(c->advert)) + SYNC_SNAPSHOT_SLACK;
    if (!pull->manifest && deltas_serve) {
        uint64_t next = gossip_push(c, from, pull->have + 1, 0, PULL_DATAGRAMS, now_ns);
        if (next > from->pushed + 1)
            from->pushed = next - 1;
        return;
    }
    uint8_t buffer[64 + BLOCK_SET_PAGES * 8];
    struct writer w;
    uint64_t checksums[BLOCK_SET_PAGES];
    for (uint32_t page = 0; page < BLOCK_SET_PAGES; page++)
        checksums[page] = block_set_page_checksum(advert_set(c->advert), page);
    writer_init(&w, buffer, sizeof buffer);
    wire_write_manifest(&w, gossip_epoch(c), sequence, checksums);
    if (gossip_take(c, from, w.len, now_ns) && cluster_send(c, from, &w, 0) == 0) {
        from->pushed = sequence;
        counter_add(c->count.manifests, 1);
    }
}

static bool send_page(struct cluster *c, struct member *to, uint32_t page, uint64_t now_ns)
{
    enum { NAMES_MAX = 8000 };
    static const size_t overhead = 32;
    uint8_t buffer[NAMES_MAX * 8 + 64];
    uint64_t names[NAMES_MAX];
    uint32_t n = block_set_page_names(advert_set(c->advert), page, names, NAMES_MAX);
    if (n > NAMES_MAX || n * 8 + overhead > c->info.max_message_bytes)
        return true; /* 2 million blocks advertised: beyond what create allows */
    struct writer w;
    writer_init(&w, buffer, sizeof buffer);
    wire_write_page(&w, gossip_epoch(c), advert_sequence(c->advert), page, names, n);
    if (!gossip_take(c, to, w.len, now_ns) || cluster_send(c, to, &w, 0) != 0)
        return false;
    counter_add(c->count.pages, 1);
    return true;
}

void sync_on_page_request(struct cluster *c, struct member *from, const struct wire_page_request *request, uint64_t now_ns)
{
    from->asked_ns = now_ns;
    if (!wire_epoch_equal(request->epoch, gossip_epoch(c))) {
        gossip_push(c, from, advert_sequence(c->advert) + 1, 0, 1, now_ns);
        return;
    }
    for (uint32_t page = 0; page < BLOCK_SET_PAGES; page++)
        if (request->pages[page / 8] & 1 << page % 8 && !send_page(c, from, page, now_ns))
            return;
}

void sync_on_manifest(struct cluster *c, struct member *from, const struct wire_manifest *manifest, uint64_t now_ns)
{
    if (!from->replica.set || !wire_epoch_equal(manifest->epoch, from->replica.epoch))
        return;
    if (!(replica_need(&from->replica) & (REPLICA_DELTAS | REPLICA_MANIFEST)))
        return; /* one of several answers, and late: a replica without room for all would fetch again what did not fit before */
    replica_apply_manifest(&from->replica, manifest->sequence, manifest->checksums);
    from->ask_at_ns = now_ns; /* the pages, at once */
    settle(c, from, now_ns);
}

void sync_on_page(struct cluster *c, struct member *from, const struct wire_page *page, uint64_t now_ns)
{
    if (replica_apply_page(&from->replica, page))
        settle(c, from, now_ns);
}

/* Both questions or none: the first would else take, time after time, what the second needs. False: the byte rate has no room. */
static bool send_ask(struct cluster *c, struct member *m, unsigned need, uint64_t now_ns)
{
    uint8_t changes[64], pages[64];
    struct writer pull, request;
    bool wants_changes = need & (REPLICA_DELTAS | REPLICA_MANIFEST), wants_pages = need & REPLICA_PAGES;
    writer_init(&pull, changes, sizeof changes);
    writer_init(&request, pages, sizeof pages);
    if (wants_changes)
        wire_write_pull(&pull, &(struct wire_pull){m->replica.epoch, m->replica.sequence, need & REPLICA_MANIFEST});
    if (wants_pages) {
        struct wire_page_request stale = {.epoch = m->replica.epoch};
        for (uint32_t page = 0; page < BLOCK_SET_PAGES; page++)
            if (m->replica.stale[page])
                stale.pages[page / 8] |= (uint8_t)(1 << page % 8);
        wire_write_page_request(&request, &stale);
    }
    if (!gossip_take(c, m, pull.len + request.len, now_ns))
        return false;
    if (wants_changes && cluster_send(c, m, &pull, TRANSPORT_UNRELIABLE) == 0)
        counter_add(c->count.pulls, 1);
    if (wants_pages)
        cluster_send(c, m, &request, TRANSPORT_UNRELIABLE);
    return true;
}

/* Until when not to ask for changes or the manifest again: each answer so far has left the replica where it was, as what a liar says of
 * itself does. Stale pages get fewer with each that comes, and need no such limit. */
static uint64_t held_until(struct member *m)
{
    if (m->replica.sequence != m->asked_sequence)
        m->asked_in_vain = 0;
    if (m->asked_in_vain < ASKED_FREELY)
        return 0;
    uint32_t doublings = m->asked_in_vain - ASKED_FREELY;
    uint64_t hold_ns = doublings < 16 ? ask_floor_ns << doublings : longest_hold_ns;
    return m->asked_state_ns + (hold_ns < longest_hold_ns ? hold_ns : longest_hold_ns);
}

static void note_question(struct member *m, unsigned need, uint64_t now_ns)
{
    if (!(need & (REPLICA_DELTAS | REPLICA_MANIFEST)))
        return;
    m->asked_in_vain++;
    m->asked_sequence = m->replica.sequence;
    m->asked_state_ns = now_ns;
}

uint64_t sync_ask(struct cluster *c, struct member *m, uint64_t now_ns)
{
    if (!m->ask_at_ns || !m->up)
        return UINT64_MAX;
    if (now_ns < m->ask_at_ns)
        return m->ask_at_ns;
    unsigned need = needs(m);
    if (!need) {
        m->ask_at_ns = 0;
        return UINT64_MAX;
    }
    if (reads_pending(m))
        return UINT64_MAX; /* until they have ended */
    uint64_t held_ns = held_until(m);
    if (now_ns < held_ns)
        need &= REPLICA_PAGES;
    if (!need) {
        m->ask_at_ns = held_ns;
        return held_ns;
    }
    if (reads_work(c, m, now_ns) && reads_ask(c, m, need, now_ns)) {
        note_question(m, need, now_ns);
        return UINT64_MAX;
    }
    if (reads_work(c, m, now_ns)) {
        m->ask_at_ns = now_ns + grace_ns;
        return m->ask_at_ns;
    }
    uint64_t wait = grace_ns; /* what we answer takes from the same rate as what we ask: it must not crowd the questions out */
    if (send_ask(c, m, need, now_ns)) {
        note_question(m, need, now_ns);
        wait = (uint64_t)((2 * m->rtt_s + 4 * m->rtt_deviation_s) * 1e9);
        wait = wait > ask_floor_ns ? wait : ask_floor_ns;
    }
    m->ask_at_ns = now_ns + wait;
    return m->ask_at_ns;
}

#include "core/cluster/reads.h"

#include "core/base/panic.h"
#include "core/cluster/internal.h"

enum { WINDOW = 16, SPREAD_ABOVE = 16, PAGE_OVERHEAD = 32, MANIFEST_BYTES = 32 + 8 * BLOCK_SET_PAGES };
enum { MOST_PUT_OFF = 4 };
enum { KIND_SHIFT = 16, GENERATION_SHIFT = 32 }; /* of a cookie: generation, region, page */

static const uint64_t quick_interval_ns = 10 * MS;
static const double fast_link_s = 0.020;
static const uint64_t first_back_off_ns = 50 * MS;
static const uint64_t longest_back_off_ns = 30 * SECOND;
static const uint64_t absent_back_off_ns = 10 * SECOND; /* the peer publishes nothing, or reads do not end */
static const uint64_t patience_ns = 2 * SECOND;

void reads_reset(struct cluster *c, struct member *m)
{
    m->reads = (struct digest_reads){.generation = ++c->read_generations, .interval_ns = quick_interval_ns};
}

bool reads_work(const struct cluster *c, const struct member *m, uint64_t now_ns)
{
    return c->info.reads_pages && m->up && now_ns >= m->reads.by_message_until_ns;
}

bool reads_are_starved(const struct member *m)
{
    return m->reads.n_put_off >= MOST_PUT_OFF;
}

bool reads_pending(const struct member *m)
{
    return m->reads.pending > 0;
}

static void fail(struct cluster *c, struct member *m, int status, uint64_t now_ns)
{
    struct digest_reads *reads = &m->reads;
    reads->back_off_ns = reads->back_off_ns ? 2 * reads->back_off_ns : first_back_off_ns;
    if (reads->back_off_ns > longest_back_off_ns)
        reads->back_off_ns = longest_back_off_ns;
    bool is_absent = status == HS_ERR_NOT_FOUND || status == HS_ERR_TIMEOUT;
    uint64_t wait = is_absent ? absent_back_off_ns : reads->back_off_ns;
    reads->by_message_until_ns = now_ns + wait;
    reads->n_put_off = 0;
    counter_add(c->count.read_failures, 1);
}

static int begin(struct cluster *c, struct member *m, uint32_t region, uint32_t page, uint32_t expected)
{
    uint64_t cookie = (uint64_t)m->reads.generation << GENERATION_SHIFT | region << KIND_SHIFT | page;
    return c->transport->ops->read_page(c->transport, m->peer, region, page, expected, cookie);
}

/* ---- the header, in its turn ---- */

/* Quick while it changes and the link is fast; the more peers, the more seldom each, so that a node's reads do not grow with the group. */
static uint64_t head_interval(const struct cluster *c, const struct member *m)
{
    uint64_t interval = c->config.gossip_interval_ns;
    if (interval > quick_interval_ns && m->rtt_s <= fast_link_s && m->reads.interval_ns < interval)
        interval = m->reads.interval_ns;
    return c->n_members > SPREAD_ABOVE ? interval * c->n_members / SPREAD_ABOVE : interval;
}

static uint64_t step_head(struct cluster *c, struct member *m, uint64_t now_ns)
{
    struct digest_reads *reads = &m->reads;
    bool is_live = m->state == CLUSTER_PEER_ALIVE || m->state == CLUSTER_PEER_SUSPECT;
    if (!c->info.reads_pages || !m->up || !is_live || reads->head_pending)
        return UINT64_MAX;
    if (now_ns < reads->by_message_until_ns)
        return reads->by_message_until_ns;
    if (now_ns < reads->head_at_ns)
        return reads->head_at_ns;
    reads->head_at_ns = now_ns + head_interval(c, m);
    bool has_spare = gossip_has_spare(c, m, now_ns);
    reads->n_put_off += !has_spare && reads->round_went;
    if (!has_spare || !gossip_take(c, m, reads->head_bytes ? reads->head_bytes : REGION_HEAD_BYTES, now_ns))
        return reads->head_at_ns;
    reads->n_put_off = 0;
    reads->round_went = false;
    int rc = begin(c, m, REGION_HEAD, 0, REGION_HEAD_BYTES);
    if (rc != 0 && rc != HS_ERR_BUSY)
        fail(c, m, rc, now_ns);
    reads->head_pending = rc == 0;
    reads->head_began_ns = now_ns;
    return reads->head_pending ? UINT64_MAX : reads->head_at_ns;
}

/* When to stop waiting for what is under way. */
static uint64_t overdue_ns(const struct digest_reads *reads)
{
    uint64_t head_ns = reads->head_pending ? reads->head_began_ns + patience_ns : UINT64_MAX;
    uint64_t batch_ns = reads->pending ? reads->began_ns + patience_ns : UINT64_MAX;
    return head_ns < batch_ns ? head_ns : batch_ns;
}

uint64_t reads_step(struct cluster *c, struct member *m, uint64_t now_ns)
{
    struct digest_reads *reads = &m->reads;
    if (now_ns >= overdue_ns(reads)) {
        reads->generation = ++c->read_generations; /* those that end after all are not ours any more */
        reads->pending = 0;
        reads->head_pending = false;
        fail(c, m, HS_ERR_TIMEOUT, now_ns);
        return now_ns; /* whoever waits for their end asks by message */
    }
    uint64_t next = step_head(c, m, now_ns), overdue = overdue_ns(reads);
    return next < overdue ? next : overdue;
}

/* ---- what is missing ---- */

struct batch {
    struct cluster *c;
    struct member *m;
    uint64_t now_ns;
    uint32_t n;
    int status; /* why the last one could not be begun */
};

static bool add(struct batch *b, uint32_t region, uint32_t page, uint32_t expected)
{
    if (b->n == WINDOW || !gossip_take(b->c, b->m, expected, b->now_ns))
        return false;
    b->status = begin(b->c, b->m, region, page, expected);
    b->n += b->status == 0;
    b->m->reads.expected_bytes += b->status == 0 ? expected : 0;
    return b->status == 0;
}

static void add_log(struct batch *b, const struct replica *replica)
{
    for (uint64_t next = replica->sequence + 1; next <= replica->target && b->n < WINDOW / 2;) {
        uint64_t page_first = next - (next - 1) % REGION_LOG_CHANGES, page_last = page_first + REGION_LOG_CHANGES - 1;
        uint64_t last = page_last < replica->target ? page_last : replica->target;
        if (!add(b, REGION_LOG, region_log_page(next), REGION_HEAD_BYTES + 9 * (uint32_t)(last - page_first + 1)))
            return;
        next = page_last + 1;
    }
}

/* Names fall into pages at random: the mean and six deviations. No more than any node may advertise, and not much more than the pages that
 * have come: what the header says may be far from true, and is paid for before it is known. */
static uint32_t expected_of_page(const struct member *m)
{
    uint32_t n_blocks = m->header.n_blocks < CLUSTER_MOST_ADVERTISED_BLOCKS ? m->header.n_blocks : CLUSTER_MOST_ADVERTISED_BLOCKS;
    uint32_t mean = n_blocks / BLOCK_SET_PAGES + 1, root = 1;
    while (root * root < mean)
        root++;
    uint32_t expected = PAGE_OVERHEAD + 8 * (mean + 6 * root), likely = 2 * (m->reads.page_bytes + PAGE_OVERHEAD);
    return m->reads.page_bytes && likely < expected ? likely : expected;
}

static void add_pages(struct batch *b, const struct replica *replica)
{
    uint32_t expected = expected_of_page(b->m);
    for (uint32_t page = 0; page < BLOCK_SET_PAGES; page++)
        if (replica->stale[page] && !add(b, REGION_SNAPSHOT, page, expected))
            return;
}

static bool log_serves(const struct member *m)
{
    uint64_t behind = m->replica.target - m->replica.sequence;
    return behind <= ADVERT_LOG_CHANGES - REGION_LOG_CHANGES && behind <= (uint64_t)m->header.n_blocks + SYNC_SNAPSHOT_SLACK;
}

bool reads_ask(struct cluster *c, struct member *m, unsigned need, uint64_t now_ns)
{
    struct digest_reads *reads = &m->reads;
    struct batch batch = {.c = c, .m = m, .now_ns = now_ns};
    hs_assert(!reads->pending);
    if (!m->has_header || !m->replica.set) { /* without one it is not known what to read */
        reads->head_at_ns = now_ns;
        reads_step(c, m, now_ns);
        return reads->head_pending;
    }
    reads->need = replica_need(&m->replica);
    reads->sequence = m->replica.sequence;
    reads->n_stale = m->replica.n_stale;
    reads->has_failed = false;
    reads->began_ns = now_ns;
    reads->expected_bytes = reads->brought_bytes = 0;
    if (need & REPLICA_DELTAS && log_serves(m))
        add_log(&batch, &m->replica);
    if (need & REPLICA_MANIFEST || (need & REPLICA_DELTAS && !log_serves(m)))
        add(&batch, REGION_SNAPSHOT, REGION_MANIFEST, MANIFEST_BYTES);
    else if (need & REPLICA_PAGES)
        add_pages(&batch, &m->replica);
    reads->pending = batch.n;
    if (batch.n == 0 && batch.status != 0) /* BUSY, too: those that were given up are still under way */
        fail(c, m, batch.status, now_ns);
    return batch.n > 0;
}

/* ---- what came ---- */

/* Whether it is what has to stand there; then it is applied as if it had come by message. */
static bool apply(struct cluster *c, struct member *m, uint32_t region, uint32_t page, const struct transport_event *event, uint64_t now_ns)
{
    struct wire_message message;
    if (wire_decode(event->data, event->len, &message) != 0)
        return false;
    if (region != REGION_SNAPSHOT) {
        const struct wire_digest *digest = &message.digest;
        if (message.kind != WIRE_DIGEST || digest->header.epoch.boot_id != m->boot_id || digest->hops_left)
            return false;
        sync_on_digest(c, m, digest, event->data, event->len, now_ns);
        return true;
    }
    if (page == REGION_MANIFEST) {
        if (message.kind != WIRE_MANIFEST || message.manifest.epoch.boot_id != m->boot_id)
            return false;
        sync_on_manifest(c, m, &message.manifest, now_ns);
        return true;
    }
    if (message.kind != WIRE_PAGE || message.page.page != page || message.page.epoch.boot_id != m->boot_id)
        return false;
    if (event->len > m->reads.page_bytes)
        m->reads.page_bytes = event->len;
    sync_on_page(c, m, &message.page, now_ns);
    return true;
}

static void end_head(struct cluster *c, struct member *m, bool is_good, uint64_t old_sequence, uint64_t now_ns)
{
    struct digest_reads *reads = &m->reads;
    reads->head_pending = false;
    if (!is_good)
        return;
    bool is_quick = m->header.sequence != old_sequence;
    reads->interval_ns = is_quick ? quick_interval_ns : 2 * reads->interval_ns;
    if (reads->interval_ns > c->config.gossip_interval_ns)
        reads->interval_ns = c->config.gossip_interval_ns;
    uint64_t wait_ns = head_interval(c, m);
    reads->head_at_ns = gossip_near_round(c, reads->head_began_ns + wait_ns, wait_ns / 2);
    if (replica_need(&m->replica))
        m->ask_at_ns = now_ns; /* what is missing can be read, there is nothing to wait for */
    else
        reads->back_off_ns = 0;
}

/* The last of a batch: did it help? */
static void end_batch(struct cluster *c, struct member *m, uint64_t now_ns)
{
    struct digest_reads *reads = &m->reads;
    unsigned need = replica_need(&m->replica);
    if (reads->brought_bytes > reads->expected_bytes)
        gossip_charge(c, m, reads->brought_bytes - reads->expected_bytes, now_ns);
    bool has_helped = m->replica.sequence != reads->sequence || m->replica.n_stale != reads->n_stale || need != reads->need;
    if (has_helped && !reads->has_failed)
        reads->back_off_ns = 0;
    else if (!reads->has_failed)
        fail(c, m, 0, now_ns);
    if (need)
        m->ask_at_ns = now_ns;
}

void reads_on_done(struct cluster *c, const struct transport_event *event, uint64_t now_ns)
{
    struct member *m = member_by_peer(c, event->peer);
    uint32_t region = (uint32_t)(event->cookie >> KIND_SHIFT) & 0xffff, page = (uint32_t)event->cookie & 0xffff;
    if (!m || m->reads.generation != event->cookie >> GENERATION_SHIFT)
        return;
    struct digest_reads *reads = &m->reads;
    uint64_t old_sequence = m->header.sequence;
    bool is_good = event->status == 0;
    counter_add(c->count.reads, 1);
    if (is_good) {
        counter_add(c->count.read_bytes, event->len);
        is_good = apply(c, m, region, page, event, now_ns);
        counter_add(c->count.rejected, !is_good);
    }
    if (!is_good && (region == REGION_HEAD || !reads->has_failed))
        fail(c, m, event->status, now_ns);
    if (region == REGION_HEAD) {
        reads->head_bytes = event->len;
        end_head(c, m, is_good, old_sequence, now_ns);
        return;
    }
    reads->has_failed |= !is_good;
    reads->brought_bytes += event->len;
    if (--reads->pending == 0)
        end_batch(c, m, now_ns);
}

#include "core/cluster/region.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/log.h"
#include "core/base/panic.h"
#include "core/cluster/internal.h"

enum { PAGE_OVERHEAD = 32, MANIFEST_BYTES = 32 + 8 * BLOCK_SET_PAGES, PAGES_PER_STEP = 8, NAMES_MAX = 8000 };

static const uint64_t head_interval_ns = 50000;
static const uint64_t pass_interval_ns = 100 * MS;
static const uint64_t step_interval_ns = 1 * MS;

/* Names fall into pages at random: the mean, and eight deviations on top. */
static uint32_t names_of_page(uint32_t n_blocks)
{
    uint32_t mean = n_blocks / BLOCK_SET_PAGES + 1, root = 1;
    while (root * root < mean)
        root++;
    uint32_t names = mean + 8 * root;
    return names < NAMES_MAX ? names : NAMES_MAX;
}

void region_open(struct cluster *c)
{
    const struct transport_ops *ops = c->transport->ops;
    struct region *r = &c->region;
    if (!c->info.reads_pages)
        return;
    r->names_max = names_of_page(c->config.max_advertised_blocks);
    uint32_t bytes = PAGE_OVERHEAD + 8 * r->names_max;
    int rc = ops->publish(c->transport, REGION_HEAD, 1, REGION_HEAD_BYTES);
    if (rc == 0)
        rc = ops->publish(c->transport, REGION_LOG, REGION_LOG_PAGES, REGION_LOG_BYTES);
    if (rc == 0)
        rc = ops->publish(c->transport, REGION_SNAPSHOT, BLOCK_SET_PAGES + 1, bytes > MANIFEST_BYTES ? bytes : MANIFEST_BYTES);
    if (rc != 0)
        log_warn("cluster", "the digest cannot be published for one-sided reads (%s): peers will ask for it by message", error_name(rc));
    r->published = rc == 0;
    r->epoch = gossip_epoch(c);
    r->head_wanted = true;
}

void region_refresh(struct cluster *c)
{
    c->region.head_wanted = true;
}

/* Failing means no memory: what stands there stays, and readers see by its sequence that it is old. */
static bool put(struct cluster *c, uint32_t region, uint32_t page, const struct writer *w)
{
    hs_assert(!w->failed);
    return c->transport->ops->write_page(c->transport, region, page, w->data, (uint32_t)w->len) == 0;
}

static void write_log(struct cluster *c)
{
    struct region *r = &c->region;
    uint64_t sequence = advert_sequence(c->advert), first = r->log_sequence + 1;
    if (sequence > ADVERT_LOG_CHANGES && first < sequence - ADVERT_LOG_CHANGES + 1)
        first = sequence - ADVERT_LOG_CHANGES + 1;
    first -= (first - 1) % REGION_LOG_CHANGES; /* its page is written anew, from its beginning on if the log still has that */
    for (; first <= sequence; first += REGION_LOG_CHANGES) {
        uint8_t buffer[REGION_LOG_BYTES];
        struct writer w;
        struct wire_header header;
        uint64_t from = first;
        while (!advert_covers(c->advert, from))
            from++;
        writer_init(&w, buffer, sizeof buffer);
        gossip_fill_header(c, &header);
        wire_begin_digest(&w, &header, 0, from);
        advert_write_runs(c->advert, from, &w);
        if (!put(c, REGION_LOG, region_log_page(first), &w))
            return;
    }
    r->log_sequence = sequence;
}

static void write_head(struct cluster *c, uint64_t now_ns)
{
    uint8_t buffer[REGION_HEAD_BYTES];
    struct writer w;
    struct wire_header header;
    writer_init(&w, buffer, sizeof buffer);
    gossip_fill_header(c, &header);
    wire_begin_digest(&w, &header, 0, header.sequence + 1);
    put(c, REGION_HEAD, 0, &w);
    c->region.head_ns = now_ns;
    c->region.head_load_news = c->load_news;
    c->region.head_wanted = false;
}

static void begin_pass(struct cluster *c, uint64_t now_ns)
{
    struct region *r = &c->region;
    r->is_passing = true;
    r->pass_at = 0;
    r->pass_ns = now_ns;
    r->pass_sequence = advert_sequence(c->advert);
    for (uint32_t page = 0; page < BLOCK_SET_PAGES; page++)
        r->pass_checksums[page] = block_set_page_checksum(advert_set(c->advert), page);
}

static bool write_snapshot_page(struct cluster *c, uint32_t page)
{
    struct region *r = &c->region;
    uint8_t buffer[PAGE_OVERHEAD + 8 * NAMES_MAX];
    uint64_t names[NAMES_MAX];
    struct writer w;
    uint32_t n = block_set_page_names(advert_set(c->advert), page, names, r->names_max);
    writer_init(&w, buffer, sizeof buffer);
    if (n <= r->names_max) /* else it stays empty, which no reader takes for a page: it is asked for by message */
        wire_write_page(&w, r->epoch, advert_sequence(c->advert), page, names, n);
    if (!put(c, REGION_SNAPSHOT, page, &w))
        return false;
    r->has_written[page] = true;
    r->written[page] = block_set_page_checksum(advert_set(c->advert), page);
    return true;
}

static void step_pass(struct cluster *c, uint64_t now_ns)
{
    struct region *r = &c->region;
    r->step_ns = now_ns;
    for (uint32_t n = 0; n < PAGES_PER_STEP && r->pass_at < BLOCK_SET_PAGES; r->pass_at++) {
        if (r->has_written[r->pass_at] && r->written[r->pass_at] == r->pass_checksums[r->pass_at])
            continue;
        if (!write_snapshot_page(c, r->pass_at))
            return;
        n++;
    }
    if (r->pass_at < BLOCK_SET_PAGES)
        return;
    uint8_t buffer[MANIFEST_BYTES];
    struct writer w;
    writer_init(&w, buffer, sizeof buffer);
    wire_write_manifest(&w, r->epoch, r->pass_sequence, r->pass_checksums);
    r->is_passing = !put(c, REGION_SNAPSHOT, REGION_MANIFEST, &w);
}

/* What earlier epochs left in the pages names its epoch, and so is refused by readers. */
static void enter_epoch(struct cluster *c)
{
    struct region *r = &c->region;
    r->epoch = gossip_epoch(c);
    r->log_sequence = 0;
    r->is_passing = false;
    r->pass_ns = r->pass_sequence = 0;
    memset(r->has_written, 0, sizeof r->has_written);
    r->head_wanted = true;
}

static bool has_news(const struct cluster *c)
{
    const struct region *r = &c->region;
    return r->head_wanted || r->log_sequence != advert_sequence(c->advert) || r->head_load_news != c->load_news;
}

/* A manifest of an empty set tells nothing that the header does not. */
static bool wants_pass(const struct cluster *c)
{
    return advert_sequence(c->advert) != c->region.pass_sequence;
}

uint64_t region_step(struct cluster *c, uint64_t now_ns)
{
    struct region *r = &c->region;
    if (!r->published)
        return UINT64_MAX;
    if (!wire_epoch_equal(r->epoch, gossip_epoch(c)))
        enter_epoch(c);
    if (has_news(c) && now_ns - r->head_ns >= head_interval_ns) {
        write_log(c);
        write_head(c, now_ns);
    }
    if (!r->is_passing && wants_pass(c) && now_ns - r->pass_ns >= pass_interval_ns)
        begin_pass(c, now_ns);
    if (r->is_passing && now_ns - r->step_ns >= step_interval_ns)
        step_pass(c, now_ns);
    uint64_t next = has_news(c) ? r->head_ns + head_interval_ns : UINT64_MAX, pass = UINT64_MAX;
    if (r->is_passing)
        pass = r->step_ns + step_interval_ns;
    else if (wants_pass(c))
        pass = r->pass_ns + pass_interval_ns;
    return pass < next ? pass : next;
}

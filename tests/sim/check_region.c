/*
 * What a node publishes for peers to read: at every write each page is one of its messages, the log reaches the header's sequence, and
 * snapshot and manifest fit together; once it is quiet, they are what the node advertises.
 */
#include <stdio.h>

#include "core/cluster/internal.h"
#include "core/serve/node_internal.h"
#include "tests/sim/check.h"
#include "tests/sim/world_pages.h"

static bool decode(const struct world_node *wn, uint32_t region, uint32_t page, enum wire_kind kind, struct wire_message *out)
{
    struct memory_page memory;
    return pages_look(wn, region, page, &memory) && wire_decode(memory.data, memory.len, out) == 0 && out->kind == kind;
}

static uint64_t checksum_of(const struct wire_page *page)
{
    uint64_t checksum = 0;
    for (uint32_t i = 0; i < page->n; i++)
        checksum += block_set_name_checksum(wire_name(page->names, i));
    return checksum;
}

/* The change before last may be in the log's page, too, but the last one must. */
static bool log_reaches(const struct world_node *wn, const struct wire_header *header)
{
    struct wire_message log;
    if (!header->sequence)
        return true;
    if (!decode(wn, REGION_LOG, region_log_page(header->sequence), WIRE_DIGEST, &log))
        return false;
    const struct wire_delta *delta = &log.digest.delta;
    return wire_epoch_equal(log.digest.header.epoch, header->epoch) && delta->first <= header->sequence &&
           delta->first + delta->n_changes > header->sequence;
}

/* Pages that are not as of the manifest: neither by their checksum nor later by their word. */
static uint32_t count_unfit(const struct world_node *wn, const struct wire_manifest *manifest)
{
    uint32_t unfit = 0;
    for (uint32_t page = 0; page < BLOCK_SET_PAGES; page++) {
        struct wire_message at;
        bool fits = decode(wn, REGION_SNAPSHOT, page, WIRE_PAGE, &at) && at.page.page == page &&
                    wire_epoch_equal(at.page.epoch, manifest->epoch) &&
                    (at.page.sequence >= manifest->sequence || checksum_of(&at.page) == wire_name(manifest->checksums, page));
        unfit += !fits;
    }
    return unfit;
}

void check_written(struct world_node *wn, uint32_t region, uint32_t page)
{
    static const enum wire_kind KINDS[] = {WIRE_DIGEST, WIRE_DIGEST, WIRE_PAGE};
    struct wire_message at;
    enum wire_kind kind = region == REGION_SNAPSHOT && page == REGION_MANIFEST ? WIRE_MANIFEST : KINDS[region];
    if (wn->miscount)
        return; /* nobody is to believe it */
    if (!decode(wn, region, page, kind, &at))
        world_fail(wn->world, "%s: what it wrote into page %u of region %u is not what belongs there", wn->name, page, region);
    else if (region == REGION_HEAD && !log_reaches(wn, &at.digest.header))
        world_fail(wn->world, "%s: its log does not reach change %llu, which its header promises", wn->name,
                   (unsigned long long)at.digest.header.sequence);
    else if (kind == WIRE_MANIFEST && count_unfit(wn, &at.manifest))
        world_fail(wn->world, "%s: %u pages of its snapshot do not fit its manifest", wn->name, count_unfit(wn, &at.manifest));
}

static bool snapshot_is_true(const struct world_node *wn, const struct block_set *advertised)
{
    struct wire_message manifest;
    uint32_t n = 0;
    if (!decode(wn, REGION_SNAPSHOT, REGION_MANIFEST, WIRE_MANIFEST, &manifest) ||
        manifest.manifest.sequence != advert_sequence(wn->node->cluster->advert))
        return false;
    for (uint32_t page = 0; page < BLOCK_SET_PAGES; page++) {
        struct wire_message at;
        if (!decode(wn, REGION_SNAPSHOT, page, WIRE_PAGE, &at) ||
            !wire_epoch_equal(at.page.epoch, manifest.manifest.epoch) ||
            checksum_of(&at.page) != wire_name(manifest.manifest.checksums, page))
            return false;
        for (uint32_t i = 0; i < at.page.n; i++)
            if (!block_set_has(advertised, wire_name(at.page.names, i)))
                return false;
        n += at.page.n;
    }
    return n == block_set_len(advertised);
}

bool check_published(struct world_node *wn, char *why, size_t size)
{
    const struct cluster *cluster = wn->node->cluster;
    struct wire_message head;
    if (!wn->reads_pages || wn->is_short || wn->miscount)
        return true;
    if (!decode(wn, REGION_HEAD, 0, WIRE_DIGEST, &head) || !wire_epoch_equal(head.digest.header.epoch, gossip_epoch(cluster)) ||
        head.digest.header.sequence != advert_sequence(cluster->advert)) {
        snprintf(why, size, "the header that %s publishes is old", wn->name);
        return false;
    }
    if (!head.digest.header.sequence || snapshot_is_true(wn, advert_set(cluster->advert)))
        return true;
    snprintf(why, size, "the snapshot that %s publishes is not what it advertises", wn->name);
    return false;
}

/*
 * Our digest as pages that peers read one-sidedly, where the transport has them: the origin's side. Every page is a message of wire.h, so
 * that what comes by a read is decoded, checked and applied like what comes by message.
 *
 *     REGION_HEAD      1 page   DIGEST without changes: the header
 *     REGION_LOG       64 pages DIGEST with the changes k x 256 + 1 to k x 256 + 256, in page k % 64
 *     REGION_SNAPSHOT  256 pages, a PAGE each, and behind them one MANIFEST
 *
 * What a reader finds fits together because of the order of writing: the log before the header whose sequence it reaches, pages before
 * the manifest. A pass over the snapshot takes the checksums at its beginning, M; writes the pages that differ from what was written
 * last, a few at a time; and then the manifest as of M. So at any time each page is either as it was at M, which its checksum shows,
 * or as of a later sequence, which it states.
 *
 * The header is written when the set or the queue has changed (at most every 50 us) and in every round of gossip; a pass begins at most
 * every 100 ms. Threading: node loop only.
 */
#ifndef HEARSAY_CLUSTER_REGION_H
#define HEARSAY_CLUSTER_REGION_H

#include <stdbool.h>
#include <stdint.h>

#include "core/cluster/advert.h"
#include "core/cluster/wire.h"

enum { REGION_HEAD = 0, REGION_LOG = 1, REGION_SNAPSHOT = 2 };
enum {
    REGION_HEAD_BYTES = 256, /* a header with the longest name of an arithmetic class */
    REGION_LOG_CHANGES = 256,
    REGION_LOG_PAGES = ADVERT_LOG_CHANGES / REGION_LOG_CHANGES,
    REGION_LOG_BYTES = REGION_HEAD_BYTES + 9 * REGION_LOG_CHANGES + 16, /* every change a run of its own, and the room that the writer wants */
    REGION_MANIFEST = BLOCK_SET_PAGES, /* its page */
};

struct region {
    bool published; /* else peers are told by message alone */
    uint32_t names_max; /* of a page of the snapshot */
    struct wire_epoch epoch;
    uint64_t log_sequence;            /* the log's pages reach it */
    uint64_t head_ns, head_load_news; /* of the header written last */
    bool head_wanted;

    bool has_written[BLOCK_SET_PAGES]; /* in this epoch */
    uint64_t written[BLOCK_SET_PAGES]; /* checksums of the pages as they lie there */
    bool is_passing;
    uint32_t pass_at; /* next page to look at */
    uint64_t pass_sequence, pass_ns, step_ns, pass_checksums[BLOCK_SET_PAGES];
};

struct cluster;

/* Publishes, if the transport can. Without memory for it, says so once; peers then ask by message. */
void region_open(struct cluster *c);
/* Writes what has changed and is due; returns when it wants to be called again. */
uint64_t region_step(struct cluster *c, uint64_t now_ns);
/* The next step writes the header even if nothing has changed. */
void region_refresh(struct cluster *c);

/* Where the log has change number `sequence`. */
static inline uint32_t region_log_page(uint64_t sequence)
{
    return (uint32_t)((sequence - 1) / REGION_LOG_CHANGES % REGION_LOG_PAGES);
}

#endif

/*
 * What we believe one origin advertises: its set as of one sequence number, except for pages that are being fetched.
 *
 *     deltas in order        sequence = last change applied
 *     header: target         the origin is at `target` with that checksum; behind it: pull deltas
 *     manifest               page checksums at one sequence: pages that differ become stale, the rest is as of that sequence
 *     page                   a whole page as of a sequence: takes the place of a stale one; if it is older than the manifest and its
 *                            checksum is the manifest's, it is as of the manifest
 *
 * The rules that make it equal to the origin's set once quiet, whatever the network drops, doubles or reorders:
 *  - a change is applied only as number sequence + 1; lower numbers are duplicates, higher ones a gap;
 *  - a page that came as of S has changes up to S in it: later-arriving deltas skip those for this page;
 *  - a stale page ignores deltas but remembers the last change that named it: a page older than that is refused;
 *  - at equal sequence and no stale page, checksums must agree, or the manifest is asked for.
 * A snapshot is the same thing: a manifest and its pages, each good on its own, so it resumes where it was cut off.
 *
 * Time is not known here: replica_need says what is missing, and gossip.c decides when to ask. Threading: node loop only.
 */
#ifndef HEARSAY_CLUSTER_REPLICA_H
#define HEARSAY_CLUSTER_REPLICA_H

#include "core/cluster/wire.h"

/* Blocks that all replicas of a node hold together, how many they may, and how many one of them may (0: all of it): a peer that
 * tells of more must not crowd out what the others say. left_out, left_out_of_one: how often a block was not taken for want of room. */
struct replica_budget {
    uint32_t blocks, max_blocks, max_of_one;
    uint64_t left_out, left_out_of_one;
};

struct replica {
    struct block_set *set; /* NULL until the first epoch is known */
    struct replica_budget *budget;
    struct wire_epoch epoch;
    uint64_t sequence;
    uint64_t target, target_checksum;
    bool capped;    /* blocks were left out for want of room: checksums cannot agree */
    bool corrected; /* it may hold more than was advertised, by the origin's replies: a manifest is wanted even when capped */
    uint32_t n_stale;
    bool stale[BLOCK_SET_PAGES];
    uint64_t page_as_of[BLOCK_SET_PAGES];   /* changes up to here are in the page's content */
    uint64_t page_changed[BLOCK_SET_PAGES]; /* last change seen that named the page */
    uint64_t manifest_sequence, manifest[BLOCK_SET_PAGES]; /* the last one */
};

/* What is missing: flags. A lasting stream of deltas does not keep stale pages from being asked for. */
enum { REPLICA_DELTAS = 1, REPLICA_PAGES = 2, REPLICA_MANIFEST = 4 };

void replica_init(struct replica *replica, struct replica_budget *budget);
void replica_fini(struct replica *replica);
/* Drops what it knows. */
void replica_clear(struct replica *replica);
/* An epoch other than the present one starts empty at 0. 0 or HS_ERR_NO_MEMORY. An older counter of the same boot is refused:
 * HS_ERR_INVALID. */
int replica_enter_epoch(struct replica *replica, struct wire_epoch epoch);
/* Changes newly applied; 0 for duplicates and gaps. */
uint32_t replica_apply_delta(struct replica *replica, const struct wire_delta *delta);
void replica_set_target(struct replica *replica, uint64_t sequence, uint64_t checksum);
void replica_apply_manifest(struct replica *replica, uint64_t sequence, const uint8_t *checksums);
/* Whether it was taken. */
bool replica_apply_page(struct replica *replica, const struct wire_page *page);
unsigned replica_need(const struct replica *replica);
/* Leading blocks of names[n] that are all in it. */
uint32_t replica_match(const struct replica *replica, const uint64_t *names, uint32_t n);
/* The origin has just said that it holds exactly the first n_held of names[n]. The next checksum settles who was right. */
void replica_correct(struct replica *replica, const uint64_t *names, uint32_t n, uint32_t n_held);
uint32_t replica_blocks(const struct replica *replica);

#endif

/*
 * What this node tells the group that it has cached: the origin's side of anti-entropy.
 *
 *     radix tree --add--> waiting, by depth --pump--> advertised set + log of changes --> deltas, pages, checksums
 *          \-----remove------------^------------------------^ (at once)
 *
 * A change gets its sequence number when it enters the log, so while blocks wait for room (the cap) or for bandwidth (the pump's
 * budget), the choice is still open: the shallowest block goes first, because a match needs every earlier block and heads are
 * shared by more prompts than tails. At the cap a shallow newcomer displaces the deepest advertised block. A block that comes and
 * goes while waiting costs nothing. So the advertised set is closed under prefixes at every sequence number: a block is in it only
 * together with all before it (within the last depth, where all deeper blocks lie, the lists keep parents before children). Checksums cover what is advertised, never what merely waits.
 *
 * Memory: about 50 bytes a held block, and the log. Threading: node loop only. When memory runs out, a block just is not told of.
 */
#ifndef HEARSAY_CLUSTER_ADVERT_H
#define HEARSAY_CLUSTER_ADVERT_H

#include <stddef.h>

#include "core/base/codec.h"
#include "core/cache/block_set.h"

enum { ADVERT_LOG_CHANGES = 16384 };

struct advert;

struct advert *advert_create(uint32_t cap_blocks);
void advert_destroy(struct advert *advert);
/* Blocks names[n] hang, in order, behind parent. */
void advert_add(struct advert *advert, uint64_t parent, const uint64_t *names, uint32_t n);
void advert_remove(struct advert *advert, const uint64_t *names, uint32_t n);
/* Moves waiting blocks into the set, at most budget changes; returns how many changes it logged. */
uint32_t advert_pump(struct advert *advert, uint32_t budget);
/* Blocks held that peers are not told of, now; and those that made room for shallower ones at the cap, ever. */
uint32_t advert_waiting(const struct advert *advert);
uint64_t advert_displaced(const struct advert *advert);
/* Whether pump with a budget would change anything. */
bool advert_pending(const struct advert *advert);
/* Forgets everything; sequence restarts at 0 (the caller starts a new epoch). */
void advert_clear(struct advert *advert);

const struct block_set *advert_set(const struct advert *advert);
uint64_t advert_sequence(const struct advert *advert); /* changes so far */
/* Whether changes from `first` on are still in the log (or first is the next one to come). */
bool advert_covers(const struct advert *advert, uint64_t first);
/* Writes runs of changes from number `first` on as far as w has room; returns the number behind the last one written. */
uint64_t advert_write_runs(const struct advert *advert, uint64_t first, struct writer *w);

#endif

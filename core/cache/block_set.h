/*
 * A set of block names with page checksums: what a node advertises, and equally a replica of what a peer advertises.
 *
 * The 64-bit name space is cut into 2^page_bits digest pages by the names' top bits. Each page has an order-free checksum (sum of
 * mixed names) that follows every change at constant cost, so origin and replica compare pages at one sequence number and fetch
 * just what differs. Names are SipHash outputs, so pages fill evenly.
 *
 * The names themselves stand in sixteen segments by their top bits, each a table of cache-line buckets, seven tenths to five sixths
 * full:
 *
 *     segment 0  [ 0012.. 007f.. 00a1.. ..... | 0103.. 01ee.. ..... ..... | ... ]   a name stands in the bucket that its bits say
 * (they segment 1  [ 1008.. ..... ..... .....   | ...                             ]   are even), or behind it if that is full, and
 *      ...                                                                          all stand in ascending order
 *
 * That is linear probing in ascending order (Amble & Knuth 1974): a look-up, found or not, is one cache line nearly always, and a
 * page is listed in order. Names chosen unevenly by a lying peer make that peer's segment slow, up to a walk through it.
 *
 * Matching. h(i) names everything before block i too, and sets are kept closed under prefixes by their origin (advert.h), so a
 * match is found by bisection: block 1 first, then the middle of what is open. A hole, which only a replica on its way to the
 * origin's set can have, shortens the match or is stepped over: the block behind it was advertised, so the hole's was too.
 *
 * Memory: at most 12 bytes a name beyond small runs. Threading: node loop only.
 */
#ifndef HEARSAY_CACHE_BLOCK_SET_H
#define HEARSAY_CACHE_BLOCK_SET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { BLOCK_SET_PAGE_BITS = 8, BLOCK_SET_PAGES = 1 << BLOCK_SET_PAGE_BITS };

struct block_set;

/* cap_names: more are refused (0: no cap). NULL when out of memory. */
struct block_set *block_set_create(uint32_t cap_names);
void block_set_destroy(struct block_set *set);
int block_set_add(struct block_set *set, uint64_t name);     /* 1 added, 0 was there, HS_ERR_LIMIT, HS_ERR_NO_MEMORY */
bool block_set_remove(struct block_set *set, uint64_t name); /* whether it was there */
bool block_set_has(const struct block_set *set, uint64_t name);
/* Leading blocks of names[n] that the set holds. */
uint32_t block_set_match(const struct block_set *set, const uint64_t *names, uint32_t n);
/* The same in many sets (NULL: an empty one) at once, so that their cache misses overlap: matches[n_sets]. */
void block_set_match_each(const struct block_set *const *sets, uint32_t n_sets, const uint64_t *names, uint32_t n,
                          uint32_t *matches);
uint32_t block_set_len(const struct block_set *set);
void block_set_clear(struct block_set *set);

uint32_t block_set_page_of(uint64_t name);
uint64_t block_set_page_checksum(const struct block_set *set, uint32_t page);
uint64_t block_set_checksum(const struct block_set *set); /* over all pages */
uint64_t block_set_name_checksum(uint64_t name); /* what a name adds to them */
/* Names of one page, ascending: writes up to cap and returns how many there are. */
uint32_t block_set_page_names(const struct block_set *set, uint32_t page, uint64_t *out, uint32_t cap);
size_t block_set_bytes(const struct block_set *set); /* memory held */

#endif

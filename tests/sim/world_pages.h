/*
 * One-sided reads in a simulated world: a transport around another that has publish, write_page and read_page besides, as a fabric with
 * RDMA has them. A read takes no part of the node whose memory it is: that one may stand still, and even be dead.
 *
 *     read_page --delay--> LOOK at the memory of that boot --delay--> BACK: waits for the reader's next poll
 *                            | torn, or longer than expected: once more
 *                            | cut off: again after 100 ms, 7 times, then HS_ERR_IO
 *                            | no such memory any more, or lost: HS_ERR_IO after up to 20 s
 *
 * Reads overtake each other as their jitter wills. When a connection ends its reads end, HS_ERR_CLOSED, but not at once; one that had
 * its answer already may bring it after the next process of that address has come up. The memory of a crashed node stays readable in
 * half of the cases until its successor starts, as that of a machine that hangs does.
 *
 * Time is the world's: pages_advance moves all reads of a world. Ownership: the transport owns inner; the world the reads under way.
 */
#ifndef HEARSAY_TESTS_SIM_WORLD_PAGES_H
#define HEARSAY_TESTS_SIM_WORLD_PAGES_H

#include "tests/sim/world_internal.h"

/* A page as it lies in a node's memory. */
struct memory_page {
    const uint8_t *data;
    uint32_t len;
    uint64_t version;
};

struct world_reads;

struct world_reads *pages_open(uint64_t seed);
void pages_close(struct world_reads *reads);
void pages_advance(struct world *world);
/* When pages_advance has something to do; UINT64_MAX: nothing is under way. */
uint64_t pages_next_ns(const struct world *world);

/* NULL when out of memory, and then inner is left alone. It becomes the node's memory until it is destroyed. */
struct transport *pages_create(struct transport *inner, struct world_node *node);
/* Whether a poll would bring ends of reads. */
bool pages_waiting(const struct world_node *node);
/* When a node has crashed, before its transport is destroyed: its memory may outlive it. */
void pages_crash(struct world_node *node);
/* Lets go of what a crash left. */
void pages_bury(struct world_node *node);
/* False: nothing of that number is published. */
bool pages_look(const struct world_node *node, uint32_t region, uint32_t page, struct memory_page *out);

#endif

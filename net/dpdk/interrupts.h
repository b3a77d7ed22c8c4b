/*
 * Keeps DPDK's interrupt thread out of bursts.
 *
 * The drivers of memif and virtio_user take a link up and down in EAL's interrupt thread, and unmap its memory there, without regard to a burst
 * that another thread has under way on it. So that thread gets one more descriptor to serve, an eventfd of ours, whose callback holds the
 * thread until EAL has something else to do, and lets it go on only while nobody polls:
 *
 *     interrupt thread   | held: waits for EAL's other descriptors | waits for pollers to leave | serves them | held ...
 *     pollers            | bursts as they like                     | find the door closed, return with nothing  | bursts ...
 *
 * EAL's epoll set is found by asking every descriptor whether it holds our eventfd; a set is itself readable when one of its members is. Nothing
 * is spent while no link changes: a poller writes a flag of its own and reads a shared one, and the fence that this needs is made by the other side
 * (membarrier), where the kernel has it.
 *
 * Threading: any number of pollers, each of one thread at a time. Whoever starts, stops or closes a port is a poller, too. Errors: one line.
 */
#ifndef HEARSAY_NET_DPDK_INTERRUPTS_H
#define HEARSAY_NET_DPDK_INTERRUPTS_H

#include <stdatomic.h>
#include <stdbool.h>

#include "core/base/error.h"

struct dpdk_poller {
    atomic_bool polls;
    struct dpdk_poller *next;
};

/* Shared by all pollers: written by interrupts.c only. */
extern atomic_bool dpdk_interrupts_run;
extern atomic_bool dpdk_interrupts_fence;

/* Takes hold of the interrupt thread, once for a process; after dpdk_eal_start. */
int dpdk_interrupts_hold(struct error *err);
/* One more than the largest descriptor that there can be. */
int dpdk_interrupts_descriptors(void);

void dpdk_poller_join(struct dpdk_poller *poller);
/* It does not poll. */
void dpdk_poller_leave(struct dpdk_poller *poller);
/* As dpdk_poller_begin, but waits until it is possible. */
void dpdk_poller_begin_waiting(struct dpdk_poller *poller);

static inline void dpdk_poller_end(struct dpdk_poller *poller)
{
    atomic_store_explicit(&poller->polls, false, memory_order_release); /* pairs with the interrupt thread's look at it */
}

/* False: a link is changing, come again. True: dpdk_poller_end follows. */
static inline bool dpdk_poller_begin(struct dpdk_poller *poller)
{
    atomic_store_explicit(&poller->polls, true, memory_order_relaxed);
    atomic_signal_fence(memory_order_seq_cst); /* the interrupt thread's membarrier makes it a real one */
    if (atomic_load_explicit(&dpdk_interrupts_fence, memory_order_relaxed))
        atomic_thread_fence(memory_order_seq_cst);
    if (!atomic_load_explicit(&dpdk_interrupts_run, memory_order_acquire)) /* pairs with the interrupt thread's return to our callback */
        return true;
    dpdk_poller_end(poller);
    return false;
}

#endif

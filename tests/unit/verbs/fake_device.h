/*
 * An RDMA device that is nothing but memory of this process: what libibverbs would do for the verbs transports, with every queue pair's other
 * end in the same process. Linked into a program in front of libibverbs, whose functions it stands for, it is the one device that there is.
 *
 * It behaves as the specification says where hearsay relies on it: order within a queue pair, receives taken out of shared queues, completions
 * in the order of posting, only those asked for, keys and bounds of registered memory held, a queue pair in error after the first fault,
 * events when armed. Packets of reliable queue pairs arrive at once and nothing is lost. Datagrams need the queue key and a living address handle,
 * are dropped where no receive is, and may be lost, doubled and held back if that is wanted.
 *
 * Threading: one thread. Errors: those of libibverbs.
 */
#ifndef HEARSAY_TESTS_UNIT_VERBS_FAKE_DEVICE_H
#define HEARSAY_TESTS_UNIT_VERBS_FAKE_DEVICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct fake_device {
    bool refuse_read_pairs; /* queue pairs without a shared receive queue: only reads go through those */
    uint32_t tear_reads;    /* so many of the next reads bring a byte that is wrong */
    bool hold_reads;        /* reads stay under way until this is over */
    bool hold_datagrams;    /* likewise: what is posted is looked at by the device only then */
    uint32_t mtu_bytes;     /* of the port; 0: 4,096 */
    uint32_t percent_lost, percent_doubled, percent_late; /* of datagrams; a late one is overtaken by the next */

    uint64_t reads_posted, sends_posted, receives_posted;
    uint64_t receiver_not_ready; /* packets that found no receive */
    size_t registered_bytes;
    uint32_t n_queue_pairs, n_handles;
    uint64_t datagrams, dead_handles; /* dead_handles: datagrams whose address handle was no more when the device looked at them */
};

extern struct fake_device fake_device;

/* Ends the reads that were held. */
void fake_device_release_reads(void);
/* Sends the datagrams that were held. */
void fake_device_release_datagrams(void);

#endif

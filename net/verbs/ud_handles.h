/*
 * Address handles that are no longer wanted, kept until nothing that has been posted names them: a device may look a handle up only when it
 * sends, and one that it does not find breaks the queue pair for all. Pure.
 *
 *     in use --posted: used_until--> retired --sends done up to that--> destroyed
 *
 * Threading: one thread. Ownership: a path is malloc'ed, and freed with its handle.
 */
#ifndef HEARSAY_NET_VERBS_UD_HANDLES_H
#define HEARSAY_NET_VERBS_UD_HANDLES_H

#include <stdbool.h>
#include <stdint.h>

struct ud_handles;

/* A way to a neighbour's queue pair. */
struct ud_path {
    struct ud_handles *owner;
    void *handle;        /* of the device's */
    uint32_t mtu_bytes;  /* of the whole way */
    uint64_t used_until; /* number of the last send that names it, from 1 */
    struct ud_path *next;
};

struct ud_handles {
    uint64_t done; /* sends that are over, in order */
    struct ud_path *retired;
    void (*destroy)(void *handle);
};

/* NULL: out of memory. */
struct ud_path *ud_path_make(struct ud_handles *owner, void *handle, uint32_t mtu_bytes);
void ud_path_retire(struct ud_path *path);
/* So many are over by now: what they alone named goes. UINT64_MAX: the queue pair is gone, and so does everything. */
void ud_handles_done(struct ud_handles *handles, uint64_t done);

#endif

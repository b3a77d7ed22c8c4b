/*
 * A stage's items shared out among the workers: each owns a run of neighbours and takes from its front, some at a time.
 * Whoever is done takes from the back of the others' runs, the next worker's first, so that their owners go on where they are.
 *
 *     items    0 1 2 3 4 5 | 6 7 8 9 10 11      runs of two workers
 *              -> first  end <-  -> first end <-
 *
 * An owner knows what it takes next and can ask memory for it. Nothing is shared but the ends of the runs.
 *
 * Threading: shares are set while no worker takes any, and what set them is ordered before the takers by whoever starts these. Any
 * worker may take at any time after that; each item is taken once.
 */
#ifndef HEARSAY_CPU_WORK_SHARE_H
#define HEARSAY_CPU_WORK_SHARE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct work_share {
    _Alignas(64) _Atomic uint64_t left; /* first:32 | end:32 of the run */
};

/* items first .. end-1. */
struct work_run {
    uint32_t first, end;
};

static inline struct work_run work_share_left(const struct work_share *share)
{
    const uint64_t left = atomic_load_explicit(&share->left, memory_order_relaxed);
    return (struct work_run){(uint32_t)(left >> 32), (uint32_t)left};
}

static inline void work_share_set(struct work_share *share, struct work_run run)
{
    atomic_store_explicit(&share->left, (uint64_t)run.first << 32 | run.end, memory_order_relaxed);
}

/* Takes at most n >= 1 items of one run; false: all are taken. */
static inline bool work_share_take(struct work_share *shares, uint32_t n_workers, uint32_t worker, uint32_t n, struct work_run *out)
{
    for (uint32_t i = 0, owner = worker; i < n_workers; i++, owner = owner + 1 < n_workers ? owner + 1 : 0) {
        uint64_t left = atomic_load_explicit(&shares[owner].left, memory_order_relaxed), rest;
        do {
            const struct work_run run = {(uint32_t)(left >> 32), (uint32_t)left};
            if (run.first == run.end)
                break;
            const uint32_t count = run.end - run.first < n ? run.end - run.first : n;
            *out = owner == worker ? (struct work_run){run.first, run.first + count} : (struct work_run){run.end - count, run.end};
            rest = owner == worker ? left + ((uint64_t)count << 32) : left - count;
            if (atomic_compare_exchange_weak_explicit(&shares[owner].left, &left, rest, memory_order_relaxed, memory_order_relaxed))
                return true;
        } while (true);
    }
    return false;
}

#endif

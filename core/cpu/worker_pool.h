/*
 * Worker threads that run a job in stages; a stage is a number of chunks that may run in any order and on any worker.
 *
 *     job      stage 0: chunks 0 1 2 3 | stage 1: chunks 0 1 | ... | done
 *     ticket   { sequence, chunks, next }      one atomic word: workers take chunks by adding one to next
 *
 * Who finishes the last chunk of a stage asks the job for the next one (`advance`) and publishes it. A worker that holds no
 * chunk holds nothing up: on a machine with more workers than cores the ones that run do the work. Workers without a
 * chunk spin for a while, then sleep on a futex.
 *
 * Threading: worker_pool_start from one thread, while no job is under way; the callbacks run on workers, `advance` and
 * `done` on one at a time. What `start` was given is visible to all chunks, and each stage's writes to the next stage:
 * the ticket is stored with release and taken with acquire, the finished count is acquire-release.
 */
#ifndef HEARSAY_CPU_WORKER_POOL_H
#define HEARSAY_CPU_WORKER_POOL_H

#include <stdint.h>

#include "core/base/error.h"
#include "core/cpu/placement.h"

enum { WORKER_MAX_CHUNKS = 0xffff };

struct worker_job {
    void (*run)(void *arg, uint32_t worker, uint32_t chunk);
    /* Chunks of the next stage, at most WORKER_MAX_CHUNKS; 0: the job is done. A stage of one chunk is better run in here. */
    uint32_t (*advance)(void *arg, uint32_t worker);
    /* The pool no longer touches the job; another may be started as soon as this says so to somebody. */
    void (*done)(void *arg);
    void *arg;
};

struct worker_pool;

/*
 * n_threads workers, worker i where places[i] says; places may be NULL: not pinned. 0, or HS_ERR_NO_MEMORY, HS_ERR_INVALID (a CPU that is
 * not there), HS_ERR_IO (threads cannot be started).
 */
int worker_pool_create(uint32_t n_threads, const struct worker_place *places, struct worker_pool **out, struct error *err);
/* Waits for a job under way. */
void worker_pool_destroy(struct worker_pool *pool);
/* What a worker does, over and over, while it waits for a stage of a job: some 0.1 us at a time, touching nothing that chunks or
 * callbacks of other workers write. Before the first start. */
void worker_pool_while_waiting(struct worker_pool *pool, void (*wait)(void *arg, uint32_t worker), void *arg);
/* Starts a job whose first stage has n_chunks >= 1 chunks. */
void worker_pool_start(struct worker_pool *pool, const struct worker_job *job, uint32_t n_chunks);

#endif

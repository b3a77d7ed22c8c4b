#include "core/cpu/worker_pool.h"

#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "core/base/panic.h"

/*
 * Rounds of a pause instruction before a worker sleeps. Within a job the next stage is near, and to be woken by a futex costs more
 * than the stage that one worker runs alone: up to some 100 microseconds. Between jobs 5 to 10, since others want the core.
 */
enum { SPIN_ROUNDS_IN_JOB = 6000, SPIN_ROUNDS_IDLE = 400 };

struct worker {
    struct worker_pool *pool;
    pthread_t thread;
    uint32_t index;
};

struct worker_pool {
    /* The words that all workers touch stand on lines of their own. */
    _Alignas(64) _Atomic uint64_t ticket;   /* sequence:32 | chunks:16 | next:16 */
    _Alignas(64) _Atomic uint32_t finished; /* chunks of the stage that have run */
    _Alignas(64) _Atomic uint32_t signal;   /* futex: bumped whenever sleepers are woken */
    _Atomic uint32_t sleepers;
    _Atomic bool stop;
    struct worker_job job; /* written before the ticket that publishes its first stage */
    void (*wait)(void *arg, uint32_t worker); /* these two before the first ticket */
    void *wait_arg;
    struct worker *workers;
    uint32_t n_workers;
};

static uint32_t ticket_chunks(uint64_t ticket)
{
    return (uint32_t)(ticket >> 16) & 0xffffu;
}

static uint32_t ticket_next(uint64_t ticket)
{
    return (uint32_t)ticket & 0xffffu;
}

static void pause_briefly(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#else
    atomic_signal_fence(memory_order_seq_cst);
#endif
}

static void wake_sleepers(struct worker_pool *pool, uint32_t at_most)
{
    /* Pairs with wait_for_work: who is counted too late to be seen here sees the new ticket; who missed that finds the signal
     * changed. Without sleepers nothing is written, since all that wait look at this line. */
    if (atomic_load(&pool->sleepers) == 0 || at_most == 0)
        return;
    atomic_fetch_add(&pool->signal, 1);
    syscall(SYS_futex, &pool->signal, FUTEX_WAKE_PRIVATE, at_most, NULL, NULL, 0);
}

/* Makes a stage of n_chunks visible; spare: workers wanted besides the caller. */
static void publish(struct worker_pool *pool, uint32_t n_chunks, uint32_t spare)
{
    uint64_t sequence = (atomic_load_explicit(&pool->ticket, memory_order_relaxed) >> 32) + 1;
    hs_assert(n_chunks <= WORKER_MAX_CHUNKS);
    atomic_store_explicit(&pool->finished, 0, memory_order_relaxed);
    atomic_store(&pool->ticket, sequence << 32 | (uint64_t)n_chunks << 16);
    wake_sleepers(pool, spare);
}

static void finish_stage(struct worker_pool *pool, uint32_t worker)
{
    struct worker_job job = pool->job;
    uint32_t n_chunks = job.advance(job.arg, worker);
    publish(pool, n_chunks, n_chunks > 0 ? n_chunks - 1 : 0);
    if (n_chunks == 0)
        job.done(job.arg);
}

/* Takes and runs one chunk; false if there is none to take. */
static bool work(struct worker_pool *pool, uint32_t worker)
{
    uint64_t ticket = atomic_load_explicit(&pool->ticket, memory_order_acquire);
    do {
        if (ticket_next(ticket) >= ticket_chunks(ticket))
            return false;
    } while (
        !atomic_compare_exchange_weak_explicit(&pool->ticket, &ticket, ticket + 1, memory_order_acq_rel, memory_order_acquire));
    /* The stage cannot end, nor job change, before this chunk is counted. */
    pool->job.run(pool->job.arg, worker, ticket_next(ticket));
    if (atomic_fetch_add_explicit(&pool->finished, 1, memory_order_acq_rel) + 1 == ticket_chunks(ticket))
        finish_stage(pool, worker);
    return true;
}

static bool work_waits(struct worker_pool *pool)
{
    uint64_t ticket = atomic_load(&pool->ticket);
    return ticket_next(ticket) < ticket_chunks(ticket) || atomic_load(&pool->stop);
}

/* The last ticket of a job has no chunks. */
static bool job_is_under_way(struct worker_pool *pool)
{
    return ticket_chunks(atomic_load_explicit(&pool->ticket, memory_order_acquire)) > 0;
}

static void wait_for_work(struct worker_pool *pool, uint32_t worker)
{
    for (int i = 0; i < (job_is_under_way(pool) ? SPIN_ROUNDS_IN_JOB : SPIN_ROUNDS_IDLE); i++) {
        if (work_waits(pool))
            return;
        if (job_is_under_way(pool) && pool->wait)
            pool->wait(pool->wait_arg, worker);
        pause_briefly();
    }
    atomic_fetch_add(&pool->sleepers, 1);
    uint32_t signal = atomic_load(&pool->signal);
    if (!work_waits(pool))
        syscall(SYS_futex, &pool->signal, FUTEX_WAIT_PRIVATE, signal, NULL, NULL, 0);
    atomic_fetch_sub(&pool->sleepers, 1);
}

static void *worker_main(void *arg)
{
    struct worker *worker = arg;
    struct worker_pool *pool = worker->pool;
    for (;;) {
        if (work(pool, worker->index))
            continue;
        if (atomic_load_explicit(&pool->stop, memory_order_acquire))
            return NULL;
        wait_for_work(pool, worker->index);
    }
}

static int refuse_cpus(const cpu_set_t *cpus, struct error *err)
{
    uint32_t cpu = 0;
    while (cpu < CPU_SETSIZE && !CPU_ISSET(cpu, cpus))
        cpu++;
    return error_set(err, HS_ERR_INVALID, "CPU %u%s is not available to this process: choose others for the workers", cpu,
                     cpu == CPU_SETSIZE ? " or above" : "");
}

/* place: NULL or not pinned, anywhere. */
static int start_worker(struct worker_pool *pool, uint32_t index, const struct worker_place *place, struct error *err)
{
    struct worker *worker = &pool->workers[index];
    pthread_attr_t attributes;
    int status = pthread_attr_init(&attributes);
    if (status)
        return error_set(err, HS_ERR_NO_MEMORY, "worker thread: %s", strerror(status));
    const bool pinned = place && place->pinned;
    if (pinned)
        pthread_attr_setaffinity_np(&attributes, sizeof place->cpus, &place->cpus);
    *worker = (struct worker){.pool = pool, .index = index};
    status = pthread_create(&worker->thread, &attributes, worker_main, worker);
    pthread_attr_destroy(&attributes);
    if (status == EINVAL && pinned)
        return refuse_cpus(&place->cpus, err);
    if (status)
        return error_set(err, HS_ERR_IO, "cannot start worker thread %u: %s", index, strerror(status));
    pthread_setname_np(worker->thread, "hearsay-compute");
    pool->n_workers++;
    return 0;
}

int worker_pool_create(uint32_t n_threads, const struct worker_place *places, struct worker_pool **out, struct error *err)
{
    struct worker_pool *pool = aligned_alloc(64, sizeof *pool);
    int status = HS_ERR_NO_MEMORY;
    if (!pool)
        return error_set(err, status, "worker pool: out of memory");
    memset(pool, 0, sizeof *pool);
    pool->workers = calloc(n_threads, sizeof *pool->workers);
    if (!pool->workers) {
        error_set(err, status, "worker pool: out of memory");
        goto fail;
    }
    for (uint32_t i = 0; i < n_threads; i++) {
        status = start_worker(pool, i, places ? &places[i] : NULL, err);
        if (status)
            goto fail;
    }
    *out = pool;
    return 0;
fail:
    worker_pool_destroy(pool);
    return status;
}

void worker_pool_destroy(struct worker_pool *pool)
{
    if (!pool)
        return;
    atomic_store(&pool->stop, true);
    wake_sleepers(pool, INT32_MAX);
    for (uint32_t i = 0; i < pool->n_workers; i++)
        pthread_join(pool->workers[i].thread, NULL);
    free(pool->workers);
    free(pool);
}

void worker_pool_while_waiting(struct worker_pool *pool, void (*wait)(void *arg, uint32_t worker), void *arg)
{
    pool->wait = wait;
    pool->wait_arg = arg;
}

void worker_pool_start(struct worker_pool *pool, const struct worker_job *job, uint32_t n_chunks)
{
    hs_assert(n_chunks > 0);
    pool->job = *job;
    publish(pool, n_chunks, n_chunks);
}

#include "perf/hand_over.h"

#include <sched.h>
#include <semaphore.h>
#include <stdatomic.h>

#include "core/cpu/worker_pool.h"
#include "perf/progress.h"

enum { STAGES = 2000, SPINS = 10000 };

struct hand_over {
    uint32_t n_threads;
    uint32_t stage;
    _Atomic uint32_t arrived; /* in this stage */
    sem_t done;
};

static void wait_for_all(void *arg, uint32_t worker, uint32_t chunk)
{
    struct hand_over *h = arg;
    atomic_fetch_add(&h->arrived, 1);
    for (uint32_t spins = 0; atomic_load(&h->arrived) < h->n_threads; spins++)
        if (spins > SPINS) /* more threads than CPUs */
            sched_yield();
}

static uint32_t next_stage(void *arg, uint32_t worker)
{
    struct hand_over *h = arg;
    atomic_store(&h->arrived, 0);
    return ++h->stage < STAGES ? h->n_threads : 0;
}

static void finish(void *arg)
{
    sem_post(&((struct hand_over *)arg)->done);
}

int hand_over_measure(uint32_t threads, const uint32_t *cpus, uint32_t n_cpus, uint32_t runs, struct samples *us, struct error *err)
{
    struct hand_over h = {.n_threads = threads};
    struct worker_job job = {.run = wait_for_all, .advance = next_stage, .done = finish, .arg = &h};
    struct worker_pool *pool;
    struct topology topology;
    struct placement placement;
    topology_init(&topology);
    int rc = placement_plan(&topology, threads, cpus, n_cpus, &placement, err);
    topology_fini(&topology);
    if (rc)
        return rc;
    rc = worker_pool_create(threads, placement.workers, &pool, err);
    placement_fini(&placement);
    if (rc)
        return rc;
    sem_init(&h.done, 0, 0);
    for (uint32_t i = 0; i <= runs; i++) {
        h.stage = 0;
        uint64_t start = perf_now_ns();
        worker_pool_start(pool, &job, threads);
        while (sem_wait(&h.done))
            ;
        if (i > 0) /* the first only warms up */
            samples_add(us, (double)(perf_now_ns() - start) * 1e-3 / STAGES);
    }
    worker_pool_destroy(pool);
    sem_destroy(&h.done);
    return 0;
}

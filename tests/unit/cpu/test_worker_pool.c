/* The worker pool: every chunk of every stage runs exactly once, stages never overlap, more workers than cores get on. */
#include <sched.h>
#include <semaphore.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "core/cpu/worker_pool.h"

enum { STAGES = 300, MAX_STAGE_CHUNKS = 23 };

struct job {
    _Atomic uint32_t runs[STAGES][MAX_STAGE_CHUNKS];
    _Atomic uint32_t inside;
    _Atomic uint32_t misplaced; /* chunks that ran with another stage's number of chunks, or on no worker */
    uint32_t stage;             /* plain on purpose: the pool must order it */
    uint32_t n_workers;
    sem_t done;
};

static uint32_t stage_chunks(uint32_t stage)
{
    return 1 + stage * 7 % MAX_STAGE_CHUNKS;
}

static void run(void *arg, uint32_t worker, uint32_t chunk)
{
    struct job *job = arg;
    atomic_fetch_add(&job->inside, 1);
    if (worker >= job->n_workers || chunk >= stage_chunks(job->stage))
        atomic_fetch_add(&job->misplaced, 1);
    else
        atomic_fetch_add(&job->runs[job->stage][chunk], 1);
    atomic_fetch_sub(&job->inside, 1);
}

static uint32_t advance(void *arg, uint32_t worker)
{
    struct job *job = arg;
    if (atomic_load(&job->inside) != 0)
        atomic_fetch_add(&job->misplaced, 1);
    job->stage++;
    return job->stage < STAGES ? stage_chunks(job->stage) : 0;
}

static void done(void *arg)
{
    struct job *job = arg;
    sem_post(&job->done);
}

static void check_pool(uint32_t n_workers, const uint32_t *cpus, uint32_t n_cpus, int rounds)
{
    static struct job job;
    const struct topology one_node = {.n_nodes = 1};
    struct placement placement;
    struct worker_pool *pool;
    struct error err = {0};
    if (placement_plan(&one_node, n_workers, cpus, n_cpus, &placement, &err) ||
        worker_pool_create(n_workers, placement.workers, &pool, &err))
        fail_msg("%s", err.text);
    placement_fini(&placement);
    sem_init(&job.done, 0, 0);
    for (int round = 0; round < rounds; round++) {
        memset(job.runs, 0, sizeof job.runs);
        job.stage = 0;
        job.n_workers = n_workers;
        worker_pool_start(pool, &(struct worker_job){run, advance, done, &job}, stage_chunks(0));
        while (sem_wait(&job.done))
            ;
        assert_int_equal(job.misplaced, 0);
        for (uint32_t s = 0; s < STAGES; s++)
            for (uint32_t c = 0; c < MAX_STAGE_CHUNKS; c++)
                assert_int_equal(job.runs[s][c], c < stage_chunks(s) ? 1 : 0);
    }
    worker_pool_destroy(pool);
    sem_destroy(&job.done);
}

static void test_one_worker(void **state)
{
    check_pool(1, NULL, 0, 20);
}

static void test_some_workers(void **state)
{
    check_pool(2, NULL, 0, 50);
    check_pool(3, NULL, 0, 20);
}

static uint32_t first_allowed_cpu(void)
{
    cpu_set_t allowed;
    uint32_t cpu = 0;
    assert_int_equal(sched_getaffinity(0, sizeof allowed, &allowed), 0);
    while (!CPU_ISSET(cpu, &allowed))
        cpu++;
    return cpu;
}

/* Eight workers on one core: whoever runs must get the job done. */
static void test_crowded_core(void **state)
{
    uint32_t cpu = first_allowed_cpu();
    check_pool(8, &cpu, 1, 5);
}

static void test_absent_cpu_is_refused(void **state)
{
    struct worker_pool *pool = NULL;
    struct error err = {0};
    struct worker_place place = {.pinned = true};
    CPU_SET(1023, &place.cpus);
    assert_int_equal(worker_pool_create(1, &place, &pool, &err), HS_ERR_INVALID);
    assert_null(pool);
    assert_non_null(strstr(err.text, "CPU 1023"));
}

/* One chunk ends only when the worker that has none has done what waiting workers do. */
struct waiting_job {
    _Atomic uint32_t waits;
    sem_t done;
};

static void run_until_waited(void *arg, uint32_t worker, uint32_t chunk)
{
    struct waiting_job *job = arg;
    while (chunk == 0 && atomic_load(&job->waits) == 0)
        sched_yield();
}

static uint32_t end_waiting(void *arg, uint32_t worker)
{
    return 0;
}

static void waiting_done(void *arg)
{
    sem_post(&((struct waiting_job *)arg)->done);
}

static void count_wait(void *arg, uint32_t worker)
{
    atomic_fetch_add(&((struct waiting_job *)arg)->waits, 1);
}

static void test_waiting_workers_do_what_they_are_told(void **state)
{
    struct waiting_job job = {0};
    struct worker_pool *pool;
    struct error err = {0};
    if (worker_pool_create(2, NULL, &pool, &err))
        fail_msg("%s", err.text);
    sem_init(&job.done, 0, 0);
    worker_pool_while_waiting(pool, count_wait, &job);
    worker_pool_start(pool, &(struct worker_job){run_until_waited, end_waiting, waiting_done, &job}, 2);
    while (sem_wait(&job.done))
        ;
    worker_pool_destroy(pool);
    assert_int_not_equal(job.waits, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_worker),
        cmocka_unit_test(test_some_workers),
        cmocka_unit_test(test_crowded_core),
        cmocka_unit_test(test_absent_cpu_is_refused),
        cmocka_unit_test(test_waiting_workers_do_what_they_are_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

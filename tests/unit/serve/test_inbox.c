/* The way in from other threads, and the loop behind it, in real time with a null backend. */
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "core/base/log.h"
#include "core/null/null_backend.h"
#include "core/serve/node_loop.h"

enum { THREADS = 4, PER_THREAD = 50, LATE_NS = 1000000 };

struct bench {
    struct env env;
    struct backend *backend;
    struct metrics *metrics;
    struct node *node;
    struct node_inbox *inbox;
    struct node_loop *loop;
};

/* The null backend behind a descriptor that is readable when half of a step's time has passed: it ends soon, that says. And once more after its
 * completion was taken, as the event of a step's end may be. */
struct early_backend {
    struct backend backend;
    struct backend *inner;
    int fd; /* timerfd */
    long half_ns;
    atomic_uint steps;
};

static struct early_backend *early_of(const struct backend *backend)
{
    return (struct early_backend *)backend;
}

static void early_info(const struct backend *backend, struct backend_info *out)
{
    early_of(backend)->inner->ops->info(early_of(backend)->inner, out);
}

static int early_copy_page(struct backend *backend, uint32_t dst, uint32_t src)
{
    return early_of(backend)->inner->ops->copy_page(early_of(backend)->inner, dst, src);
}

static int early_submit(struct backend *backend, const struct step *step)
{
    struct early_backend *early = early_of(backend);
    int status = early->inner->ops->submit(early->inner, step);
    if (status == 0) {
        atomic_fetch_add(&early->steps, 1);
        struct itimerspec soon = {.it_value.tv_nsec = early->half_ns};
        assert_int_equal(timerfd_settime(early->fd, 0, &soon, NULL), 0);
    }
    return status;
}

static int early_poll(struct backend *backend, struct step_completion *out)
{
    struct early_backend *early = early_of(backend);
    uint64_t n;
    ssize_t bytes = read(early->fd, &n, sizeof n);
    (void)bytes;
    int taken = early->inner->ops->poll(early->inner, out);
    struct itimerspec late = {.it_value.tv_nsec = LATE_NS};
    if (taken == 1)
        assert_int_equal(timerfd_settime(early->fd, 0, &late, NULL), 0);
    return taken;
}

static int early_event_fd(const struct backend *backend)
{
    return early_of(backend)->fd;
}

static uint64_t early_next_deadline_ns(const struct backend *backend)
{
    return early_of(backend)->inner->ops->next_deadline_ns(early_of(backend)->inner);
}

static void early_destroy(struct backend *backend)
{
    struct early_backend *early = early_of(backend);
    early->inner->ops->destroy(early->inner);
    close(early->fd);
    free(early);
}

static const struct backend_ops EARLY = {.info = early_info,
                                         .copy_page = early_copy_page,
                                         .submit = early_submit,
                                         .poll = early_poll,
                                         .event_fd = early_event_fd,
                                         .next_deadline_ns = early_next_deadline_ns,
                                         .destroy = early_destroy};

static const uint32_t PROMPT[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18};

struct asked {
    struct request request;
    atomic_uint tokens, finals;
    atomic_int status; /* of the last event; 0: finished */
};

static bool on_event(void *user, struct request *request, const struct request_event *event)
{
    struct asked *asked = user;
    if (event->kind == REQUEST_TOKENS)
        atomic_fetch_add(&asked->tokens, event->n_results);
    if (event->kind == REQUEST_FAILED)
        atomic_store(&asked->status, event->status);
    if (event->kind == REQUEST_FINISHED || event->kind == REQUEST_FAILED)
        atomic_fetch_add(&asked->finals, 1);
    return true;
}

static void ask(struct asked *asked, uint32_t max_tokens)
{
    memset(asked, 0, sizeof *asked);
    asked->request.tokens = PROMPT;
    asked->request.n_tokens = sizeof PROMPT / sizeof *PROMPT;
    asked->request.max_tokens = max_tokens;
    asked->request.sampling = (struct sampling_params){.top_p = 1, .repetition_penalty = 1};
    asked->request.on_event = on_event;
    asked->request.user = asked;
}

static void await(const struct asked *asked)
{
    struct timespec pause = {.tv_nsec = 100000};
    while (!atomic_load(&asked->finals))
        nanosleep(&pause, NULL); /* between looks at a condition, not instead of one */
    assert_int_equal(atomic_load(&asked->finals), 1);
}

static struct backend *open_backend(struct bench *bench, uint64_t fixed_ns)
{
    struct null_backend_config config = {.n_pages = 512, .fixed_ns = fixed_ns};
    *bench = (struct bench){.env = node_env_kernel()};
    return null_backend_create(&config, &bench->env);
}

/* A node on the bench's backend. */
static void open_node(struct bench *bench, uint32_t capacity)
{
    struct error err;
    struct node_config config = {.model_name = "m", .n_context = 4096};
    bench->metrics = metrics_create();
    assert_int_equal(node_create(&config, &bench->env, NULL, bench->backend, bench->metrics, &bench->node, &err), 0);
    bench->inbox = node_inbox_create(capacity);
    assert_non_null(bench->inbox);
}

static void start_loop(struct bench *bench, enum node_poll poll, void (*step_ends)(void *arg), void *arg)
{
    struct error err;
    struct node_loop_config loop = {.node = bench->node, .inbox = bench->inbox, .backend = bench->backend, .env = &bench->env,
                                    .step_ends = step_ends, .step_ends_arg = arg, .poll = poll, .cpu = -1};
    assert_int_equal(node_loop_start(&loop, &bench->loop, &err), 0);
}

static void open_bench(struct bench *bench, uint32_t capacity, uint64_t fixed_ns, bool run, enum node_poll poll)
{
    bench->backend = open_backend(bench, fixed_ns);
    open_node(bench, capacity);
    if (run)
        start_loop(bench, poll, NULL, NULL);
}

static void close_bench(struct bench *bench)
{
    if (bench->loop)
        node_loop_stop(bench->loop, 1000000000);
    node_destroy(bench->node);
    node_inbox_destroy(bench->inbox);
    bench->backend->ops->destroy(bench->backend);
    metrics_destroy(bench->metrics);
}

struct worker {
    struct bench *bench;
    struct asked asked[PER_THREAD];
    uint32_t cancels;
};

static void *work(void *arg)
{
    struct worker *worker = arg;
    for (uint32_t i = 0; i < PER_THREAD; i++) {
        ask(&worker->asked[i], 20);
        int status;
        while ((status = node_inbox_submit(worker->bench->inbox, &worker->asked[i].request)) == HS_ERR_BUSY)
            sched_yield();
        if (status < 0)
            abort();
        if (i % 5 == 0) {
            node_inbox_cancel(worker->bench->inbox, &worker->asked[i].request);
            node_inbox_cancel(worker->bench->inbox, &worker->asked[i].request);
        }
    }
    return NULL;
}

static void many_threads(enum node_poll poll)
{
    static struct worker workers[THREADS];
    struct bench bench;
    pthread_t threads[THREADS];
    open_bench(&bench, 16, 50000, true, poll); /* a small ring, so that it is full at times */
    for (int i = 0; i < THREADS; i++) {
        workers[i].bench = &bench;
        assert_int_equal(pthread_create(&threads[i], NULL, work, &workers[i]), 0);
    }
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    for (int i = 0; i < THREADS; i++)
        for (int k = 0; k < PER_THREAD; k++) {
            struct asked *asked = &workers[i].asked[k];
            await(asked);
            int status = atomic_load(&asked->status);
            assert_true(status == 0 || (status == HS_ERR_CANCELED && k % 5 == 0));
            if (status == 0)
                assert_int_equal(atomic_load(&asked->tokens), 20);
        }
    close_bench(&bench);
}

static void many_threads_adaptive(void **state)
{
    many_threads(NODE_POLL_ADAPTIVE);
}

static void many_threads_busy(void **state)
{
    many_threads(NODE_POLL_BUSY);
}

static void a_full_ring_refuses_and_a_cancel_gets_through(void **state)
{
    struct bench bench;
    static struct asked asked[64];
    open_bench(&bench, 7, 1000, false, NODE_POLL_ADAPTIVE);
    uint32_t taken = 0;
    for (uint32_t i = 0; i < 64; i++) {
        ask(&asked[i], 5);
        int status = node_inbox_submit(bench.inbox, &asked[i].request);
        assert_true(status == 0 || status == HS_ERR_BUSY);
        taken += status == 0;
    }
    assert_in_range(taken, 7, 15);
    node_inbox_cancel(bench.inbox, &asked[2].request);
    assert_int_equal(node_inbox_drain(bench.inbox, bench.node), taken + 1);
    assert_int_equal(atomic_load(&asked[2].status), HS_ERR_CANCELED);
    assert_int_equal(atomic_load(&asked[1].finals), 0);
    node_inbox_cancel(bench.inbox, &asked[2].request); /* after its end: nothing */
    assert_int_equal(node_inbox_drain(bench.inbox, bench.node), 1);
    node_inbox_close(bench.inbox);
    ask(&asked[40], 5);
    assert_int_equal(node_inbox_submit(bench.inbox, &asked[40].request), HS_ERR_CLOSED);
    close_bench(&bench);
    for (uint32_t i = 0; i < taken; i++)
        assert_int_equal(atomic_load(&asked[i].finals), 1);
}

static void what_is_never_drained_is_failed(void **state)
{
    struct bench bench;
    static struct asked asked;
    open_bench(&bench, 7, 1000, false, NODE_POLL_ADAPTIVE);
    ask(&asked, 5);
    assert_int_equal(node_inbox_submit(bench.inbox, &asked.request), 0);
    close_bench(&bench);
    assert_int_equal(atomic_load(&asked.finals), 1);
    assert_int_equal(atomic_load(&asked.status), HS_ERR_CLOSED);
}

struct answer {
    atomic_int done; /* the rest is there before */
    int status;
    char json[4096];
};

static void take_answer(void *user, int status, const char *json)
{
    struct answer *answer = user;
    snprintf(answer->json, sizeof answer->json, "%s", json);
    answer->status = status;
    atomic_store(&answer->done, 1);
}

static struct answer query(struct bench *bench, enum node_query what)
{
    struct answer answer = {0};
    assert_int_equal(node_inbox_query(bench->inbox, what, take_answer, &answer), 0);
    struct timespec pause = {.tv_nsec = 100000};
    while (!atomic_load(&answer.done))
        nanosleep(&pause, NULL);
    return answer;
}

static void queries_are_answered(void **state)
{
    struct bench bench;
    static struct asked asked;
    open_bench(&bench, 64, 1000, true, NODE_POLL_ADAPTIVE);
    struct answer answer = query(&bench, NODE_QUERY_CLUSTER);
    assert_int_equal(answer.status, 0);
    assert_non_null(strstr(answer.json, "\"model\":\"m\""));
    assert_non_null(strstr(query(&bench, NODE_QUERY_TREE).json, "\"pages\":"));
    assert_int_equal(query(&bench, NODE_QUERY_HEALTH).status, 0);
    assert_int_equal(query(&bench, NODE_QUERY_DRAIN).status, 0);
    assert_int_equal(query(&bench, NODE_QUERY_HEALTH).status, HS_ERR_CLOSED);
    ask(&asked, 5);
    assert_int_equal(node_inbox_submit(bench.inbox, &asked.request), 0);
    await(&asked);
    assert_int_equal(atomic_load(&asked.status), HS_ERR_CLOSED);
    assert_int_equal(query(&bench, NODE_QUERY_UNDRAIN).status, 0);
    assert_int_equal(query(&bench, NODE_QUERY_HEALTH).status, 0);
    ask(&asked, 5);
    assert_int_equal(node_inbox_submit(bench.inbox, &asked.request), 0);
    await(&asked);
    assert_int_equal(atomic_load(&asked.status), 0);
    assert_int_equal(query(&bench, NODE_QUERY_FLUSH).status, 0);
    assert_non_null(strstr(query(&bench, NODE_QUERY_TREE).json, "\"pages\":0"));
    close_bench(&bench);
}

static void count(void *arg)
{
    atomic_fetch_add((atomic_uint *)arg, 1);
}

/* The timer has run out, and that was read. */
static bool is_quiet(int fd)
{
    struct itimerspec left;
    assert_int_equal(timerfd_gettime(fd, &left), 0);
    return left.it_value.tv_sec == 0 && left.it_value.tv_nsec == 0 && poll(&(struct pollfd){.fd = fd, .events = POLLIN}, 1, 0) == 0;
}

/*
 * Steps that end just after they were said to, and long after: none is announced twice, where there is time for it some are, and every answer
 * is whole. An event that comes when nothing is under way does not keep the loop awake.
 */
static void an_end_is_announced(void **state)
{
    static const long durations_ns[] = {1200000, 100000000};
    for (size_t i = 0; i < 2; i++) {
        struct bench bench;
        static struct asked asked;
        atomic_uint announced = 0;
        struct backend *inner = open_backend(&bench, (uint64_t)durations_ns[i]);
        struct early_backend *early = calloc(1, sizeof *early);
        assert_non_null(early);
        *early = (struct early_backend){
            {&EARLY}, inner, timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC), durations_ns[i] / 2, 0};
        bench.backend = &early->backend;
        open_node(&bench, 64);
        start_loop(&bench, NODE_POLL_ADAPTIVE, count, &announced);
        ask(&asked, 8);
        assert_int_equal(node_inbox_submit(bench.inbox, &asked.request), 0);
        await(&asked);
        assert_int_equal(atomic_load(&asked.tokens), 8);
        const struct timespec pause = {.tv_nsec = 1000000};
        for (int round = 0; !is_quiet(early->fd); round++) {
            assert_true(round < 10000);
            nanosleep(&pause, NULL);
        }
        node_loop_stop(bench.loop, 1000000000);
        bench.loop = NULL;
        uint32_t steps = atomic_load(&early->steps);
        assert_int_equal(steps, 8);
        assert_in_range(atomic_load(&announced), i, steps);
        close_bench(&bench);
    }
}

static void stopping_lets_answers_finish(void **state)
{
    struct bench bench;
    static struct asked soon, late;
    open_bench(&bench, 64, 1000000, true, NODE_POLL_ADAPTIVE);
    ask(&soon, 50);
    assert_int_equal(node_inbox_submit(bench.inbox, &soon.request), 0);
    while (!atomic_load(&soon.tokens))
        sched_yield();
    node_loop_stop(bench.loop, 60000000000);
    bench.loop = NULL;
    assert_int_equal(atomic_load(&soon.finals), 1);
    assert_int_equal(atomic_load(&soon.status), 0);
    assert_int_equal(atomic_load(&soon.tokens), 50);
    ask(&late, 5);
    assert_int_equal(node_inbox_submit(bench.inbox, &late.request), HS_ERR_CLOSED);
    close_bench(&bench);
}

static void stopping_at_once_fails_them(void **state)
{
    struct bench bench;
    static struct asked asked;
    open_bench(&bench, 64, 10000000, true, NODE_POLL_ADAPTIVE);
    ask(&asked, 4000);
    assert_int_equal(node_inbox_submit(bench.inbox, &asked.request), 0);
    while (!atomic_load(&asked.tokens))
        sched_yield();
    close_bench(&bench); /* a second to drain does not suffice for four thousand steps of ten milliseconds */
    assert_int_equal(atomic_load(&asked.finals), 1);
    assert_int_equal(atomic_load(&asked.status), HS_ERR_CLOSED);
}

int main(void)
{
    log_setup(LOG_LEVEL_ERROR, LOG_FORMAT_TEXT);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(many_threads_adaptive),
        cmocka_unit_test(many_threads_busy),
        cmocka_unit_test(a_full_ring_refuses_and_a_cancel_gets_through),
        cmocka_unit_test(what_is_never_drained_is_failed),
        cmocka_unit_test(queries_are_answered),
        cmocka_unit_test(an_end_is_announced),
        cmocka_unit_test(stopping_lets_answers_finish),
        cmocka_unit_test(stopping_at_once_fails_them),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

#include "core/serve/node_loop.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "core/base/log.h"

enum {
    PAUSES = 32, /* idle rounds spent in the pause instruction, then in sched_yield, then asleep */
    MAX_SLEEP_MS = 1000,
    POLL_SLEEP_MS = 1,     /* where something must be polled because it has no descriptor */
    TIMER_SLACK_NS = 1000, /* the kernel's 50 us would be added to every short wait */
};

/* Falling asleep and being woken cost tens of microseconds: while work comes again sooner than that, or not much later, spinning
 * is worth it. A peer's answer to a forwarded request takes about a hundred. Where work comes more rarely, as steps of a real model do, not a
 * moment is: whoever was just woken, the HTTP thread with the step's tokens or the worker of the next step, often waits for this very CPU. */
static const uint64_t SPIN_NS = 200000;

/* So long the loop stays awake for a step that is said to end soon. */
static const uint64_t SOON_NS = 1000000;

struct node_loop {
    struct node_loop_config config;
    pthread_t thread;
    int epoll_fd;
    int backend_fd;
    bool must_poll; /* a source without a descriptor */
    bool step_ends;         /* the backend's descriptor ended the last sleep */
    uint64_t awake_until_ns; /* 0: no step ends soon */
    uint64_t idle_since_ns;   /* 0: busy */
    uint64_t typical_idle_ns; /* moving average of the time from one piece of work to the next */
    atomic_bool stopping;
    _Atomic uint64_t drain_until_ns;
};

static int watch(struct node_loop *loop, int fd)
{
    struct epoll_event event = {.events = EPOLLIN, .data.fd = fd};
    return fd < 0 || epoll_ctl(loop->epoll_fd, EPOLL_CTL_ADD, fd, &event) == 0 ? 0 : HS_ERR_IO;
}

static void relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/* Waits for a descriptor or for the node's deadline. */
static void sleep_until(struct node_loop *loop, uint64_t now_ns, uint64_t next_ns)
{
    if (next_ns <= now_ns)
        return;
    uint64_t limit_ns = (loop->must_poll ? POLL_SLEEP_MS : MAX_SLEEP_MS) * 1000000ull;
    uint64_t wait_ns = next_ns - now_ns < limit_ns ? next_ns - now_ns : limit_ns;
    struct timespec timeout = {.tv_sec = (time_t)(wait_ns / 1000000000u), .tv_nsec = (long)(wait_ns % 1000000000u)};
    struct epoll_event event;
    loop->step_ends = epoll_pwait2(loop->epoll_fd, &event, 1, &timeout, NULL) == 1 && event.data.fd == loop->backend_fd;
}

/* One look at everything; returns when the node wants to run again. */
static uint64_t run_once(struct node_loop *loop, bool *busy)
{
    uint32_t entries = node_inbox_drain(loop->config.inbox, loop->config.node);
    uint64_t next_ns = node_step(loop->config.node, env_now_ns(loop->config.env));
    *busy = entries || node_was_busy(loop->config.node);
    return next_ns;
}

/* Whether the loop may end: stopped outright, drained, or out of time to drain. */
static bool may_end(struct node_loop *loop, uint64_t now_ns)
{
    if (!atomic_load_explicit(&loop->stopping, memory_order_acquire))
        return false;
    if (!node_draining(loop->config.node))
        node_drain(loop->config.node, true);
    return node_drained(loop->config.node) || now_ns >= atomic_load_explicit(&loop->drain_until_ns, memory_order_relaxed);
}

/* Something was found to do: remembers how long that took to come. */
static void end_idle(struct node_loop *loop, uint64_t now_ns)
{
    if (!loop->idle_since_ns)
        return;
    uint64_t idle_ns = now_ns - loop->idle_since_ns;
    if (idle_ns > 4 * SPIN_NS)
        idle_ns = 4 * SPIN_NS; /* one long pause must not hide that work is dense again */
    loop->typical_idle_ns = (7 * loop->typical_idle_ns + idle_ns) / 8;
    loop->idle_since_ns = 0;
}

/* Woken by the backend, but the step is not over: it will be soon. Or that was about a step that is; then the time is short. */
static void await_end(struct node_loop *loop, uint64_t now_ns)
{
    loop->step_ends = false;
    loop->awake_until_ns = now_ns + SOON_NS;
    if (loop->config.step_ends)
        loop->config.step_ends(loop->config.step_ends_arg);
}

static void wait_for_work(struct node_loop *loop, uint32_t round, uint64_t next_ns)
{
    uint64_t now_ns = env_now_ns(loop->config.env);
    uint64_t spin_ns = loop->typical_idle_ns < SPIN_NS ? SPIN_NS : 0;
    if (!loop->idle_since_ns)
        loop->idle_since_ns = now_ns;
    if (loop->step_ends && node_is_computing(loop->config.node))
        await_end(loop, now_ns);
    if (now_ns < loop->awake_until_ns)
        sched_yield();
    else if (now_ns - loop->idle_since_ns >= spin_ns)
        sleep_until(loop, now_ns, next_ns);
    else if (round < PAUSES)
        relax();
    else
        sched_yield();
}

static void *run(void *arg)
{
    struct node_loop *loop = arg;
    uint32_t idle = 0;
    prctl(PR_SET_TIMERSLACK, TIMER_SLACK_NS, 0, 0, 0);
    for (;;) {
        bool busy;
        bool ending = may_end(loop, env_now_ns(loop->config.env));
        uint64_t next_ns = run_once(loop, &busy);
        if (ending)
            return NULL;
        if (loop->config.poll == NODE_POLL_BUSY) {
            relax();
        } else if (busy) {
            end_idle(loop, env_now_ns(loop->config.env));
            loop->step_ends = false;
            loop->awake_until_ns = 0;
            idle = 0;
        } else {
            wait_for_work(loop, idle++, next_ns);
        }
    }
}

static int pin(pthread_t thread, int cpu, struct error *err)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    int failed = pthread_setaffinity_np(thread, sizeof set, &set);
    return failed ? error_set(err, HS_ERR_INVALID, "cannot pin the node loop to CPU %d: %s", cpu, strerror(failed)) : 0;
}

int node_loop_start(const struct node_loop_config *config, struct node_loop **out, struct error *err)
{
    struct node_loop *loop = calloc(1, sizeof *loop);
    if (!loop)
        return error_set(err, HS_ERR_NO_MEMORY, "out of memory for the node loop");
    loop->config = *config;
    loop->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (loop->epoll_fd < 0) {
        free(loop);
        return error_set(err, HS_ERR_IO, "epoll_create1: %s", strerror(errno));
    }
    int transport_fd = config->transport ? config->transport->ops->wait_fd(config->transport) : -1;
    int backend_fd = config->backend->ops->event_fd(config->backend);
    /* A backend without a descriptor may still name a deadline (modelled time); a transport without one must be polled. */
    loop->backend_fd = backend_fd;
    loop->must_poll = config->transport && transport_fd < 0;
    int status = 0;
    if (watch(loop, node_inbox_wake_fd(config->inbox)) < 0 || watch(loop, transport_fd) < 0 || watch(loop, backend_fd) < 0)
        status = error_set(err, HS_ERR_IO, "cannot watch the node's descriptors: %s", strerror(errno));
    if (status == 0) {
        int failed = pthread_create(&loop->thread, NULL, run, loop);
        if (failed)
            status = error_set(err, HS_ERR_IO, "cannot start the node loop: %s", strerror(failed));
    }
    if (status == 0 && config->cpu >= 0 && (status = pin(loop->thread, config->cpu, err)) < 0) {
        node_loop_stop(loop, 0);
        return status;
    }
    if (status < 0) {
        close(loop->epoll_fd);
        free(loop);
        return status;
    }
    pthread_setname_np(loop->thread, "node-loop");
    *out = loop;
    return 0;
}

void node_loop_stop(struct node_loop *loop, uint64_t drain_ns)
{
    if (!loop)
        return;
    node_inbox_close(loop->config.inbox);
    atomic_store_explicit(&loop->drain_until_ns, env_now_ns(loop->config.env) + drain_ns, memory_order_relaxed);
    atomic_store_explicit(&loop->stopping, true, memory_order_release); /* pairs with may_end */
    /* The loop sleeps on the inbox' descriptor among others. */
    uint64_t one = 1;
    ssize_t n = write(node_inbox_wake_fd(loop->config.inbox), &one, sizeof one);
    (void)n;
    pthread_join(loop->thread, NULL);
    close(loop->epoll_fd);
    free(loop);
}

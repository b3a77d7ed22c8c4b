#include "core/serve/node_loop.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "core/base/log.h"

enum {
    PAUSES = 64, /* idle rounds spent in the pause instruction */
    YIELDS = 8,  /* then in sched_yield, then asleep */
    MAX_SLEEP_MS = 1000,
    POLL_SLEEP_MS = 1, /* where something must be polled because it has no descriptor */
};

struct node_loop {
    struct node_loop_config config;
    pthread_t thread;
    int epoll_fd;
    bool must_poll; /* a source without a descriptor */
    atomic_bool stopping;
    _Atomic uint64_t drain_until_ns;
};

static int watch(struct node_loop *loop, int fd)
{
    struct epoll_event event = {.events = EPOLLIN};
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
    epoll_pwait2(loop->epoll_fd, &event, 1, &timeout, NULL);
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

static void *run(void *arg)
{
    struct node_loop *loop = arg;
    uint32_t idle = 0;
    for (;;) {
        bool busy;
        bool ending = may_end(loop, env_now_ns(loop->config.env));
        uint64_t next_ns = run_once(loop, &busy);
        if (ending)
            return NULL;
        if (loop->config.poll == NODE_POLL_BUSY) {
            relax();
            continue;
        }
        idle = busy ? 0 : idle + 1;
        if (idle < PAUSES)
            relax();
        else if (idle < PAUSES + YIELDS)
            sched_yield();
        else
            sleep_until(loop, env_now_ns(loop->config.env), next_ns);
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

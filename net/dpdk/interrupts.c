#include "net/dpdk/interrupts.h"

#include <errno.h>
#include <linux/membarrier.h>
#include <poll.h>
#include <pthread.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <rte_interrupts.h>

#include "core/base/log.h"

enum { NAP_NS = 20000, BLIND_MS = 10, MOST_DESCRIPTORS = 1 << 20, EAL_EVENTS = EPOLLIN | EPOLLPRI | EPOLLRDHUP | EPOLLHUP };

atomic_bool dpdk_interrupts_run;
atomic_bool dpdk_interrupts_fence = true;

static struct {
    pthread_mutex_t lock; /* of all but the last */
    bool held;
    struct dpdk_poller *pollers;
    struct rte_intr_handle *handle;
    int ours; /* the eventfd */
    int set;  /* the interrupt thread's: EAL's epoll set as it was last found, -1: not */
} interrupts = {.lock = PTHREAD_MUTEX_INITIALIZER, .ours = -1, .set = -1};

static void nap(void)
{
    nanosleep(&(struct timespec){.tv_nsec = NAP_NS}, NULL);
}

/* ---- the interrupt thread ---- */

/* Changing an entry to what it is succeeds in the one set that has it: EAL knows a descriptor by its number. */
static bool has(int set, int fd)
{
    struct epoll_event event = {.events = EAL_EVENTS, .data.fd = fd};
    return set != fd && epoll_ctl(set, EPOLL_CTL_MOD, fd, &event) == 0;
}

int dpdk_interrupts_descriptors(void)
{
    struct rlimit limit = {0};
    getrlimit(RLIMIT_NOFILE, &limit);
    return limit.rlim_cur < MOST_DESCRIPTORS ? (int)limit.rlim_cur : MOST_DESCRIPTORS;
}

/* EAL makes a new set whenever a descriptor comes or goes. */
static void find_set(void)
{
    if (interrupts.set >= 0 && has(interrupts.set, interrupts.ours))
        return;
    interrupts.set = -1;
    for (int fd = 0, end = dpdk_interrupts_descriptors(); fd < end && interrupts.set < 0; fd++)
        if (has(fd, interrupts.ours))
            interrupts.set = fd;
}

static bool others_are_ready(int timeout_ms)
{
    struct pollfd set = {.fd = interrupts.set, .events = POLLIN}; /* a negative descriptor only waits */
    return poll(&set, 1, timeout_ms) > 0;
}

/* Waits until EAL has something to do, which it then may be let do. */
static void wait_for_others(void)
{
    if (interrupts.set < 0)
        others_are_ready(BLIND_MS);
    else
        while (!others_are_ready(-1))
            ;
}

static void wait_for_pollers(void)
{
    atomic_store_explicit(&dpdk_interrupts_run, true, memory_order_relaxed);
    atomic_thread_fence(memory_order_seq_cst); /* pairs with the one of dpdk_poller_begin */
    if (!atomic_load_explicit(&dpdk_interrupts_fence, memory_order_relaxed))
        syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0);
    pthread_mutex_lock(&interrupts.lock);
    for (struct dpdk_poller *poller = interrupts.pollers; poller != NULL; poller = poller->next)
        while (atomic_load_explicit(&poller->polls, memory_order_acquire)) /* pairs with dpdk_poller_end */
            nap();
    pthread_mutex_unlock(&interrupts.lock);
}

/* Called whenever our eventfd is readable, which it is but for the time here. What EAL got to know together with it and has not served yet still
 * makes the set readable: then it goes on, so that nothing is left over for later, when its descriptor may be another one. */
static void on_turn(void *arg)
{
    uint64_t count;
    (void)arg;
    if (read(interrupts.ours, &count, sizeof count) < 0)
        log_debug("dpdk", "the interrupt thread was called for nothing: %s", strerror(errno));
    find_set();
    if (!others_are_ready(0)) {
        atomic_store_explicit(&dpdk_interrupts_run, false, memory_order_release); /* pairs with dpdk_poller_begin */
        wait_for_others();
        wait_for_pollers();
    }
    count = 1;
    if (write(interrupts.ours, &count, sizeof count) < 0)
        log_warn("dpdk", "the interrupt thread is no longer held: %s", strerror(errno));
}

/* ---- pollers ---- */

static int begin_to_hold(void)
{
    if (syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0) == 0)
        atomic_store_explicit(&dpdk_interrupts_fence, false, memory_order_relaxed); /* never back: a poller may have read it at any time */
    interrupts.ours = eventfd(1, EFD_CLOEXEC | EFD_NONBLOCK);
    interrupts.handle = rte_intr_instance_alloc(RTE_INTR_INSTANCE_F_PRIVATE);
    if (interrupts.ours < 0 || interrupts.handle == NULL)
        return -errno;
    int rc = rte_intr_type_set(interrupts.handle, RTE_INTR_HANDLE_EXT);
    if (rc == 0)
        rc = rte_intr_fd_set(interrupts.handle, interrupts.ours);
    if (rc != 0)
        return -EINVAL;
    atomic_store(&dpdk_interrupts_run, true); /* until it is held */
    return rte_intr_callback_register(interrupts.handle, on_turn, NULL);
}

int dpdk_interrupts_hold(struct error *err)
{
    pthread_mutex_lock(&interrupts.lock);
    int rc = interrupts.held ? 0 : begin_to_hold();
    interrupts.held |= rc == 0;
    if (rc != 0) {
        rte_intr_instance_free(interrupts.handle);
        if (interrupts.ours >= 0)
            close(interrupts.ours);
        interrupts.handle = NULL;
        interrupts.ours = -1;
        atomic_store(&dpdk_interrupts_run, false);
    }
    pthread_mutex_unlock(&interrupts.lock);
    return rc == 0 ? 0 : error_set(err, HS_ERR_IO, "DPDK's interrupt thread cannot be held: %s", strerror(-rc));
}

void dpdk_poller_join(struct dpdk_poller *poller)
{
    pthread_mutex_lock(&interrupts.lock);
    poller->next = interrupts.pollers;
    interrupts.pollers = poller;
    pthread_mutex_unlock(&interrupts.lock);
}

void dpdk_poller_leave(struct dpdk_poller *poller)
{
    pthread_mutex_lock(&interrupts.lock);
    struct dpdk_poller **at = &interrupts.pollers;
    while (*at != poller)
        at = &(*at)->next;
    *at = poller->next;
    pthread_mutex_unlock(&interrupts.lock);
}

void dpdk_poller_begin_waiting(struct dpdk_poller *poller)
{
    while (!dpdk_poller_begin(poller))
        nap();
}

#include "net/dpdk/interrupts.h"

#include <errno.h>
#include <linux/membarrier.h>
#include <poll.h>
#include <pthread.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <rte_interrupts.h>

#include "core/base/log.h"

enum { NAP_NS = 20000, BLIND_MS = 10, LOOK_MS = 100, STALL_MS = 1000, MOST_DESCRIPTORS = 1 << 20, EAL_EVENTS = EPOLLIN | EPOLLPRI | EPOLLRDHUP | EPOLLHUP };

atomic_bool dpdk_interrupts_run;
bool dpdk_interrupts_fence;

static struct {
    pthread_mutex_t lock; /* of all but the last two, which are the interrupt thread's */
    bool held;
    struct dpdk_poller *pollers;
    struct rte_intr_handle *handle;
    int ours;        /* the eventfd */
    int set;         /* EAL's epoll set as it was last found, -1: not */
    uint64_t ran_ms; /* when the interrupt thread last passed here */
} interrupts = {.lock = PTHREAD_MUTEX_INITIALIZER, .ours = -1, .set = -1};

static void nap(void)
{
    nanosleep(&(struct timespec){.tv_nsec = NAP_NS}, NULL);
}

/* ---- the interrupt thread ---- */

static uint64_t now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

/* Changing an entry to what it is succeeds in the one set that has it: EAL knows a descriptor by its number. */
static bool has(int set, int fd)
{
    struct epoll_event event = {.events = EAL_EVENTS, .data.fd = fd};
    return set != fd && epoll_ctl(set, EPOLL_CTL_MOD, fd, &event) == 0;
}

static int end_of_descriptors(void)
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
    for (int fd = 0, end = end_of_descriptors(); fd < end && interrupts.set < 0; fd++)
        if (has(fd, interrupts.ours))
            interrupts.set = fd;
}

static bool others_are_ready(int timeout_ms)
{
    struct pollfd set = {.fd = interrupts.set, .events = POLLIN}; /* a negative descriptor only waits */
    return poll(&set, 1, timeout_ms) > 0;
}

static int option_of(int fd, int option)
{
    int value = -1;
    socklen_t len = sizeof value;
    return getsockopt(fd, SOL_SOCKET, option, &value, &len) == 0 ? value : -1;
}

/* A memif server to which a caller is handed that hung up meanwhile leaves a closed descriptor in EAL's list, which then ends the process. Callers
 * hang up when nobody answers for seconds, so after a stall nobody who waits is let in: who is still there calls again. */
static void turn_callers_away(void)
{
    for (int fd = 0, end = end_of_descriptors(); fd < end; fd++) {
        if (option_of(fd, SO_TYPE) != SOCK_SEQPACKET || option_of(fd, SO_ACCEPTCONN) != 1 || !has(interrupts.set, fd))
            continue;
        for (struct pollfd waiting = {.fd = fd, .events = POLLIN}; poll(&waiting, 1, 0) == 1;) {
            int caller = accept4(fd, NULL, NULL, SOCK_CLOEXEC);
            if (caller < 0)
                break;
            close(caller);
        }
    }
}

/* Waits until EAL has something to do, which it then may be let do. */
static void wait_for_others(void)
{
    bool ready = false;
    do {
        uint64_t before_ms = interrupts.ran_ms;
        ready = others_are_ready(interrupts.set >= 0 ? LOOK_MS : BLIND_MS) || interrupts.set < 0;
        interrupts.ran_ms = now_ms();
        if (interrupts.ran_ms - before_ms >= STALL_MS)
            turn_callers_away();
    } while (!ready);
}

static void wait_for_pollers(void)
{
    atomic_store_explicit(&dpdk_interrupts_run, true, memory_order_seq_cst);
    if (!dpdk_interrupts_fence)
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
    dpdk_interrupts_fence = syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0) != 0;
    interrupts.ours = eventfd(1, EFD_CLOEXEC | EFD_NONBLOCK);
    interrupts.handle = rte_intr_instance_alloc(RTE_INTR_INSTANCE_F_PRIVATE);
    if (interrupts.ours < 0 || interrupts.handle == NULL)
        return -errno;
    int rc = rte_intr_type_set(interrupts.handle, RTE_INTR_HANDLE_EXT);
    if (rc == 0)
        rc = rte_intr_fd_set(interrupts.handle, interrupts.ours);
    if (rc != 0)
        return -EINVAL;
    interrupts.ran_ms = now_ms();
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

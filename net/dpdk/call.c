#include "net/dpdk/call.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

#include <rte_ethdev.h>

enum { LEFT = -1, LOOKS_PER_MS = 20, INTERRUPT_MS = 1000 };

struct dpdk_call {
    uint16_t port;
    pthread_t thread;
    atomic_int state; /* enum dpdk_call_state, or LEFT: then the thread frees */
};

/* ---- the signal ---- */

/* One that nothing else uses; it need not do anything but end a wait. */
static int wake_signal(void)
{
    return SIGRTMAX - 1;
}

static void on_wake(int number)
{
    (void)number;
}

/* Whether it is ours to use: not if somebody else handles it. */
static bool take_signal(void)
{
    struct sigaction now, wanted = {.sa_handler = on_wake}; /* no SA_RESTART */
    sigemptyset(&wanted.sa_mask);
    if (sigaction(wake_signal(), NULL, &now) != 0)
        return false;
    if (!(now.sa_flags & SA_SIGINFO) && now.sa_handler == on_wake)
        return true;
    bool is_free = !(now.sa_flags & SA_SIGINFO) && (now.sa_handler == SIG_DFL || now.sa_handler == SIG_IGN);
    return is_free && sigaction(wake_signal(), &wanted, NULL) == 0;
}

/* ---- the call ---- */

static void *make_call(void *arg)
{
    struct dpdk_call *call = arg;
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, wake_signal());
    pthread_sigmask(SIG_UNBLOCK, &set, NULL);
    int before = DPDK_CALL_UNDER_WAY, outcome = rte_eth_dev_start(call->port) == 0 ? DPDK_CALL_TAKEN : DPDK_CALL_REFUSED;
    if (!atomic_compare_exchange_strong(&call->state, &before, outcome))
        free(call);
    return NULL;
}

struct dpdk_call *dpdk_call_begin(uint16_t port)
{
    struct dpdk_call *call = calloc(1, sizeof *call);
    if (call == NULL)
        return NULL;
    call->port = port;
    atomic_init(&call->state, DPDK_CALL_UNDER_WAY);
    if (pthread_create(&call->thread, NULL, make_call, call) != 0) {
        free(call);
        return NULL;
    }
    return call;
}

enum dpdk_call_state dpdk_call_ask(const struct dpdk_call *call)
{
    return (enum dpdk_call_state)atomic_load(&call->state);
}

/* A signal that comes before the driver waits is lost, so it is sent again and again. */
static void wait_for(const struct dpdk_call *call, uint32_t patience_ms, bool interrupts)
{
    for (uint32_t i = 0; i < patience_ms * LOOKS_PER_MS && dpdk_call_ask(call) == DPDK_CALL_UNDER_WAY; i++) {
        if (interrupts)
            pthread_kill(call->thread, wake_signal());
        nanosleep(&(struct timespec){.tv_nsec = 1000000 / LOOKS_PER_MS}, NULL);
    }
}

enum dpdk_call_state dpdk_call_end(struct dpdk_call *call, uint32_t patience_ms)
{
    wait_for(call, patience_ms, false);
    if (dpdk_call_ask(call) == DPDK_CALL_UNDER_WAY && take_signal())
        wait_for(call, INTERRUPT_MS, true);
    pthread_t thread = call->thread;
    int before = DPDK_CALL_UNDER_WAY;
    if (atomic_compare_exchange_strong(&call->state, &before, LEFT)) {
        pthread_detach(thread);
        return DPDK_CALL_UNDER_WAY;
    }
    pthread_join(thread, NULL);
    free(call);
    return (enum dpdk_call_state)before;
}

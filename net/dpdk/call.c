#include "net/dpdk/call.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

#include <rte_ethdev.h>

enum { LEFT = -1, LOOKS_PER_MS = 20 };

struct dpdk_call {
    uint16_t port;
    atomic_int state; /* enum dpdk_call_state, or LEFT: then the thread frees */
};

static void *make_call(void *arg)
{
    struct dpdk_call *call = arg;
    int before = DPDK_CALL_UNDER_WAY, outcome = rte_eth_dev_start(call->port) == 0 ? DPDK_CALL_TAKEN : DPDK_CALL_REFUSED;
    if (!atomic_compare_exchange_strong(&call->state, &before, outcome))
        free(call);
    return NULL;
}

struct dpdk_call *dpdk_call_begin(uint16_t port)
{
    struct dpdk_call *call = calloc(1, sizeof *call);
    pthread_t thread;
    if (call == NULL)
        return NULL;
    call->port = port;
    atomic_init(&call->state, DPDK_CALL_UNDER_WAY);
    if (pthread_create(&thread, NULL, make_call, call) != 0) {
        free(call);
        return NULL;
    }
    pthread_detach(thread);
    return call;
}

enum dpdk_call_state dpdk_call_ask(const struct dpdk_call *call)
{
    return (enum dpdk_call_state)atomic_load(&call->state);
}

enum dpdk_call_state dpdk_call_end(struct dpdk_call *call, uint32_t patience_ms)
{
    for (uint32_t i = 0; i < patience_ms * LOOKS_PER_MS && dpdk_call_ask(call) == DPDK_CALL_UNDER_WAY; i++)
        nanosleep(&(struct timespec){.tv_nsec = 1000000 / LOOKS_PER_MS}, NULL);
    int before = DPDK_CALL_UNDER_WAY;
    if (atomic_compare_exchange_strong(&call->state, &before, LEFT))
        return DPDK_CALL_UNDER_WAY;
    free(call);
    return (enum dpdk_call_state)before;
}

#include "perf/bench_fabric_dpdk.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { TEXT_BYTES = 8192, ADDRESS_BYTES = 32, MOST_SENDERS = 60 };

const char *fabric_dpdk_eal(const struct fabric_job *job, bool serves)
{
    static char text[TEXT_BYTES];
    const char *given = serves ? job->config->eal : job->config->eal_calls;
    uint32_t first = serves ? 0 : job->caller, end = serves && job->senders > 1 ? job->senders : first + 1;
    if (given != NULL)
        return given;
    size_t len = (size_t)snprintf(text, sizeof text, "--no-huge --no-pci");
    for (uint32_t i = first; i < end && i < MOST_SENDERS; i++)
        len += (size_t)snprintf(text + len, sizeof text - len, " --vdev=net_memif%u,role=%s,id=%u,bsize=10240,socket=hearsay-perf-%d", i,
                                serves ? "server" : "client", i, (int)getppid());
    return text;
}

const char *fabric_dpdk_bind(const char *bind, const struct fabric_job *job, bool serves)
{
    static char address[ADDRESS_BYTES];
    if (strncmp(bind, "127.", 4) != 0)
        return bind;
    snprintf(address, sizeof address, "10.78.0.%u:7070", serves ? 1 : 2 + job->caller);
    return address;
}

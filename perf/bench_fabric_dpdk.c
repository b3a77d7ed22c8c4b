#include "perf/bench_fabric_dpdk.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

const char *fabric_dpdk_eal(const struct perf_config *config, bool serves)
{
    static char text[256];
    const char *given = serves ? config->eal : config->eal_calls;
    if (given != NULL)
        return given;
    snprintf(text, sizeof text, "--no-huge --no-pci --vdev=net_memif0,role=%s,bsize=10240,socket=hearsay-perf-%d", serves ? "server" : "client",
             (int)getppid());
    return text;
}

const char *fabric_dpdk_bind(const char *bind, bool serves)
{
    if (strncmp(bind, "127.", 4) != 0)
        return bind;
    return serves ? "10.78.0.1:7070" : "10.78.0.2:7070";
}

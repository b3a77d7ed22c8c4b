/* Stands in for the DPDK fabric where the program was built without DPDK. */
#include "net/dpdk/dpdk.h"

int dpdk_carrier_create(const struct dpdk_carrier_config *config, struct carrier **out, struct error *err)
{
    (void)config, (void)out;
    return error_set(err, HS_ERR_UNSUPPORTED,
                     "this program was built without DPDK: install libdpdk-dev (dpdk-devel) and build again, or use --fabric sockets");
}

void dpdk_carrier_stats(const struct carrier *carrier, struct dpdk_carrier_stats *out)
{
    (void)carrier;
    *out = (struct dpdk_carrier_stats){0};
}

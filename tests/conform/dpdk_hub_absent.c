/* Stands in for the hub where the program was built without DPDK. */
#include "tests/conform/dpdk_hub.h"

const char *dpdk_hub_eal(void)
{
    return "";
}

int dpdk_hub_start(double trouble, uint64_t seed, struct error *err)
{
    (void)trouble, (void)seed;
    return error_set(err, HS_ERR_UNSUPPORTED, "built without DPDK");
}

void dpdk_hub_step(void)
{
}

uint64_t dpdk_hub_frames(void)
{
    return 0;
}

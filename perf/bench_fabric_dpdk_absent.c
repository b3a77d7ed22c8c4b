/* Stands in for the bare DPDK reference where the program was built without DPDK. */
#include "perf/bench_fabric_dpdk.h"

int fabric_dpdk_serve_bare(const struct fabric_job *job, int (*ready)(int control, const char *address), struct error *err)
{
    (void)job, (void)ready;
    return error_set(err, HS_ERR_UNSUPPORTED, "built without DPDK");
}

int fabric_dpdk_call_bare(const struct fabric_job *job, const char *address, struct fabric_result *out, struct error *err)
{
    (void)job, (void)address, (void)out;
    return error_set(err, HS_ERR_UNSUPPORTED, "built without DPDK");
}

int fabric_dpdk_serve_untouched(const struct fabric_job *job, int (*ready)(int control, const char *address), struct error *err)
{
    return fabric_dpdk_serve_bare(job, ready, err);
}

int fabric_dpdk_call_untouched(const struct fabric_job *job, const char *address, struct fabric_result *out, struct error *err)
{
    return fabric_dpdk_call_bare(job, address, out, err);
}

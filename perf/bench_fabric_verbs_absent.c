/* Stands in for the bare verbs reference and for perftest where the program was built without verbs. */
#include "perf/bench_fabric_verbs.h"

static int absent(struct error *err)
{
    return error_set(err, HS_ERR_UNSUPPORTED, "built without verbs");
}

int fabric_verbs_serve_bare(const struct fabric_job *job, int (*ready)(int control, const char *address), struct error *err)
{
    (void)job, (void)ready;
    return absent(err);
}

int fabric_verbs_call_bare(const struct fabric_job *job, const char *address, struct fabric_result *out, struct error *err)
{
    (void)job, (void)address, (void)out;
    return absent(err);
}

int fabric_perftest_serve(const struct fabric_job *job, int (*ready)(int control, const char *address), struct error *err)
{
    (void)job, (void)ready;
    return absent(err);
}

int fabric_perftest_call(const struct fabric_job *job, const char *address, struct fabric_result *out, struct error *err)
{
    (void)job, (void)address, (void)out;
    return absent(err);
}

/* What a caller measures, over hearsay's fabrics and over the bare references alike: what happens in a warm-up does not count. */
#include "perf/bench_fabric.h"

#include <string.h>

#include "perf/progress.h"

enum { WARM_UP_MS = 20, NEVER_SENT = 0xa5 };

uint32_t fabric_acknowledged_each(const struct perf_config *config)
{
    return config->window >= 4 ? config->window / 4 : 1;
}

int fabric_time_each(int (*once)(void *arg, struct error *err), void *arg, uint64_t duration_ns, struct samples *times_us,
                     struct error *err)
{
    uint64_t now_ns = perf_now_ns(), from_ns = now_ns + WARM_UP_MS * UINT64_C(1000000), to_ns = from_ns + duration_ns;
    while (now_ns < to_ns) {
        uint64_t start_ns = perf_now_ns();
        int rc = once(arg, err);
        if (rc)
            return rc;
        now_ns = perf_now_ns();
        if (start_ns >= from_ns)
            samples_add(times_us, (double)(now_ns - start_ns) / 1e3);
    }
    return 0;
}

void stream_meter_begin(struct stream_meter *meter, uint64_t duration_ns)
{
    *meter = (struct stream_meter){.now_ns = perf_now_ns()};
    meter->from_ns = meter->now_ns + WARM_UP_MS * UINT64_C(1000000);
    meter->to_ns = meter->from_ns + duration_ns;
}

bool stream_meter_goes_on(struct stream_meter *meter, uint32_t acknowledged)
{
    meter->now_ns = perf_now_ns();
    meter->acknowledged = acknowledged;
    if (!meter->started_ns && meter->now_ns >= meter->from_ns) {
        meter->started_ns = meter->now_ns;
        meter->acknowledged_before = acknowledged;
    }
    return meter->now_ns < meter->to_ns;
}

double stream_meter_bytes_per_s(const struct stream_meter *meter, uint32_t bytes)
{
    return (double)(meter->acknowledged - meter->acknowledged_before) * bytes * 1e9 / (double)(meter->now_ns - meter->started_ns);
}

bool fabric_read_message(const uint8_t *data, size_t len)
{
    return memchr(data, NEVER_SENT, len) == NULL;
}

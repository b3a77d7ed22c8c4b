#include "net/verbs/path_retry.h"

uint64_t path_retry_failed(struct path_retry *retry, uint64_t now_ns, uint64_t random)
{
    uint64_t pause_ns = PATH_RETRY_MIN_NS;
    for (uint32_t i = 0; i < retry->failures && pause_ns < PATH_RETRY_MAX_NS; i++)
        pause_ns *= 2;
    retry->failures++;
    retry->open = false;
    retry->due_ns = now_ns + pause_ns + random % (pause_ns / 2 + 1);
    return retry->due_ns;
}

/* The kernel's clock and random numbers as a struct env: the one place of this library that asks for them. */
#include <sys/random.h>
#include <time.h>

#include "core/base/panic.h"
#include "core/serve/node_loop.h"

static uint64_t kernel_now_ns(void *self)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static uint64_t kernel_random_u64(void *self)
{
    uint64_t value;
    ssize_t n;
    do
        n = getrandom(&value, sizeof value, 0);
    while (n < 0); /* interrupted before the pool was ready */
    hs_assert(n == sizeof value);
    return value;
}

struct env node_env_kernel(void)
{
    return (struct env){.now_ns = kernel_now_ns, .random_u64 = kernel_random_u64};
}

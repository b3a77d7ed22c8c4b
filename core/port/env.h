/*
 * Time and randomness as they reach the node: production passes the kernel's, the simulator its own.
 *
 * Nothing in core/ calls clock_gettime, time or getrandom by itself; whoever needs them takes a `struct env`.
 * Threading: the node loop's env is used by the node loop alone.
 */
#ifndef HEARSAY_PORT_ENV_H
#define HEARSAY_PORT_ENV_H

#include <stdint.h>

struct env {
    /* Monotonic nanoseconds from an arbitrary origin; never goes back. Not comparable between nodes. */
    uint64_t (*now_ns)(void *self);
    /* 64 fresh random bits: the kernel's in production, from the world's seed in the simulator. */
    uint64_t (*random_u64)(void *self);
    void *self;
};

static inline uint64_t env_now_ns(const struct env *env)
{
    return env->now_ns(env->self);
}

static inline uint64_t env_random_u64(const struct env *env)
{
    return env->random_u64(env->self);
}

#endif

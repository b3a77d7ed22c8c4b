/*
 * Time that a target sets and numbers that are the same for the same input, for what a target runs.
 *
 *     struct fuzz_env source = {&world->now_ns};   env = fuzz_env_of(&source)
 *
 * Threading: one thread. Ownership: caller-owned; it and the time must outlive the env.
 */
#ifndef HEARSAY_TESTS_FUZZ_FUZZ_ENV_H
#define HEARSAY_TESTS_FUZZ_FUZZ_ENV_H

#include "core/port/env.h"

struct fuzz_env {
    const uint64_t *now_ns;
    uint64_t random; /* the seed, and where its sequence stands */
};

struct env fuzz_env_of(struct fuzz_env *source);

#endif

/*
 * Seeded randomness. rng is a small sequential generator (xoshiro256**, Blackman & Vigna 2018) for jitter, probe order
 * and simulated worlds; philox is counter-based (Philox4x32-10, Salmon et al., SC'11) for sampling noise, where the value
 * must be a pure function of its coordinates. Neither is for keys or nonces.
 *
 * Threading: philox is pure; a struct rng belongs to one thread.
 */
#ifndef HEARSAY_BASE_RNG_H
#define HEARSAY_BASE_RNG_H

#include <stdint.h>

struct rng {
    uint64_t state[4];
};

void rng_seed(struct rng *rng, uint64_t seed); /* any seed, 0 included (expanded by splitmix64) */
uint64_t rng_u64(struct rng *rng);
uint64_t rng_below(struct rng *rng, uint64_t bound); /* uniform in [0, bound), without modulo bias; bound > 0 */
double rng_unit(struct rng *rng);                    /* uniform in [0, 1) */

void philox4x32(const uint32_t key[2], const uint32_t counter[4], uint32_t out[4]);

#endif

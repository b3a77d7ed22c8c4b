#include "tests/fuzz/fuzz_env.h"

static uint64_t now_ns(void *self)
{
    return *((struct fuzz_env *)self)->now_ns;
}

static uint64_t random_u64(void *self)
{
    struct fuzz_env *source = self;
    source->random = source->random * 6364136223846793005u + 1442695040888963407u; /* Knuth's MMIX */
    return source->random ^ source->random >> 29;
}

struct env fuzz_env_of(struct fuzz_env *source)
{
    return (struct env){.now_ns = now_ns, .random_u64 = random_u64, .self = source};
}

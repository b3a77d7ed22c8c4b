/*
 * When a question for a path record is asked again: a subnet manager that is busy, starting or moving to another host answers late or not at
 * all, and does so while everybody asks. Pure.
 *
 *     asked --a record--> settled              --nothing, or none that fits--> asked again after 1 s, doubling to 64 s, and up to a half more
 *
 * Threading: pure. Errors: none.
 */
#ifndef HEARSAY_NET_VERBS_PATH_RETRY_H
#define HEARSAY_NET_VERBS_PATH_RETRY_H

#include <stdbool.h>
#include <stdint.h>

#define PATH_RETRY_MIN_NS UINT64_C(1000000000)
#define PATH_RETRY_MAX_NS UINT64_C(64000000000)

struct path_retry {
    uint64_t due_ns; /* 0: at once */
    uint32_t failures;
    bool open, settled; /* open: asked, not answered */
};

static inline bool path_retry_due(const struct path_retry *retry, uint64_t now_ns)
{
    return !retry->open && !retry->settled && now_ns >= retry->due_ns;
}

static inline void path_retry_asked(struct path_retry *retry)
{
    retry->open = true;
}

/* The question has come to nothing. random: spreads those who ask. Returns when it is due again. */
uint64_t path_retry_failed(struct path_retry *retry, uint64_t now_ns, uint64_t random);

static inline void path_retry_settled(struct path_retry *retry)
{
    *retry = (struct path_retry){.settled = true};
}

#endif

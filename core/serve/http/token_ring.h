/*
 * A bounded queue of chosen tokens with their log probabilities, between the node loop and an HTTP thread. All memory is
 * taken at init, so that the node loop never allocates here. Not locked: the owner's lock guards it.
 */
#ifndef HEARSAY_SERVE_HTTP_TOKEN_RING_H
#define HEARSAY_SERVE_HTTP_TOKEN_RING_H

#include <stdbool.h>
#include <stdint.h>

#include "core/port/backend.h"

struct token_ring {
    struct token_logprob *chosen; /* [cap] */
    struct token_logprob *top;    /* [cap][top_max] */
    uint8_t *n_top;               /* [cap] */
    uint32_t cap, head, len, top_max;
};

/* 0 or HS_ERR_NO_MEMORY. */
int token_ring_init(struct token_ring *ring, uint32_t cap, uint32_t top_max);
void token_ring_fini(struct token_ring *ring);
/* False: full. Alternatives beyond top_max are left out. */
bool token_ring_push(struct token_ring *ring, const struct row_result *result);
/* False: empty. top receives up to top_max alternatives. */
bool token_ring_pop(struct token_ring *ring, struct token_logprob *chosen, struct token_logprob *top, uint32_t *n_top);

#endif

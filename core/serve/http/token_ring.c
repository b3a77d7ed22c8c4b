#include "core/serve/http/token_ring.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"

int token_ring_init(struct token_ring *ring, uint32_t cap, uint32_t top_max)
{
    *ring = (struct token_ring){.cap = cap ? cap : 1, .top_max = top_max};
    ring->chosen = malloc(ring->cap * sizeof *ring->chosen);
    ring->n_top = malloc(ring->cap);
    if (top_max)
        ring->top = malloc((size_t)ring->cap * top_max * sizeof *ring->top);
    if (ring->chosen && ring->n_top && (ring->top || !top_max))
        return 0;
    token_ring_fini(ring);
    return HS_ERR_NO_MEMORY;
}

void token_ring_fini(struct token_ring *ring)
{
    free(ring->chosen);
    free(ring->top);
    free(ring->n_top);
    *ring = (struct token_ring){0};
}

bool token_ring_push(struct token_ring *ring, const struct row_result *result)
{
    if (ring->len == ring->cap)
        return false;
    uint32_t at = (ring->head + ring->len) % ring->cap;
    uint32_t n = result->n_top < ring->top_max ? result->n_top : ring->top_max;
    ring->chosen[at] = (struct token_logprob){result->token, result->logprob};
    ring->n_top[at] = (uint8_t)n;
    if (n)
        memcpy(ring->top + (size_t)at * ring->top_max, result->top, n * sizeof *ring->top);
    ring->len++;
    return true;
}

bool token_ring_pop(struct token_ring *ring, struct token_logprob *chosen, struct token_logprob *top, uint32_t *n_top)
{
    if (!ring->len)
        return false;
    *chosen = ring->chosen[ring->head];
    *n_top = ring->n_top[ring->head];
    if (*n_top)
        memcpy(top, ring->top + (size_t)ring->head * ring->top_max, *n_top * sizeof *top);
    ring->head = (ring->head + 1) % ring->cap;
    ring->len--;
    return true;
}

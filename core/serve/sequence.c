#include "core/serve/sequence.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/panic.h"

/* One block of memory per sequence: the struct, then its arrays, widest alignment first. */
struct sequence *sequence_create(const struct sequence_spec *spec, uint32_t page_tokens)
{
    size_t n_blocks = spec->limit / page_tokens + 1, n_pages = spec->limit / page_tokens + 1;
    size_t bytes = sizeof(struct sequence) + n_blocks * sizeof(uint64_t) + spec->sampling->n_bias * sizeof(struct logit_bias) +
                   ((size_t)spec->limit + n_pages + spec->sampling->n_stop_ids) * sizeof(uint32_t);
    struct sequence *sequence = malloc(bytes);
    if (!sequence)
        return NULL;
    *sequence = (struct sequence){.n_tokens = spec->n_tokens,
                                  .n_prompt = spec->n_prompt,
                                  .limit = spec->limit,
                                  .n_scored = spec->n_scored,
                                  .ignore_eos = spec->ignore_eos,
                                  .score_prompt = spec->score_prompt,
                                  .priority = spec->priority,
                                  .sampling = *spec->sampling};
    sequence->blocks = (uint64_t *)(sequence + 1);
    struct logit_bias *bias = (struct logit_bias *)(sequence->blocks + n_blocks);
    sequence->tokens = (uint32_t *)(bias + spec->sampling->n_bias);
    sequence->pages = sequence->tokens + spec->limit;
    uint32_t *stop_ids = sequence->pages + n_pages;
    memcpy(sequence->tokens, spec->tokens, spec->n_tokens * sizeof(uint32_t));
    if (spec->sampling->n_bias)
        memcpy(bias, spec->sampling->bias, spec->sampling->n_bias * sizeof *bias);
    if (spec->sampling->n_stop_ids)
        memcpy(stop_ids, spec->sampling->stop_ids, spec->sampling->n_stop_ids * sizeof(uint32_t));
    sequence->sampling.bias = bias;
    sequence->sampling.stop_ids = stop_ids;
    memcpy(sequence->namespace_id, spec->namespace_id, NAMESPACE_BYTES);
    size_t length = strnlen(spec->tenant, REQUEST_TENANT_BYTES - 1);
    memcpy(sequence->tenant_name, spec->tenant, length);
    sequence->tenant_name[length] = 0;
    return sequence;
}

void sequence_destroy(struct sequence *sequence)
{
    if (!sequence)
        return;
    hs_assert(sequence->n_pages == 0 && !sequence->in_step);
    free(sequence);
}

void sequence_name_blocks(struct sequence *sequence, const struct block_hash_key *key, uint32_t page_tokens)
{
    uint32_t whole = sequence->n_tokens / page_tokens;
    if (sequence->n_blocks >= whole)
        return;
    uint64_t name = sequence->n_blocks ? sequence->blocks[sequence->n_blocks - 1] : block_hash_root(key, sequence->namespace_id);
    while (sequence->n_blocks < whole) {
        name = block_hash_next(key, name, sequence->tokens + (size_t)sequence->n_blocks * page_tokens, page_tokens);
        sequence->blocks[sequence->n_blocks++] = name;
    }
}

uint32_t sequence_unscored(const struct sequence *sequence)
{
    return sequence->score_prompt ? sequence->n_prompt - 1 - sequence->n_scored : 0;
}

uint32_t sequence_rows_wanted(const struct sequence *sequence)
{
    uint32_t end = sequence_unscored(sequence) ? sequence->n_prompt - 1 : sequence->n_tokens;
    return end - sequence->computed;
}

uint32_t sequence_cacheable_tokens(const struct sequence *sequence)
{
    return sequence_unscored(sequence) ? sequence->n_scored : sequence->n_tokens - 1;
}

bool sequence_is_complete(const struct sequence *sequence)
{
    return sequence->n_tokens >= sequence->limit && !sequence_unscored(sequence);
}

bool sequence_is_stop(const struct sequence *sequence, uint32_t token)
{
    if (sequence->ignore_eos)
        return false;
    for (uint32_t i = 0; i < sequence->sampling.n_stop_ids; i++)
        if (sequence->sampling.stop_ids[i] == token)
            return true;
    return false;
}

void sequence_release_pages(struct sequence *sequence, struct page_pool *pool)
{
    for (uint32_t i = sequence->n_pages; i-- > 0;)
        page_pool_unref(pool, sequence->pages[i]);
    sequence->n_pages = 0;
    sequence->computed = 0;
    sequence->inserted_pages = 0;
    sequence->grant = 0;
}

/* Takes the tree's pages instead of equal ones of our own. */
static void adopt_pages(struct sequence *sequence, struct radix_tree *tree, struct page_pool *pool, uint32_t n_tokens,
                        uint64_t now_ns, uint32_t *scratch)
{
    uint32_t n = radix_match(tree, sequence->namespace_id, sequence->tokens, n_tokens, now_ns, scratch, sequence->n_pages);
    for (uint32_t i = 0; i < n; i++) {
        page_pool_unref(pool, sequence->pages[i]); /* ours, or our second reference of the same */
        sequence->pages[i] = scratch[i];
    }
}

void sequence_insert_pages(struct sequence *sequence, struct radix_tree *tree, struct page_pool *pool, uint32_t page_tokens,
                           uint64_t now_ns, uint32_t *scratch)
{
    uint32_t whole = sequence->computed / page_tokens, before = sequence->inserted_pages;
    if (whole <= before)
        return;
    int taken = radix_insert(tree, sequence->namespace_id, sequence->tokens, sequence->pages, whole, now_ns);
    if (taken < 0)
        return; /* out of memory only costs the cache an entry; the next whole page tries again */
    sequence->inserted_pages = whole;
    if ((uint32_t)taken < whole - before)
        adopt_pages(sequence, tree, pool, whole * page_tokens, now_ns, scratch);
}

void sequence_span(const struct sequence *sequence, struct step_span *span)
{
    uint32_t end = sequence->computed + sequence->grant;
    *span = (struct step_span){.history = sequence->tokens,
                               .position = sequence->computed,
                               .n_tokens = sequence->grant,
                               .n_prompt = sequence->n_prompt,
                               .pages = sequence->pages,
                               .n_pages = sequence->n_pages,
                               .sampling = &sequence->sampling};
    if (sequence_unscored(sequence)) {
        uint32_t first = sequence->computed > sequence->n_scored ? sequence->computed : sequence->n_scored;
        span->n_outputs = end > first ? end - first : 0;
        span->targets = sequence->tokens + end - span->n_outputs + 1;
    } else {
        span->n_outputs = end == sequence->n_tokens;
    }
}

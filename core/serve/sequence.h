/*
 * A sequence: the tokens of one request (prompt and answer so far) and, while it is computed here, the KV pages that hold them.
 *
 *     tokens   p0 p1 p2 ... p(n_prompt-1) | a0 a1 a2      n_tokens, at most limit
 *     KV       -------- computed ------->                  always at least one token is left to compute while it runs
 *     pages    [ 7 ][ 2 ][ 9 ][ 4 ]                        whole pages in front are shared with the radix tree
 *
 * Ownership: created by whoever asked for the answer (node_entry.c, forward.c) and destroyed by it while SEQUENCE_IDLE; between
 * scheduler_submit and the final call of its sink it is lent to the scheduler. Everything it needs of the request is copied, so the
 * request may be freed while a step that reads these copies is still under way.
 * Threading: node loop only. Errors: NULL when out of memory.
 */
#ifndef HEARSAY_SERVE_SEQUENCE_H
#define HEARSAY_SERVE_SEQUENCE_H

#include <stdbool.h>
#include <stdint.h>

#include "core/cache/block_hash.h"
#include "core/cache/page_pool.h"
#include "core/cache/radix_tree.h"
#include "core/port/backend.h"
#include "core/serve/request.h"

struct sequence;

/* Where results go. The functions must not call the scheduler; a false ends the sequence with failed(HS_ERR_LIMIT). */
struct sequence_sink {
    void (*started)(struct sequence *sequence, uint64_t now_ns); /* first admission to the batch; cached_tokens is set */
    bool (*scored)(struct sequence *sequence, const struct row_result *results, uint32_t n, uint64_t now_ns);
    bool (*tokens)(struct sequence *sequence, const struct row_result *results, uint32_t n, uint64_t now_ns);
    /* The last call is one of these two; the sequence is idle again and its pages are released. */
    void (*finished)(struct sequence *sequence, enum finish_reason reason, uint64_t now_ns);
    void (*failed)(struct sequence *sequence, int status, const char *text, uint64_t now_ns);
};

enum sequence_state { SEQUENCE_IDLE, SEQUENCE_WAITING, SEQUENCE_RUNNING };

/* What a sequence is made of; everything is copied. */
struct sequence_spec {
    const uint32_t *tokens; /* [n_tokens], the first n_prompt are the prompt */
    uint32_t n_tokens, n_prompt;
    uint32_t limit;    /* prompt and answer together */
    uint32_t n_scored; /* results for prompt tokens that were delivered before (a takeover) */
    bool ignore_eos, score_prompt;
    int32_t priority;
    const struct sampling_params *sampling;
    const uint8_t *namespace_id;
    const char *tenant;
};

struct sequence {
    uint32_t *tokens; /* [limit] */
    uint32_t n_tokens, n_prompt, limit, n_scored;
    bool ignore_eos, score_prompt;
    int32_t priority;
    struct sampling_params sampling;
    uint8_t namespace_id[NAMESPACE_BYTES];
    char tenant_name[REQUEST_TENANT_BYTES];
    uint64_t *blocks; /* [n_blocks] names of the whole blocks of tokens */
    uint32_t n_blocks;

    const struct sequence_sink *sink;
    void *owner;

    enum sequence_state state;
    uint32_t *pages; /* [n_pages] */
    uint32_t n_pages;
    uint32_t computed;       /* tokens whose KV entries are in pages */
    uint32_t inserted_pages; /* leading pages that the tree was told of */
    uint32_t cached_tokens;  /* found in cache at the first admission */
    uint32_t expected_rows;  /* while it waits: those of the prompt that will not be in cache */
    bool follows;            /* while it waits: only for a prefix that a running sequence is computing */
    uint32_t grant;          /* rows in the step being built or under way */
    bool in_step;            /* the step under way reads this */
    bool orphan;             /* dropped meanwhile: destroyed when the step is done */
    bool started;
    uint16_t tenant;
    uint16_t failures;                /* steps in a row that failed */
    uint64_t arrival;                 /* order of submission; smaller is older */
    uint64_t enqueued_ns;             /* first submission */
    struct sequence *next, *previous; /* in its tenant's waiting list */
};

struct sequence *sequence_create(const struct sequence_spec *spec, uint32_t page_tokens);
/* It holds no pages. */
void sequence_destroy(struct sequence *sequence);

/* Brings blocks up to the whole blocks of tokens. */
void sequence_name_blocks(struct sequence *sequence, const struct block_hash_key *key, uint32_t page_tokens);
/* Prompt results still wanted. */
uint32_t sequence_unscored(const struct sequence *sequence);
/* Rows that a step may compute next: the rest of the tokens, or of those to be scored, which end one before the prompt's last. */
uint32_t sequence_rows_wanted(const struct sequence *sequence);
/* Tokens that may be taken from cache: all but one, and none that must be scored. */
uint32_t sequence_cacheable_tokens(const struct sequence *sequence);
/* Nothing is left to compute: all tokens are there and no scores are wanted. */
bool sequence_is_complete(const struct sequence *sequence);
bool sequence_is_stop(const struct sequence *sequence, uint32_t token);

/* Gives all pages back and forgets what was computed. */
void sequence_release_pages(struct sequence *sequence, struct page_pool *pool);
/*
 * Tells the tree of whole computed pages that it does not know yet. Where it has the same tokens in pages of its own (computed
 * beside us, or copied from) the sequence goes over to those and frees its doubles, so that a sequence alone never holds more than
 * its own length. scratch: room for all pages of the sequence.
 */
void sequence_insert_pages(struct sequence *sequence, struct radix_tree *tree, struct page_pool *pool, uint32_t page_tokens,
                           uint64_t now_ns, uint32_t *scratch);
/* The step that computes grant rows: fills span (results excepted). */
void sequence_span(const struct sequence *sequence, struct step_span *span);

#endif

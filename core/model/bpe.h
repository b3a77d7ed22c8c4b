/*
 * Byte pair encoding: which two neighbouring tokens join into which, and the joining itself.
 *
 *     ids   [h][e][l][l][o]        pair (l,l) ranks lowest: join
 *           [h][e][ll][o]          then (he), ... until no neighbouring pair is in the table
 *
 * The lowest rank joins first, the leftmost among equals. Symbols are a linked list inside an array and candidates a
 * binary heap, so a word of n symbols costs n log n however long it is.
 *
 * Ownership: bpe_table_fini and bpe_scratch_fini free. Threading: a table is immutable once filled; a scratch belongs to
 * one call. Errors: HS_ERR_NO_MEMORY only.
 */
#ifndef HEARSAY_MODEL_BPE_H
#define HEARSAY_MODEL_BPE_H

#include <stddef.h>
#include <stdint.h>

#include "core/model/tokenizer.h"

struct bpe_pair {
    uint64_t key; /* left << 32 | right; UINT64_MAX: empty */
    uint32_t rank;
    uint32_t joined;
};

/* Open addressing with linear probing; at most half full. Zero-initialise. */
struct bpe_table {
    struct bpe_pair *slots;
    size_t cap, n;
};

/* Room for n pairs without growing: call once, before the first bpe_table_put. */
int bpe_table_reserve(struct bpe_table *table, size_t n);
/* Adds the pair, or replaces it. */
int bpe_table_put(struct bpe_table *table, uint32_t left, uint32_t right, uint32_t rank, uint32_t joined);
/* NULL if the two do not join. */
const struct bpe_pair *bpe_table_get(const struct bpe_table *table, uint32_t left, uint32_t right);
void bpe_table_fini(struct bpe_table *table);

struct bpe_symbol {
    uint32_t id;         /* UINT32_MAX once joined into its left neighbour */
    uint32_t prev, next; /* index, or UINT32_MAX */
};

struct bpe_candidate {
    uint32_t rank;
    uint32_t at; /* the left symbol */
    uint32_t joined;
};

/* Working memory, reused from word to word. Zero-initialise. */
struct bpe_scratch {
    struct bpe_symbol *symbols;
    size_t n_symbols, cap_symbols;
    struct bpe_candidate *heap;
    size_t n_heap, cap_heap;
    uint64_t steps; /* candidates looked at so far: the measure of work in tests */
};

void bpe_scratch_fini(struct bpe_scratch *scratch);
/* Adds a symbol to the word being gathered. */
int bpe_add_symbol(struct bpe_scratch *scratch, uint32_t id);
/* Joins what can be joined, appends the ids to out and empties the word. */
int bpe_join(struct bpe_scratch *scratch, const struct bpe_table *table, struct token_list *out);

#endif

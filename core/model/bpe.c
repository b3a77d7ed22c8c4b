#include "core/model/bpe.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/panic.h"

#define NONE UINT32_MAX

static uint64_t pair_key(uint32_t left, uint32_t right)
{
    return (uint64_t)left << 32 | right;
}

/* The finaliser of MurmurHash3: every bit of the key reaches the low bits. */
static size_t hash_key(uint64_t key)
{
    key ^= key >> 33;
    key *= 0xff51afd7ed558ccdULL;
    key ^= key >> 33;
    key *= 0xc4ceb9fe1a85ec53ULL;
    return (size_t)(key ^ key >> 33);
}

/* The slot of key, or the empty one where it belongs. */
static struct bpe_pair *find_slot(const struct bpe_table *table, uint64_t key)
{
    size_t at = hash_key(key) & (table->cap - 1);
    while (table->slots[at].key != key && table->slots[at].key != UINT64_MAX)
        at = (at + 1) & (table->cap - 1);
    return &table->slots[at];
}

static int resize(struct bpe_table *table, size_t cap)
{
    struct bpe_table larger = {.cap = cap, .n = table->n};
    if (cap > SIZE_MAX / sizeof *larger.slots)
        return HS_ERR_NO_MEMORY;
    larger.slots = malloc(cap * sizeof *larger.slots);
    if (!larger.slots)
        return HS_ERR_NO_MEMORY;
    memset(larger.slots, 0xFF, cap * sizeof *larger.slots);
    for (size_t i = 0; i < table->cap; i++) {
        if (table->slots[i].key != UINT64_MAX)
            *find_slot(&larger, table->slots[i].key) = table->slots[i];
    }
    free(table->slots);
    *table = larger;
    return 0;
}

int bpe_table_reserve(struct bpe_table *table, size_t n)
{
    size_t cap = 16;
    while (cap / 2 < n)
        cap *= 2;
    return cap > table->cap ? resize(table, cap) : 0;
}

int bpe_table_put(struct bpe_table *table, uint32_t left, uint32_t right, uint32_t rank, uint32_t joined)
{
    if (table->n + 1 > table->cap / 2) {
        int rc = resize(table, table->cap ? table->cap * 2 : 16);
        if (rc < 0)
            return rc;
    }
    struct bpe_pair *slot = find_slot(table, pair_key(left, right));
    table->n += slot->key == UINT64_MAX;
    *slot = (struct bpe_pair){pair_key(left, right), rank, joined};
    return 0;
}

const struct bpe_pair *bpe_table_get(const struct bpe_table *table, uint32_t left, uint32_t right)
{
    if (table->n == 0)
        return NULL;
    const struct bpe_pair *slot = find_slot(table, pair_key(left, right));
    return slot->key == UINT64_MAX ? NULL : slot;
}

void bpe_table_fini(struct bpe_table *table)
{
    free(table->slots);
    *table = (struct bpe_table){0};
}

void bpe_scratch_fini(struct bpe_scratch *scratch)
{
    free(scratch->symbols);
    free(scratch->heap);
    *scratch = (struct bpe_scratch){0};
}

/* Makes room for one more member of size bytes. */
static int grow(void *array, size_t *cap, size_t n, size_t size)
{
    void *data;
    if (n < *cap)
        return 0;
    size_t larger = *cap ? *cap * 2 : 64;
    memcpy(&data, array, sizeof data);
    data = reallocarray(data, larger, size);
    if (!data)
        return HS_ERR_NO_MEMORY;
    memcpy(array, &data, sizeof data);
    *cap = larger;
    return 0;
}

int bpe_add_symbol(struct bpe_scratch *scratch, uint32_t id)
{
    uint32_t at = (uint32_t)scratch->n_symbols;
    int rc = grow(&scratch->symbols, &scratch->cap_symbols, at, sizeof *scratch->symbols);
    if (rc < 0)
        return rc;
    hs_assert(at < NONE);
    if (at)
        scratch->symbols[at - 1].next = at;
    scratch->symbols[at] = (struct bpe_symbol){.id = id, .prev = at ? at - 1 : NONE, .next = NONE};
    scratch->n_symbols++;
    return 0;
}

static bool comes_before(const struct bpe_candidate *a, const struct bpe_candidate *b)
{
    return a->rank != b->rank ? a->rank < b->rank : a->at < b->at;
}

static int push_candidate(struct bpe_scratch *scratch, const struct bpe_table *table, uint32_t at)
{
    uint32_t right = scratch->symbols[at].next;
    if (right == NONE)
        return 0;
    const struct bpe_pair *pair = bpe_table_get(table, scratch->symbols[at].id, scratch->symbols[right].id);
    if (!pair)
        return 0;
    int rc = grow(&scratch->heap, &scratch->cap_heap, scratch->n_heap, sizeof *scratch->heap);
    if (rc < 0)
        return rc;
    struct bpe_candidate candidate = {pair->rank, at, pair->joined};
    size_t hole = scratch->n_heap++;
    for (; hole > 0 && comes_before(&candidate, &scratch->heap[(hole - 1) / 2]); hole = (hole - 1) / 2)
        scratch->heap[hole] = scratch->heap[(hole - 1) / 2];
    scratch->heap[hole] = candidate;
    return 0;
}

static struct bpe_candidate pop_candidate(struct bpe_scratch *scratch)
{
    struct bpe_candidate *heap = scratch->heap;
    struct bpe_candidate best = heap[0], last = heap[--scratch->n_heap];
    size_t hole = 0, n = scratch->n_heap;
    for (size_t child; (child = 2 * hole + 1) < n; hole = child) {
        if (child + 1 < n && comes_before(&heap[child + 1], &heap[child]))
            child++;
        if (!comes_before(&heap[child], &last))
            break;
        heap[hole] = heap[child];
    }
    heap[hole] = last;
    scratch->steps++;
    return best;
}

/* A candidate is stale when a symbol of its pair was joined since: then the pair at its place makes another token, or none. */
static bool still_holds(const struct bpe_scratch *scratch, const struct bpe_table *table, const struct bpe_candidate *candidate)
{
    const struct bpe_symbol *left = &scratch->symbols[candidate->at];
    if (left->id == NONE || left->next == NONE)
        return false;
    const struct bpe_pair *pair = bpe_table_get(table, left->id, scratch->symbols[left->next].id);
    return pair && pair->joined == candidate->joined;
}

static int join_pair(struct bpe_scratch *scratch, const struct bpe_table *table, const struct bpe_candidate *candidate)
{
    struct bpe_symbol *left = &scratch->symbols[candidate->at];
    struct bpe_symbol *right = &scratch->symbols[left->next];
    left->id = candidate->joined;
    left->next = right->next;
    right->id = NONE;
    if (left->next != NONE)
        scratch->symbols[left->next].prev = candidate->at;
    int rc = left->prev != NONE ? push_candidate(scratch, table, left->prev) : 0;
    return rc < 0 ? rc : push_candidate(scratch, table, candidate->at);
}

int bpe_join(struct bpe_scratch *scratch, const struct bpe_table *table, struct token_list *out)
{
    int rc = 0;
    scratch->n_heap = 0;
    for (size_t i = 0; i < scratch->n_symbols && rc == 0; i++)
        rc = push_candidate(scratch, table, (uint32_t)i);
    while (scratch->n_heap && rc == 0) {
        struct bpe_candidate candidate = pop_candidate(scratch);
        if (still_holds(scratch, table, &candidate))
            rc = join_pair(scratch, table, &candidate);
    }
    /* The first symbol is never joined into another, so the list starts at 0. */
    for (uint32_t i = 0; scratch->n_symbols && i != NONE && rc == 0; i = scratch->symbols[i].next)
        rc = token_list_add(out, scratch->symbols[i].id);
    scratch->n_symbols = 0;
    return rc;
}

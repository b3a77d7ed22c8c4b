#include "core/cluster/advert.h"

#include <stdlib.h>

#include "core/base/error.h"
#include "core/base/panic.h"
#include "core/base/u64_map.h"
#include "core/cluster/wire.h"

enum { DEPTHS = 256, NIL = UINT32_MAX }; /* deeper blocks count as the last depth */

struct block {
    uint64_t name;
    uint32_t next, prev; /* within its list */
    uint8_t depth;
    bool advertised;
};

struct change {
    uint64_t name;
    bool removed;
};

struct list {
    uint32_t head, tail;
};

struct advert {
    struct block_set *set;
    struct u64_map index; /* name to place in blocks */
    struct block *blocks;
    uint32_t n_blocks, cap_slots, free_head; /* free ones are linked by next */
    uint32_t cap_blocks;
    struct list waiting[DEPTHS], advertised[DEPTHS];
    uint32_t n_waiting;
    uint64_t displaced;
    struct change *log; /* change s lies at s % ADVERT_LOG_CHANGES */
    uint64_t sequence;
};

static void lists_clear(struct advert *a)
{
    for (int depth = 0; depth < DEPTHS; depth++)
        a->waiting[depth] = a->advertised[depth] = (struct list){NIL, NIL};
    a->n_waiting = 0;
}

struct advert *advert_create(uint32_t cap_blocks)
{
    struct advert *a = calloc(1, sizeof *a);
    if (!a)
        return NULL;
    a->cap_blocks = cap_blocks;
    a->free_head = NIL;
    lists_clear(a);
    a->set = block_set_create(cap_blocks);
    a->log = calloc(ADVERT_LOG_CHANGES, sizeof *a->log);
    if (!a->set || !a->log) {
        advert_destroy(a);
        return NULL;
    }
    return a;
}

void advert_destroy(struct advert *a)
{
    if (!a)
        return;
    if (a->set)
        block_set_destroy(a->set);
    u64_map_fini(&a->index);
    free(a->blocks);
    free(a->log);
    free(a);
}

static struct list *list_of(struct advert *a, const struct block *block)
{
    return block->advertised ? &a->advertised[block->depth] : &a->waiting[block->depth];
}

static void link_block(struct advert *a, uint32_t i)
{
    struct block *block = &a->blocks[i];
    struct list *list = list_of(a, block);
    block->next = NIL;
    block->prev = list->tail;
    if (list->tail == NIL)
        list->head = i;
    else
        a->blocks[list->tail].next = i;
    list->tail = i;
    a->n_waiting += !block->advertised;
}

/* In front of all of its depth. */
static void link_first(struct advert *a, uint32_t i)
{
    struct block *block = &a->blocks[i];
    struct list *list = list_of(a, block);
    block->prev = NIL;
    block->next = list->head;
    if (list->head == NIL)
        list->tail = i;
    else
        a->blocks[list->head].prev = i;
    list->head = i;
    a->n_waiting += !block->advertised;
}

static void unlink_block(struct advert *a, uint32_t i)
{
    struct block *block = &a->blocks[i];
    struct list *list = list_of(a, block);
    if (block->prev == NIL)
        list->head = block->next;
    else
        a->blocks[block->prev].next = block->next;
    if (block->next == NIL)
        list->tail = block->prev;
    else
        a->blocks[block->next].prev = block->prev;
    a->n_waiting -= !block->advertised;
}

static uint32_t alloc_block(struct advert *a)
{
    if (a->free_head != NIL) {
        uint32_t i = a->free_head;
        a->free_head = a->blocks[i].next;
        return i;
    }
    if (a->n_blocks == a->cap_slots) {
        uint32_t cap = a->cap_slots ? a->cap_slots * 2 : 256;
        struct block *blocks = realloc(a->blocks, cap * sizeof *blocks);
        if (!blocks)
            return NIL;
        a->blocks = blocks;
        a->cap_slots = cap;
    }
    return a->n_blocks++;
}

static void free_block(struct advert *a, uint32_t i)
{
    a->blocks[i].next = a->free_head;
    a->free_head = i;
}

static void log_change(struct advert *a, uint64_t name, bool removed)
{
    a->sequence++;
    a->log[a->sequence % ADVERT_LOG_CHANGES] = (struct change){name, removed};
}

void advert_add(struct advert *a, uint64_t parent, const uint64_t *names, uint32_t n)
{
    const uint64_t *at = u64_map_get(&a->index, parent);
    uint32_t depth = at ? a->blocks[*at].depth + 1u : 0; /* an unknown parent is a namespace's root */
    for (uint32_t i = 0; i < n; i++, depth++) {
        if (u64_map_get(&a->index, names[i]))
            continue;
        uint32_t slot = alloc_block(a);
        if (slot == NIL)
            return;
        if (u64_map_put(&a->index, names[i], slot) != 0) {
            free_block(a, slot);
            return;
        }
        a->blocks[slot] = (struct block){.name = names[i], .depth = (uint8_t)(depth < DEPTHS ? depth : DEPTHS - 1)};
        link_block(a, slot);
    }
}

static void withdraw(struct advert *a, uint32_t i)
{
    unlink_block(a, i);
    a->blocks[i].advertised = false;
    bool was = block_set_remove(a->set, a->blocks[i].name);
    hs_assert(was);
    log_change(a, a->blocks[i].name, true);
}

void advert_remove(struct advert *a, const uint64_t *names, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        const uint64_t *at = u64_map_get(&a->index, names[i]);
        if (!at)
            continue;
        uint32_t slot = (uint32_t)*at;
        if (a->blocks[slot].advertised)
            withdraw(a, slot);
        else
            unlink_block(a, slot);
        u64_map_remove(&a->index, names[i]);
        free_block(a, slot);
    }
}

static uint32_t shallowest_waiting(const struct advert *a)
{
    for (int depth = 0; depth < DEPTHS && a->n_waiting; depth++)
        if (a->waiting[depth].head != NIL)
            return a->waiting[depth].head;
    return NIL;
}

/* The newest of the deepest: older ones have proved themselves longer. */
static uint32_t deepest_advertised(const struct advert *a)
{
    for (int depth = DEPTHS - 1; depth >= 0; depth--)
        if (a->advertised[depth].tail != NIL)
            return a->advertised[depth].tail;
    return NIL;
}

static bool is_full(const struct advert *a)
{
    return a->cap_blocks && block_set_len(a->set) >= a->cap_blocks;
}

static bool may_displace(const struct advert *a, uint32_t newcomer)
{
    uint32_t deepest = deepest_advertised(a);
    return deepest != NIL && a->blocks[newcomer].depth < a->blocks[deepest].depth;
}

bool advert_pending(const struct advert *a)
{
    uint32_t next = shallowest_waiting(a);
    return next != NIL && (!is_full(a) || may_displace(a, next));
}

uint32_t advert_waiting(const struct advert *a)
{
    return a->n_waiting;
}

uint64_t advert_displaced(const struct advert *a)
{
    return a->displaced;
}

uint32_t advert_pump(struct advert *a, uint32_t budget)
{
    uint32_t changes = 0;
    while (changes < budget && a->n_waiting) {
        uint32_t next = shallowest_waiting(a);
        if (is_full(a)) {
            if (!may_displace(a, next))
                break;
            uint32_t deepest = deepest_advertised(a);
            withdraw(a, deepest);
            link_first(a, deepest);
            a->displaced++;
            changes++;
        }
        if (block_set_add(a->set, a->blocks[next].name) != 1)
            break; /* out of memory: tried again at the next pump */
        unlink_block(a, next);
        a->blocks[next].advertised = true;
        link_block(a, next);
        log_change(a, a->blocks[next].name, false);
        changes++;
    }
    return changes;
}

void advert_clear(struct advert *a)
{
    block_set_clear(a->set);
    u64_map_fini(&a->index);
    a->index = (struct u64_map){0};
    a->n_blocks = 0;
    a->free_head = NIL;
    lists_clear(a);
    a->sequence = 0;
}

const struct block_set *advert_set(const struct advert *a)
{
    return a->set;
}

uint64_t advert_sequence(const struct advert *a)
{
    return a->sequence;
}

bool advert_covers(const struct advert *a, uint64_t first)
{
    return first >= 1 && first <= a->sequence + 1 && a->sequence - (first - 1) <= ADVERT_LOG_CHANGES;
}

uint64_t advert_write_runs(const struct advert *a, uint64_t first, struct writer *w)
{
    enum { RUN_HEAD_BYTES = 5, RUN_MAX = 4096 };
    hs_assert(advert_covers(a, first));
    while (first <= a->sequence && !w->failed && w->cap - w->len >= RUN_HEAD_BYTES + 8) {
        size_t room = (w->cap - w->len - RUN_HEAD_BYTES) / 8;
        bool removed = a->log[first % ADVERT_LOG_CHANGES].removed;
        uint64_t names[RUN_MAX];
        uint32_t n = 0;
        while (n < room && n < RUN_MAX && first <= a->sequence && a->log[first % ADVERT_LOG_CHANGES].removed == removed)
            names[n++] = a->log[first++ % ADVERT_LOG_CHANGES].name;
        wire_write_run(w, removed, names, n);
    }
    return first;
}

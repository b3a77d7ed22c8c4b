#include "core/cache/block_set.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"

struct run {
    uint64_t *names; /* ascending */
    uint32_t len, cap;
    uint64_t checksum;
};

struct block_set {
    struct run runs[BLOCK_SET_PAGES];
    uint32_t len;
    uint32_t cap_names; /* 0: none */
    uint64_t checksum;
    size_t run_bytes;
};

/* Names are sums' terms only after mixing (the finaliser of splitmix64): a sum of plain names would let two changes cancel. */
static uint64_t mix(uint64_t x)
{
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

struct block_set *block_set_create(uint32_t cap_names)
{
    struct block_set *set = calloc(1, sizeof *set);
    if (set)
        set->cap_names = cap_names;
    return set;
}

void block_set_destroy(struct block_set *set)
{
    if (!set)
        return;
    block_set_clear(set);
    free(set);
}

uint32_t block_set_page_of(uint64_t name)
{
    return (uint32_t)(name >> (64 - BLOCK_SET_PAGE_BITS));
}

/* First index whose name is not below `name`: gallop from where an even spread would put it, then bisect. */
static uint32_t lower_bound(const struct run *run, uint64_t name)
{
    uint32_t guess = (uint32_t)(((unsigned __int128)(name << BLOCK_SET_PAGE_BITS) * run->len) >> 64);
    uint32_t low = 0, high = run->len; /* the answer is in [low, high] */
    if (guess < run->len && run->names[guess] < name) {
        low = guess + 1;
        for (uint32_t step = 4; high - low > step; step *= 2) {
            if (run->names[low + step] >= name) {
                high = low + step;
                break;
            }
            low += step + 1;
        }
    } else if (guess < run->len) {
        high = guess;
        for (uint32_t step = 4; high - low > step; step *= 2) {
            if (run->names[high - step] < name) {
                low = high - step + 1;
                break;
            }
            high -= step;
        }
    }
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (run->names[middle] < name)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static int run_reserve(struct block_set *set, struct run *run)
{
    if (run->len < run->cap)
        return 0;
    uint32_t cap = run->cap < 8 ? 8 : run->cap + run->cap / 2;
    uint64_t *names = realloc(run->names, cap * sizeof *names);
    if (!names)
        return HS_ERR_NO_MEMORY;
    set->run_bytes += (cap - run->cap) * sizeof *names;
    run->names = names;
    run->cap = cap;
    return 0;
}

int block_set_add(struct block_set *set, uint64_t name)
{
    struct run *run = &set->runs[block_set_page_of(name)];
    uint32_t at = lower_bound(run, name);
    if (at < run->len && run->names[at] == name)
        return 0;
    if (set->cap_names && set->len >= set->cap_names)
        return HS_ERR_LIMIT;
    int rc = run_reserve(set, run);
    if (rc)
        return rc;
    memmove(run->names + at + 1, run->names + at, (run->len - at) * sizeof *run->names);
    run->names[at] = name;
    run->len++;
    run->checksum += mix(name);
    set->len++;
    set->checksum += mix(name);
    return 1;
}

/* Gives memory back once two thirds stand empty; a failure to shrink is harmless. */
static void run_shrink(struct block_set *set, struct run *run)
{
    if (run->cap <= 8 || run->len > run->cap / 3)
        return;
    uint32_t cap = run->len + run->len / 2;
    if (cap < 8)
        cap = 8;
    uint64_t *names = realloc(run->names, cap * sizeof *names);
    if (!names)
        return;
    set->run_bytes -= (run->cap - cap) * sizeof *names;
    run->names = names;
    run->cap = cap;
}

bool block_set_remove(struct block_set *set, uint64_t name)
{
    struct run *run = &set->runs[block_set_page_of(name)];
    uint32_t at = lower_bound(run, name);
    if (at == run->len || run->names[at] != name)
        return false;
    run->len--;
    memmove(run->names + at, run->names + at + 1, (run->len - at) * sizeof *run->names);
    run->checksum -= mix(name);
    set->len--;
    set->checksum -= mix(name);
    run_shrink(set, run);
    return true;
}

bool block_set_has(const struct block_set *set, uint64_t name)
{
    const struct run *run = &set->runs[block_set_page_of(name)];
    uint32_t at = lower_bound(run, name);
    return at < run->len && run->names[at] == name;
}

uint32_t block_set_match(const struct block_set *set, const uint64_t *names, uint32_t n)
{
    uint32_t matched = 0;
    while (matched < n && block_set_has(set, names[matched]))
        matched++;
    return matched;
}

uint32_t block_set_len(const struct block_set *set)
{
    return set->len;
}

void block_set_clear(struct block_set *set)
{
    for (uint32_t page = 0; page < BLOCK_SET_PAGES; page++) {
        free(set->runs[page].names);
        set->runs[page] = (struct run){0};
    }
    set->len = 0;
    set->checksum = 0;
    set->run_bytes = 0;
}

uint64_t block_set_page_checksum(const struct block_set *set, uint32_t page)
{
    return set->runs[page].checksum;
}

uint64_t block_set_checksum(const struct block_set *set)
{
    return set->checksum;
}

uint32_t block_set_page_names(const struct block_set *set, uint32_t page, uint64_t *out, uint32_t cap)
{
    const struct run *run = &set->runs[page];
    uint32_t n = run->len < cap ? run->len : cap;
    if (n)
        memcpy(out, run->names, n * sizeof *out);
    return run->len;
}

size_t block_set_bytes(const struct block_set *set)
{
    return sizeof *set + set->run_bytes;
}

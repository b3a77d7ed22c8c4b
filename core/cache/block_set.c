#include "core/cache/block_set.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"

enum {
    SEGMENT_BITS = 4,
    SEGMENTS = 1 << SEGMENT_BITS,
    BUCKET = 8, /* slots: a cache line */
    BUCKET_BYTES = BUCKET * sizeof(uint64_t),
};

struct segment {
    uint64_t *slots; /* [cap], whole buckets on cache lines; the last slot is always empty */
    void *memory;    /* what was allocated for them */
    uint32_t len, cap;
    uint32_t homes; /* buckets that are somebody's home; a few more follow */
};

struct block_set {
    struct segment segments[SEGMENTS];
    uint32_t len;
    uint32_t cap_names; /* 0: none */
    size_t segment_bytes;
    uint64_t checksum;
    uint64_t page_checksums[BLOCK_SET_PAGES];
};

/* Names are sums' terms only after mixing (the finaliser of splitmix64): a sum of plain names would let two changes cancel. */
static uint64_t mix(uint64_t x)
{
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

/* What stands in a slot: the segment is known, so its bits make room for a mark that keeps every name apart from an empty slot. */
static uint64_t entry_of(uint64_t name)
{
    return name << SEGMENT_BITS | 1;
}

static uint64_t name_of(uint64_t entry, uint32_t segment)
{
    return (uint64_t)segment << (64 - SEGMENT_BITS) | entry >> SEGMENT_BITS;
}

static uint32_t segment_of(uint64_t name)
{
    return (uint32_t)(name >> (64 - SEGMENT_BITS));
}

static uint32_t home_of(uint32_t homes, uint64_t entry)
{
    return (uint32_t)(((unsigned __int128)entry * homes) >> 64) * BUCKET;
}

/* The slot that holds the entry, or where it would go. */
static uint32_t find(const struct segment *segment, uint64_t entry)
{
    uint32_t at = home_of(segment->homes, entry);
    while (segment->slots[at] && segment->slots[at] < entry)
        at++;
    return at;
}

/* Whether a bucket has the entry; *is_final: or nobody has. All slots are looked at, as no branch could be predicted. */
static bool bucket_has(const uint64_t *slots, uint64_t entry, bool *is_final)
{
    bool has = (slots[0] == entry) | (slots[1] == entry) | (slots[2] == entry) | (slots[3] == entry) | (slots[4] == entry) |
               (slots[5] == entry) | (slots[6] == entry) | (slots[7] == entry);
    uint64_t last = slots[BUCKET - 1];
    *is_final = has | (last == 0) | (last >= entry);
    return has;
}

static bool segment_has(const struct segment *segment, uint64_t name)
{
    if (!segment->len)
        return false;
    uint64_t entry = entry_of(name);
    bool is_final;
    bool has = bucket_has(segment->slots + home_of(segment->homes, entry), entry, &is_final);
    return is_final ? has : segment->slots[find(segment, entry)] == entry;
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

/* Moves all entries of `from` to slots[], in as many homes; NULL: only counts. Returns the slots that they reach over. */
static uint32_t place(const struct segment *from, uint32_t homes, uint64_t *slots)
{
    uint32_t next = 0;
    for (uint32_t i = 0; i < from->cap; i++) {
        if (!from->slots[i])
            continue;
        uint32_t home = home_of(homes, from->slots[i]);
        next = home > next ? home : next;
        if (slots)
            slots[next] = from->slots[i];
        next++;
    }
    return next > homes * BUCKET ? next : homes * BUCKET;
}

/* Spreads the segment anew, seven tenths full. 0, or HS_ERR_NO_MEMORY and nothing changed. */
static int rebuild(struct block_set *set, struct segment *segment)
{
    uint32_t homes = (uint32_t)((uint64_t)segment->len * 10 / 7 / BUCKET) + 1;
    uint32_t cap = (place(segment, homes, NULL) / BUCKET + 2) * BUCKET; /* room for what pushes past the end */
    size_t bytes = cap * sizeof(uint64_t) + BUCKET_BYTES;
    void *memory = calloc(1, bytes);
    if (!memory)
        return HS_ERR_NO_MEMORY;
    uint64_t *slots = (uint64_t *)(((uintptr_t)memory + BUCKET_BYTES - 1) & ~(uintptr_t)(BUCKET_BYTES - 1));
    place(segment, homes, slots);
    set->segment_bytes += bytes;
    set->segment_bytes -= segment->cap ? segment->cap * sizeof(uint64_t) + BUCKET_BYTES : 0;
    free(segment->memory);
    *segment = (struct segment){.slots = slots, .memory = memory, .len = segment->len, .cap = cap, .homes = homes};
    return 0;
}

static uint32_t empty_after(const struct segment *segment, uint32_t at)
{
    while (segment->slots[at])
        at++;
    return at;
}

static int insert(struct block_set *set, struct segment *segment, uint64_t entry)
{
    bool is_full = (uint64_t)segment->len * 6 >= (uint64_t)segment->homes * BUCKET * 5;
    int rc = is_full ? rebuild(set, segment) : 0;
    if (rc)
        return rc;
    uint32_t at = find(segment, entry), end = empty_after(segment, at);
    if (end == segment->cap - 1) { /* crowded at the end */
        rc = rebuild(set, segment);
        if (rc)
            return rc;
        at = find(segment, entry);
        end = empty_after(segment, at);
    }
    memmove(segment->slots + at + 1, segment->slots + at, (end - at) * sizeof *segment->slots);
    segment->slots[at] = entry;
    segment->len++;
    return 0;
}

int block_set_add(struct block_set *set, uint64_t name)
{
    struct segment *segment = &set->segments[segment_of(name)];
    if (segment_has(segment, name))
        return 0;
    if (set->cap_names && set->len >= set->cap_names)
        return HS_ERR_LIMIT;
    int rc = insert(set, segment, entry_of(name));
    if (rc)
        return rc;
    set->len++;
    set->page_checksums[block_set_page_of(name)] += mix(name);
    set->checksum += mix(name);
    return 1;
}

bool block_set_remove(struct block_set *set, uint64_t name)
{
    struct segment *segment = &set->segments[segment_of(name)];
    if (!segment_has(segment, name))
        return false;
    /* Those pushed out of their place by it move up. */
    uint32_t at = find(segment, entry_of(name)), end = at + 1;
    while (segment->slots[end] && home_of(segment->homes, segment->slots[end]) < end)
        end++;
    memmove(segment->slots + at, segment->slots + at + 1, (end - 1 - at) * sizeof *segment->slots);
    segment->slots[end - 1] = 0;
    segment->len--;
    set->len--;
    set->page_checksums[block_set_page_of(name)] -= mix(name);
    set->checksum -= mix(name);
    if (segment->homes > 1 && (uint64_t)segment->len * 3 < (uint64_t)segment->homes * BUCKET)
        rebuild(set, segment); /* gives memory back; failing to is harmless */
    return true;
}

bool block_set_has(const struct block_set *set, uint64_t name)
{
    return segment_has(&set->segments[segment_of(name)], name);
}

/* Where one set's search stands: at least `low` blocks are there, at most `high`, and the last of `probe` is asked for next. */
struct search {
    const struct segment *segments;
    const uint64_t *bucket; /* to be looked at in this round */
    uint32_t low, high, probe, index;
    uint32_t skip; /* slots: buckets behind the home that were full of smaller names */
};

static const struct segment *segment_for(const struct search *at, uint64_t name)
{
    return &at->segments[segment_of(name)];
}

static void note_answer(struct search *at, bool has)
{
    at->low = has ? at->probe : at->low;
    at->high = has ? at->high : at->probe - 1;
    at->probe = at->low + (at->high - at->low + 1) / 2;
    at->skip = 0;
}

/* Asks every search its question, in three passes so that the cache misses of all overlap. Returns how many go on, moved to the
 * front. */
static uint32_t match_round(struct search *searches, uint32_t n, const uint64_t *names, uint32_t *matches)
{
    static const uint64_t nothing[BUCKET];
    for (uint32_t i = 0; i < n; i++)
        __builtin_prefetch(segment_for(&searches[i], names[searches[i].probe - 1]));
    for (uint32_t i = 0; i < n; i++) {
        struct search *at = &searches[i];
        uint64_t name = names[at->probe - 1];
        const struct segment *segment = segment_for(at, name);
        at->bucket = segment->len ? segment->slots + home_of(segment->homes, entry_of(name)) + at->skip : nothing;
        __builtin_prefetch(at->bucket);
    }
    uint32_t left = 0;
    for (uint32_t i = 0; i < n; i++) {
        struct search at = searches[i];
        bool is_final, has = bucket_has(at.bucket, entry_of(names[at.probe - 1]), &is_final);
        if (__builtin_expect(is_final, true))
            note_answer(&at, has);
        else
            at.skip += BUCKET; /* rather than wait for it, the next bucket is looked at in the next round */
        matches[at.index] = at.low;
        searches[left] = at;
        left += at.low < at.high;
    }
    return left;
}

void block_set_match_each(const struct block_set *const *sets, uint32_t n_sets, const uint64_t *names, uint32_t n,
                          uint32_t *matches)
{
    enum { AT_ONCE = 64 };
    struct search searches[AT_ONCE];
    for (uint32_t first = 0; first < n_sets; first += AT_ONCE) {
        uint32_t left = 0;
        for (uint32_t i = first; i < n_sets && i < first + AT_ONCE; i++) {
            matches[i] = 0;
            if (sets[i] && n)
                searches[left++] = (struct search){.segments = sets[i]->segments, .high = n, .probe = 1, .index = i};
        }
        while (left)
            left = match_round(searches, left, names, matches);
    }
}

uint32_t block_set_match(const struct block_set *set, const uint64_t *names, uint32_t n)
{
    uint32_t match;
    block_set_match_each(&set, 1, names, n, &match);
    return match;
}

uint32_t block_set_len(const struct block_set *set)
{
    return set->len;
}

void block_set_clear(struct block_set *set)
{
    for (uint32_t i = 0; i < SEGMENTS; i++)
        free(set->segments[i].memory);
    *set = (struct block_set){.cap_names = set->cap_names};
}

uint64_t block_set_page_checksum(const struct block_set *set, uint32_t page)
{
    return set->page_checksums[page];
}

uint64_t block_set_checksum(const struct block_set *set)
{
    return set->checksum;
}

uint64_t block_set_name_checksum(uint64_t name)
{
    return mix(name);
}

uint32_t block_set_page_names(const struct block_set *set, uint32_t page, uint64_t *out, uint32_t cap)
{
    uint64_t first = (uint64_t)page << (64 - BLOCK_SET_PAGE_BITS);
    const struct segment *segment = &set->segments[segment_of(first)];
    uint32_t n = 0;
    for (uint32_t at = segment->len ? find(segment, entry_of(first)) : segment->cap; at < segment->cap; at++) {
        uint64_t name = name_of(segment->slots[at], segment_of(first));
        if (!segment->slots[at])
            continue;
        if (block_set_page_of(name) != page)
            break;
        if (n < cap)
            out[n] = name;
        n++;
    }
    return n;
}

size_t block_set_bytes(const struct block_set *set)
{
    return sizeof *set + set->segment_bytes;
}

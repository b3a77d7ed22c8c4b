#include "core/base/u64_map.h"

#include <stdlib.h>

#include "core/base/error.h"

static size_t home_of(const struct u64_map *map, uint64_t key)
{
    key = (key ^ (key >> 30)) * 0xbf58476d1ce4e5b9u;
    key = (key ^ (key >> 27)) * 0x94d049bb133111ebu;
    return (size_t)(key ^ (key >> 31)) & (map->cap - 1);
}

/* Index of the key, or of the free slot where it would go. The map has at least one free slot. */
static size_t find(const struct u64_map *map, uint64_t key)
{
    size_t i = home_of(map, key);
    while (map->used[i] && map->slots[i].key != key)
        i = (i + 1) & (map->cap - 1);
    return i;
}

static int grow(struct u64_map *map)
{
    struct u64_map bigger = {.cap = map->cap ? map->cap * 2 : 16, .len = map->len};
    bigger.slots = malloc(bigger.cap * sizeof *bigger.slots);
    bigger.used = calloc(bigger.cap, 1);
    if (!bigger.slots || !bigger.used) {
        u64_map_fini(&bigger);
        return HS_ERR_NO_MEMORY;
    }
    for (size_t i = 0; i < map->cap; i++) {
        if (!map->used[i])
            continue;
        size_t to = find(&bigger, map->slots[i].key);
        bigger.slots[to] = map->slots[i];
        bigger.used[to] = 1;
    }
    u64_map_fini(map);
    *map = bigger;
    return 0;
}

void u64_map_fini(struct u64_map *map)
{
    free(map->slots);
    free(map->used);
    *map = (struct u64_map){0};
}

int u64_map_put(struct u64_map *map, uint64_t key, uint64_t value)
{
    uint64_t *present = u64_map_get(map, key);
    if (present) {
        *present = value;
        return 0;
    }
    if (4 * (map->len + 1) > 3 * map->cap) {
        int rc = grow(map);
        if (rc)
            return rc;
    }
    size_t i = find(map, key);
    map->slots[i] = (struct u64_map_slot){key, value};
    map->used[i] = 1;
    map->len++;
    return 0;
}

uint64_t *u64_map_get(const struct u64_map *map, uint64_t key)
{
    if (!map->len)
        return NULL;
    size_t i = find(map, key);
    return map->used[i] ? &map->slots[i].value : NULL;
}

/* Backward shift: entries behind the hole move into it if the hole lies between their home and their place. */
bool u64_map_remove(struct u64_map *map, uint64_t key)
{
    if (!map->len)
        return false;
    size_t mask = map->cap - 1, hole = find(map, key);
    if (!map->used[hole])
        return false;
    for (size_t i = (hole + 1) & mask; map->used[i]; i = (i + 1) & mask) {
        size_t home = home_of(map, map->slots[i].key);
        if (((i - home) & mask) >= ((i - hole) & mask)) {
            map->slots[hole] = map->slots[i];
            hole = i;
        }
    }
    map->used[hole] = 0;
    map->len--;
    return true;
}

bool u64_map_next(const struct u64_map *map, size_t *cursor, uint64_t *key, uint64_t *value)
{
    for (; *cursor < map->cap; ++*cursor) {
        if (!map->used[*cursor])
            continue;
        *key = map->slots[*cursor].key;
        *value = map->slots[*cursor].value;
        ++*cursor;
        return true;
    }
    return false;
}

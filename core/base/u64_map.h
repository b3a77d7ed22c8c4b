/*
 * Hash map from 64-bit keys to 64-bit values (or pointers): open addressing, linear probing, backward-shift deletion.
 *
 * Keys are mixed inside, so sequential ids are fine; keys chosen by an attacker are only bounded by the owner's own caps.
 * Pointers returned are valid until the next put or remove. Threading: belongs to one thread.
 */
#ifndef HEARSAY_BASE_U64_MAP_H
#define HEARSAY_BASE_U64_MAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct u64_map_slot {
    uint64_t key, value;
};

struct u64_map {
    struct u64_map_slot *slots;
    uint8_t *used;
    size_t cap, len;
};

/* Zero-initialise to start. */
void u64_map_fini(struct u64_map *map);
/* Adds or replaces. 0 or HS_ERR_NO_MEMORY (map unchanged). */
int u64_map_put(struct u64_map *map, uint64_t key, uint64_t value);
/* Pointer to the value, or NULL. */
uint64_t *u64_map_get(const struct u64_map *map, uint64_t key);
bool u64_map_remove(struct u64_map *map, uint64_t key);
/* Iteration: start with *cursor = 0; false at the end. Do not change the map meanwhile. */
bool u64_map_next(const struct u64_map *map, size_t *cursor, uint64_t *key, uint64_t *value);

#endif

/*
 * Constants and small parts of the wire format; docs/protocol-fabric.md is its description. Pure.
 */
#ifndef HEARSAY_NET_WIRE_H
#define HEARSAY_NET_WIRE_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "core/base/codec.h"
#include "net/seal.h"

enum {
    WIRE_VERSION = 1,
    WIRE_HEADER_BYTES = 8,         /* magic, version and type, generation, receiver */
    WIRE_PACKET_HEADER_BYTES = 16, /* and the counter */
    WIRE_COOKIE_BYTES = 16,
    WIRE_HELLO_BYTES = 24,
    WIRE_MIN_DATAGRAM = 1200,
    WIRE_WINDOW = 4096, /* fragments that a receiver keeps in order */
    WIRE_MAX_MESSAGE = 2 << 20,
    WIRE_MAX_UNRELIABLE = WIRE_MIN_DATAGRAM - WIRE_PACKET_HEADER_BYTES - SEAL_TAG_BYTES - 4,
    WIRE_FRAGMENT_OVERHEAD = 12,
    WIRE_ACK_BYTES = 16,
};

enum wire_type { WIRE_INIT = 1, WIRE_RESPONSE = 2, WIRE_COOKIE = 3, WIRE_PACKET = 4 };
enum wire_frame { FRAME_ACK = 1, FRAME_FRAGMENT = 2, FRAME_UNRELIABLE = 3, FRAME_CLOSE = 4 };
enum { FRAGMENT_FIRST = 1, FRAGMENT_LAST = 2, FRAGMENT_EMPTY = 4 };

/* The first of several fragments carries the length of the whole. */
static inline bool fragment_has_length(uint8_t flags)
{
    return (flags & (FRAGMENT_FIRST | FRAGMENT_LAST)) == FRAGMENT_FIRST;
}

/* The number near base whose low 32 bits are given. */
static inline uint64_t expand_u32(uint64_t base, uint32_t low)
{
    return base + (uint64_t)(int64_t)(int32_t)(low - (uint32_t)base);
}

/* Fixed parts whose room has been checked, at once. Little-endian, as codec.h has it. */
static inline uint16_t wire_load_u16(const uint8_t *at)
{
    uint16_t value;
    memcpy(&value, at, sizeof value);
    return value;
}

static inline uint32_t wire_load_u32(const uint8_t *at)
{
    uint32_t value;
    memcpy(&value, at, sizeof value);
    return value;
}

static inline uint64_t wire_load_u64(const uint8_t *at)
{
    uint64_t value;
    memcpy(&value, at, sizeof value);
    return value;
}

static inline void wire_store_u16(uint8_t *at, uint16_t value)
{
    memcpy(at, &value, sizeof value);
}

static inline void wire_store_u32(uint8_t *at, uint32_t value)
{
    memcpy(at, &value, sizeof value);
}

static inline void wire_store_u64(uint8_t *at, uint64_t value)
{
    memcpy(at, &value, sizeof value);
}

/* Room for n bytes, or NULL (and the writer has failed). */
static inline uint8_t *write_room(struct writer *out, size_t n)
{
    if (out->failed || n > out->cap - out->len) {
        out->failed = true;
        return NULL;
    }
    out->len += n;
    return out->data + out->len - n;
}

static inline void write_wire_header(struct writer *out, enum wire_type type, uint8_t generation, uint32_t receiver)
{
    write_u8(out, 'H');
    write_u8(out, 'S');
    write_u8(out, (uint8_t)(WIRE_VERSION << 4 | type));
    write_u8(out, generation);
    write_u32(out, receiver);
}

#endif

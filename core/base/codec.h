/*
 * Little-endian writer and reader over a caller's buffer, for wire formats and files.
 *
 * Both are sticky: the first access past the end sets `failed`, later ones do nothing (reads give 0), and the caller
 * checks once at the end. No allocation, no alignment needed. Threading: belongs to one thread.
 */
#ifndef HEARSAY_BASE_CODEC_H
#define HEARSAY_BASE_CODEC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct writer {
    uint8_t *data;
    size_t cap, len;
    bool failed;
};

struct reader {
    const uint8_t *data;
    size_t len, pos;
    bool failed;
};

static inline void writer_init(struct writer *w, void *data, size_t cap)
{
    *w = (struct writer){.data = data, .cap = cap};
}

static inline void reader_init(struct reader *r, const void *data, size_t len)
{
    *r = (struct reader){.data = data, .len = len};
}

static inline size_t reader_left(const struct reader *r)
{
    return r->failed ? 0 : r->len - r->pos;
}

static inline void write_bytes(struct writer *w, const void *src, size_t n)
{
    if (w->failed || n > w->cap - w->len) {
        w->failed = true;
        return;
    }
    if (n)
        memcpy(w->data + w->len, src, n);
    w->len += n;
}

/* Pointer to the next n bytes in place, or NULL. */
static inline const uint8_t *read_view(struct reader *r, size_t n)
{
    if (r->failed || n > r->len - r->pos) {
        r->failed = true;
        return NULL;
    }
    const uint8_t *p = r->data + r->pos;
    r->pos += n;
    return p;
}

static inline void read_bytes(struct reader *r, void *dst, size_t n)
{
    const uint8_t *p = read_view(r, n);
    if (p && n)
        memcpy(dst, p, n);
    else if (n)
        memset(dst, 0, n);
}

/* The machines served are little-endian; codec.c asserts it at compile time. */
#define HS_CODEC(name, type)                                       \
    static inline void write_##name(struct writer *w, type value)  \
    {                                                              \
        write_bytes(w, &value, sizeof value);                      \
    }                                                              \
    static inline type read_##name(struct reader *r)               \
    {                                                              \
        type value;                                                \
        read_bytes(r, &value, sizeof value);                       \
        return value;                                              \
    }

HS_CODEC(u8, uint8_t)
HS_CODEC(u16, uint16_t)
HS_CODEC(u32, uint32_t)
HS_CODEC(u64, uint64_t)
HS_CODEC(i64, int64_t)
HS_CODEC(f32, float)
HS_CODEC(f64, double)
#undef HS_CODEC

/* Unsigned LEB128, at most 10 bytes; over-long or overflowing encodings fail. */
void write_varint(struct writer *w, uint64_t value);
uint64_t read_varint(struct reader *r);
/* A string of at most max bytes behind its varint length. read_string copies and NUL-terminates into out[cap] and fails if
 * it does not fit or has a NUL inside, which would make two texts of one; returns the length. */
void write_string(struct writer *w, const char *text, size_t len);
size_t read_string(struct reader *r, char *out, size_t cap);

#endif

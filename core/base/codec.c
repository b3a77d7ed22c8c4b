#include "core/base/codec.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the codec copies integers as they lie in memory");

void write_varint(struct writer *w, uint64_t value)
{
    uint8_t bytes[10];
    size_t n = 0;
    while (value >= 0x80) {
        bytes[n++] = (uint8_t)value | 0x80;
        value >>= 7;
    }
    bytes[n++] = (uint8_t)value;
    write_bytes(w, bytes, n);
}

uint64_t read_varint(struct reader *r)
{
    uint64_t value = 0;
    for (int i = 0; i < 10; i++) {
        uint8_t byte = read_u8(r);
        if (r->failed)
            return 0;
        bool overflows = i == 9 && byte > 1;
        bool over_long = i > 0 && byte == 0;
        if (overflows || over_long)
            break;
        value |= (uint64_t)(byte & 0x7f) << (7 * i);
        if (!(byte & 0x80))
            return value;
    }
    r->failed = true;
    return 0;
}

void write_string(struct writer *w, const char *text, size_t len)
{
    write_varint(w, len);
    write_bytes(w, text, len);
}

size_t read_string(struct reader *r, char *out, size_t cap)
{
    if (cap)
        out[0] = '\0';
    uint64_t len = read_varint(r);
    if (r->failed || len >= cap) {
        r->failed = true;
        return 0;
    }
    const uint8_t *bytes = read_view(r, (size_t)len);
    if (!bytes)
        return 0;
    if (memchr(bytes, '\0', (size_t)len)) {
        r->failed = true;
        return 0;
    }
    memcpy(out, bytes, (size_t)len);
    out[len] = '\0';
    return (size_t)len;
}

#include "tests/unit/model/gguf_builder.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/panic.h"

void build_header(struct gguf_builder *b, uint32_t version, uint64_t n_tensors, uint64_t n_values)
{
    writer_init(&b->out, b->bytes, sizeof b->bytes);
    write_bytes(&b->out, "GGUF", 4);
    write_u32(&b->out, version);
    write_u64(&b->out, n_tensors);
    write_u64(&b->out, n_values);
}

void build_text(struct gguf_builder *b, const char *text)
{
    write_u64(&b->out, strlen(text));
    write_bytes(&b->out, text, strlen(text));
}

void build_key(struct gguf_builder *b, const char *key, uint32_t type)
{
    build_text(b, key);
    write_u32(&b->out, type);
}

void build_u32(struct gguf_builder *b, const char *key, uint32_t value)
{
    build_key(b, key, GGUF_U32);
    write_u32(&b->out, value);
}

void build_f32(struct gguf_builder *b, const char *key, float value)
{
    build_key(b, key, GGUF_F32);
    write_f32(&b->out, value);
}

void build_string(struct gguf_builder *b, const char *key, const char *value)
{
    build_key(b, key, GGUF_STRING);
    build_text(b, value);
}

void build_array(struct gguf_builder *b, const char *key, uint32_t element, uint64_t count)
{
    build_key(b, key, GGUF_ARRAY);
    write_u32(&b->out, element);
    write_u64(&b->out, count);
}

void build_tensor(struct gguf_builder *b, const char *name, uint64_t cols, uint64_t rows, uint32_t number, uint64_t offset)
{
    build_text(b, name);
    write_u32(&b->out, 2);
    write_u64(&b->out, cols);
    write_u64(&b->out, rows);
    write_u32(&b->out, number);
    write_u64(&b->out, offset);
}

void build_zeros(struct gguf_builder *b, size_t n)
{
    for (; n; n--)
        write_u8(&b->out, 0);
}

void build_padding(struct gguf_builder *b, size_t alignment)
{
    build_zeros(b, (alignment - b->out.len % alignment) % alignment);
}

int build_open(const struct gguf_builder *b, size_t len, uint8_t **copy, struct gguf **out, struct error *err)
{
    hs_assert(!b->out.failed && len <= b->out.len);
    *copy = malloc(len ? len : 1);
    hs_assert(*copy);
    memcpy(*copy, b->bytes, len);
    int rc = gguf_open_memory(*copy, len, "small.gguf", out, err);
    if (rc < 0) {
        free(*copy);
        *copy = NULL;
    }
    return rc;
}

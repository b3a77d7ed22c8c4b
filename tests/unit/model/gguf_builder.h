/* Writes small GGUF files into memory, piece by piece, so that each piece can also be wrong. */
#ifndef HEARSAY_TESTS_GGUF_BUILDER_H
#define HEARSAY_TESTS_GGUF_BUILDER_H

#include <stdint.h>

#include "core/base/codec.h"
#include "core/model/gguf.h"

struct gguf_builder {
    uint8_t bytes[65536];
    struct writer out;
};

void build_header(struct gguf_builder *b, uint32_t version, uint64_t n_tensors, uint64_t n_values);
void build_text(struct gguf_builder *b, const char *text); /* length and bytes */
void build_key(struct gguf_builder *b, const char *key, uint32_t type);
void build_u32(struct gguf_builder *b, const char *key, uint32_t value);
void build_f32(struct gguf_builder *b, const char *key, float value);
void build_string(struct gguf_builder *b, const char *key, const char *value);
void build_array(struct gguf_builder *b, const char *key, uint32_t element, uint64_t count);
/* A tensor of two dimensions. */
void build_tensor(struct gguf_builder *b, const char *name, uint64_t cols, uint64_t rows, uint32_t number, uint64_t offset);
void build_padding(struct gguf_builder *b, size_t alignment);
void build_zeros(struct gguf_builder *b, size_t n);

/* Opens a copy of exactly its own size on the heap, so that a sanitizer sees any step beyond; *copy is to be freed after close. */
int build_open(const struct gguf_builder *b, size_t len, uint8_t **copy, struct gguf **out, struct error *err);

#endif

/*
 * GGUF files of metadata only, written into memory: keys of tokenizer.ggml.* for tests that want a vocabulary of their own.
 *
 * Ownership: tiny_gguf_open's file reads from the builder's buffer. Threading: one thread.
 */
#ifndef HEARSAY_TESTS_TINY_GGUF_H
#define HEARSAY_TESTS_TINY_GGUF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/strbuf.h"
#include "core/model/gguf.h"

struct tiny_gguf {
    struct strbuf values; /* the key-value section */
    uint64_t n_values;
    struct strbuf file;
};

void tiny_gguf_string(struct tiny_gguf *t, const char *key, const char *text);
void tiny_gguf_u32(struct tiny_gguf *t, const char *key, uint32_t value);
void tiny_gguf_bool(struct tiny_gguf *t, const char *key, bool value);
void tiny_gguf_strings(struct tiny_gguf *t, const char *key, const char *const *texts, size_t n);
void tiny_gguf_i32s(struct tiny_gguf *t, const char *key, const int32_t *values, size_t n);
void tiny_gguf_f32s(struct tiny_gguf *t, const char *key, const float *values, size_t n);
/* Fails the running test if the reader refuses it. */
struct gguf *tiny_gguf_open(struct tiny_gguf *t);
void tiny_gguf_fini(struct tiny_gguf *t);

#endif

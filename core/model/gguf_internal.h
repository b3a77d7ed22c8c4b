/* The inside of an open GGUF file, shared by the reader (gguf.c) and the look-ups (gguf_values.c). */
#ifndef HEARSAY_MODEL_GGUF_INTERNAL_H
#define HEARSAY_MODEL_GGUF_INTERNAL_H

#include "core/model/gguf.h"

struct gguf {
    char *path;
    const uint8_t *data;
    size_t len;
    bool mapped; /* by us, to be unmapped */
    uint32_t version;
    struct gguf_value *values; /* [n_values], sorted by key */
    uint64_t n_values;
    struct gguf_tensor *tensors; /* [n_tensors], sorted by name */
    uint64_t n_tensors;
    size_t values_start, values_end; /* where the metadata lies in data */
    uint32_t alignment;              /* of tensors; 0 if there are none */
};

/* Order of two byte strings, by bytes, then length. */
int gguf_string_compare(struct gguf_string a, struct gguf_string b);
/* Bytes of one member of a packed array; 0 for strings and arrays. */
size_t gguf_type_bytes(enum gguf_type type);

#endif

/*
 * Reader of GGUF files, versions 2 and 3 (https://github.com/ggml-org/ggml/blob/master/docs/gguf.md).
 *
 *     +--------+---------+-----------+-------------------------+------------------------------+-----+-------------+
 *     | "GGUF" | version | n_tensors | metadata: key and value | tensors: name, shape, offset | pad | tensor data |
 *     +--------+---------+-----------+-------------------------+------------------------------+-----+-------------+
 *
 * The file is mapped, not copied. gguf_open checks every count, length, offset and alignment against the size of the file,
 * so that everything handed out afterwards lies inside the mapping and the look-ups below cannot fail half-way.
 *
 * Ownership: strings, arrays and tensor data point into the mapping and live until gguf_close. Text in a struct gguf_string
 * is not NUL-terminated and may contain any bytes; tensor names are NUL-terminated copies.
 * Threading: immutable after open; any number of threads may read.
 * Errors: one line that names the file, the thing in it and what to do (get a whole copy, use another file).
 */
#ifndef HEARSAY_MODEL_GGUF_H
#define HEARSAY_MODEL_GGUF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/error.h"
#include "core/port/model.h"

enum gguf_type {
    GGUF_U8,
    GGUF_I8,
    GGUF_U16,
    GGUF_I16,
    GGUF_U32,
    GGUF_I32,
    GGUF_F32,
    GGUF_BOOL,
    GGUF_STRING,
    GGUF_ARRAY,
    GGUF_U64,
    GGUF_I64,
    GGUF_F64,
};

struct gguf_string {
    const char *text;
    size_t len;
};

/* A metadata value. For an array, element is the type of its members and count their number; otherwise element == type, count == 1.
 */
struct gguf_value {
    struct gguf_string key;
    enum gguf_type type;
    enum gguf_type element;
    uint64_t count;
    const uint8_t *data; /* packed, unaligned: read it through the functions below */
    size_t bytes;
};

struct gguf_tensor {
    const char *name;
    uint32_t n_dims;       /* 1 to 4 */
    uint64_t dims[4];      /* dims[0] is contiguous (a matrix [rows][cols] has dims {cols, rows}); unused ones are 1 */
    enum tensor_type type; /* never TENSOR_NONE */
    const void *data;
    size_t bytes;
};

struct gguf;

/* Opens and checks a file. 0, HS_ERR_IO, HS_ERR_NO_MEMORY, HS_ERR_PARSE (malformed) or HS_ERR_UNSUPPORTED (version, byte order,
 * tensor type). */
int gguf_open(const char *path, struct gguf **out, struct error *err);
/* The same over len bytes of the caller's, which must stay until gguf_close; name stands for the path in errors. */
int gguf_open_memory(const void *data, size_t len, const char *name, struct gguf **out, struct error *err);
void gguf_close(struct gguf *gguf); /* NULL is fine */

const char *gguf_path(const struct gguf *gguf);

uint64_t gguf_count_values(const struct gguf *gguf);
const struct gguf_value *gguf_value_at(const struct gguf *gguf, uint64_t index); /* in the order of keys */
uint64_t gguf_count_tensors(const struct gguf *gguf);
const struct gguf_tensor *gguf_tensor_at(const struct gguf *gguf, uint64_t index); /* in the order of names */

/* By name; NULL if absent. */
const struct gguf_value *gguf_find(const struct gguf *gguf, const char *key);
const struct gguf_tensor *gguf_find_tensor(const struct gguf *gguf, const char *name);

/*
 * Single values. 0, HS_ERR_NOT_FOUND if the key is absent, HS_ERR_PARSE if it has another type, HS_ERR_RANGE if it does not
 * fit. Integers of every width convert to each other, floats of both widths too, a bool is only a bool.
 */
int gguf_get_u32(const struct gguf *gguf, const char *key, uint32_t *out, struct error *err);
int gguf_get_i64(const struct gguf *gguf, const char *key, int64_t *out, struct error *err);
int gguf_get_f64(const struct gguf *gguf, const char *key, double *out, struct error *err);
int gguf_get_bool(const struct gguf *gguf, const char *key, bool *out, struct error *err);
int gguf_get_string(const struct gguf *gguf, const char *key, struct gguf_string *out, struct error *err);
bool gguf_string_equals(struct gguf_string s, const char *text);

/*
 * Arrays, without copying. gguf_get_array finds an array whose members are of the wanted kind: GGUF_STRING; GGUF_I64 for integers
 * of any width; GGUF_F64 for floats of either width; GGUF_BOOL. Members are then read by index, or strings one after the other:
 *
 *     const struct gguf_value *tokens;
 *     if (gguf_get_array(gguf, "tokenizer.ggml.tokens", GGUF_STRING, &tokens, err) < 0) ...
 *     struct gguf_cursor cursor = gguf_cursor_start(tokens);
 *     struct gguf_string token;
 *     while (gguf_cursor_next(&cursor, &token)) ...
 */
int gguf_get_array(const struct gguf *gguf, const char *key, enum gguf_type kind, const struct gguf_value **out, struct error *err);

struct gguf_cursor {
    const uint8_t *at;
    uint64_t left;
};

struct gguf_cursor gguf_cursor_start(const struct gguf_value *strings);
bool gguf_cursor_next(struct gguf_cursor *cursor, struct gguf_string *out); /* false at the end */

/* Member index (< count) of an array of integers or bools, or the value itself. A U64 above INT64_MAX reads as INT64_MAX. */
int64_t gguf_value_i64(const struct gguf_value *value, uint64_t index);
/* The same of floats. */
double gguf_value_f64(const struct gguf_value *value, uint64_t index);

#endif

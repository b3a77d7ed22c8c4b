#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/codec.h"
#include "core/base/panic.h"
#include "core/model/gguf_internal.h"

static const char *const type_names[] = {
    [GGUF_U8] = "uint8",   [GGUF_I8] = "int8",     [GGUF_U16] = "uint16",  [GGUF_I16] = "int16",     [GGUF_U32] = "uint32",
    [GGUF_I32] = "int32",  [GGUF_F32] = "float32", [GGUF_BOOL] = "bool",   [GGUF_STRING] = "string", [GGUF_ARRAY] = "array",
    [GGUF_U64] = "uint64", [GGUF_I64] = "int64",   [GGUF_F64] = "float64",
};

const char *gguf_path(const struct gguf *gguf)
{
    return gguf->path;
}

uint64_t gguf_count_values(const struct gguf *gguf)
{
    return gguf->n_values;
}

const struct gguf_value *gguf_value_at(const struct gguf *gguf, uint64_t index)
{
    hs_assert(index < gguf->n_values);
    return &gguf->values[index];
}

uint64_t gguf_count_tensors(const struct gguf *gguf)
{
    return gguf->n_tensors;
}

const struct gguf_tensor *gguf_tensor_at(const struct gguf *gguf, uint64_t index)
{
    hs_assert(index < gguf->n_tensors);
    return &gguf->tensors[index];
}

static int compare_key(const void *key, const void *value)
{
    return gguf_string_compare(*(const struct gguf_string *)key, ((const struct gguf_value *)value)->key);
}

const struct gguf_value *gguf_find(const struct gguf *gguf, const char *key)
{
    struct gguf_string wanted = {key, strlen(key)};
    return bsearch(&wanted, gguf->values, gguf->n_values, sizeof *gguf->values, compare_key);
}

static int compare_name(const void *name, const void *tensor)
{
    return strcmp(name, ((const struct gguf_tensor *)tensor)->name);
}

const struct gguf_tensor *gguf_find_tensor(const struct gguf *gguf, const char *name)
{
    return bsearch(name, gguf->tensors, gguf->n_tensors, sizeof *gguf->tensors, compare_name);
}

static bool is_integer(enum gguf_type type)
{
    return type != GGUF_F32 && type != GGUF_F64 && type != GGUF_BOOL && type != GGUF_STRING && type != GGUF_ARRAY;
}

static bool is_of_kind(enum gguf_type type, enum gguf_type kind)
{
    if (kind == GGUF_I64)
        return is_integer(type);
    if (kind == GGUF_F64)
        return type == GGUF_F32 || type == GGUF_F64;
    return type == kind;
}

static const char *kind_name(enum gguf_type kind)
{
    return kind == GGUF_I64 ? "an integer" : kind == GGUF_F64 ? "a float" : kind == GGUF_BOOL ? "a bool" : "a string";
}

static int find_kind(const struct gguf *gguf, const char *key, enum gguf_type kind, bool array, const struct gguf_value **out,
                     struct error *err)
{
    const struct gguf_value *v = gguf_find(gguf, key);
    if (!v)
        return error_set(err, HS_ERR_NOT_FOUND, "%s: metadata \"%s\" is missing; convert the model anew with a current converter",
                         gguf->path, key);
    if ((v->type == GGUF_ARRAY) != array || !is_of_kind(v->element, kind))
        return error_set(err, HS_ERR_PARSE,
                         "%s: metadata \"%s\" is %s%s where %s%s belongs; convert the model anew with a current converter",
                         gguf->path, key, v->type == GGUF_ARRAY ? "array of " : "", type_names[v->element],
                         array ? "an array, each member " : "", kind_name(kind));
    *out = v;
    return 0;
}

int gguf_get_array(const struct gguf *gguf, const char *key, enum gguf_type kind, const struct gguf_value **out, struct error *err)
{
    return find_kind(gguf, key, kind, true, out, err);
}

static struct reader member(const struct gguf_value *value, uint64_t index)
{
    size_t size = gguf_type_bytes(value->element);
    struct reader in;
    hs_assert(index < value->count && size);
    reader_init(&in, value->data + index * size, size);
    return in;
}

int64_t gguf_value_i64(const struct gguf_value *value, uint64_t index)
{
    struct reader in = member(value, index);
    uint64_t wide;

    switch (value->element) {
    case GGUF_U8:
    case GGUF_BOOL:
        return read_u8(&in);
    case GGUF_I8:
        return (int8_t)read_u8(&in);
    case GGUF_U16:
        return read_u16(&in);
    case GGUF_I16:
        return (int16_t)read_u16(&in);
    case GGUF_U32:
        return read_u32(&in);
    case GGUF_I32:
        return (int32_t)read_u32(&in);
    case GGUF_I64:
        return read_i64(&in);
    case GGUF_U64:
        wide = read_u64(&in);
        return wide > INT64_MAX ? INT64_MAX : (int64_t)wide;
    default:
        panic(__FILE__, __LINE__, "metadata value is not an integer");
    }
}

double gguf_value_f64(const struct gguf_value *value, uint64_t index)
{
    struct reader in = member(value, index);
    hs_assert(is_of_kind(value->element, GGUF_F64));
    return value->element == GGUF_F32 ? (double)read_f32(&in) : read_f64(&in);
}

int gguf_get_i64(const struct gguf *gguf, const char *key, int64_t *out, struct error *err)
{
    const struct gguf_value *v;
    int rc = find_kind(gguf, key, GGUF_I64, false, &v, err);
    if (rc < 0)
        return rc;
    *out = gguf_value_i64(v, 0);
    return 0;
}

int gguf_get_u32(const struct gguf *gguf, const char *key, uint32_t *out, struct error *err)
{
    int64_t wide;
    int rc = gguf_get_i64(gguf, key, &wide, err);
    if (rc < 0)
        return rc;
    if (wide < 0 || wide > UINT32_MAX)
        return error_set(err, HS_ERR_RANGE,
                         "%s: metadata \"%s\" is %" PRId64 ", outside 0 to 4294967295; get a whole copy of the file", gguf->path,
                         key, wide);
    *out = (uint32_t)wide;
    return 0;
}

int gguf_get_f64(const struct gguf *gguf, const char *key, double *out, struct error *err)
{
    const struct gguf_value *v;
    int rc = find_kind(gguf, key, GGUF_F64, false, &v, err);
    if (rc < 0)
        return rc;
    *out = gguf_value_f64(v, 0);
    return 0;
}

int gguf_get_bool(const struct gguf *gguf, const char *key, bool *out, struct error *err)
{
    const struct gguf_value *v;
    int rc = find_kind(gguf, key, GGUF_BOOL, false, &v, err);
    if (rc < 0)
        return rc;
    *out = v->data[0] != 0;
    return 0;
}

int gguf_get_string(const struct gguf *gguf, const char *key, struct gguf_string *out, struct error *err)
{
    const struct gguf_value *v;
    int rc = find_kind(gguf, key, GGUF_STRING, false, &v, err);
    if (rc < 0)
        return rc;
    struct gguf_cursor cursor = gguf_cursor_start(v);
    gguf_cursor_next(&cursor, out);
    return 0;
}

bool gguf_string_equals(struct gguf_string s, const char *text)
{
    return s.len == strlen(text) && memcmp(s.text, text, s.len) == 0;
}

struct gguf_cursor gguf_cursor_start(const struct gguf_value *strings)
{
    hs_assert(strings->element == GGUF_STRING);
    return (struct gguf_cursor){.at = strings->data, .left = strings->count};
}

bool gguf_cursor_next(struct gguf_cursor *cursor, struct gguf_string *out)
{
    if (!cursor->left)
        return false;
    uint64_t len;
    memcpy(&len, cursor->at, sizeof len);
    *out = (struct gguf_string){.text = (const char *)cursor->at + sizeof len, .len = len};
    cursor->at += sizeof len + len;
    cursor->left--;
    return true;
}

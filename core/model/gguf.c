#include "core/model/gguf.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/codec.h"
#include "core/model/dequantize.h"
#include "core/model/gguf_internal.h"
#include "core/model/model_file.h"
#include "core/model/w4.h"

enum {
    MAGIC = 0x46554747, /* "GGUF" */
    DEFAULT_ALIGNMENT = 32,
    MAX_ALIGNMENT = 65536,
    MAX_NAME_BYTES = 255,  /* the format allows tensor names of 64 */
    MIN_VALUE_BYTES = 13,  /* empty key, type, one byte */
    MIN_TENSOR_BYTES = 32, /* empty name, one dimension, type, offset */
};

#define WHOLE_COPY "the file is damaged or cut off: get a whole copy"

/* Reads the file from front to back. */
struct parser {
    struct gguf *gguf;
    struct reader in;
    struct error *err;
};

static int truncated(struct parser *p, const char *what, uint64_t index, uint64_t count)
{
    return error_set(p->err, HS_ERR_PARSE, "%s: ends within %s %" PRIu64 " of %" PRIu64 " (size %zu bytes); " WHOLE_COPY,
                     p->gguf->path, what, index + 1, count, p->gguf->len);
}

static int malformed(struct parser *p, const char *thing, struct gguf_string name, const char *problem)
{
    int shown = (int)(name.len > 80 ? 80 : name.len);
    return error_set(p->err, HS_ERR_PARSE, "%s: %s \"%.*s\" %s; " WHOLE_COPY, p->gguf->path, thing, shown, name.text, problem);
}

static struct gguf_string read_gguf_string(struct reader *in)
{
    uint64_t len = read_u64(in);
    const uint8_t *text = read_view(in, len);
    return (struct gguf_string){.text = text ? (const char *)text : "", .len = text ? len : 0};
}

size_t gguf_type_bytes(enum gguf_type type)
{
    static const uint8_t bytes[] = {[GGUF_U8] = 1,  [GGUF_I8] = 1,   [GGUF_U16] = 2, [GGUF_I16] = 2, [GGUF_U32] = 4, [GGUF_I32] = 4,
                                    [GGUF_F32] = 4, [GGUF_BOOL] = 1, [GGUF_U64] = 8, [GGUF_I64] = 8, [GGUF_F64] = 8};
    return type <= GGUF_F64 ? bytes[type] : 0;
}

int gguf_string_compare(struct gguf_string a, struct gguf_string b)
{
    size_t common = a.len < b.len ? a.len : b.len;
    int order = common ? memcmp(a.text, b.text, common) : 0;
    return order ? order : (a.len > b.len) - (a.len < b.len);
}

/* The members of a value, behind its types and count. False: the file ends inside. */
static bool read_members(struct parser *p, struct gguf_value *v)
{
    const uint8_t *start = p->in.data + p->in.pos;
    size_t before = p->in.pos;

    if (v->element == GGUF_STRING) {
        for (uint64_t i = 0; i < v->count && !p->in.failed; i++)
            read_gguf_string(&p->in);
    } else {
        size_t size = gguf_type_bytes(v->element);
        if (v->count > reader_left(&p->in) / size)
            return false;
        read_view(&p->in, v->count * size);
    }
    v->data = start;
    v->bytes = p->in.pos - before;
    return !p->in.failed;
}

static int read_value(struct parser *p, uint64_t index)
{
    struct gguf_value *v = &p->gguf->values[index];
    v->key = read_gguf_string(&p->in);
    uint32_t type = read_u32(&p->in), element = type;
    v->count = 1;
    if (!p->in.failed && type == GGUF_ARRAY) {
        element = read_u32(&p->in);
        v->count = read_u64(&p->in);
        if (!p->in.failed && element == GGUF_ARRAY)
            return error_set(p->err, HS_ERR_UNSUPPORTED,
                             "%s: metadata \"%.*s\" is an array of arrays, which hearsay does not read; use a file without it",
                             p->gguf->path, (int)(v->key.len > 80 ? 80 : v->key.len), v->key.text);
    }
    if (p->in.failed)
        return truncated(p, "metadata value", index, p->gguf->n_values);
    if (type > GGUF_F64 || element > GGUF_F64)
        return malformed(p, "metadata", v->key, "has a type that the format does not know");
    v->type = type;
    v->element = element;
    if (!read_members(p, v))
        return truncated(p, "metadata value", index, p->gguf->n_values);
    if (v->element == GGUF_BOOL)
        for (uint64_t i = 0; i < v->count; i++)
            if (v->data[i] > 1)
                return malformed(p, "metadata", v->key, "holds a boolean that is neither 0 nor 1");
    return 0;
}

static int compare_values(const void *a, const void *b)
{
    return gguf_string_compare(((const struct gguf_value *)a)->key, ((const struct gguf_value *)b)->key);
}

static int read_values(struct parser *p)
{
    struct gguf *gguf = p->gguf;
    for (uint64_t i = 0; i < gguf->n_values; i++) {
        int rc = read_value(p, i);
        if (rc < 0)
            return rc;
    }
    if (gguf->n_values)
        qsort(gguf->values, gguf->n_values, sizeof *gguf->values, compare_values);
    for (uint64_t i = 1; i < gguf->n_values; i++)
        if (compare_values(&gguf->values[i - 1], &gguf->values[i]) == 0)
            return malformed(p, "metadata", gguf->values[i].key, "is there twice");
    return 0;
}

/* Tensor types by their number in the file (ggml's enum ggml_type); the names of those not read serve the error text. */
static const struct {
    const char *name;
    enum tensor_type type;
} file_types[] = {
    [0] = {"F32", TENSOR_F32},
    [1] = {"F16", TENSOR_F16},
    [2] = {"Q4_0", TENSOR_Q4_0},
    [3] = {"Q4_1", TENSOR_Q4_1},
    [6] = {"Q5_0", TENSOR_Q5_0},
    [7] = {"Q5_1", TENSOR_Q5_1},
    [8] = {"Q8_0", TENSOR_Q8_0},
    [9] = {"Q8_1", 0},
    [10] = {"Q2_K", 0},
    [11] = {"Q3_K", 0},
    [12] = {"Q4_K", TENSOR_Q4_K},
    [13] = {"Q5_K", TENSOR_Q5_K},
    [14] = {"Q6_K", TENSOR_Q6_K},
    [15] = {"Q8_K", 0},
    [16] = {"IQ2_XXS", 0},
    [17] = {"IQ2_XS", 0},
    [18] = {"IQ3_XXS", 0},
    [19] = {"IQ1_S", 0},
    [20] = {"IQ4_NL", 0},
    [21] = {"IQ3_S", 0},
    [22] = {"IQ2_S", 0},
    [23] = {"IQ4_XS", 0},
    [24] = {"I8", 0},
    [25] = {"I16", 0},
    [26] = {"I32", 0},
    [27] = {"I64", 0},
    [28] = {"F64", 0},
    [29] = {"IQ1_M", 0},
    [30] = {"BF16", TENSOR_BF16},
    [34] = {"TQ1_0", 0},
    [35] = {"TQ2_0", 0},
    [39] = {"MXFP4", 0},
};

static int tensor_type_from_file(struct parser *p, struct gguf_tensor *t, uint32_t number)
{
    const char *name = NULL;
    if (number < sizeof file_types / sizeof file_types[0]) {
        name = file_types[number].name;
        t->type = file_types[number].type;
    } else {
        t->type = w4_type_from_file(number);
    }
    if (t->type != TENSOR_NONE)
        return 0;
    return error_set(p->err, HS_ERR_UNSUPPORTED,
                     "%s: tensor \"%s\" has type %s (number %" PRIu32 "); supported are %s: use a file in one of these",
                     p->gguf->path, t->name, name ? name : "unknown", number, tensor_format_names());
}

/* Bytes of the tensor from its shape, refusing what overflows or is not made of whole blocks. */
static int measure_tensor(struct parser *p, struct gguf_tensor *t)
{
    struct gguf_string name = {t->name, strlen(t->name)};
    uint64_t elements = 1, rows = 1, row_bytes = 0, bytes;
    for (uint32_t i = 0; i < t->n_dims; i++) {
        if (t->dims[i] == 0 || __builtin_mul_overflow(elements, t->dims[i], &elements))
            return malformed(p, "tensor", name, "has a dimension of zero or an impossible size");
        rows *= i > 0 ? t->dims[i] : 1; /* at most elements */
    }
    if (!tensor_row_bytes(t->type, t->dims[0], &row_bytes))
        return malformed(p, "tensor", name, "has rows that are not whole quantisation blocks");
    if (row_bytes == UINT64_MAX || __builtin_mul_overflow(rows, row_bytes, &bytes))
        return malformed(p, "tensor", name, "has an impossible size");
    t->bytes = bytes;
    return 0;
}

/* Everything but the tensor's place: *offset is checked later, when the start of the data section is known. */
static int read_tensor(struct parser *p, uint64_t index, uint64_t *offset)
{
    struct gguf_tensor *t = &p->gguf->tensors[index];
    struct gguf_string name = read_gguf_string(&p->in);
    if (p->in.failed)
        return truncated(p, "tensor", index, p->gguf->n_tensors);
    if (name.len == 0 || name.len > MAX_NAME_BYTES || memchr(name.text, '\0', name.len))
        return malformed(p, "tensor", name, "has an empty, overlong or broken name");
    t->name = strndup(name.text, name.len);
    if (!t->name)
        return error_set(p->err, HS_ERR_NO_MEMORY, "%s: out of memory", p->gguf->path);
    t->n_dims = read_u32(&p->in);
    if (!p->in.failed && (t->n_dims < 1 || t->n_dims > 4))
        return malformed(p, "tensor", name, "does not have 1 to 4 dimensions");
    for (uint32_t i = 0; i < 4; i++)
        t->dims[i] = i < t->n_dims ? read_u64(&p->in) : 1;
    uint32_t number = read_u32(&p->in);
    *offset = read_u64(&p->in);
    if (p->in.failed)
        return truncated(p, "tensor", index, p->gguf->n_tensors);
    int rc = tensor_type_from_file(p, t, number);
    return rc < 0 ? rc : measure_tensor(p, t);
}

static int compare_tensors(const void *a, const void *b)
{
    return strcmp(((const struct gguf_tensor *)a)->name, ((const struct gguf_tensor *)b)->name);
}

static int read_alignment(struct parser *p, uint64_t *out)
{
    uint32_t alignment = DEFAULT_ALIGNMENT;
    if (gguf_find(p->gguf, "general.alignment")) {
        int rc = gguf_get_u32(p->gguf, "general.alignment", &alignment, p->err);
        if (rc < 0)
            return rc;
    }
    if (alignment < 8 || alignment > MAX_ALIGNMENT || (alignment & (alignment - 1)))
        return error_set(p->err, HS_ERR_PARSE, "%s: general.alignment is %" PRIu32 ", not a power of two from 8 to %d; " WHOLE_COPY,
                         p->gguf->path, alignment, MAX_ALIGNMENT);
    *out = alignment;
    return 0;
}

/* Ties each tensor to its bytes. The data section starts at the next multiple of the alignment behind the last tensor's entry. */
static int place_tensors(struct parser *p, const uint64_t *offsets)
{
    struct gguf *gguf = p->gguf;
    uint64_t alignment = DEFAULT_ALIGNMENT;
    int rc = read_alignment(p, &alignment);
    if (rc < 0)
        return rc;
    uint64_t start = (p->in.pos + alignment - 1) & ~(alignment - 1);
    uint64_t room = start < gguf->len ? gguf->len - start : 0;
    for (uint64_t i = 0; i < gguf->n_tensors; i++) {
        struct gguf_tensor *t = &gguf->tensors[i];
        struct gguf_string name = {t->name, strlen(t->name)};
        if (offsets[i] % alignment)
            return malformed(p, "tensor", name, "does not start at a multiple of the file's alignment");
        if (offsets[i] > room || t->bytes > room - offsets[i])
            return malformed(p, "tensor", name, "lies beyond the end of the file");
        t->data = gguf->data + start + offsets[i];
    }
    gguf->alignment = (uint32_t)alignment;
    return 0;
}

static int read_tensors(struct parser *p)
{
    struct gguf *gguf = p->gguf;
    if (!gguf->n_tensors)
        return 0;
    uint64_t *offsets = calloc(gguf->n_tensors, sizeof *offsets);
    int rc = offsets ? 0 : error_set(p->err, HS_ERR_NO_MEMORY, "%s: out of memory", gguf->path);
    for (uint64_t i = 0; rc == 0 && i < gguf->n_tensors; i++)
        rc = read_tensor(p, i, &offsets[i]);
    if (rc == 0)
        rc = place_tensors(p, offsets);
    free(offsets);
    if (rc < 0)
        return rc;
    qsort(gguf->tensors, gguf->n_tensors, sizeof *gguf->tensors, compare_tensors);
    for (uint64_t i = 1; i < gguf->n_tensors; i++)
        if (compare_tensors(&gguf->tensors[i - 1], &gguf->tensors[i]) == 0)
            return malformed(p, "tensor", (struct gguf_string){gguf->tensors[i].name, strlen(gguf->tensors[i].name)},
                             "is there twice");
    return 0;
}

static int read_header(struct parser *p)
{
    struct gguf *gguf = p->gguf;
    uint32_t magic = read_u32(&p->in);
    gguf->version = read_u32(&p->in);
    uint64_t n_tensors = read_u64(&p->in), n_values = read_u64(&p->in);
    if (gguf->len >= 4 && magic != MAGIC)
        return error_set(p->err, HS_ERR_PARSE,
                         "%s: is not a GGUF file (it does not start with \"GGUF\"); give a .gguf file or a Hugging Face folder",
                         gguf->path);
    if (p->in.failed)
        return error_set(p->err, HS_ERR_PARSE, "%s: is too short for a GGUF file (%zu bytes); " WHOLE_COPY, gguf->path, gguf->len);
    if (gguf->version >= 0x10000)
        return error_set(p->err, HS_ERR_UNSUPPORTED, "%s: is a big-endian GGUF file; use the little-endian one", gguf->path);
    if (gguf->version != 2 && gguf->version != 3)
        return error_set(p->err, HS_ERR_UNSUPPORTED, "%s: is GGUF version %" PRIu32 "; versions 2 and 3 are read: convert it anew",
                         gguf->path, gguf->version);
    if (n_values > reader_left(&p->in) / MIN_VALUE_BYTES || n_tensors > reader_left(&p->in) / MIN_TENSOR_BYTES)
        return error_set(p->err, HS_ERR_PARSE,
                         "%s: claims %" PRIu64 " metadata values and %" PRIu64
                         " tensors, more than its %zu bytes can hold; " WHOLE_COPY,
                         gguf->path, n_values, n_tensors, gguf->len);
    gguf->values = calloc(n_values + 1, sizeof *gguf->values);
    gguf->tensors = calloc(n_tensors + 1, sizeof *gguf->tensors);
    if (!gguf->values || !gguf->tensors)
        return error_set(p->err, HS_ERR_NO_MEMORY, "%s: out of memory for %" PRIu64 " tensors", gguf->path, n_tensors);
    gguf->n_values = n_values;
    gguf->n_tensors = n_tensors;
    return 0;
}

static int parse_file(struct gguf *gguf, struct error *err)
{
    struct parser p = {.gguf = gguf, .err = err};
    reader_init(&p.in, gguf->data, gguf->len);
    int rc = read_header(&p);
    gguf->values_start = p.in.pos;
    if (rc == 0)
        rc = read_values(&p);
    gguf->values_end = p.in.pos;
    if (rc == 0)
        rc = read_tensors(&p);
    return rc;
}

static int open_bytes(const uint8_t *data, size_t len, bool mapped, const char *path, struct gguf **out, struct error *err)
{
    struct model_file file = {.data = data, .len = len};
    struct gguf *gguf = calloc(1, sizeof *gguf);
    if (gguf)
        gguf->path = strdup(path);
    if (!gguf || !gguf->path) {
        free(gguf);
        if (mapped)
            model_file_unmap(&file);
        return error_set(err, HS_ERR_NO_MEMORY, "%s: out of memory", path);
    }
    gguf->data = data;
    gguf->len = len;
    gguf->mapped = mapped;
    int rc = parse_file(gguf, err);
    if (rc < 0) {
        gguf_close(gguf);
        return rc;
    }
    *out = gguf;
    return 0;
}

int gguf_open_memory(const void *data, size_t len, const char *name, struct gguf **out, struct error *err)
{
    return open_bytes(data, len, false, name, out, err);
}

int gguf_open(const char *path, struct gguf **out, struct error *err)
{
    struct model_file file;
    int rc = model_file_map(path, &file, err);
    return rc < 0 ? rc : open_bytes(file.data, file.len, true, path, out, err);
}

void gguf_close(struct gguf *gguf)
{
    if (!gguf)
        return;
    for (uint64_t i = 0; i < gguf->n_tensors; i++)
        free((char *)gguf->tensors[i].name);
    free(gguf->tensors);
    free(gguf->values);
    if (gguf->mapped)
        model_file_unmap(&(struct model_file){.data = gguf->data, .len = gguf->len});
    free(gguf->path);
    free(gguf);
}

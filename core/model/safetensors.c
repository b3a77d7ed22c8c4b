#include "core/model/safetensors.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <jansson.h>

#include "core/base/codec.h"
#include "core/base/panic.h"
#include "core/model/model_file.h"
#include "core/model/model_json.h"
#include "core/model/w4.h"

enum {
    MAX_HEADER_BYTES = 100000000, /* as the format's own reader */
    MAX_SHARDS = 4096,
    MAX_DIMS = sizeof((struct safetensors_tensor){0}.dims) / sizeof(uint64_t),
};

#define WHOLE_COPY "the file is damaged or cut off: get a whole copy"

struct shard {
    struct model_file file;
    bool mapped;    /* by us */
    json_t *header; /* holds the names and types */
};

struct safetensors {
    struct shard *shards;
    size_t n_shards;
    struct safetensors_tensor *tensors; /* sorted by name */
    size_t n_tensors;
};

static const struct {
    const char *dtype;
    enum tensor_type type;
    uint32_t bits;
} dtypes[] = {
    {"F32", TENSOR_F32, 32},  {"F16", TENSOR_F16, 16},     {"BF16", TENSOR_BF16, 16},   {"F64", TENSOR_NONE, 64},
    {"I64", TENSOR_NONE, 64}, {"U64", TENSOR_NONE, 64},    {"I32", TENSOR_NONE, 32},    {"U32", TENSOR_NONE, 32},
    {"I16", TENSOR_NONE, 16}, {"U16", TENSOR_NONE, 16},    {"I8", TENSOR_NONE, 8},      {"U8", TENSOR_NONE, 8},
    {"BOOL", TENSOR_NONE, 8}, {"F8_E4M3", TENSOR_NONE, 8}, {"F8_E5M2", TENSOR_NONE, 8},
};

static int read_dtype(const char *path, const json_t *entry, struct safetensors_tensor *t, uint32_t *bits, struct error *err)
{
    t->dtype = json_string_value(json_object_get(entry, "dtype"));
    if (!t->dtype)
        return error_set(err, HS_ERR_PARSE, "%s: tensor \"%s\" has no dtype; " WHOLE_COPY, path, t->name);
    for (size_t i = 0; i < sizeof dtypes / sizeof dtypes[0]; i++) {
        if (strcmp(dtypes[i].dtype, t->dtype) == 0) {
            t->type = dtypes[i].type;
            *bits = dtypes[i].bits;
            return 0;
        }
    }
    return error_set(err, HS_ERR_UNSUPPORTED,
                     "%s: tensor \"%s\" has type %s; F32, F16 and BF16 are supported: use a checkpoint in one of these", path,
                     t->name, t->dtype);
}

/* Bytes that shape and type ask for. */
static int read_shape(const char *path, const json_t *entry, struct safetensors_tensor *t, uint32_t bits, uint64_t *bytes,
                      struct error *err)
{
    const json_t *shape = json_object_get(entry, "shape");
    uint64_t elements = 1;
    if (!json_is_array(shape) || json_array_size(shape) > MAX_DIMS)
        return error_set(err, HS_ERR_PARSE, "%s: tensor \"%s\" has no shape of at most %d dimensions; " WHOLE_COPY, path, t->name,
                         (int)MAX_DIMS);
    t->n_dims = (uint32_t)json_array_size(shape);
    for (uint32_t i = 0; i < t->n_dims; i++) {
        const json_t *dim = json_array_get(shape, i);
        if (!json_is_integer(dim) || json_integer_value(dim) < 0 ||
            __builtin_mul_overflow(elements, (uint64_t)json_integer_value(dim), &elements))
            return error_set(err, HS_ERR_PARSE, "%s: tensor \"%s\" has an impossible shape; " WHOLE_COPY, path, t->name);
        t->dims[i] = (uint64_t)json_integer_value(dim);
    }
    if (__builtin_mul_overflow(elements, (uint64_t)(bits / 8), bytes))
        return error_set(err, HS_ERR_PARSE, "%s: tensor \"%s\" has an impossible size; " WHOLE_COPY, path, t->name);
    return 0;
}

/* What the U8 tensors of a file are; TENSOR_NONE: nothing that hearsay reads. */
static int read_packing(const char *path, const json_t *header, enum tensor_type *out, struct error *err)
{
    const json_t *packing = json_object_get(json_object_get(header, "__metadata__"), SAFETENSORS_PACKING);
    *out = TENSOR_NONE;
    if (!packing)
        return 0;
    if (json_string_value(packing))
        *out = w4_type_by_name(json_string_value(packing));
    return *out != TENSOR_NONE ? 0
                               : error_set(err, HS_ERR_UNSUPPORTED,
                                           "%s: \"" SAFETENSORS_PACKING "\" names no packing that hearsay knows; quantise it anew", path);
}

static int read_tensor(const char *path, const struct shard *shard, size_t data_start, const char *name, const json_t *entry,
                       struct safetensors_tensor *t, struct error *err)
{
    uint32_t bits = 0;
    uint64_t bytes = 0;
    *t = (struct safetensors_tensor){.name = name};
    int rc = read_dtype(path, entry, t, &bits, err);
    if (rc == 0)
        rc = read_shape(path, entry, t, bits, &bytes, err);
    if (rc < 0)
        return rc;

    const json_t *offsets = json_object_get(entry, "data_offsets");
    const json_t *begin = json_array_get(offsets, 0), *end = json_array_get(offsets, 1);
    json_int_t from = json_integer_value(begin), to = json_integer_value(end);
    json_int_t room = (json_int_t)(shard->file.len - data_start);
    if (json_array_size(offsets) != 2 || !json_is_integer(begin) || !json_is_integer(end) || from < 0 || to < from || to > room)
        return error_set(err, HS_ERR_PARSE, "%s: tensor \"%s\" lies beyond the end of the file (%zu bytes); " WHOLE_COPY, path,
                         name, shard->file.len);
    if ((uint64_t)(to - from) != bytes)
        return error_set(err, HS_ERR_PARSE,
                         "%s: tensor \"%s\" has %" PRIu64 " bytes where its shape and type need %" PRIu64 "; " WHOLE_COPY, path,
                         name, (uint64_t)(to - from), bytes);
    t->data = shard->file.data + data_start + from;
    t->bytes = bytes;
    return 0;
}

static int compare_places(const void *a, const void *b)
{
    const struct safetensors_tensor *left = a, *right = b;
    uintptr_t l = (uintptr_t)left->data, r = (uintptr_t)right->data;
    if (l != r)
        return l < r ? -1 : 1;
    return (left->bytes > right->bytes) - (left->bytes < right->bytes); /* empty tensors first */
}

/* The tensors of one shard must follow each other from the start of the data to its end. */
static int check_tiling(const char *path, struct safetensors_tensor *tensors, size_t n, const uint8_t *start, const uint8_t *end,
                        struct error *err)
{
    const uint8_t *expected = start;
    if (n)
        qsort(tensors, n, sizeof *tensors, compare_places);
    for (size_t i = 0; i < n; i++) {
        if (tensors[i].data != expected)
            return error_set(err, HS_ERR_PARSE, "%s: tensor \"%s\" overlaps another or leaves a hole; " WHOLE_COPY, path,
                             tensors[i].name);
        expected += tensors[i].bytes;
    }
    if (expected != end)
        return error_set(err, HS_ERR_PARSE, "%s: has %zu bytes that belong to no tensor; " WHOLE_COPY, path,
                         (size_t)(end - expected));
    return 0;
}

/* Adds the tensors of a shard whose bytes are there. */
static int read_shard(struct safetensors *s, struct shard *shard, const char *path, struct error *err)
{
    struct reader in;
    reader_init(&in, shard->file.data, shard->file.len);
    uint64_t header_len = read_u64(&in);
    if (in.failed || header_len > reader_left(&in) || header_len > MAX_HEADER_BYTES)
        return error_set(err, HS_ERR_PARSE, "%s: claims a header of %" PRIu64 " bytes, in a file of %zu; " WHOLE_COPY, path,
                         in.failed ? 0 : header_len, shard->file.len);
    int rc = model_json_parse((const char *)shard->file.data + sizeof header_len, header_len, path, &shard->header, err);
    if (rc < 0)
        return rc;

    size_t room = s->n_tensors + json_object_size(shard->header);
    struct safetensors_tensor *grown = realloc(s->tensors, (room + 1) * sizeof *grown);
    if (!grown)
        return error_set(err, HS_ERR_NO_MEMORY, "%s: out of memory for %zu tensors", path, room);
    s->tensors = grown;
    size_t first = s->n_tensors, data_start = sizeof header_len + header_len;
    enum tensor_type packing;
    rc = read_packing(path, shard->header, &packing, err);
    if (rc < 0)
        return rc;
    const char *name;
    json_t *entry;
    json_object_foreach(shard->header, name, entry)
    {
        if (strcmp(name, "__metadata__") == 0)
            continue;
        rc = read_tensor(path, shard, data_start, name, entry, &s->tensors[s->n_tensors], err);
        if (rc < 0)
            return rc;
        if (strcmp(s->tensors[s->n_tensors].dtype, "U8") == 0)
            s->tensors[s->n_tensors].type = packing;
        s->n_tensors++;
    }
    return check_tiling(path, s->tensors + first, s->n_tensors - first, shard->file.data + data_start,
                        shard->file.data + shard->file.len, err);
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(((const struct safetensors_tensor *)a)->name, ((const struct safetensors_tensor *)b)->name);
}

static int sort_by_name(struct safetensors *s, const char *path, struct error *err)
{
    if (s->n_tensors)
        qsort(s->tensors, s->n_tensors, sizeof *s->tensors, compare_names);
    for (size_t i = 1; i < s->n_tensors; i++)
        if (compare_names(&s->tensors[i - 1], &s->tensors[i]) == 0)
            return error_set(err, HS_ERR_PARSE, "%s: tensor \"%s\" is there twice; remove the file that does not belong", path,
                             s->tensors[i].name);
    return 0;
}

static int add_file(struct safetensors *s, const char *folder, const char *name, struct error *err)
{
    char *path = model_file_join(folder, name);
    if (!path)
        return error_set(err, HS_ERR_NO_MEMORY, "%s: out of memory", folder);
    struct shard *shard = &s->shards[s->n_shards];
    *shard = (struct shard){0};
    int rc = model_file_map(path, &shard->file, err);
    if (rc == 0) {
        shard->mapped = true;
        s->n_shards++;
        rc = read_shard(s, shard, path, err);
    }
    free(path);
    return rc;
}

/* Every tensor of the index must be in the shard files; that catches a shard left over from another download. */
static int check_index(const struct safetensors *s, const json_t *weight_map, const char *path, struct error *err)
{
    const char *name;
    json_t *file;
    json_object_foreach((json_t *)weight_map, name, file)
    {
        if (!safetensors_find(s, name))
            return error_set(err, HS_ERR_PARSE, "%s: tensor \"%s\" is in none of the files; get a whole copy of the folder", path, name);
    }
    return 0;
}

static bool plain_file_name(const char *name)
{
    return name && name[0] && name[0] != '.' && !strchr(name, '/');
}

static int add_shards(struct safetensors *s, const char *folder, const json_t *weight_map, const char *path, struct error *err)
{
    json_t *files = json_object(); /* file names seen */
    const char *tensor;
    json_t *file;
    int rc = files ? 0 : error_set(err, HS_ERR_NO_MEMORY, "%s: out of memory", path);
    json_object_foreach((json_t *)weight_map, tensor, file)
    {
        const char *name = json_string_value(file);
        if (rc < 0)
            break;
        if (!plain_file_name(name))
            rc = error_set(err, HS_ERR_PARSE, "%s: tensor \"%s\" is not in a file of this folder; get a whole copy", path, tensor);
        else if (json_object_get(files, name))
            continue;
        else if (s->n_shards == MAX_SHARDS)
            rc = error_set(err, HS_ERR_LIMIT, "%s: names more than %d files", path, MAX_SHARDS);
        else if (json_object_set_new(files, name, json_true()) < 0)
            rc = error_set(err, HS_ERR_NO_MEMORY, "%s: out of memory", path);
        else
            rc = add_file(s, folder, name, err);
    }
    json_decref(files);
    return rc;
}

static int open_index(struct safetensors *s, const char *folder, const char *path, struct error *err)
{
    json_t *index;
    int rc = model_json_read(path, &index, err);
    if (rc == HS_ERR_NOT_FOUND)
        return error_set(err, rc,
                         "%s: has neither model.safetensors nor model.safetensors.index.json; give a folder that holds the weights",
                         folder);
    if (rc < 0)
        return rc;
    const json_t *weight_map = json_object_get(index, "weight_map");
    if (!json_is_object(weight_map))
        rc = error_set(err, HS_ERR_PARSE, "%s: has no \"weight_map\"; get a whole copy of the folder", path);
    if (rc == 0)
        rc = add_shards(s, folder, weight_map, path, err);
    if (rc == 0)
        rc = sort_by_name(s, path, err);
    if (rc == 0)
        rc = check_index(s, weight_map, path, err);
    json_decref(index);
    return rc;
}

static struct safetensors *create(size_t max_shards)
{
    struct safetensors *s = calloc(1, sizeof *s);
    if (s && !(s->shards = calloc(max_shards, sizeof *s->shards))) {
        free(s);
        return NULL;
    }
    return s;
}

int safetensors_open_folder(const char *folder, struct safetensors **out, struct error *err)
{
    struct safetensors *s = create(MAX_SHARDS);
    char *single = model_file_join(folder, "model.safetensors");
    char *index = model_file_join(folder, "model.safetensors.index.json");
    int rc;
    if (!s || !single || !index) {
        rc = error_set(err, HS_ERR_NO_MEMORY, "%s: out of memory", folder);
    } else if (access(single, F_OK) == 0) {
        rc = add_file(s, folder, "model.safetensors", err);
        if (rc == 0)
            rc = sort_by_name(s, single, err);
    } else {
        rc = open_index(s, folder, index, err);
    }
    free(single);
    free(index);
    if (rc < 0) {
        safetensors_close(s);
        return rc;
    }
    *out = s;
    return 0;
}

int safetensors_open_memory(const void *data, size_t len, const char *name, struct safetensors **out, struct error *err)
{
    struct safetensors *s = create(1);
    if (!s)
        return error_set(err, HS_ERR_NO_MEMORY, "%s: out of memory", name);
    s->shards[0] = (struct shard){.file = {.data = data, .len = len}};
    s->n_shards = 1;
    int rc = read_shard(s, &s->shards[0], name, err);
    if (rc == 0)
        rc = sort_by_name(s, name, err);
    if (rc < 0) {
        safetensors_close(s);
        return rc;
    }
    *out = s;
    return 0;
}

void safetensors_close(struct safetensors *s)
{
    if (!s)
        return;
    for (size_t i = 0; i < s->n_shards; i++) {
        json_decref(s->shards[i].header);
        if (s->shards[i].mapped)
            model_file_unmap(&s->shards[i].file);
    }
    free(s->shards);
    free(s->tensors);
    free(s);
}

size_t safetensors_count(const struct safetensors *s)
{
    return s->n_tensors;
}

const struct safetensors_tensor *safetensors_at(const struct safetensors *s, size_t index)
{
    hs_assert(index < s->n_tensors);
    return &s->tensors[index];
}

static int compare_name(const void *name, const void *tensor)
{
    return strcmp(name, ((const struct safetensors_tensor *)tensor)->name);
}

const struct safetensors_tensor *safetensors_find(const struct safetensors *s, const char *name)
{
    return s->n_tensors ? bsearch(name, s->tensors, s->n_tensors, sizeof *s->tensors, compare_name) : NULL;
}

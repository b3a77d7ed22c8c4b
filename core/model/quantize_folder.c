/* The head of a safetensors file with quantised tensors, and the copy of what else a model folder holds. */
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <jansson.h>

#include "core/base/codec.h"
#include "core/base/panic.h"
#include "core/model/model_file.h"
#include "core/model/quantize_model.h"

/* ---- safetensors ---- */

static json_t *entry_of(const struct quantize_tensor *t)
{
    static const char *const dtypes[] = {[TENSOR_F32] = "F32", [TENSOR_F16] = "F16", [TENSOR_BF16] = "BF16"};
    const bool packed = t->type > TENSOR_BF16;
    json_t *shape = json_array(), *offsets = json_array(), *entry = json_object();
    for (uint32_t d = 0; d < (packed ? 2 : t->n_dims); d++) {
        uint64_t dim = packed ? (d == 0 ? t->source.rows : t->bytes / t->source.rows) : t->dims[d];
        json_array_append_new(shape, json_integer((json_int_t)dim));
    }
    json_array_append_new(offsets, json_integer((json_int_t)t->offset));
    json_array_append_new(offsets, json_integer((json_int_t)(t->offset + t->bytes)));
    json_object_set_new(entry, "dtype", json_string(packed ? "U8" : dtypes[t->type]));
    json_object_set_new(entry, "shape", shape);
    json_object_set_new(entry, "data_offsets", offsets);
    return entry;
}

/* The JSON text, on the heap; NULL without memory. */
static char *describe(const struct quantize_plan *plan)
{
    json_t *all = json_object();
    const char *packing = NULL;
    for (uint32_t i = 0; i < plan->n; i++) {
        json_object_set_new(all, plan->tensors[i].source.name, entry_of(&plan->tensors[i]));
        if (plan->tensors[i].type > TENSOR_BF16)
            packing = w4_type_name(plan->tensors[i].type);
    }
    if (packing)
        json_object_set_new(all, "__metadata__", json_pack("{s:s, s:s}", "format", "pt", SAFETENSORS_PACKING, packing));
    char *text = json_object_size(all) == plan->n + (packing != NULL) ? json_dumps(all, JSON_COMPACT) : NULL;
    json_decref(all);
    return text;
}

int quantize_plan_folder(struct quantize_plan *plan, struct error *err)
{
    plan->data_bytes = 0;
    for (uint32_t i = 0; i < plan->n; i++) {
        plan->tensors[i].offset = plan->data_bytes;
        plan->data_bytes += plan->tensors[i].bytes;
    }
    char *text = describe(plan);
    const size_t length = text ? strlen(text) : 0, padded = (length + 7) / 8 * 8; /* spaces keep the data aligned */
    plan->header_bytes = sizeof(uint64_t) + padded;
    plan->header = text ? malloc(plan->header_bytes) : NULL;
    if (plan->header) {
        struct writer w;
        writer_init(&w, plan->header, plan->header_bytes);
        write_u64(&w, padded);
        write_bytes(&w, text, length);
        for (size_t i = length; i < padded; i++)
            write_u8(&w, ' ');
        hs_assert(!w.failed && w.len == plan->header_bytes);
    }
    free(text);
    return plan->header ? 0 : error_set(err, HS_ERR_NO_MEMORY, "%s: out of memory", plan->model->folder);
}

/* ---- the other files ---- */

static bool has_ending(const char *name, const char *ending)
{
    size_t n = strlen(name), e = strlen(ending);
    return n > e && strcmp(name + n - e, ending) == 0;
}

/* Settings, tokenizer, templates; neither weights nor the index of their files. */
static bool is_copied(const char *name)
{
    if (has_ending(name, ".safetensors.index.json"))
        return false;
    return has_ending(name, ".json") || has_ending(name, ".jinja") || has_ending(name, ".txt") || has_ending(name, ".model");
}

static int write_file(const char *path, const struct model_file *content, struct error *err)
{
    unlink(path); /* it may be a link to the file that is copied */
    FILE *f = fopen(path, "wbe");
    if (!f)
        return error_set(err, HS_ERR_IO, "%s: cannot be written: %s", path, strerror(errno));
    bool whole = fwrite(content->data, 1, content->len, f) == content->len;
    if (fclose(f) != 0 || !whole)
        return error_set(err, HS_ERR_IO, "%s: was not written as a whole: %s", path, strerror(errno));
    return 0;
}

static int copy_file(const char *from, const char *to, const char *name, struct error *err)
{
    char *source = model_file_join(from, name), *target = model_file_join(to, name);
    struct model_file content = {0};
    int rc = source && target ? 0 : error_set(err, HS_ERR_NO_MEMORY, "%s: out of memory", from);
    if (rc == 0)
        rc = model_file_map(source, &content, err);
    if (rc == 0)
        rc = write_file(target, &content, err);
    model_file_unmap(&content);
    free(source);
    free(target);
    return rc;
}

int quantize_copy_folder(const char *from, const char *to, struct error *err)
{
    int rc = 0;
    if (mkdir(to, 0777) < 0 && errno != EEXIST)
        return error_set(err, HS_ERR_IO, "%s: cannot be created: %s", to, strerror(errno));
    DIR *folder = opendir(from);
    if (!folder)
        return error_set(err, HS_ERR_IO, "%s: cannot be read: %s", from, strerror(errno));
    for (const struct dirent *entry; rc == 0 && (entry = readdir(folder));)
        if (is_copied(entry->d_name))
            rc = copy_file(from, to, entry->d_name, err);
    closedir(folder);
    return rc;
}

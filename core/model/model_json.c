#include "core/model/model_json.h"

#include <stdlib.h>

#include "core/model/model_file.h"

static _Thread_local bool refused; /* since model_json_load began */

static void *allocate(size_t bytes)
{
    void *memory = malloc(bytes);
    refused |= !memory;
    return memory;
}

/* Before main, so that no thread is in jansson while its functions change. They stay malloc's kind: free still frees. */
__attribute__((constructor)) static void watch_allocations(void)
{
    json_set_alloc_funcs(allocate, free);
}

json_t *model_json_load(const char *text, size_t len, size_t flags, bool *no_memory, json_error_t *problem)
{
    refused = false;
    json_t *value = json_loadb(len ? text : "", len, flags, problem);
    *no_memory = refused;
    if (refused) {
        json_decref(value);
        return NULL;
    }
    return value;
}

int model_json_parse(const char *text, size_t len, const char *path, json_t **out, struct error *err)
{
    json_error_t problem;
    bool no_memory;
    json_t *value = model_json_load(text, len, JSON_REJECT_DUPLICATES, &no_memory, &problem);
    if (no_memory)
        return error_set(err, HS_ERR_NO_MEMORY, "%s: out of memory", path);
    if (!value)
        return error_set(err, HS_ERR_PARSE, "%s: line %d, column %d is not valid JSON (%s); get a whole copy of the file", path,
                         problem.line, problem.column, problem.text);
    if (!json_is_object(value)) {
        json_decref(value);
        return error_set(err, HS_ERR_PARSE, "%s: does not hold a JSON object; get a whole copy of the file", path);
    }
    *out = value;
    return 0;
}

int model_json_read(const char *path, json_t **out, struct error *err)
{
    struct model_file file;
    int rc = model_file_map(path, &file, err);
    if (rc < 0)
        return rc;
    rc = model_json_parse((const char *)file.data, file.len, path, out, err);
    model_file_unmap(&file);
    return rc;
}

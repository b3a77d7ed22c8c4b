#include "core/model/model_json.h"

#include "core/model/model_file.h"

bool model_json_no_memory(const json_error_t *problem)
{
    return json_error_code(problem) == json_error_out_of_memory || (json_error_code(problem) == json_error_unknown && !problem->text[0]);
}

int model_json_parse(const char *text, size_t len, const char *path, json_t **out, struct error *err)
{
    json_error_t problem = {0};
    json_t *value = json_loadb(text ? text : "", len, JSON_REJECT_DUPLICATES, &problem);
    if (!value && model_json_no_memory(&problem))
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

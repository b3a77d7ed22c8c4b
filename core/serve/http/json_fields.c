#include "core/serve/http/json_fields.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "core/model/model_json.h"

/* The deepest nesting of brackets outside strings, so that the parser's recursion is bounded before it begins. */
static unsigned depth_of(const char *body, size_t len)
{
    unsigned depth = 0, deepest = 0;
    bool in_string = false;
    for (size_t i = 0; i < len; i++) {
        char c = body[i];
        if (in_string) {
            if (c == '\\')
                i++;
            else if (c == '"')
                in_string = false;
        } else if (c == '"') {
            in_string = true;
        } else if (c == '{' || c == '[') {
            if (++depth > deepest)
                deepest = depth;
        } else if ((c == '}' || c == ']') && depth) {
            depth--;
        }
    }
    return deepest;
}

static bool is_one_of(char c, const char *set)
{
    return c && strchr(set, c);
}

/* A number that fits no type ends at body[end]: the name of the field it belongs to, or "". */
static void name_of_number(const char *body, size_t end, char *out, size_t cap)
{
    size_t at = end;
    while (at && is_one_of(body[at - 1], "0123456789+-.eE"))
        at--;
    while (at && is_one_of(body[at - 1], " \t\r\n:"))
        at--;
    size_t close = at ? at - 1 : 0;
    for (at = close; at && body[at - 1] != '"';)
        at--;
    bool named = body[close] == '"' && at;
    snprintf(out, cap, "%.*s", named ? (int)(close - at) : 0, body + at);
}

static void explain_parse_error(const char *body, size_t len, const json_error_t *where, struct api_error *error)
{
    if (json_error_code(where) == json_error_numeric_overflow && where->position > 0 && (size_t)where->position <= len) {
        char name[64];
        name_of_number(body, (size_t)where->position, name, sizeof name);
        api_error_set(error, 400, name, "invalid_value", "%s is a number beyond all bounds.", *name ? name : "In the body");
        return;
    }
    api_error_set(error, 400, NULL, "invalid_json", "The body is not valid JSON: line %d, column %d: %s.", where->line, where->column,
                  where->text);
}

json_t *json_fields_parse(const char *body, size_t len, unsigned depth_max, struct api_error *error)
{
    unsigned depth = depth_of(body, len);
    if (depth > depth_max) {
        api_error_set_limit(error, API_LIMIT_DEPTH, 400, NULL, "invalid_json", "The body is nested %u levels deep; at most %u are possible.",
                            depth, depth_max);
        return NULL;
    }
    json_error_t where;
    bool no_memory;
    json_t *root = model_json_load(body, len, JSON_ALLOW_NUL, &no_memory, &where);
    if (!root) {
        if (no_memory)
            api_error_set(error, 500, NULL, NULL, "Out of memory.");
        else
            explain_parse_error(body, len, &where, error);
        return NULL;
    }
    if (!json_is_object(root)) {
        json_decref(root);
        api_error_set(error, 400, NULL, "invalid_json", "The body must be a JSON object.");
        return NULL;
    }
    return root;
}

json_t *json_fields_get(const struct json_fields *fields, const char *name)
{
    json_t *value = fields->failed ? NULL : json_object_get(fields->object, name);
    return json_is_null(value) ? NULL : value;
}

bool json_fields_fail(struct json_fields *fields, const char *name, const char *code, const char *format, ...)
{
    if (fields->failed)
        return false;
    char text[400];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    api_error_set(fields->error, 400, name, code, "%s", text);
    fields->failed = true;
    return false;
}

bool json_fields_bool(struct json_fields *fields, const char *name, bool *out)
{
    json_t *value = json_fields_get(fields, name);
    if (!value)
        return false;
    if (!json_is_boolean(value))
        return json_fields_fail(fields, name, "invalid_type", "%s must be true or false.", name);
    *out = json_is_true(value);
    return true;
}

bool json_fields_integer(struct json_fields *fields, const char *name, int64_t min, int64_t max, int64_t *out)
{
    json_t *value = json_fields_get(fields, name);
    if (!value)
        return false;
    if (!json_is_integer(value))
        return json_fields_fail(fields, name, "invalid_type", "%s must be a whole number.", name);
    int64_t number = json_integer_value(value);
    if (number < min || number > max)
        return json_fields_fail(fields, name, "invalid_value", "%s is %lld; it must be from %lld to %lld.", name,
                                (long long)number, (long long)min, (long long)max);
    *out = number;
    return true;
}

bool json_fields_number(struct json_fields *fields, const char *name, double min, double max, double *out)
{
    json_t *value = json_fields_get(fields, name);
    if (!value)
        return false;
    if (!json_is_number(value))
        return json_fields_fail(fields, name, "invalid_type", "%s must be a number.", name);
    double number = json_number_value(value);
    if (!(number >= min && number <= max))
        return json_fields_fail(fields, name, "invalid_value", "%s is %g; it must be from %g to %g.", name, number, min, max);
    *out = number;
    return true;
}

bool json_fields_string(struct json_fields *fields, const char *name, size_t max_len, const char **out, size_t *len)
{
    json_t *value = json_fields_get(fields, name);
    if (!value)
        return false;
    if (!json_is_string(value))
        return json_fields_fail(fields, name, "invalid_type", "%s must be a string.", name);
    if (json_string_length(value) > max_len)
        return json_fields_fail(fields, name, "invalid_value", "%s is longer than %zu bytes.", name, max_len);
    *out = json_string_value(value);
    *len = json_string_length(value);
    return true;
}

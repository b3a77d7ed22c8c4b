/*
 * Typed reading of a JSON object's members. A member that is absent or null leaves the output alone; one of a wrong type or
 * out of range fills the error (400, naming the field). The first error is sticky: later reads do nothing.
 *
 * Threading: belongs to one thread. Texts point into the JSON tree.
 */
#ifndef HEARSAY_SERVE_HTTP_JSON_FIELDS_H
#define HEARSAY_SERVE_HTTP_JSON_FIELDS_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "core/serve/http/api_error.h"

struct json_fields {
    json_t *object;
    struct api_error *error;
    bool failed;
};

/*
 * Parses a body that must be one JSON object, at most depth_max levels deep; the last of several equal keys counts. NULL with
 * error filled. The result is freed by json_decref.
 */
json_t *json_fields_parse(const char *body, size_t len, unsigned depth_max, struct api_error *error);

/* The member, or NULL if absent, null or after an error. */
json_t *json_fields_get(const struct json_fields *fields, const char *name);
/* Each: true when the member was there and good. */
bool json_fields_bool(struct json_fields *fields, const char *name, bool *out);
bool json_fields_integer(struct json_fields *fields, const char *name, int64_t min, int64_t max, int64_t *out);
bool json_fields_number(struct json_fields *fields, const char *name, double min, double max, double *out);
bool json_fields_string(struct json_fields *fields, const char *name, size_t max_len, const char **out, size_t *len);
/* Records a 400 about the field. Always false. */
bool json_fields_fail(struct json_fields *fields, const char *name, const char *code, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

#endif

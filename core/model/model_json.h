/*
 * JSON files of model folders: strict parsing (no duplicate keys) with errors that name file, line and problem.
 *
 * Ownership: *out is released with json_decref. Threading: none of its own.
 */
#ifndef HEARSAY_MODEL_MODEL_JSON_H
#define HEARSAY_MODEL_MODEL_JSON_H

#include <stdbool.h>
#include <stddef.h>

#include <jansson.h>

#include "core/base/error.h"

/*
 * json_loadb that never takes want of memory for anything else: jansson's scanner (2.14) may call it a syntax error, or even drop a
 * byte of a number and go on. NULL with *no_memory set, or with *problem filled.
 */
json_t *model_json_load(const char *text, size_t len, size_t flags, bool *no_memory, json_error_t *problem);
/* An object from text[len]; path is for errors. 0, HS_ERR_PARSE or HS_ERR_NO_MEMORY. */
int model_json_parse(const char *text, size_t len, const char *path, json_t **out, struct error *err);
/* The same from a file: also HS_ERR_NOT_FOUND and HS_ERR_IO. */
int model_json_read(const char *path, json_t **out, struct error *err);

#endif

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

/* Whether jansson gave up for want of memory: it says so, or says nothing at all. The struct must have begun as {0}. */
bool model_json_no_memory(const json_error_t *problem);
/* An object from text[len]; path is for errors. 0, HS_ERR_PARSE or HS_ERR_NO_MEMORY. */
int model_json_parse(const char *text, size_t len, const char *path, json_t **out, struct error *err);
/* The same from a file: also HS_ERR_NOT_FOUND and HS_ERR_IO. */
int model_json_read(const char *path, json_t **out, struct error *err);

#endif

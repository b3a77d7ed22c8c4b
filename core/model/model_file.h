/*
 * Whole files mapped read-only, as the readers of weights and settings use them.
 *
 * The file must not be shortened while it is mapped: the kernel would end the process (SIGBUS). Replace model files by
 * renaming. Threading: immutable after open.
 */
#ifndef HEARSAY_MODEL_MODEL_FILE_H
#define HEARSAY_MODEL_MODEL_FILE_H

#include <stddef.h>
#include <stdint.h>

#include "core/base/error.h"

struct model_file {
    const uint8_t *data; /* NULL when len is 0 */
    size_t len;
};

/* 0, HS_ERR_NOT_FOUND (no such file) or HS_ERR_IO. */
int model_file_map(const char *path, struct model_file *out, struct error *err);
void model_file_unmap(struct model_file *file);

/* "folder/name" on the heap, or NULL without memory. */
char *model_file_join(const char *folder, const char *name);

#endif

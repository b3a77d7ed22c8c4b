/*
 * Reader of safetensors files (https://huggingface.co/docs/safetensors), one or many that together make a model.
 *
 *     +----------------+--------------------------------------------------------+-------------+
 *     | u64 header len | JSON: name -> dtype, shape, data_offsets [begin, end)  | tensor data |
 *     +----------------+--------------------------------------------------------+-------------+
 *
 * Files are mapped. The header is checked in full: every tensor's bytes match its shape and type, and the tensors tile the data
 * without hole or overlap, as the format demands.
 *
 * Ownership: names and data live until safetensors_close. Data may be unaligned. Threading: immutable after open.
 * Errors: one line that names the file, the tensor and what to do.
 */
#ifndef HEARSAY_MODEL_SAFETENSORS_H
#define HEARSAY_MODEL_SAFETENSORS_H

#include <stddef.h>
#include <stdint.h>

#include "core/base/error.h"
#include "core/port/model.h"

/*
 * Key in a file's __metadata__: all its U8 tensors are rows of the own 4-bit type that it names (w4.h), and their last dimension
 * counts the bytes of a row.
 */
#define SAFETENSORS_PACKING "hearsay.packing"

struct safetensors_tensor {
    const char *name;
    const char *dtype;     /* as in the file: "BF16" */
    enum tensor_type type; /* TENSOR_NONE for types that are not weights hearsay reads (I64, F8_E4M3, ...) */
    uint32_t n_dims;       /* 0 to 8 */
    uint64_t dims[8];      /* outermost first: a matrix [rows][cols] has dims {rows, cols} */
    const void *data;
    size_t bytes;
};

struct safetensors;

/*
 * A folder: model.safetensors, or the shards that model.safetensors.index.json names.
 * 0, HS_ERR_NOT_FOUND (neither is there), HS_ERR_IO, HS_ERR_PARSE, HS_ERR_NO_MEMORY.
 */
int safetensors_open_folder(const char *folder, struct safetensors **out, struct error *err);
/* One file already in memory, which must stay until close. */
int safetensors_open_memory(const void *data, size_t len, const char *name, struct safetensors **out, struct error *err);
void safetensors_close(struct safetensors *tensors); /* NULL is fine */

size_t safetensors_count(const struct safetensors *tensors);
const struct safetensors_tensor *safetensors_at(const struct safetensors *tensors, size_t index); /* in the order of names */
const struct safetensors_tensor *safetensors_find(const struct safetensors *tensors, const char *name);

#endif

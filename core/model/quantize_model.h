/*
 * A whole model written anew with its matrices in 4 bits (w4.h): a GGUF file from a GGUF file, a folder from a folder.
 *
 * Metadata and tokenizer are copied as they stand; norms, biases and matrices whose rows are no multiple of 32 values keep
 * their type. The new file of weights is seen when it is whole (new_file.h), so that a run that fails or is killed leaves none and an
 * earlier one stays. Of a folder the small files are copied first, one by one.
 *
 * Threading: quantize_model starts `threads` threads and works on the calling one too, which reports progress. The result does not
 * depend on their number.
 */
#ifndef HEARSAY_MODEL_QUANTIZE_MODEL_H
#define HEARSAY_MODEL_QUANTIZE_MODEL_H

#include <stdbool.h>
#include <stdint.h>

#include "core/base/error.h"
#include "core/model/model_weights.h"
#include "core/model/w4.h"

struct quantize_config {
    const char *in;  /* a .gguf file or a Hugging Face folder */
    const char *out; /* the file, or the folder: created if it is not there */
    struct w4_layout layout;
    bool keep_output;    /* the output layer keeps its type */
    bool keep_embedding; /* the embedding does; a model that uses one tensor for both gets a second one for the output layer */
    uint32_t threads;    /* at least 1 */
    void (*progress)(void *arg, double share); /* may be NULL */
    void *progress_arg;
};

struct quantize_summary {
    uint32_t n_quantized, n_kept; /* tensors */
    uint64_t bytes_in, bytes_out; /* of all tensors */
    double relative_error;        /* root of (squared error over squared values) of what was quantised */
};

/* 0, or HS_ERR_* with a line that names the file, the tensor and the remedy. */
int quantize_model(const struct quantize_config *config, struct quantize_summary *out, struct error *err);

/* ---- between the files of this module ---- */

/* A tensor of the new file. */
struct quantize_tensor {
    struct tensor_view source; /* name, data, type; rows and cols set */
    uint32_t n_dims;
    uint64_t dims[8];      /* as the kind of file orders them */
    enum tensor_type type; /* in the new file */
    uint64_t bytes, offset; /* there, offset from the start of the data */
};

struct quantize_plan {
    const struct model_weights *model;
    struct quantize_tensor *tensors; /* [n], in the order of the new file */
    uint32_t n;
    uint8_t *header; /* everything in front of the data */
    uint64_t header_bytes, data_bytes;
};

/* Fill in offsets, data_bytes and header (on the heap) from tensors. */
int quantize_plan_gguf(struct quantize_plan *plan, struct error *err);
int quantize_plan_folder(struct quantize_plan *plan, struct error *err);
/* Copies everything but weights from one folder to the other. */
int quantize_copy_folder(const char *from, const char *to, struct error *err);

#endif

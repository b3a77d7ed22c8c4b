/*
 * A model's description with its weights: struct model_desc over a mapped GGUF file or Hugging Face folder, without
 * tokenizer and chat template (loaded_model.h adds them).
 *
 * Every tensor that the architecture needs must be there in the right shape, and none may be left over: an unknown tensor
 * means a feature that hearsay does not compute, and is a clear error instead of wrong text.
 *
 * Ownership: model_weights_close frees all, the description included. Threading: immutable after open.
 */
#ifndef HEARSAY_MODEL_MODEL_WEIGHTS_H
#define HEARSAY_MODEL_MODEL_WEIGHTS_H

#include "core/base/error.h"
#include "core/model/gguf.h"
#include "core/model/model_config.h"
#include "core/model/safetensors.h"
#include "core/port/model.h"

struct model_weights {
    struct model_desc desc; /* fingerprint: zero until fingerprint_compute */
    /* Owned; gguf or (tensors, folder) is NULL. */
    struct gguf *gguf;
    struct safetensors *tensors;
    char *folder;
    char *name;
    struct model_layer *layers;
    float *inv_freq;
};

/* path: a .gguf file or a Hugging Face folder. 0 or HS_ERR_* with a line that names the remedy. */
int model_weights_open(const char *path, struct model_weights **out, struct error *err);
/* A GGUF file already in memory, which must stay until close; name stands for the path in errors. */
int model_weights_open_memory(const void *data, size_t len, const char *name, struct model_weights **out, struct error *err);
void model_weights_close(struct model_weights *weights); /* NULL is fine */

/* One tensor by name from either source. */
struct model_tensors {
    const char *path; /* for errors */
    const struct gguf *gguf;
    const struct safetensors *tensors;
};

/*
 * Ties tensors to desc and layers[desc->n_layers], whose shapes are set but for n_vocab; checks every shape and that no tensor
 * is left over (model_bind.c). *freq_factors receives rope_freqs.weight, an absent view if there is none.
 */
int model_bind_tensors(const struct model_tensors *source, const struct model_config *config, struct model_desc *desc,
                       struct model_layer *layers, struct tensor_view *freq_factors, struct error *err);

#endif

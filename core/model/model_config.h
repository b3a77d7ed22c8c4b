/*
 * What a model says about itself, in one form for both kinds of source: the metadata of a GGUF file (gguf_config.c) or the
 * config.json of a Hugging Face folder (hf_config.c). Tensors are tied to it by model_weights.
 *
 * Threading: none of its own. Errors: one line that names the source, the key and the remedy; what hearsay does not
 * support is HS_ERR_UNSUPPORTED with the list of what it does.
 */
#ifndef HEARSAY_MODEL_MODEL_CONFIG_H
#define HEARSAY_MODEL_MODEL_CONFIG_H

#include <stdbool.h>
#include <stdint.h>

#include "core/base/error.h"
#include "core/model/gguf.h"
#include "core/model/rope_frequencies.h"
#include "core/port/model.h"

/* A family of models that share one graph. */
struct model_family {
    const char *name;             /* model_desc.architecture; general.architecture in GGUF; model_type in config.json */
    const char *hf_class;         /* architectures[0] in config.json */
    bool in_gguf;                 /* GGUF files carry this name (Mistral's say "llama") */
    enum rope_layout gguf_layout; /* of q and k in GGUF files; folders are always half split */
    bool qkv_bias;                /* bq, bk and bv are there */
    bool qk_norm;                 /* q_norm and k_norm are there */
};

const struct model_family *model_family_by_name(const char *name);
const struct model_family *model_family_by_hf_class(const char *hf_class);
/* "llama (Llama 2/3, SmolLM2), ..." for error texts. */
const char *model_family_list(void);

struct model_config {
    const struct model_family *family;
    uint32_t n_layers, d_model, d_ff, n_heads, n_kv_heads, d_head;
    uint32_t n_context;
    uint32_t sliding_window; /* 0: none */
    double rms_epsilon;
    enum rope_layout rope_layout;
    struct rope_config rope;
    bool tied; /* config.json: output is token_embedding. GGUF files say so by leaving the tensor out */
};

int model_config_from_gguf(const struct gguf *gguf, struct model_config *out, struct error *err);
/* path: of config.json. */
int model_config_from_json(const char *path, struct model_config *out, struct error *err);

/* Refuses impossible shapes and sets n_context from the rope scaling; called by both readers at their end. */
int model_config_finish(struct model_config *config, const char *path, struct error *err);

#endif

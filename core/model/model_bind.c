#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/panic.h"
#include "core/model/dequantize.h"
#include "core/model/model_weights.h"

/* Sizes that shapes are made of. */
enum size { SIZE_ONE, SIZE_D_MODEL, SIZE_D_FF, SIZE_Q, SIZE_KV, SIZE_D_HEAD, N_SIZES };

/* When a tensor must be there. */
enum need { NEED_ALWAYS, NEED_OPTIONAL, NEED_QKV_BIAS, NEED_QK_NORM };

/* The tensors of a layer: names behind "blk.N." in GGUF files and "model.layers.N." in folders, place, shape. */
static const struct layer_role {
    const char *gguf, *folder;
    size_t offset; /* of the view in struct model_layer */
    enum size rows, cols;
    enum need need;
} roles[] = {
    {"attn_norm.weight", "input_layernorm.weight", offsetof(struct model_layer, attn_norm), SIZE_ONE, SIZE_D_MODEL, NEED_ALWAYS},
    {"attn_q.weight", "self_attn.q_proj.weight", offsetof(struct model_layer, wq), SIZE_Q, SIZE_D_MODEL, NEED_ALWAYS},
    {"attn_k.weight", "self_attn.k_proj.weight", offsetof(struct model_layer, wk), SIZE_KV, SIZE_D_MODEL, NEED_ALWAYS},
    {"attn_v.weight", "self_attn.v_proj.weight", offsetof(struct model_layer, wv), SIZE_KV, SIZE_D_MODEL, NEED_ALWAYS},
    {"attn_output.weight", "self_attn.o_proj.weight", offsetof(struct model_layer, wo), SIZE_D_MODEL, SIZE_Q, NEED_ALWAYS},
    {"attn_q.bias", "self_attn.q_proj.bias", offsetof(struct model_layer, bq), SIZE_ONE, SIZE_Q, NEED_QKV_BIAS},
    {"attn_k.bias", "self_attn.k_proj.bias", offsetof(struct model_layer, bk), SIZE_ONE, SIZE_KV, NEED_QKV_BIAS},
    {"attn_v.bias", "self_attn.v_proj.bias", offsetof(struct model_layer, bv), SIZE_ONE, SIZE_KV, NEED_QKV_BIAS},
    {"attn_q_norm.weight", "self_attn.q_norm.weight", offsetof(struct model_layer, q_norm), SIZE_ONE, SIZE_D_HEAD, NEED_QK_NORM},
    {"attn_k_norm.weight", "self_attn.k_norm.weight", offsetof(struct model_layer, k_norm), SIZE_ONE, SIZE_D_HEAD, NEED_QK_NORM},
    {"ffn_norm.weight", "post_attention_layernorm.weight", offsetof(struct model_layer, ffn_norm), SIZE_ONE, SIZE_D_MODEL,
     NEED_ALWAYS},
    {"ffn_gate.weight", "mlp.gate_proj.weight", offsetof(struct model_layer, w_gate), SIZE_D_FF, SIZE_D_MODEL, NEED_ALWAYS},
    {"ffn_up.weight", "mlp.up_proj.weight", offsetof(struct model_layer, w_up), SIZE_D_FF, SIZE_D_MODEL, NEED_ALWAYS},
    {"ffn_down.weight", "mlp.down_proj.weight", offsetof(struct model_layer, w_down), SIZE_D_MODEL, SIZE_D_FF, NEED_ALWAYS},
};

enum { N_ROLES = sizeof roles / sizeof roles[0], NAME_BYTES = 128 };

static const struct names {
    const char *embedding, *output_norm, *output, *layer_prefix, *freq_factors;
} gguf_names = {"token_embd.weight", "output_norm.weight", "output.weight", "blk.", "rope_freqs.weight"},
  folder_names = {"model.embed_tokens.weight", "model.norm.weight", "lm_head.weight", "model.layers.", NULL};

struct binder {
    const struct model_tensors *source;
    const struct names *names;
    const struct model_config *config;
    uint32_t sizes[N_SIZES];
    struct error *err;
};

static const char *role_name(const struct binder *b, const struct layer_role *role)
{
    return b->source->gguf ? role->gguf : role->folder;
}

/* Any tensor as a matrix, its dimensions outermost first. False: there is none of this name. */
static bool find_tensor(const struct binder *b, const char *name, struct tensor_view *out, uint64_t *rows, uint64_t *cols)
{
    *rows = 1;
    if (b->source->gguf) {
        const struct gguf_tensor *t = gguf_find_tensor(b->source->gguf, name);
        if (!t)
            return false;
        *out = (struct tensor_view){.name = t->name, .data = t->data, .bytes = t->bytes, .type = t->type};
        *cols = t->dims[0];
        for (uint32_t i = 1; i < 4; i++)
            *rows *= t->dims[i];
        return true;
    }
    const struct safetensors_tensor *t = safetensors_find(b->source->tensors, name);
    if (!t)
        return false;
    *out = (struct tensor_view){.name = t->name, .data = t->data, .bytes = t->bytes, .type = t->type};
    *cols = t->n_dims ? t->dims[t->n_dims - 1] : 1;
    for (uint32_t i = 0; i + 1 < t->n_dims; i++)
        *rows *= t->dims[i];
    return true;
}

/* The columns that the file gives a row of cols values: of 4-bit rows, folders count the bytes (safetensors.h). False: it can hold no
 * such row. */
static bool stored_cols(const struct binder *b, enum tensor_type type, uint32_t cols, uint64_t *stored)
{
    *stored = cols;
    return b->source->gguf || !tensor_is_w4(type) || tensor_row_bytes(type, cols, stored);
}

/* rows == 0: any number of rows. An absent tensor leaves *out absent, and is an error only if required. */
static int bind(const struct binder *b, const char *name, uint32_t rows, uint32_t cols, bool required, struct tensor_view *out)
{
    struct tensor_view view;
    uint64_t found_rows, found_cols, wanted_cols;
    *out = (struct tensor_view){.type = TENSOR_NONE};
    if (!find_tensor(b, name, &view, &found_rows, &found_cols)) {
        if (!required)
            return 0;
        return error_set(b->err, HS_ERR_PARSE, "%s: tensor \"%s\" is missing; get a whole copy of the model", b->source->path,
                         name);
    }
    if (view.type == TENSOR_NONE)
        return error_set(b->err, HS_ERR_UNSUPPORTED,
                         "%s: tensor \"%s\" is not in F32, F16 or BF16; use a checkpoint in one of these", b->source->path, name);
    if (!stored_cols(b, view.type, cols, &wanted_cols) || found_cols != wanted_cols ||
        (rows ? found_rows != rows : found_rows < 1 || found_rows > INT32_MAX))
        return error_set(b->err, HS_ERR_PARSE,
                         "%s: tensor \"%s\" is %" PRIu64 " x %" PRIu64 " where %" PRIu64 " x %" PRIu64
                         " belongs; get a whole copy of the model",
                         b->source->path, name, found_rows, found_cols, rows ? rows : found_rows, wanted_cols);
    view.rows = (uint32_t)found_rows;
    view.cols = cols;
    *out = view;
    return 0;
}

static bool is_required(const struct model_family *family, enum need need)
{
    return need == NEED_ALWAYS || (need == NEED_QKV_BIAS && family->qkv_bias) || (need == NEED_QK_NORM && family->qk_norm);
}

static int bind_layer(const struct binder *b, uint32_t index, struct model_layer *layer)
{
    for (int i = 0; i < N_ROLES; i++) {
        char name[NAME_BYTES];
        struct tensor_view *view = (struct tensor_view *)((char *)layer + roles[i].offset);
        snprintf(name, sizeof name, "%s%" PRIu32 ".%s", b->names->layer_prefix, index, role_name(b, &roles[i]));
        int rc =
            bind(b, name, b->sizes[roles[i].rows], b->sizes[roles[i].cols], is_required(b->config->family, roles[i].need), view);
        if (rc < 0)
            return rc;
    }
    return 0;
}

/* True if the graph uses a tensor of this name or may ignore it. */
static bool is_known(const struct binder *b, const char *name)
{
    size_t prefix = strlen(b->names->layer_prefix);
    const char *end;
    char *digits_end;

    if (strcmp(name, b->names->embedding) == 0 || strcmp(name, b->names->output_norm) == 0 || strcmp(name, b->names->output) == 0 ||
        (b->names->freq_factors && strcmp(name, b->names->freq_factors) == 0))
        return true;
    if ((end = strstr(name, ".rotary_emb.inv_freq")) && end[20] == '\0') /* a copy of what the config says, in old checkpoints */
        return true;
    if (strncmp(name, b->names->layer_prefix, prefix) != 0)
        return false;
    unsigned long layer = strtoul(name + prefix, &digits_end, 10);
    if (layer >= b->config->n_layers || *digits_end != '.')
        return false;
    for (int i = 0; i < N_ROLES; i++)
        if (strcmp(digits_end + 1, role_name(b, &roles[i])) == 0)
            return roles[i].need != NEED_QK_NORM || b->config->family->qk_norm;
    return false;
}

static int refuse_unknown(const struct binder *b)
{
    uint64_t n = b->source->gguf ? gguf_count_tensors(b->source->gguf) : safetensors_count(b->source->tensors);
    for (uint64_t i = 0; i < n; i++) {
        const char *name = b->source->gguf ? gguf_tensor_at(b->source->gguf, i)->name : safetensors_at(b->source->tensors, i)->name;
        if (!is_known(b, name))
            return error_set(b->err, HS_ERR_UNSUPPORTED,
                             "%s: tensor \"%.100s\" has no place in architecture %s, so the model needs something that is not "
                             "supported; supported are: %s",
                             b->source->path, name, b->config->family->name, model_family_list());
    }
    return 0;
}

/* A folder that uses the embedding for the output may hold a copy, which counts only if it was packed apart. */
static bool has_packed_output(const struct binder *b)
{
    const struct safetensors_tensor *t = safetensors_find(b->source->tensors, b->names->output);
    return t && tensor_is_w4(t->type);
}

static int bind_output(const struct binder *b, struct model_desc *desc)
{
    if (!b->source->gguf && b->config->tied && !has_packed_output(b)) {
        desc->output = desc->token_embedding;
        return 0;
    }
    int rc = bind(b, b->names->output, desc->n_vocab, desc->d_model, !b->source->gguf, &desc->output);
    if (rc == 0 && !tensor_present(&desc->output))
        desc->output = desc->token_embedding;
    return rc;
}

int model_bind_tensors(const struct model_tensors *source, const struct model_config *config, struct model_desc *desc,
                       struct model_layer *layers, struct tensor_view *freq_factors, struct error *err)
{
    struct binder b = {
        .source = source,
        .names = source->gguf ? &gguf_names : &folder_names,
        .config = config,
        .sizes = {[SIZE_ONE] = 1,
                  [SIZE_D_MODEL] = config->d_model,
                  [SIZE_D_FF] = config->d_ff,
                  [SIZE_Q] = config->n_heads * config->d_head,
                  [SIZE_KV] = config->n_kv_heads * config->d_head,
                  [SIZE_D_HEAD] = config->d_head},
        .err = err,
    };
    *freq_factors = (struct tensor_view){.type = TENSOR_NONE};
    int rc = refuse_unknown(&b);
    if (rc == 0)
        rc = bind(&b, b.names->embedding, 0, config->d_model, true, &desc->token_embedding);
    if (rc < 0)
        return rc;
    desc->n_vocab = desc->token_embedding.rows;
    rc = bind(&b, b.names->output_norm, 1, config->d_model, true, &desc->output_norm);
    if (rc == 0)
        rc = bind_output(&b, desc);
    if (rc == 0 && b.names->freq_factors)
        rc = bind(&b, b.names->freq_factors, 1, config->d_head / 2, false, freq_factors);
    for (uint32_t i = 0; rc == 0 && i < config->n_layers; i++)
        rc = bind_layer(&b, i, &layers[i]);
    return rc;
}

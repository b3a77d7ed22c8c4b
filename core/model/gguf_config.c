#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "core/model/model_config.h"

/* Keys of the architecture stand under its name: "llama.block_count". */
struct keys {
    const struct gguf *gguf;
    const char *architecture;
    struct error *err;
    char text[96];
};

static const char *key(struct keys *k, const char *suffix)
{
    snprintf(k->text, sizeof k->text, "%s.%s", k->architecture, suffix);
    return k->text;
}

static bool has(struct keys *k, const char *suffix)
{
    return gguf_find(k->gguf, key(k, suffix)) != NULL;
}

/* A number that may be given per layer: all layers must have the same. */
static int get_count(struct keys *k, const char *suffix, uint32_t *out)
{
    const struct gguf_value *v = gguf_find(k->gguf, key(k, suffix));
    if (!v || v->type != GGUF_ARRAY)
        return gguf_get_u32(k->gguf, k->text, out, k->err);
    int rc = gguf_get_array(k->gguf, k->text, GGUF_I64, &v, k->err);
    if (rc < 0)
        return rc;
    int64_t first = v->count ? gguf_value_i64(v, 0) : 0;
    for (uint64_t i = 1; i < v->count; i++)
        if (gguf_value_i64(v, i) != first)
            return error_set(k->err, HS_ERR_UNSUPPORTED,
                             "%s: \"%s\" differs between layers, which is not supported; use a model of one of: %s",
                             gguf_path(k->gguf), k->text, model_family_list());
    if (first < 1 || first > UINT32_MAX)
        return error_set(k->err, HS_ERR_PARSE, "%s: \"%s\" is %" PRId64 "; get a whole copy of the file", gguf_path(k->gguf),
                         k->text, first);
    *out = (uint32_t)first;
    return 0;
}

/* Leaves *out alone if the key is absent. */
static int get_optional_f64(struct keys *k, const char *suffix, double *out)
{
    return has(k, suffix) ? gguf_get_f64(k->gguf, k->text, out, k->err) : 0;
}

static int get_optional_u32(struct keys *k, const char *suffix, uint32_t *out)
{
    return has(k, suffix) ? gguf_get_u32(k->gguf, k->text, out, k->err) : 0;
}

static int read_scaling_type(struct keys *k, struct rope_config *rope)
{
    struct gguf_string type;
    if (!has(k, "rope.scaling.type")) {
        rope->scaling = rope->factor != 1 ? ROPE_SCALING_LINEAR : ROPE_SCALING_NONE;
        return 0;
    }
    int rc = gguf_get_string(k->gguf, k->text, &type, k->err);
    if (rc < 0)
        return rc;
    if (gguf_string_equals(type, "none"))
        rope->scaling = ROPE_SCALING_NONE;
    else if (gguf_string_equals(type, "linear"))
        rope->scaling = ROPE_SCALING_LINEAR;
    else if (gguf_string_equals(type, "yarn"))
        rope->scaling = ROPE_SCALING_YARN;
    else
        return error_set(
            k->err, HS_ERR_UNSUPPORTED,
            "%s: rope scaling \"%.*s\" is not supported; supported are none, linear, yarn and llama3 (rope_freqs.weight)",
            gguf_path(k->gguf), (int)(type.len > 40 ? 40 : type.len), type.text);
    return 0;
}

static int read_rope(struct keys *k, struct model_config *c)
{
    struct rope_config *rope = &c->rope;
    uint32_t original = c->n_context, rotated = c->d_head;
    double extra = 1;
    rope_config_init(rope);
    int rc = get_optional_f64(k, "rope.freq_base", &rope->theta);
    if (rc == 0)
        rc = get_optional_f64(k, "rope.scale_linear", &rope->factor); /* before 2023's end */
    if (rc == 0)
        rc = get_optional_f64(k, "rope.scaling.factor", &rope->factor);
    if (rc == 0)
        rc = get_optional_u32(k, "rope.scaling.original_context_length", &original);
    if (rc == 0)
        rc = get_optional_f64(k, "rope.scaling.yarn_beta_fast", &rope->beta_fast);
    if (rc == 0)
        rc = get_optional_f64(k, "rope.scaling.yarn_beta_slow", &rope->beta_slow);
    if (rc == 0)
        rc = get_optional_f64(k, "rope.scaling.yarn_attn_factor", &rope->attention_factor);
    if (rc == 0)
        rc = get_optional_f64(k, "rope.scaling.attn_factor", &extra);
    if (rc == 0)
        rc = get_optional_u32(k, "rope.dimension_count", &rotated);
    if (rc < 0)
        return rc;
    rope->original_context = original;
    if (rope->factor == 0) /* some converters write 0 for "none" */
        rope->factor = 1;
    if (rotated != c->d_head)
        return error_set(k->err, HS_ERR_UNSUPPORTED,
                         "%s: rotates %" PRIu32 " of %" PRIu32
                         " values of each head, which is not supported; use a model of one of: %s",
                         gguf_path(k->gguf), rotated, c->d_head, model_family_list());
    if (extra != 1)
        return error_set(k->err, HS_ERR_UNSUPPORTED,
                         "%s: \"%s.rope.scaling.attn_factor\" is not supported; use a model of one of: %s", gguf_path(k->gguf),
                         k->architecture, model_family_list());
    return read_scaling_type(k, rope);
}

static int read_heads(struct keys *k, struct model_config *c)
{
    int rc = get_count(k, "attention.head_count", &c->n_heads);
    if (rc < 0)
        return rc;
    c->n_kv_heads = c->n_heads;
    if (has(k, "attention.head_count_kv") && (rc = get_count(k, "attention.head_count_kv", &c->n_kv_heads)) < 0)
        return rc;
    c->d_head = c->n_heads ? c->d_model / c->n_heads : 0;
    rc = get_optional_u32(k, "attention.key_length", &c->d_head);
    if (rc < 0)
        return rc;
    uint32_t value_length = c->d_head;
    rc = get_optional_u32(k, "attention.value_length", &value_length);
    if (rc < 0)
        return rc;
    if (value_length != c->d_head)
        return error_set(k->err, HS_ERR_UNSUPPORTED,
                         "%s: keys of %" PRIu32 " and values of %" PRIu32 " are not supported; use a model of one of: %s",
                         gguf_path(k->gguf), c->d_head, value_length, model_family_list());
    return 0;
}

static int read_family(struct keys *k, struct model_config *c, char *name, size_t size)
{
    struct gguf_string architecture;
    int rc = gguf_get_string(k->gguf, "general.architecture", &architecture, k->err);
    if (rc < 0)
        return rc;
    snprintf(name, size, "%.*s", (int)(architecture.len > 60 ? 60 : architecture.len), architecture.text);
    c->family = model_family_by_name(name);
    if (!c->family || !c->family->in_gguf)
        return error_set(k->err, HS_ERR_UNSUPPORTED, "%s: architecture \"%s\" is not supported; supported are: %s",
                         gguf_path(k->gguf), name, model_family_list());
    c->rope_layout = c->family->gguf_layout;
    k->architecture = c->family->name;
    return 0;
}

/* Features that would change the arithmetic and that no family here has. */
static int refuse_unsupported(struct keys *k)
{
    static const char *const suffixes[] = {
        "attention.scale", "attention.clamp_kqv", "attention.max_alibi_bias", "attention.temperature_length", "embedding_scale",
        "residual_scale",  "logit_scale",         "attn_logit_softcapping",   "final_logit_softcapping"};
    uint32_t experts = 0;
    int rc = get_optional_u32(k, "expert_count", &experts);
    if (rc < 0)
        return rc;
    if (experts)
        return error_set(k->err, HS_ERR_UNSUPPORTED,
                         "%s: is a mixture of %" PRIu32 " experts, which is not supported; supported are: %s", gguf_path(k->gguf),
                         experts, model_family_list());
    for (size_t i = 0; i < sizeof suffixes / sizeof suffixes[0]; i++)
        if (has(k, suffixes[i]))
            return error_set(k->err, HS_ERR_UNSUPPORTED, "%s: \"%s\" is not supported; use a model of one of: %s",
                             gguf_path(k->gguf), k->text, model_family_list());
    return 0;
}

int model_config_from_gguf(const struct gguf *gguf, struct model_config *out, struct error *err)
{
    struct model_config c = {0};
    struct keys k = {.gguf = gguf, .err = err};
    char name[64];
    int rc = read_family(&k, &c, name, sizeof name);
    if (rc == 0)
        rc = gguf_get_u32(gguf, key(&k, "block_count"), &c.n_layers, err);
    if (rc == 0)
        rc = gguf_get_u32(gguf, key(&k, "embedding_length"), &c.d_model, err);
    if (rc == 0)
        rc = get_count(&k, "feed_forward_length", &c.d_ff);
    if (rc == 0)
        rc = gguf_get_u32(gguf, key(&k, "context_length"), &c.n_context, err);
    if (rc == 0)
        rc = get_optional_u32(&k, "attention.sliding_window", &c.sliding_window);
    if (rc == 0)
        rc = gguf_get_f64(gguf, key(&k, "attention.layer_norm_rms_epsilon"), &c.rms_epsilon, err);
    if (rc == 0)
        rc = refuse_unsupported(&k);
    if (rc == 0)
        rc = read_heads(&k, &c);
    if (rc == 0)
        rc = read_rope(&k, &c);
    if (rc == 0)
        rc = model_config_finish(&c, gguf_path(gguf), err);
    if (rc < 0)
        return rc;
    *out = c;
    return 0;
}

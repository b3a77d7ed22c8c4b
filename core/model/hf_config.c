#include <inttypes.h>
#include <string.h>

#include "core/model/model_config.h"
#include "core/model/model_json.h"

enum { MISTRAL_DEFAULT_WINDOW = 4096 }; /* what the family takes when config.json does not mention it */

struct source {
    const char *path;
    const json_t *config;
    struct error *err;
};

static bool is_given(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    return value && !json_is_null(value);
}

static int get_u32(struct source *s, const json_t *object, const char *key, uint32_t *out)
{
    const json_t *value = json_object_get(object, key);
    if (!value)
        return error_set(s->err, HS_ERR_NOT_FOUND, "%s: \"%s\" is missing; get a whole copy of the folder", s->path, key);
    if (!json_is_integer(value) || json_integer_value(value) < 0 || json_integer_value(value) > UINT32_MAX)
        return error_set(s->err, HS_ERR_PARSE,
                         "%s: \"%s\" is not a whole number from 0 to 4294967295; get a whole copy of the folder", s->path, key);
    *out = (uint32_t)json_integer_value(value);
    return 0;
}

/* These leave *out alone if the key is absent or null. */
static int get_optional_u32(struct source *s, const json_t *object, const char *key, uint32_t *out)
{
    return is_given(object, key) ? get_u32(s, object, key, out) : 0;
}

static int get_optional_f64(struct source *s, const json_t *object, const char *key, double *out)
{
    const json_t *value = json_object_get(object, key);
    if (!is_given(object, key))
        return 0;
    if (!json_is_number(value))
        return error_set(s->err, HS_ERR_PARSE, "%s: \"%s\" is not a number; get a whole copy of the folder", s->path, key);
    *out = json_number_value(value);
    return 0;
}

static int get_optional_bool(struct source *s, const json_t *object, const char *key, bool *out)
{
    const json_t *value = json_object_get(object, key);
    if (!is_given(object, key))
        return 0;
    if (!json_is_boolean(value))
        return error_set(s->err, HS_ERR_PARSE, "%s: \"%s\" is neither true nor false; get a whole copy of the folder", s->path,
                         key);
    *out = json_is_true(value);
    return 0;
}

static int read_family(struct source *s, struct model_config *c)
{
    const char *class = json_string_value(json_array_get(json_object_get(s->config, "architectures"), 0));
    const char *type = json_string_value(json_object_get(s->config, "model_type"));
    c->family = class ? model_family_by_hf_class(class) : type ? model_family_by_name(type) : NULL;
    if (!c->family)
        return error_set(s->err, HS_ERR_UNSUPPORTED, "%s: architecture \"%.60s\" is not supported; supported are: %s", s->path,
                         class  ? class
                         : type ? type
                                : "(none given)",
                         model_family_list());
    c->rope_layout = ROPE_HALF_SPLIT;
    return 0;
}

/* Features that would change the arithmetic and that no family here has. */
static int refuse_unsupported(struct source *s)
{
    const char *act = json_string_value(json_object_get(s->config, "hidden_act"));
    double partial = 1;
    int rc = get_optional_f64(s, s->config, "partial_rotary_factor", &partial);
    if (rc < 0)
        return rc;
    if (act && strcmp(act, "silu") != 0)
        return error_set(s->err, HS_ERR_UNSUPPORTED, "%s: hidden_act \"%.40s\" is not supported, only \"silu\"", s->path, act);
    if (partial != 1)
        return error_set(s->err, HS_ERR_UNSUPPORTED, "%s: partial_rotary_factor %g is not supported, only 1", s->path, partial);
    if (is_given(s->config, "quantization_config"))
        return error_set(
            s->err, HS_ERR_UNSUPPORTED,
            "%s: is a quantised checkpoint; folders are read in F32, F16 and BF16: use the original checkpoint or a GGUF file",
            s->path);
    return 0;
}

/* The window holds for all layers or for none; a mixture cannot be described. */
static int read_window(struct source *s, struct model_config *c)
{
    bool in_use = true;
    uint32_t first = 0;
    if (strcmp(c->family->name, "llama") == 0)
        return 0;
    if (strcmp(c->family->name, "mistral") == 0) {
        c->sliding_window = json_object_get(s->config, "sliding_window") ? 0 : MISTRAL_DEFAULT_WINDOW;
    } else { /* Qwen: off unless asked for, and then only from layer max_window_layers on */
        in_use = false;
        first = c->n_layers;
    }
    int rc = get_optional_bool(s, s->config, "use_sliding_window", &in_use);
    if (rc == 0)
        rc = get_optional_u32(s, s->config, "sliding_window", &c->sliding_window);
    if (rc == 0 && first)
        rc = get_optional_u32(s, s->config, "max_window_layers", &first);
    if (rc < 0)
        return rc;
    if (!in_use || first >= c->n_layers)
        c->sliding_window = 0;
    if (c->sliding_window && first > 0)
        return error_set(s->err, HS_ERR_UNSUPPORTED,
                         "%s: a sliding window from layer %" PRIu32 " on is not supported, only one for all layers", s->path,
                         first);
    return 0;
}

static int read_scaling(struct source *s, const json_t *scaling, struct model_config *c)
{
    struct rope_config *rope = &c->rope;
    const char *type = json_string_value(json_object_get(scaling, "rope_type"));
    if (!type)
        type = json_string_value(json_object_get(scaling, "type"));
    if (!type || strcmp(type, "default") == 0)
        rope->scaling = ROPE_SCALING_NONE;
    else if (strcmp(type, "linear") == 0)
        rope->scaling = ROPE_SCALING_LINEAR;
    else if (strcmp(type, "llama3") == 0)
        rope->scaling = ROPE_SCALING_LLAMA3;
    else if (strcmp(type, "yarn") == 0)
        rope->scaling = ROPE_SCALING_YARN;
    else
        return error_set(s->err, HS_ERR_UNSUPPORTED,
                         "%s: rope scaling \"%.40s\" is not supported; supported are default, linear, llama3 and yarn", s->path,
                         type);

    bool truncated = true;
    const struct {
        const char *key;
        double *value;
    } numbers[] = {
        {"factor", &rope->factor},
        {"original_max_position_embeddings", &rope->original_context},
        {"low_freq_factor", &rope->low_freq_factor},
        {"high_freq_factor", &rope->high_freq_factor},
        {"beta_fast", &rope->beta_fast},
        {"beta_slow", &rope->beta_slow},
        {"attention_factor", &rope->attention_factor},
        {"mscale", &rope->mscale},
        {"mscale_all_dim", &rope->mscale_all_dim},
        {"rope_theta", &rope->theta},
    };
    int rc = get_optional_bool(s, scaling, "truncate", &truncated);
    for (size_t i = 0; rc == 0 && i < sizeof numbers / sizeof numbers[0]; i++)
        rc = get_optional_f64(s, scaling, numbers[i].key, numbers[i].value);
    rope->untruncated = !truncated;
    return rc;
}

/* "rope_theta" and "rope_scaling" of older checkpoints, both in "rope_parameters" of newer ones. */
static int read_rope(struct source *s, struct model_config *c)
{
    rope_config_init(&c->rope);
    c->rope.original_context = c->n_context;
    int rc = get_optional_f64(s, s->config, "rope_theta", &c->rope.theta);
    for (int i = 0; rc == 0 && i < 2; i++) {
        const char *key = i == 0 ? "rope_scaling" : "rope_parameters";
        const json_t *scaling = json_object_get(s->config, key);
        if (!is_given(s->config, key))
            continue;
        if (!json_is_object(scaling) || json_is_object(json_object_get(scaling, "full_attention")))
            return error_set(s->err, HS_ERR_UNSUPPORTED,
                             "%s: \"%s\" is not one set of settings for all layers, which is not supported", s->path, key);
        rc = read_scaling(s, scaling, c);
    }
    return rc;
}

static int read_config(struct source *s, struct model_config *c)
{
    int rc = read_family(s, c);
    if (rc == 0)
        rc = refuse_unsupported(s);
    if (rc == 0)
        rc = get_u32(s, s->config, "num_hidden_layers", &c->n_layers);
    if (rc == 0)
        rc = get_u32(s, s->config, "hidden_size", &c->d_model);
    if (rc == 0)
        rc = get_u32(s, s->config, "intermediate_size", &c->d_ff);
    if (rc == 0)
        rc = get_u32(s, s->config, "num_attention_heads", &c->n_heads);
    if (rc == 0)
        rc = get_u32(s, s->config, "max_position_embeddings", &c->n_context);
    if (rc < 0)
        return rc;
    c->n_kv_heads = c->n_heads;
    c->d_head = c->n_heads ? c->d_model / c->n_heads : 0;
    c->rms_epsilon = 1e-6;
    rc = get_optional_u32(s, s->config, "num_key_value_heads", &c->n_kv_heads);
    if (rc == 0)
        rc = get_optional_u32(s, s->config, "head_dim", &c->d_head);
    if (rc == 0)
        rc = get_optional_f64(s, s->config, "rms_norm_eps", &c->rms_epsilon);
    if (rc == 0)
        rc = get_optional_bool(s, s->config, "tie_word_embeddings", &c->tied);
    if (rc == 0)
        rc = read_window(s, c);
    if (rc == 0)
        rc = read_rope(s, c);
    return rc == 0 ? model_config_finish(c, s->path, s->err) : rc;
}

int model_config_from_json(const char *path, struct model_config *out, struct error *err)
{
    struct model_config c = {0};
    json_t *config;
    int rc = model_json_read(path, &config, err);
    if (rc < 0)
        return rc;
    rc = read_config(&(struct source){.path = path, .config = config, .err = err}, &c);
    json_decref(config);
    if (rc < 0)
        return rc;
    *out = c;
    return 0;
}

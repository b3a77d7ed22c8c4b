#include "core/model/model_config.h"

#include <inttypes.h>
#include <string.h>

enum { MAX_LAYERS = 4096, MAX_WIDTH = 1 << 20, MAX_HEAD = 1024, MAX_CONTEXT = 1 << 30 };

static const struct model_family families[] = {
    {.name = "llama", .hf_class = "LlamaForCausalLM", .in_gguf = true, .gguf_layout = ROPE_INTERLEAVED},
    {.name = "mistral", .hf_class = "MistralForCausalLM"},
    {.name = "qwen2", .hf_class = "Qwen2ForCausalLM", .in_gguf = true, .gguf_layout = ROPE_HALF_SPLIT, .qkv_bias = true},
    {.name = "qwen3", .hf_class = "Qwen3ForCausalLM", .in_gguf = true, .gguf_layout = ROPE_HALF_SPLIT, .qk_norm = true},
};

enum { N_FAMILIES = sizeof families / sizeof families[0] };

const struct model_family *model_family_by_name(const char *name)
{
    for (int i = 0; i < N_FAMILIES; i++)
        if (strcmp(families[i].name, name) == 0)
            return &families[i];
    return NULL;
}

const struct model_family *model_family_by_hf_class(const char *hf_class)
{
    for (int i = 0; i < N_FAMILIES; i++)
        if (strcmp(families[i].hf_class, hf_class) == 0)
            return &families[i];
    return NULL;
}

const char *model_family_list(void)
{
    return "llama (Llama 2 and 3, SmolLM2), mistral, qwen2 (Qwen2, Qwen2.5), qwen3";
}

static int check_number(const char *path, const char *what, uint32_t value, uint32_t max, struct error *err)
{
    if (value >= 1 && value <= max)
        return 0;
    return error_set(err, HS_ERR_PARSE, "%s: %s is %" PRIu32 ", outside 1 to %" PRIu32 "; get a whole copy of the model", path,
                     what, value, max);
}

int model_config_finish(struct model_config *c, const char *path, struct error *err)
{
    const struct {
        const char *what;
        uint32_t value, max;
    } numbers[] = {
        {"the number of layers", c->n_layers, MAX_LAYERS},    {"the embedding length", c->d_model, MAX_WIDTH},
        {"the feed-forward length", c->d_ff, MAX_WIDTH},      {"the number of heads", c->n_heads, MAX_WIDTH},
        {"the number of KV heads", c->n_kv_heads, MAX_WIDTH}, {"the head size", c->d_head, MAX_HEAD},
        {"the context length", c->n_context, MAX_CONTEXT},
    };
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        int rc = check_number(path, numbers[i].what, numbers[i].value, numbers[i].max, err);
        if (rc < 0)
            return rc;
    }
    if (c->n_heads % c->n_kv_heads)
        return error_set(err, HS_ERR_PARSE,
                         "%s: %" PRIu32 " heads cannot share %" PRIu32 " KV heads; get a whole copy of the model", path, c->n_heads,
                         c->n_kv_heads);
    if (c->d_head % 2 || (uint64_t)c->n_heads * c->d_head > MAX_WIDTH)
        return error_set(err, HS_ERR_PARSE,
                         "%s: %" PRIu32 " heads of %" PRIu32 " values are impossible; get a whole copy of the model", path,
                         c->n_heads, c->d_head);
    if (!(c->rms_epsilon >= 0 && c->rms_epsilon < 1))
        return error_set(err, HS_ERR_PARSE, "%s: the norms' epsilon is %g, outside 0 to 1; get a whole copy of the model", path,
                         c->rms_epsilon);
    /* Checkpoints that carry YaRN's settings often keep the original length as their context length. */
    if (c->rope.scaling == ROPE_SCALING_YARN) {
        double stretched = c->rope.original_context * c->rope.factor;
        if (stretched > c->n_context && stretched <= MAX_CONTEXT)
            c->n_context = (uint32_t)stretched;
    }
    return 0;
}

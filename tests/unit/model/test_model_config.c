/* config.json and GGUF metadata in their variants; rotation speeds against transformers' (tests/vectors/make_rope.py). */
#include "tests/unit/model/check.h"

#include <math.h>

#include "core/model/model_config.h"
#include "tests/unit/model/folder.h"
#include "tests/unit/model/gguf_builder.h"

/* The family's usual settings; every test changes some. */
static const char base_config[] = "{\"architectures\":[\"LlamaForCausalLM\"],\"model_type\":\"llama\",\"hidden_act\":\"silu\","
                                  "\"hidden_size\":64,\"intermediate_size\":128,"
                                  "\"num_hidden_layers\":4,\"num_attention_heads\":4,\"num_key_value_heads\":2,\"max_position_"
                                  "embeddings\":1024,\"rms_norm_eps\":1e-5}";

static int read_json(const char *changes, struct model_config *out, struct error *err)
{
    struct folder f;
    folder_create(&f);
    folder_write_text(&f, "config.json", base_config);
    folder_update_json(&f, "config.json", changes);
    int rc = model_config_from_json(folder_file(&f, "config.json"), out, err);
    folder_remove(&f);
    return rc;
}

static struct model_config accept(const char *changes)
{
    struct model_config c;
    struct error err = {0};
    if (read_json(changes, &c, &err) < 0)
        fail_msg("%s: %s", changes, err.text);
    return c;
}

static void refuse(const char *changes, int code, const char *text)
{
    struct model_config c;
    struct error err = {0};
    int rc = read_json(changes, &c, &err);
    if (rc != code)
        fail_msg("%s: returned %d (%s)", changes, rc, err.text);
    assert_text_contains(err.text, "config.json: ");
    assert_text_contains(err.text, text);
}

static void test_json_defaults(void **state)
{
    struct model_config c = accept("{\"num_key_value_heads\":null}");
    assert_string_equal(c.family->name, "llama");
    assert_int_equal(c.n_layers, 4);
    assert_int_equal(c.d_model, 64);
    assert_int_equal(c.d_ff, 128);
    assert_int_equal(c.n_heads, 4);
    assert_int_equal(c.n_kv_heads, 4);
    assert_int_equal(c.d_head, 16);
    assert_int_equal(c.n_context, 1024);
    assert_int_equal(c.sliding_window, 0);
    assert_int_equal(c.rope_layout, ROPE_HALF_SPLIT);
    assert_true(c.rope.theta == 10000 && c.rope.scaling == ROPE_SCALING_NONE);
    assert_true(c.rms_epsilon == 1e-5);
    assert_false(c.tied);

    c = accept("{\"head_dim\":32,\"tie_word_embeddings\":true,\"rope_theta\":500000,\"rms_norm_eps\":null}");
    assert_int_equal(c.d_head, 32);
    assert_true(c.tied && c.rope.theta == 500000 && c.rms_epsilon == 1e-6);
    c = accept("{\"architectures\":null,\"model_type\":\"qwen3\"}");
    assert_string_equal(c.family->name, "qwen3");
    assert_true(c.family->qk_norm && !c.family->qkv_bias);
}

/* Newer checkpoints put theta and scaling into one object. */
static void test_json_rope_parameters(void **state)
{
    struct model_config c = accept("{\"rope_parameters\":{\"rope_type\":\"yarn\",\"rope_theta\":1000000.0,\"factor\":4.0,"
                                   "\"original_max_position_embeddings\":1024}}");
    assert_int_equal(c.rope.scaling, ROPE_SCALING_YARN);
    assert_true(c.rope.theta == 1000000 && c.rope.factor == 4);
    assert_int_equal(c.n_context, 4096); /* stretched */
    c = accept("{\"rope_parameters\":{\"rope_type\":\"default\",\"rope_theta\":5000.0}}");
    assert_true(c.rope.scaling == ROPE_SCALING_NONE && c.rope.theta == 5000);
    refuse("{\"rope_parameters\":{\"full_attention\":{\"rope_type\":\"default\"}}}", HS_ERR_UNSUPPORTED,
           "one set of settings for all layers");
}

static void test_json_windows(void **state)
{
#define MISTRAL "\"architectures\":[\"MistralForCausalLM\"]"
#define QWEN    "\"architectures\":[\"Qwen2ForCausalLM\"],\"sliding_window\":256"
    assert_int_equal(accept("{" MISTRAL ",\"sliding_window\":512}").sliding_window, 512);
    assert_int_equal(accept("{" MISTRAL "}").sliding_window, 4096);
    assert_int_equal(accept("{" QWEN "}").sliding_window, 0);
    assert_int_equal(accept("{" QWEN ",\"use_sliding_window\":false,\"max_window_layers\":0}").sliding_window, 0);
    assert_int_equal(accept("{" QWEN ",\"use_sliding_window\":true,\"max_window_layers\":4}").sliding_window, 0);
    assert_int_equal(accept("{" QWEN ",\"use_sliding_window\":true,\"max_window_layers\":0}").sliding_window, 256);
    refuse("{" QWEN ",\"use_sliding_window\":true,\"max_window_layers\":2}", HS_ERR_UNSUPPORTED, "window from layer 2 on");
    assert_int_equal(accept("{\"sliding_window\":512}").sliding_window, 0);
}

/* A null window in config.json says "none"; folder_update_json would drop the key, so the text is written whole. */
static void test_json_null_window(void **state)
{
    struct model_config c;
    struct error err = {0};
    struct folder f;
    folder_create(&f);
    folder_write_text(
        &f, "config.json",
        "{\"architectures\":[\"MistralForCausalLM\"],\"hidden_size\":64,\"intermediate_size\":128,\"num_hidden_layers\":1,"
        "\"num_attention_heads\":4,\"max_position_embeddings\":1024,\"sliding_window\":null,\"rope_scaling\":null}");
    if (model_config_from_json(folder_file(&f, "config.json"), &c, &err) < 0)
        fail_msg("%s", err.text);
    assert_int_equal(c.sliding_window, 0);
    folder_remove(&f);
}

static void test_json_refusals(void **state)
{
    refuse("{\"architectures\":[\"GemmaForCausalLM\"]}", HS_ERR_UNSUPPORTED,
           "\"GemmaForCausalLM\" is not supported; supported are: llama");
    refuse("{\"architectures\":null,\"model_type\":null}", HS_ERR_UNSUPPORTED, "(none given)");
    refuse("{\"hidden_act\":\"gelu\"}", HS_ERR_UNSUPPORTED, "hidden_act \"gelu\"");
    refuse("{\"partial_rotary_factor\":0.5}", HS_ERR_UNSUPPORTED, "partial_rotary_factor 0.5");
    refuse("{\"quantization_config\":{\"quant_method\":\"gptq\"}}", HS_ERR_UNSUPPORTED, "quantised checkpoint");
    refuse("{\"rope_scaling\":{\"type\":\"dynamic\",\"factor\":2}}", HS_ERR_UNSUPPORTED,
           "\"dynamic\" is not supported; supported are default, linear");
    refuse("{\"hidden_size\":null}", HS_ERR_NOT_FOUND, "\"hidden_size\" is missing");
    refuse("{\"hidden_size\":\"64\"}", HS_ERR_PARSE, "\"hidden_size\" is not a whole number");
    refuse("{\"num_hidden_layers\":-1}", HS_ERR_PARSE, "\"num_hidden_layers\" is not a whole number");
    refuse("{\"num_hidden_layers\":4000000000}", HS_ERR_PARSE, "the number of layers is 4000000000");
    refuse("{\"num_attention_heads\":0}", HS_ERR_PARSE, "the number of heads is 0");
    refuse("{\"num_key_value_heads\":3}", HS_ERR_PARSE, "4 heads cannot share 3 KV heads");
    refuse("{\"num_key_value_heads\":8}", HS_ERR_PARSE, "4 heads cannot share 8 KV heads");
    refuse("{\"head_dim\":15}", HS_ERR_PARSE, "heads of 15");
    refuse("{\"max_position_embeddings\":0}", HS_ERR_PARSE, "the context length is 0");
    refuse("{\"rope_theta\":\"big\"}", HS_ERR_PARSE, "\"rope_theta\" is not a number");
    refuse("{\"rms_norm_eps\":-1}", HS_ERR_PARSE, "epsilon is -1");
    refuse("{\"tie_word_embeddings\":1}", HS_ERR_PARSE, "neither true nor false");
}

static void check_speeds(const json_t *entry)
{
    float inv_freq[512], magnitude;
    struct error err = {0};
    char *text = json_dumps(json_object_get(entry, "config"), 0);
    struct model_config c = accept(text);
    const json_t *expected = json_object_get(entry, "inv_freq");
    assert_int_equal(json_array_size(expected), c.d_head / 2);
    if (rope_frequencies_compute(&c.rope, c.d_head, NULL, inv_freq, &magnitude, &err) < 0)
        fail_msg("%s: %s", text, err.text);
    for (size_t i = 0; i < json_array_size(expected); i++) {
        double value = json_number_value(json_array_get(expected, i));
        if (fabs(inv_freq[i] - value) > 1e-7 * value) /* half a unit in the last place of float is 6e-8 */
            fail_msg("%s: pair %zu turns by %.9g, expected %.9g", text, i, (double)inv_freq[i], value);
    }
    assert_true(fabs(magnitude - json_number_value(json_object_get(entry, "magnitude"))) < 1e-6);
    free(text);
}

static void test_rope_reference(void **state)
{
    json_t *entries = json_load_file("tests/vectors/rope.json", 0, NULL);
    assert_int_equal(json_array_size(entries), 9);
    for (size_t i = 0; i < json_array_size(entries); i++)
        check_speeds(json_array_get(entries, i));
    json_decref(entries);
}

static void test_rope_refusals(void **state)
{
    struct rope_config rope;
    struct error err;
    float inv_freq[8], magnitude = -1, factors[8] = {1, 1, 0};
    rope_config_init(&rope);
    assert_int_equal(rope_frequencies_compute(&rope, 16, factors, inv_freq, &magnitude, &err), HS_ERR_PARSE);
    assert_text_contains(err.text, "factor 2 is 0");
    rope.theta = 0.5;
    assert_int_equal(rope_frequencies_compute(&rope, 16, NULL, inv_freq, &magnitude, &err), HS_ERR_PARSE);
    rope_config_init(&rope);
    rope.scaling = ROPE_SCALING_LLAMA3;
    rope.factor = 8;
    assert_int_equal(rope_frequencies_compute(&rope, 16, NULL, inv_freq, &magnitude, &err), HS_ERR_PARSE);
    assert_text_contains(err.text, "original context length");
    rope.original_context = 8192;
    rope.high_freq_factor = rope.low_freq_factor;
    assert_int_equal(rope_frequencies_compute(&rope, 16, NULL, inv_freq, &magnitude, &err), HS_ERR_PARSE);
    assert_text_contains(err.text, "low_freq_factor < high_freq_factor");
    rope.scaling = ROPE_SCALING_LINEAR;
    rope.factor = NAN;
    assert_int_equal(rope_frequencies_compute(&rope, 16, NULL, inv_freq, &magnitude, &err), HS_ERR_PARSE);
    assert_true(magnitude == -1);
}

enum { GGUF_BASE_VALUES = 8 };

static void build_base(struct gguf_builder *b, const char *architecture, uint64_t n_more)
{
    char key[64];
    const struct {
        const char *suffix;
        uint32_t value;
    } numbers[] = {{"block_count", 4},       {"embedding_length", 64},    {"feed_forward_length", 128},
                   {"context_length", 1024}, {"attention.head_count", 4}, {"attention.head_count_kv", 2}};
    build_header(b, 3, 0, GGUF_BASE_VALUES + n_more);
    build_string(b, "general.architecture", architecture);
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        snprintf(key, sizeof key, "%s.%s", architecture, numbers[i].suffix);
        build_u32(b, key, numbers[i].value);
    }
    snprintf(key, sizeof key, "%s.attention.layer_norm_rms_epsilon", architecture);
    build_f32(b, key, 1e-5f);
}

static int read_gguf(const struct gguf_builder *b, struct model_config *out, struct error *err)
{
    struct gguf *gguf;
    uint8_t *copy;
    if (build_open(b, b->out.len, &copy, &gguf, err) < 0)
        fail_msg("%s", err->text);
    int rc = model_config_from_gguf(gguf, out, err);
    gguf_close(gguf);
    free(copy);
    return rc;
}

static void test_gguf_variants(void **state)
{
    struct gguf_builder b;
    struct model_config c;
    struct error err = {0};

    build_base(&b, "llama", 0);
    assert_ok(read_gguf(&b, &c, &err));
    assert_int_equal(c.rope_layout, ROPE_INTERLEAVED);
    assert_int_equal(c.d_head, 16);
    assert_int_equal(c.n_kv_heads, 2);
    assert_true(c.rope.theta == 10000 && c.rope.scaling == ROPE_SCALING_NONE);

    build_base(&b, "qwen2", 3);
    build_f32(&b, "qwen2.rope.freq_base", 1e6f), build_f32(&b, "qwen2.rope.scale_linear", 2),
        build_u32(&b, "qwen2.attention.sliding_window", 99);
    assert_ok(read_gguf(&b, &c, &err));
    assert_int_equal(c.rope_layout, ROPE_HALF_SPLIT);
    assert_true(c.rope.theta == 1e6 && c.rope.scaling == ROPE_SCALING_LINEAR && c.rope.factor == 2);
    assert_int_equal(c.sliding_window, 99);

    build_base(&b, "qwen3", 5);
    build_u32(&b, "qwen3.attention.key_length", 32), build_u32(&b, "qwen3.attention.value_length", 32);
    build_string(&b, "qwen3.rope.scaling.type", "yarn"), build_f32(&b, "qwen3.rope.scaling.factor", 4);
    build_u32(&b, "qwen3.rope.scaling.original_context_length", 1024);
    assert_ok(read_gguf(&b, &c, &err));
    assert_int_equal(c.d_head, 32);
    assert_int_equal(c.n_context, 4096);
    assert_true(c.rope.scaling == ROPE_SCALING_YARN && c.rope.original_context == 1024);

    build_base(&b, "llama", 2); /* "none" overrides a factor; 0 stands for 1 */
    build_string(&b, "llama.rope.scaling.type", "none"), build_f32(&b, "llama.rope.scaling.factor", 0);
    assert_ok(read_gguf(&b, &c, &err));
    assert_true(c.rope.scaling == ROPE_SCALING_NONE);
}

static void refuse_gguf(struct gguf_builder *b, const char *text)
{
    struct model_config c;
    struct error err = {0};
    assert_true(read_gguf(b, &c, &err) < 0);
    assert_text_contains(err.text, "small.gguf: ");
    assert_text_contains(err.text, text);
}

static void test_gguf_refusals(void **state)
{
    struct gguf_builder b;
    build_base(&b, "gemma3", 0);
    refuse_gguf(&b, "architecture \"gemma3\" is not supported; supported are: llama");
    build_base(&b, "mistral", 0);
    refuse_gguf(&b, "\"mistral\" is not supported");
    build_header(&b, 3, 0, 0);
    refuse_gguf(&b, "\"general.architecture\" is missing");
    build_header(&b, 3, 0, 1), build_string(&b, "general.architecture", "llama");
    refuse_gguf(&b, "\"llama.block_count\" is missing");
    build_base(&b, "llama", 1), build_u32(&b, "llama.expert_count", 8);
    refuse_gguf(&b, "mixture of 8 experts");
    build_base(&b, "llama", 1), build_u32(&b, "llama.rope.dimension_count", 8);
    refuse_gguf(&b, "rotates 8 of 16 values");
    build_base(&b, "llama", 1), build_u32(&b, "llama.attention.value_length", 8);
    refuse_gguf(&b, "keys of 16 and values of 8");
    build_base(&b, "llama", 1), build_string(&b, "llama.rope.scaling.type", "longrope");
    refuse_gguf(&b, "rope scaling \"longrope\" is not supported");
    build_base(&b, "llama", 1), build_f32(&b, "llama.logit_scale", 0.5f);
    refuse_gguf(&b, "\"llama.logit_scale\" is not supported");
}

/* Counts given per layer are taken when all are alike. */
static void test_gguf_layer_arrays(void **state)
{
    struct gguf_builder b;
    struct model_config c;
    struct error err = {0};
    for (uint32_t last = 2; last <= 4; last += 2) {
        build_header(&b, 3, 0, GGUF_BASE_VALUES);
        build_string(&b, "general.architecture", "llama");
        build_u32(&b, "llama.block_count", 2), build_u32(&b, "llama.embedding_length", 64),
            build_u32(&b, "llama.feed_forward_length", 128);
        build_u32(&b, "llama.context_length", 64), build_u32(&b, "llama.attention.head_count", 4);
        build_array(&b, "llama.attention.head_count_kv", GGUF_I32, 2), write_u32(&b.out, 2), write_u32(&b.out, last);
        build_f32(&b, "llama.attention.layer_norm_rms_epsilon", 1e-5f);
        if (last == 2) {
            assert_ok(read_gguf(&b, &c, &err));
            assert_int_equal(c.n_kv_heads, 2);
        } else {
            refuse_gguf(&b, "differs between layers");
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_json_defaults), cmocka_unit_test(test_json_rope_parameters),
        cmocka_unit_test(test_json_windows),  cmocka_unit_test(test_json_null_window),
        cmocka_unit_test(test_json_refusals), cmocka_unit_test(test_rope_reference),
        cmocka_unit_test(test_rope_refusals), cmocka_unit_test(test_gguf_variants),
        cmocka_unit_test(test_gguf_refusals), cmocka_unit_test(test_gguf_layer_arrays),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Descriptions of the tiny models in both forms, and models with a tensor too few, too many or of the wrong shape. */
#include "tests/unit/model/check.h"

#include <math.h>

#include "core/model/fingerprint.h"
#include "core/model/model_weights.h"
#include "tests/unit/model/folder.h"
#include "tests/unit/model/open_model.h"

static const char *const tiny_models[] = {"llama3", "llama_linear", "mistral", "qwen2", "qwen2_yarn", "qwen3"};
enum { N_TINY = sizeof tiny_models / sizeof tiny_models[0] };

static struct model_weights *open_tiny(const char *name, const char *extension)
{
    char path[128];
    snprintf(path, sizeof path, "tests/vectors/tiny/%s%s", name, extension);
    return open_model(path);
}

static float *read_tensor(const struct model_desc *desc, const struct tensor_view *t)
{
    float *values = calloc((size_t)t->rows * t->cols, sizeof *values);
    assert_non_null(values);
    desc->dequantize(t, 0, t->rows, values);
    return values;
}

/* interleaved: a's rows are those of b with the halves of each head dealt out in turn. */
static void check_same(const struct model_desc *a, const struct tensor_view *ta, const struct model_desc *b,
                       const struct tensor_view *tb, bool interleaved)
{
    assert_int_equal(tensor_present(ta), tensor_present(tb));
    if (!tensor_present(ta))
        return;
    assert_int_equal(ta->rows, tb->rows);
    assert_int_equal(ta->cols, tb->cols);
    float *va = read_tensor(a, ta), *vb = read_tensor(b, tb);
    for (uint32_t row = 0; row < ta->rows; row++) {
        uint32_t head = row / a->d_head, i = row % a->d_head;
        uint32_t other = interleaved ? head * a->d_head + i / 2 + (i % 2) * (a->d_head / 2) : row;
        assert_memory_equal(va + (size_t)row * ta->cols, vb + (size_t)other * ta->cols, ta->cols * sizeof *va);
    }
    free(va);
    free(vb);
}

static void check_layers(const struct model_desc *a, const struct model_desc *b)
{
    bool interleaved = a->rope_layout == ROPE_INTERLEAVED;
    for (uint32_t i = 0; i < a->n_layers; i++) {
        const struct model_layer *la = &a->layers[i], *lb = &b->layers[i];
        assert_true(tensor_present(&la->attn_norm) && tensor_present(&la->wq) && tensor_present(&la->wk) &&
                    tensor_present(&la->wv));
        assert_true(tensor_present(&la->wo) && tensor_present(&la->ffn_norm) && tensor_present(&la->w_gate));
        assert_true(tensor_present(&la->w_up) && tensor_present(&la->w_down));
        check_same(a, &la->attn_norm, b, &lb->attn_norm, false);
        check_same(a, &la->wq, b, &lb->wq, interleaved);
        check_same(a, &la->wk, b, &lb->wk, interleaved);
        check_same(a, &la->wv, b, &lb->wv, false);
        check_same(a, &la->wo, b, &lb->wo, false);
        check_same(a, &la->bq, b, &lb->bq, false);
        check_same(a, &la->bk, b, &lb->bk, false);
        check_same(a, &la->bv, b, &lb->bv, false);
        check_same(a, &la->q_norm, b, &lb->q_norm, false);
        check_same(a, &la->k_norm, b, &lb->k_norm, false);
        check_same(a, &la->ffn_norm, b, &lb->ffn_norm, false);
        check_same(a, &la->w_gate, b, &lb->w_gate, false);
        check_same(a, &la->w_up, b, &lb->w_up, false);
        check_same(a, &la->w_down, b, &lb->w_down, false);
    }
}

static void test_both_forms(void **state)
{
    for (int i = 0; i < N_TINY; i++) {
        struct model_weights *file = open_tiny(tiny_models[i], ".gguf"), *folder = open_tiny(tiny_models[i], "");
        const struct model_desc *a = &file->desc, *b = &folder->desc;
        assert_int_equal(a->n_layers, 2);
        assert_int_equal(b->n_layers, 2);
        assert_int_equal(a->d_model, b->d_model);
        assert_int_equal(a->d_ff, b->d_ff);
        assert_int_equal(a->n_heads, b->n_heads);
        assert_int_equal(a->n_kv_heads, b->n_kv_heads);
        assert_int_equal(a->d_head, b->d_head);
        assert_int_equal(a->n_vocab, b->n_vocab);
        assert_int_equal(a->n_context, b->n_context);
        assert_int_equal(a->sliding_window, b->sliding_window);
        assert_true(a->rms_epsilon == b->rms_epsilon && a->rope_magnitude == b->rope_magnitude);
        for (uint32_t pair = 0; pair < a->d_head / 2; pair++)
            assert_true(fabsf(a->rope_inv_freq[pair] - b->rope_inv_freq[pair]) <= 2e-7f * b->rope_inv_freq[pair]);
        check_same(a, &a->token_embedding, b, &b->token_embedding, false);
        check_same(a, &a->output_norm, b, &b->output_norm, false);
        check_same(a, &a->output, b, &b->output, false);
        check_layers(a, b);
        model_weights_close(file);
        model_weights_close(folder);
    }
}

static void test_family_features(void **state)
{
    struct model_weights *w = open_tiny("llama3", ".gguf");
    assert_string_equal(w->desc.architecture, "llama");
    assert_string_equal(w->desc.name, "tiny llama3");
    assert_int_equal(w->desc.rope_layout, ROPE_INTERLEAVED);
    assert_true(w->desc.output.data != w->desc.token_embedding.data);
    model_weights_close(w);

    w = open_tiny("llama3", "");
    assert_string_equal(w->desc.name, "llama3");
    assert_int_equal(w->desc.rope_layout, ROPE_HALF_SPLIT);
    model_weights_close(w);

    w = open_tiny("mistral", "");
    assert_string_equal(w->desc.architecture, "mistral");
    assert_int_equal(w->desc.sliding_window, 8);
    model_weights_close(w);

    w = open_tiny("qwen2", "");
    assert_true(tensor_present(&w->desc.layers[1].bk) && !tensor_present(&w->desc.layers[1].k_norm));
    assert_ptr_equal(w->desc.output.data, w->desc.token_embedding.data);
    model_weights_close(w);

    w = open_tiny("qwen3", ".gguf");
    assert_true(tensor_present(&w->desc.layers[0].q_norm) && !tensor_present(&w->desc.layers[0].bq));
    assert_int_equal(w->desc.layers[0].wq.rows, 64);
    assert_int_equal(w->desc.layers[0].wq.cols, 32);
    model_weights_close(w);
}

static void refuse(const char *path, int code, const char *text)
{
    struct model_weights *w;
    struct error err = {0};
    int rc = model_weights_open(path, &w, &err);
    if (rc != code)
        fail_msg("%s: returned %d (%s)", path, rc, err.text);
    assert_text_contains(err.text, text);
}

static void test_folders_that_do_not_fit(void **state)
{
    struct folder f;
    folder_copy(&f, "tests/vectors/tiny/qwen3");
    folder_update_json(&f, "config.json", "{\"architectures\":[\"LlamaForCausalLM\"]}");
    refuse(f.path, HS_ERR_UNSUPPORTED, "self_attn.k_norm.weight\" has no place in architecture llama");
    folder_update_json(&f, "config.json", "{\"architectures\":[\"Qwen2ForCausalLM\"]}");
    refuse(f.path, HS_ERR_UNSUPPORTED, "has no place in architecture qwen2");
    folder_update_json(&f, "config.json", "{\"architectures\":[\"Qwen3ForCausalLM\"],\"intermediate_size\":65}");
    refuse(f.path, HS_ERR_PARSE, "is 64 x 32 where 65 x 32 belongs");
    folder_update_json(&f, "config.json", "{\"intermediate_size\":64,\"hidden_size\":64}");
    refuse(f.path, HS_ERR_PARSE, "\"model.embed_tokens.weight\" is 264 x 32 where 264 x 64 belongs");
    folder_update_json(&f, "config.json", "{\"hidden_size\":32,\"num_hidden_layers\":3}");
    refuse(f.path, HS_ERR_PARSE, "tensor \"model.layers.2.input_layernorm.weight\" is missing");
    folder_update_json(&f, "config.json", "{\"num_hidden_layers\":1}");
    refuse(f.path, HS_ERR_UNSUPPORTED, "tensor \"model.layers.1.");
    folder_delete(&f, "config.json");
    refuse(f.path, HS_ERR_NOT_FOUND, "has no config.json");
    folder_remove(&f);

    folder_copy(&f, "tests/vectors/tiny/qwen2"); /* tied, so without lm_head */
    folder_update_json(&f, "config.json", "{\"tie_word_embeddings\":false}");
    refuse(f.path, HS_ERR_PARSE, "tensor \"lm_head.weight\" is missing");
    folder_remove(&f);
    refuse("/nowhere/at/all", HS_ERR_NOT_FOUND, "give a .gguf file or a Hugging Face folder");
}

static void digest_of(const char *path, uint8_t digest, uint8_t out[32])
{
    uint8_t tokenizer[32];
    memset(tokenizer, digest, sizeof tokenizer);
    struct model_weights *w = open_model(path);
    fingerprint_compute(&w->desc, tokenizer, out);
    model_weights_close(w);
}

static void flip_bit(const struct folder *f, long from_end)
{
    FILE *file = fopen(folder_file(f, "model.safetensors"), "r+b");
    assert_non_null(file);
    assert_int_equal(fseek(file, from_end, SEEK_END), 0);
    int byte = fgetc(file);
    assert_int_equal(fseek(file, from_end, SEEK_END), 0);
    fputc(byte ^ 1, file);
    fclose(file);
}

/* Of all tensors together. */
static size_t data_bytes(const struct folder *f)
{
    struct model_weights *w = open_model(f->path);
    size_t sum = 0;
    for (size_t i = 0; i < safetensors_count(w->tensors); i++)
        sum += safetensors_at(w->tensors, i)->bytes;
    model_weights_close(w);
    return sum;
}

/* Equal for copies, different for any change that matters. */
static void test_fingerprint(void **state)
{
    uint8_t first[32], other[32], zero[32] = {0};
    struct folder f;
    folder_copy(&f, "tests/vectors/tiny/mistral");
    digest_of("tests/vectors/tiny/mistral", 0, first);
    digest_of(f.path, 0, other);
    assert_memory_equal(first, other, 32);
    assert_memory_not_equal(first, zero, 32);
    digest_of(f.path, 1, other);
    assert_memory_not_equal(first, other, 32);
    folder_update_json(&f, "config.json", "{\"rope_theta\":10001.0}");
    digest_of(f.path, 0, other);
    assert_memory_not_equal(first, other, 32);
    folder_update_json(&f, "config.json", "{\"rope_theta\":10000.0,\"sliding_window\":9}");
    digest_of(f.path, 0, other);
    assert_memory_not_equal(first, other, 32);
    folder_update_json(&f, "config.json", "{\"sliding_window\":8}");
    digest_of(f.path, 0, other);
    assert_memory_equal(first, other, 32);

    flip_bit(&f, -1); /* the last byte of the last tensor, which is small */
    digest_of(f.path, 0, other);
    assert_memory_not_equal(first, other, 32);
    flip_bit(&f, -1);
    flip_bit(&f, -(long)data_bytes(&f) + 264 * 32 * 2 - 1); /* the last byte of the embedding, which is large and comes first */
    digest_of(f.path, 0, other);
    assert_memory_not_equal(first, other, 32);
    folder_remove(&f);
}

/* The name goes into answers, logs and terminals. */
static void test_a_name_of_hostile_bytes(void **state)
{
    static uint8_t bytes[1 << 17];
    struct folder f;
    FILE *file = fopen("tests/vectors/tiny/llama3.gguf", "rb");
    assert_non_null(file);
    size_t len = fread(bytes, 1, sizeof bytes, file);
    fclose(file);
    uint8_t *name = memmem(bytes, len, "tiny llama3", 11);
    assert_non_null(name);
    memcpy(name, "a\"\\\n\x1b\xff\xc3\xa9 \xe2\x82", 11);
    folder_create(&f);
    folder_write(&f, "hostile.gguf", bytes, len);
    struct model_weights *w = open_model(folder_file(&f, "hostile.gguf"));
    assert_string_equal(w->desc.name, "a\"\\___\xc3\xa9 __");
    model_weights_close(w);
    folder_remove(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_name_of_hostile_bytes),
        cmocka_unit_test(test_both_forms),
        cmocka_unit_test(test_family_features),
        cmocka_unit_test(test_folders_that_do_not_fit),
        cmocka_unit_test(test_fingerprint),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

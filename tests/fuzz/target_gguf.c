/*
 * A GGUF file: opened as a whole model (description, weights, tokenizer, chat template). What opens must be usable: every
 * tensor's first and last row is read, every token has bytes, and text goes through the tokenizer.
 */
#include <stdlib.h>

#include "tests/fuzz/fuzz.h"

/* The last row as a backend that multiplies integers takes it apart. */
static void read_groups(const struct model_desc *desc, const struct tensor_view *tensor)
{
    struct tensor_groups groups;
    if (!desc->groups(tensor, &groups))
        return;
    const uint32_t n = (tensor->cols + groups.size - 1) / groups.size;
    int8_t *integers = malloc(tensor->cols);
    uint16_t *scales = malloc(2 * (size_t)n * sizeof *scales);
    hs_assert(integers && scales);
    desc->read_groups(tensor, tensor->rows - 1, integers, scales, groups.has_minimum ? scales + n : NULL);
    for (uint32_t i = 0; i < tensor->cols; i++)
        hs_assert(groups.bits == 8 || (groups.has_minimum ? integers[i] >= 0 && integers[i] < 16 : integers[i] >= -8 && integers[i] < 8));
    free(integers);
    free(scales);
}

static void read_tensor(const struct model_desc *desc, const struct tensor_view *tensor)
{
    if (!tensor_present(tensor))
        return;
    hs_assert(tensor->rows > 0 && tensor->cols > 0);
    float *row = malloc(tensor->cols * sizeof *row);
    hs_assert(row);
    desc->dequantize(tensor, 0, 1, row);
    desc->dequantize(tensor, tensor->rows - 1, 1, row);
    free(row);
    read_groups(desc, tensor);
}

static void read_weights(const struct model_desc *desc)
{
    read_tensor(desc, &desc->token_embedding);
    read_tensor(desc, &desc->output_norm);
    read_tensor(desc, &desc->output);
    for (uint32_t i = 0; i < desc->n_layers; i++) {
        const struct model_layer *l = &desc->layers[i];
        const struct tensor_view *tensors[] = {&l->attn_norm, &l->wq,     &l->wk,     &l->wv,       &l->wo,     &l->bq,   &l->bk,
                                               &l->bv,        &l->q_norm, &l->k_norm, &l->ffn_norm, &l->w_gate, &l->w_up, &l->w_down};
        for (size_t k = 0; k < sizeof tensors / sizeof tensors[0]; k++)
            read_tensor(desc, tensors[k]);
    }
}

static void use_tokenizer(const struct tokenizer *tokenizer)
{
    static const char text[] = "Hello, w\xC3\xB6rld 123 <|im_end|>\n\t\xF0\x9F\x98\x80 \xFF";
    struct token_list list = {0};
    size_t bytes;
    for (uint32_t id = 0; id < tokenizer_vocab_size(tokenizer); id++)
        tokenizer_token_bytes(tokenizer, id, true, id == 0, &bytes);
    if (tokenizer_encode(tokenizer, text, sizeof text - 1, TOKENIZE_ADD_BOS | TOKENIZE_PARSE_SPECIAL, &list) == 0) {
        for (size_t i = 0; i < list.n; i++)
            hs_assert(list.ids[i] < tokenizer_vocab_size(tokenizer));
    }
    token_list_fini(&list);
}

int fuzz_gguf(const uint8_t *data, size_t len)
{
    struct loaded_model *model;
    struct error err = {0};
    void *file = fuzz_copy(data, len);
    int rc = model_open_memory(file, len, "fuzzed", NULL, &model, &err);
    if (rc < 0) {
        hs_assert(err.code == rc && err.text[0]);
    } else {
        read_weights(model->desc);
        use_tokenizer(model->tokenizer);
        hs_assert(model->chat || model->chat_missing[0]);
        model_close(model);
    }
    free(file);
    return 0;
}

#include "core/model/fingerprint.h"

#include <string.h>

#include <sodium.h>

#include "core/base/panic.h"

enum { WHOLE_BYTES = 4096, PIECES = 16, PIECE_BYTES = 256 };

static void add(crypto_generichash_state *state, const void *bytes, size_t n)
{
    crypto_generichash_update(state, bytes, n);
}

static void add_u64(crypto_generichash_state *state, uint64_t value)
{
    add(state, &value, sizeof value); /* little-endian machines only, as everywhere */
}

static void add_tensor(crypto_generichash_state *state, const struct tensor_view *t)
{
    add_u64(state, t->type);
    if (!tensor_present(t))
        return;
    add_u64(state, t->rows);
    add_u64(state, t->cols);
    if (t->bytes <= WHOLE_BYTES) {
        add(state, t->data, t->bytes);
        return;
    }
    for (size_t i = 0; i < PIECES; i++) /* the first at the start, the last at the end */
        add(state, (const uint8_t *)t->data + (t->bytes - PIECE_BYTES) * i / (PIECES - 1), PIECE_BYTES);
}

static void add_description(crypto_generichash_state *state, const struct model_desc *desc)
{
    const uint64_t numbers[] = {
        desc->n_layers, desc->d_model, desc->d_ff,      desc->n_heads,        desc->n_kv_heads,
        desc->d_head,   desc->n_vocab, desc->n_context, desc->sliding_window, desc->rope_layout,
    };
    add_u64(state, strlen(desc->architecture));
    add(state, desc->architecture, strlen(desc->architecture));
    add(state, numbers, sizeof numbers);
    add(state, &desc->rms_epsilon, sizeof desc->rms_epsilon);
    add(state, &desc->rope_magnitude, sizeof desc->rope_magnitude);
    add(state, desc->rope_inv_freq, desc->d_head / 2 * sizeof *desc->rope_inv_freq);
}

static void add_layer(crypto_generichash_state *state, const struct model_layer *l)
{
    const struct tensor_view *tensors[] = {&l->attn_norm, &l->wq,     &l->wk,     &l->wv,       &l->wo,     &l->bq,   &l->bk,
                                           &l->bv,        &l->q_norm, &l->k_norm, &l->ffn_norm, &l->w_gate, &l->w_up, &l->w_down};
    for (size_t i = 0; i < sizeof tensors / sizeof tensors[0]; i++)
        add_tensor(state, tensors[i]);
}

void fingerprint_compute(const struct model_desc *desc, const uint8_t tokenizer_digest[32], uint8_t out[32])
{
    static const char domain[] = "hearsay model fingerprint 1";
    crypto_generichash_state state;
    int ready = sodium_init(); /* may be called often, from any thread */
    hs_assert(ready >= 0);
    crypto_generichash_init(&state, NULL, 0, 32);
    add(&state, domain, sizeof domain);
    add_description(&state, desc);
    add(&state, tokenizer_digest, 32);
    add_tensor(&state, &desc->token_embedding);
    add_tensor(&state, &desc->output_norm);
    add_tensor(&state, &desc->output);
    for (uint32_t i = 0; i < desc->n_layers; i++)
        add_layer(&state, &desc->layers[i]);
    crypto_generichash_final(&state, out, 32);
}

/*
 * A model's weights as the kernels want them: matrices in panels (kernels.h), in 16 bits or as integers in groups; vectors in float.
 *
 * In 16 bits, a matrix stored as BF16 stays BF16; every other format is dequantised and rounded to FP16. A value beyond FP16's
 * range ends the loading. Where the kernels multiply pairs of BF16, every matrix is rounded to BF16. What a format made of groups
 * (model_desc.groups) holds can stay integers: another arithmetic, a quarter or half of the memory. Gate and up are held alike.
 *
 * Key centres: Qwen2's key biases reach 240, and a key rounded to FP16 at that size loses what tells keys apart (lowest cosine of
 * the logits 0.99986). A constant vector taken from all keys of a head changes no softmax, so the part of the bias that lies in
 * slow pairs, where rotation hardly moves it, is taken away before storing (0.999995).
 *
 * Filling is cut into chunks that any threads may run; weights_create only lays out memory. Threading: chunks touch
 * disjoint memory; after the last the weights are immutable.
 */
#ifndef HEARSAY_CPU_WEIGHTS_H
#define HEARSAY_CPU_WEIGHTS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/error.h"
#include "core/cpu/kernels.h"
#include "core/cpu/placement.h"
#include "core/cpu/weight_form.h"
#include "core/port/model.h"

struct packed_matrix {
    void *panels; /* [n_panels] of weight_panel_bytes each, as type says; outputs beyond n_outputs zero */
    const float *bias; /* [n_outputs] or NULL */
    enum weight_type type;
    uint32_t n_inputs;
    uint32_t n_outputs;
    uint32_t n_panels;
    struct tensor_view source;
};

struct layer_weights {
    struct packed_matrix q, k, v, o, gate, up, down;
    const float *attn_norm;       /* [d_model] */
    const float *q_norm, *k_norm; /* [d_head] or NULL */
    const float *ffn_norm;        /* [d_model] */
    const float *key_centre;      /* [n_kv_heads * d_head], taken from keys before they are stored; NULL: nothing */
};

struct weights {
    const struct model_desc *model;
    const struct cpu_kernels *kernels;
    struct layer_weights *layers; /* [n_layers] */
    const float *output_norm;
    struct packed_matrix output;

    struct packed_matrix **matrices; /* all of them, for filling */
    uint32_t n_matrices;
    uint64_t n_panels;         /* of all matrices */
    uint32_t panels_per_chunk; /* of filling */
    uint32_t n_chunks;
    enum weight_form form;        /* native or 16 bits */
    uint32_t n_quantised;         /* matrices held as integers */
    _Atomic uint32_t n_overflows; /* rows with values beyond FP16 */
    _Atomic uint32_t n_bad_rows;  /* rows with bfloat16 values or scales that are not finite */
    _Atomic uint64_t filled_bytes;
    void *panel_memory;
    size_t panel_bytes;
    float *vector_memory;
};

/* 0, or HS_ERR_UNSUPPORTED for shapes that do not fit together, HS_ERR_NO_MEMORY. */
int weights_create(const struct model_desc *model, const struct cpu_kernels *kernels, enum weight_form form, struct weights **out,
                   struct error *err);
void weights_destroy(struct weights *weights);

/*
 * Before filling: panels shall stand on the nodes of the workers whose own they are. node_bytes[i] becomes what was placed on
 * topology->nodes[i]. False: the kernel refused some of it.
 */
bool weights_place(const struct weights *weights, const struct topology *topology, const struct placement *placement,
                   uint64_t node_bytes[CPU_MAX_NODES]);

/* Floats of scratch that weights_fill needs. */
size_t weights_fill_scratch(const struct weights *weights);
/* Fills chunk 0 .. n_chunks-1. */
void weights_fill(struct weights *weights, uint32_t chunk, float *scratch);
/* After all chunks: 0, HS_ERR_RANGE or HS_ERR_PARSE (a damaged file). */
int weights_check(const struct weights *weights, struct error *err);

#endif

/* What happens to heads between their product and attention. */
#include <math.h>
#include <string.h>

#include "core/cpu/forward.h"

#define LOG2_E 1.44269504088896341f

/* weight: of the norm, or NULL. */
static void finish_head(const struct forward *f, uint32_t row, const float *head, const float *weight, float scale, float *out)
{
    const struct model_desc *m = f->model;
    if (weight)
        f->kernels->normalize(head, weight, m->d_head, m->rms_epsilon, out);
    else if (out != head)
        memcpy(out, head, m->d_head * sizeof *out);
    f->kernels->rotate(m->rope_layout, f->rotations + (size_t)row * m->d_head, m->d_head, scale, out);
}

void forward_rotate_query(const struct forward *f, uint32_t row, uint32_t head, float *out)
{
    const struct model_desc *m = f->model;
    const float scale = LOG2_E / sqrtf((float)m->d_head); /* attention's weights are powers of two */
    finish_head(f, row, f->qkv + (size_t)row * forward_qkv_size(f) + (size_t)head * m->d_head,
                f->weights->layers[f->layer].q_norm, scale, out);
}

void forward_store_key(const struct forward *f, uint32_t worker, uint32_t row, uint32_t kv_head)
{
    const struct model_desc *m = f->model;
    const struct layer_weights *layer = &f->weights->layers[f->layer];
    const struct step_span *span = f->rows[row].span;
    const uint32_t position = span->position + f->rows[row].index;
    const float *k = f->qkv + (size_t)row * forward_qkv_size(f) + ((size_t)m->n_heads + kv_head) * m->d_head;
    const float *v = k + (size_t)m->n_kv_heads * m->d_head;
    float *rotated = f->scratch[worker].rows;
    uint16_t *key = f->scratch[worker].shorts, *value = key + m->d_head;

    finish_head(f, row, k, layer->k_norm, 1.0f, rotated);
    if (layer->key_centre)
        for (uint32_t i = 0; i < m->d_head; i++)
            rotated[i] -= layer->key_centre[kv_head * m->d_head + i];
    f->kernels->shorts_from_floats(rotated, key, m->d_head);
    f->kernels->shorts_from_floats(v, value, m->d_head);
    kv_pool_store(f->kv, span->pages[position / f->kv->page_tokens], position % f->kv->page_tokens, f->layer, kv_head, key, value);
}

#include "core/cpu/weights.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/panic.h"
#include "core/cpu/half.h"
#include "core/cpu/memory.h"

enum { FILL_CHUNKS = 20000, MATRICES_PER_LAYER = 7, CACHE_LINE = 64 };

/* ---- layout ---- */

static int check_shape(const struct tensor_view *t, uint32_t rows, uint32_t cols, struct error *err)
{
    if (!tensor_present(t))
        return error_set(err, HS_ERR_UNSUPPORTED, "tensor %s is missing", t->name ? t->name : "of a layer");
    if (t->rows != rows || t->cols != cols)
        return error_set(err, HS_ERR_UNSUPPORTED, "tensor %s is %u x %u, expected %u x %u", t->name, t->rows, t->cols, rows, cols);
    return 0;
}

static enum weight_type wide_type(const struct weights *w, const struct tensor_view *t)
{
    if (w->kernels->inputs_per_word == 2)
        return WEIGHT_BF16_PAIRS;
    return t->type == TENSOR_BF16 ? WEIGHT_BF16 : WEIGHT_F16;
}

/* Whether a matrix is in the project's own 4-bit format. */
static bool holds_w4(const struct model_desc *m)
{
    bool found = tensor_is_w4(m->output.type);
    for (uint32_t i = 0; i < m->n_layers; i++) {
        const struct model_layer *l = &m->layers[i];
        found |= tensor_is_w4(l->wq.type) || tensor_is_w4(l->wk.type) || tensor_is_w4(l->wv.type) || tensor_is_w4(l->wo.type) ||
                 tensor_is_w4(l->w_gate.type) || tensor_is_w4(l->w_up.type) || tensor_is_w4(l->w_down.type);
    }
    return found;
}

/* The type that keeps t's integers. False, and *out as it was: t has none, or is not to be kept so. */
static bool choose_quantised(const struct weights *w, const struct tensor_view *t, enum weight_type *out)
{
    struct tensor_groups groups;
    enum weight_type type;
    if (w->form != WEIGHT_FORM_NATIVE || !w->model->groups || !w->model->groups(t, &groups) || t->cols % 32)
        return false;
    for (type = WEIGHT_W4_G32; type <= WEIGHT_W8_G32; type++) {
        if (weight_bits(type) == groups.bits && weight_group(type) == groups.size && weight_has_minimum(type) == groups.has_minimum) {
            *out = type;
            return true;
        }
    }
    return false;
}

/* Gate and up go through a product side by side. */
static void hold_alike(struct weights *w, struct packed_matrix *a, struct packed_matrix *b)
{
    if (a->type == b->type || (!weight_is_quantised(a->type) && !weight_is_quantised(b->type)))
        return;
    w->n_quantised -= weight_is_quantised(a->type) + weight_is_quantised(b->type);
    a->type = wide_type(w, &a->source);
    b->type = wide_type(w, &b->source);
}

static int add_matrix(struct weights *w, struct packed_matrix *matrix, const struct tensor_view *t, uint32_t rows, uint32_t cols,
                      struct error *err)
{
    int status = check_shape(t, rows, cols, err);
    if (status)
        return status;
    matrix->source = *t;
    matrix->type = wide_type(w, t);
    if (choose_quantised(w, t, &matrix->type))
        w->n_quantised++;
    matrix->n_inputs = cols;
    matrix->n_outputs = rows;
    matrix->n_panels = (rows + w->kernels->panel_width - 1) / w->kernels->panel_width;
    w->matrices[w->n_matrices++] = matrix;
    w->n_panels += matrix->n_panels;
    return 0;
}

static int add_layer(struct weights *w, uint32_t layer, struct error *err)
{
    const struct model_desc *m = w->model;
    const struct model_layer *from = &m->layers[layer];
    struct layer_weights *to = &w->layers[layer];
    uint32_t q_size = m->n_heads * m->d_head, kv_size = m->n_kv_heads * m->d_head;
    const struct {
        struct packed_matrix *matrix;
        const struct tensor_view *view;
        uint32_t rows, cols;
    } parts[MATRICES_PER_LAYER] = {
        {&to->q, &from->wq, q_size, m->d_model},         {&to->k, &from->wk, kv_size, m->d_model},
        {&to->v, &from->wv, kv_size, m->d_model},        {&to->o, &from->wo, m->d_model, q_size},
        {&to->gate, &from->w_gate, m->d_ff, m->d_model}, {&to->up, &from->w_up, m->d_ff, m->d_model},
        {&to->down, &from->w_down, m->d_model, m->d_ff},
    };
    for (int i = 0; i < MATRICES_PER_LAYER; i++) {
        int status = add_matrix(w, parts[i].matrix, parts[i].view, parts[i].rows, parts[i].cols, err);
        if (status)
            return status;
    }
    hold_alike(w, &to->gate, &to->up);
    return 0;
}

/* ---- vectors ---- */

/* Takes n floats from the vector memory for t, or leaves NULL if t is absent and may be. */
static int take_vector(struct weights *w, float **next, const struct tensor_view *t, uint32_t n, bool optional, const float **out,
                       struct error *err)
{
    if (optional && !tensor_present(t))
        return 0;
    int status = check_shape(t, 1, n, err);
    if (status)
        return status;
    w->model->dequantize(t, 0, 1, *next);
    *out = *next;
    *next += n;
    return 0;
}

/* The constant part of a layer's keys: the bias where the rotation turns less than a radian in a thousand positions. */
static void take_key_centre(struct weights *w, float **next, struct layer_weights *layer)
{
    const struct model_desc *m = w->model;
    const uint32_t pairs = m->d_head / 2;
    float *centre = *next;
    if (!layer->k.bias || layer->k_norm)
        return;
    for (uint32_t i = 0; i < m->n_kv_heads * m->d_head; i++) {
        uint32_t within = i % m->d_head, pair = m->rope_layout == ROPE_INTERLEAVED ? within / 2 : within % pairs;
        centre[i] = m->rope_inv_freq[pair] < 1e-3f ? layer->k.bias[i] * m->rope_magnitude : 0.0f;
    }
    layer->key_centre = centre;
    *next += m->n_kv_heads * m->d_head;
}

static int take_vectors(struct weights *w, struct error *err)
{
    const struct model_desc *m = w->model;
    uint32_t q_size = m->n_heads * m->d_head, kv_size = m->n_kv_heads * m->d_head;
    size_t per_layer = 2 * (size_t)m->d_model + 2 * (size_t)m->d_head + q_size + 3 * (size_t)kv_size;
    float *next = malloc((m->n_layers * per_layer + m->d_model) * sizeof *next);
    int status = 0;
    if (!next)
        return error_set(err, HS_ERR_NO_MEMORY, "weights: out of memory");
    w->vector_memory = next;
    for (uint32_t i = 0; i < m->n_layers && !status; i++) {
        const struct model_layer *from = &m->layers[i];
        struct layer_weights *to = &w->layers[i];
        const struct {
            const struct tensor_view *view;
            uint32_t n;
            bool optional;
            const float **out;
        } parts[] = {
            {&from->attn_norm, m->d_model, false, &to->attn_norm},
            {&from->ffn_norm, m->d_model, false, &to->ffn_norm},
            {&from->q_norm, m->d_head, true, &to->q_norm},
            {&from->k_norm, m->d_head, true, &to->k_norm},
            {&from->bq, q_size, true, &to->q.bias},
            {&from->bk, kv_size, true, &to->k.bias},
            {&from->bv, kv_size, true, &to->v.bias},
        };
        for (size_t j = 0; j < sizeof parts / sizeof parts[0] && !status; j++)
            status = take_vector(w, &next, parts[j].view, parts[j].n, parts[j].optional, parts[j].out, err);
        if (!status)
            take_key_centre(w, &next, to);
    }
    return status ? status : take_vector(w, &next, &m->output_norm, m->d_model, false, &w->output_norm, err);
}

/* ---- create ---- */

static size_t matrix_bytes(const struct weights *w, const struct packed_matrix *matrix)
{
    size_t bytes = matrix->n_panels * weight_panel_bytes(matrix->type, matrix->n_inputs, w->kernels->panel_width);
    return (bytes + CACHE_LINE - 1) / CACHE_LINE * CACHE_LINE;
}

static int place_panels(struct weights *w, struct error *err)
{
    for (uint32_t i = 0; i < w->n_matrices; i++)
        w->panel_bytes += matrix_bytes(w, w->matrices[i]);
    w->panel_memory = memory_map(w->panel_bytes);
    if (!w->panel_memory)
        return error_set(err, HS_ERR_NO_MEMORY, "no memory for %zu MiB of weights", w->panel_bytes >> 20);
    char *next = w->panel_memory;
    for (uint32_t i = 0; i < w->n_matrices; i++) {
        w->matrices[i]->panels = next;
        next += matrix_bytes(w, w->matrices[i]);
    }
    w->panels_per_chunk = (uint32_t)((w->n_panels + FILL_CHUNKS - 1) / FILL_CHUNKS);
    w->n_chunks = (uint32_t)((w->n_panels + w->panels_per_chunk - 1) / w->panels_per_chunk);
    return 0;
}

int weights_create(const struct model_desc *model, const struct cpu_kernels *kernels, enum weight_form form, struct weights **out,
                   struct error *err)
{
    struct weights *w = calloc(1, sizeof *w);
    int status = HS_ERR_NO_MEMORY;
    if (!w)
        return error_set(err, status, "weights: out of memory");
    w->model = model;
    w->kernels = kernels;
    w->form = form;
    if (form == WEIGHT_FORM_AUTO) /* for all of the file, so that native means the same bits in every node that says so */
        w->form = holds_w4(model) ? WEIGHT_FORM_NATIVE : WEIGHT_FORM_16BIT;
    w->layers = calloc(model->n_layers, sizeof *w->layers);
    w->matrices = calloc((size_t)model->n_layers * MATRICES_PER_LAYER + 1, sizeof *w->matrices);
    if (!w->layers || !w->matrices) {
        error_set(err, status, "weights: out of memory");
        goto fail;
    }
    for (uint32_t i = 0; i < model->n_layers; i++) {
        status = add_layer(w, i, err);
        if (status)
            goto fail;
    }
    status = check_shape(&model->token_embedding, model->n_vocab, model->d_model, err);
    if (!status)
        status = add_matrix(w, &w->output, &model->output, model->n_vocab, model->d_model, err);
    if (!status)
        status = take_vectors(w, err);
    if (!status)
        status = place_panels(w, err);
    if (status)
        goto fail;
    *out = w;
    return 0;
fail:
    weights_destroy(w);
    return status;
}

void weights_destroy(struct weights *weights)
{
    if (!weights)
        return;
    memory_unmap(weights->panel_memory, weights->panel_bytes);
    free(weights->vector_memory);
    free(weights->matrices);
    free(weights->layers);
    free(weights);
}

/* ---- placing ---- */

/* Memory of one node, as far as it is known. */
struct node_run {
    uintptr_t start, end;
    uint32_t node;
};

struct placing {
    const struct topology *topology;
    uint64_t *node_bytes;
    struct node_run run;
    bool refused;
};

static void place_until(struct placing *placing, uintptr_t end)
{
    struct node_run *run = &placing->run;
    if (end <= run->start)
        return;
    placing->node_bytes[run->node] += end - run->start;
    placing->refused |= !topology_place(placing->topology, (void *)run->start, end - run->start, UINT64_C(1) << run->node);
    run->start = end;
}

/* The memory up to `end` that follows what was added before. */
static void add_run(struct placing *placing, uintptr_t end, uint32_t node)
{
    struct node_run *run = &placing->run;
    if (end <= run->end)
        return;
    if (node != run->node) {
        place_until(placing, placement_cut(run->end, run->end - run->start, end - run->end));
        run->node = node;
    }
    run->end = end;
}

/* q, k and v are numbered through in one product, every other matrix is a product of its own. */
static uint32_t panels_before(const struct weights *w, uint32_t matrix, uint32_t *n_panels)
{
    const uint32_t part = matrix % MATRICES_PER_LAYER;
    struct packed_matrix *const *first = w->matrices + matrix - part;
    *n_panels = w->matrices[matrix]->n_panels;
    if (matrix + 1 == w->n_matrices || part > 2)
        return 0;
    *n_panels = first[0]->n_panels + first[1]->n_panels + first[2]->n_panels;
    return part == 0 ? 0 : first[0]->n_panels + (part == 2 ? first[1]->n_panels : 0);
}

bool weights_place(const struct weights *weights, const struct topology *topology, const struct placement *placement,
                   uint64_t node_bytes[CPU_MAX_NODES])
{
    const uintptr_t base = (uintptr_t)weights->panel_memory;
    struct placing placing = {topology, node_bytes, {base, base, placement->workers[0].node}, false};
    memset(node_bytes, 0, CPU_MAX_NODES * sizeof *node_bytes);
    for (uint32_t i = 0; i < weights->n_matrices; i++) {
        const struct packed_matrix *matrix = weights->matrices[i];
        const size_t panel_bytes = weight_panel_bytes(matrix->type, matrix->n_inputs, weights->kernels->panel_width);
        uint32_t n_panels, before = panels_before(weights, i, &n_panels);
        for (uint32_t w = 0; w < placement->n_workers; w++) {
            uint32_t last = placement_first_panel(n_panels, placement->n_workers, w + 1);
            last = last > before ? last - before : 0;
            last = last < matrix->n_panels ? last : matrix->n_panels;
            add_run(&placing, (uintptr_t)matrix->panels + last * panel_bytes, placement->workers[w].node);
        }
    }
    place_until(&placing, base + weights->panel_bytes);
    return !placing.refused;
}

/* ---- filling ---- */

static uint32_t most_inputs(const struct weights *w)
{
    uint32_t most = 0;
    for (uint32_t i = 0; i < w->n_matrices; i++)
        most = w->matrices[i]->n_inputs > most ? w->matrices[i]->n_inputs : most;
    return most;
}

size_t weights_fill_scratch(const struct weights *weights)
{
    /* One row of floats, and a panel's rows of 16-bit values before they are interleaved. */
    return most_inputs(weights) * (1 + (size_t)CPU_MAX_PANEL_WIDTH / 2);
}

/* exponent: the bits that are all ones in an infinity and in what is no number. */
static bool are_finite(const uint16_t *values, size_t n, uint16_t exponent)
{
    uint32_t found = 0;
    for (size_t i = 0; i < n; i++)
        found |= (values[i] & exponent) == exponent;
    return !found;
}

static bool finite_halves(const uint16_t *halves, size_t n)
{
    return are_finite(halves, n, 0x7c00);
}

/* The tensor's 16 bits are those that the kernels want. */
static bool is_held_as_stored(const struct packed_matrix *matrix)
{
    if (matrix->source.type == TENSOR_BF16)
        return matrix->type == WEIGHT_BF16 || matrix->type == WEIGHT_BF16_PAIRS;
    return matrix->source.type == TENSOR_F16 && matrix->type == WEIGHT_F16;
}

/* A panel in 16 bits. */
static void fill_wide_panel(struct weights *w, const struct packed_matrix *matrix, uint32_t panel, uint32_t n_rows, float *scratch)
{
    const uint32_t width = w->kernels->panel_width, n_inputs = matrix->n_inputs;
    uint16_t *out = (uint16_t *)matrix->panels + (size_t)panel * n_inputs * width;
    uint16_t *rows = (uint16_t *)(scratch + n_inputs);
    for (uint32_t r = 0; r < n_rows; r++) {
        uint16_t *row = rows + (size_t)r * n_inputs;
        if (is_held_as_stored(matrix)) {
            memcpy(row, (const char *)matrix->source.data + (uint64_t)(panel * width + r) * n_inputs * sizeof *row, n_inputs * sizeof *row);
        } else {
            w->model->dequantize(&matrix->source, panel * width + r, 1, scratch);
            w->kernels->shorts_from_floats(scratch, row, n_inputs);
        }
        if (matrix->type != WEIGHT_F16 && !are_finite(row, n_inputs, 0x7f80))
            atomic_fetch_add(&w->n_bad_rows, 1);
        if (matrix->type == WEIGHT_F16 && !finite_halves(row, n_inputs))
            atomic_fetch_add(&w->n_overflows, 1);
    }
    if (w->kernels->inputs_per_word == 1)
        for (uint32_t i = 0; i < n_inputs; i++)
            for (uint32_t r = 0; r < n_rows; r++)
                out[(size_t)i * width + r] = rows[(size_t)r * n_inputs + i];
    else
        for (uint32_t i = 0; i < n_inputs; i += 2)
            for (uint32_t r = 0; r < n_rows; r++)
                memcpy(out + (size_t)i * width + 2 * r, rows + (size_t)r * n_inputs + i, 2 * sizeof *out);
}

/* Inputs of one output as they stand in a dword (kernels_quantised.h). */
static uint32_t pack_dword(enum weight_type type, const int8_t *integers)
{
    uint64_t bytes;
    uint32_t dword;
    if (weight_bits(type) == 8) {
        memcpy(&dword, integers, sizeof dword);
        return dword ^ 0x80808080u; /* -128..127 becomes 0..255 */
    }
    memcpy(&bytes, integers, sizeof bytes);
    bytes = (bytes & 0x0f0f0f0f0f0f0f0fu) ^ (weight_has_minimum(type) ? 0 : 0x0808080808080808u); /* -8..7 becomes 0..15 */
    return (uint32_t)bytes | (uint32_t)(bytes >> 32) << 4;
}

/* A row as lane `lane` of a panel. */
static void place_row(const struct packed_matrix *matrix, uint32_t width, uint32_t lane, const int8_t *integers,
                      const uint16_t *scales, const uint16_t *minima, char *out)
{
    const uint32_t group = weight_group(matrix->type), per_dword = 32 / weight_bits(matrix->type);
    for (uint32_t first = 0, n; first < matrix->n_inputs; first += n) {
        n = matrix->n_inputs - first < group ? matrix->n_inputs - first : group;
        for (uint32_t i = 0; i < n; i += per_dword, out += width * sizeof(uint32_t)) {
            uint32_t dword = pack_dword(matrix->type, integers + first + i);
            memcpy(out + lane * sizeof dword, &dword, sizeof dword);
        }
        memcpy(out + lane * sizeof *scales, scales++, sizeof *scales);
        out += width * sizeof *scales;
        if (weight_has_minimum(matrix->type)) {
            memcpy(out + lane * sizeof *minima, minima++, sizeof *minima);
            out += width * sizeof *minima;
        }
    }
}

static void fill_quantised_panel(struct weights *w, const struct packed_matrix *matrix, uint32_t panel, uint32_t n_rows,
                                 float *scratch)
{
    const uint32_t width = w->kernels->panel_width, n_inputs = matrix->n_inputs, group = weight_group(matrix->type);
    const uint32_t n_groups = (n_inputs + group - 1) / group;
    const bool has_minimum = weight_has_minimum(matrix->type);
    uint16_t *scales = (uint16_t *)scratch, *minima = has_minimum ? scales + n_groups : NULL;
    int8_t *integers = (int8_t *)(scales + 2 * (size_t)n_groups);
    char *out = (char *)matrix->panels + panel * weight_panel_bytes(matrix->type, n_inputs, width);
    for (uint32_t r = 0; r < n_rows; r++) {
        w->model->read_groups(&matrix->source, panel * width + r, integers, scales, minima);
        if (!finite_halves(scales, n_groups) || (has_minimum && !finite_halves(minima, n_groups)))
            atomic_fetch_add(&w->n_bad_rows, 1);
        place_row(matrix, width, r, integers, scales, minima, out);
    }
}

static void fill_panel(struct weights *w, const struct packed_matrix *matrix, uint32_t panel, float *scratch)
{
    const uint32_t width = w->kernels->panel_width, left = matrix->n_outputs - panel * width;
    const uint32_t n_rows = left < width ? left : width;
    if (weight_is_quantised(matrix->type))
        fill_quantised_panel(w, matrix, panel, n_rows, scratch);
    else
        fill_wide_panel(w, matrix, panel, n_rows, scratch);
    atomic_fetch_add_explicit(&w->filled_bytes, weight_panel_bytes(matrix->type, matrix->n_inputs, width), memory_order_relaxed);
}

void weights_fill(struct weights *weights, uint32_t chunk, float *scratch)
{
    uint64_t first = (uint64_t)chunk * weights->panels_per_chunk;
    uint64_t last = first + weights->panels_per_chunk;
    uint64_t base = 0; /* number of matrix i's panel 0 */
    hs_assert(chunk < weights->n_chunks);
    for (uint32_t i = 0; i < weights->n_matrices && base < last; i++) {
        const struct packed_matrix *matrix = weights->matrices[i];
        uint64_t from = first > base ? first : base;
        uint64_t to = last < base + matrix->n_panels ? last : base + matrix->n_panels;
        for (uint64_t panel = from; panel < to; panel++)
            fill_panel(weights, matrix, (uint32_t)(panel - base), scratch);
        base += matrix->n_panels;
    }
}

int weights_check(const struct weights *weights, struct error *err)
{
    uint32_t n = atomic_load(&weights->n_overflows);
    if (n > 0)
        return error_set(err, HS_ERR_RANGE, "%u rows of weights hold values that FP16 cannot (beyond 65,504): use a BF16 file", n);
    n = atomic_load(&weights->n_bad_rows);
    if (n > 0)
        return error_set(err, HS_ERR_PARSE, "%u rows of weights hold values or scales that are not finite: get a whole copy of the model", n);
    return 0;
}

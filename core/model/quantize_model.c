#include "core/model/quantize_model.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "core/model/dequantize.h"
#include "core/model/model_file.h"
#include "core/model/new_file.h"

enum { ROWS_PER_CHUNK = 32, MAX_THREADS = 256 };

/* ---- what becomes of each tensor ---- */

static bool is_layer_matrix(const struct model_desc *m, const void *data)
{
    for (uint32_t i = 0; i < m->n_layers; i++) {
        const struct model_layer *l = &m->layers[i];
        const void *all[] = {l->wq.data, l->wk.data, l->wv.data, l->wo.data, l->w_gate.data, l->w_up.data, l->w_down.data};
        for (size_t k = 0; k < sizeof all / sizeof all[0]; k++)
            if (all[k] == data)
                return true;
    }
    return false;
}

static bool is_wanted(const struct quantize_config *c, const struct model_desc *m, const struct tensor_view *t)
{
    if (t->rows == 0 || t->cols % W4_ROW_UNIT) /* an empty tensor may lie where another begins */
        return false;
    if (t->data == m->token_embedding.data)
        return !c->keep_embedding && (!c->keep_output || m->output.data != t->data);
    if (t->data == m->output.data)
        return !c->keep_output;
    return is_layer_matrix(m, t->data);
}

/* True if one tensor serves embedding and output, and only the output is to be quantised. */
static bool splits_output(const struct quantize_config *c, const struct model_desc *m)
{
    return c->keep_embedding && !c->keep_output && m->output.data == m->token_embedding.data && m->output.cols % W4_ROW_UNIT == 0;
}

static void decide(const struct quantize_config *c, const struct model_desc *m, struct quantize_tensor *t)
{
    t->type = t->source.type;
    t->bytes = t->source.bytes;
    if (is_wanted(c, m, &t->source)) {
        t->type = w4_type(c->layout);
        t->bytes = t->source.rows * w4_row_bytes(c->layout, t->source.cols);
    }
}

static void take_gguf_tensor(const struct gguf_tensor *from, struct quantize_tensor *to)
{
    uint64_t rows = 1;
    for (uint32_t d = 1; d < from->n_dims; d++)
        rows *= from->dims[d];
    *to = (struct quantize_tensor){.n_dims = from->n_dims};
    to->source = (struct tensor_view){.name = from->name, .data = from->data, .bytes = from->bytes, .type = from->type,
                                      .rows = (uint32_t)rows, .cols = (uint32_t)from->dims[0]};
    memcpy(to->dims, from->dims, sizeof from->dims);
}

static void take_folder_tensor(const struct safetensors_tensor *from, struct quantize_tensor *to)
{
    uint64_t rows = 1;
    for (uint32_t d = 0; d + 1 < from->n_dims; d++)
        rows *= from->dims[d];
    *to = (struct quantize_tensor){.n_dims = from->n_dims};
    to->source = (struct tensor_view){.name = from->name, .data = from->data, .bytes = from->bytes, .type = from->type,
                                      .rows = (uint32_t)rows, .cols = from->n_dims ? (uint32_t)from->dims[from->n_dims - 1] : 1};
    memcpy(to->dims, from->dims, sizeof from->dims);
}

static int compare_places(const void *a, const void *b)
{
    uintptr_t l = (uintptr_t)((const struct quantize_tensor *)a)->source.data;
    uintptr_t r = (uintptr_t)((const struct quantize_tensor *)b)->source.data;
    return (l > r) - (l < r);
}

/* A folder whose model uses the embedding for the output may hold a copy of it, which nobody reads. */
static bool is_spare_output(const struct model_weights *w, const struct quantize_tensor *t)
{
    return !w->gguf && strcmp(t->source.name, "lm_head.weight") == 0 && strcmp(w->desc.output.name, t->source.name) != 0;
}

static int list_tensors(const struct quantize_config *c, struct quantize_plan *plan, struct error *err)
{
    const struct model_weights *w = plan->model;
    const uint64_t n = w->gguf ? gguf_count_tensors(w->gguf) : safetensors_count(w->tensors);
    plan->tensors = calloc(n + 1, sizeof *plan->tensors);
    if (!plan->tensors)
        return error_set(err, HS_ERR_NO_MEMORY, "%s: out of memory", c->in);
    for (uint64_t i = 0; i < n; i++) {
        struct quantize_tensor *t = &plan->tensors[plan->n];
        if (w->gguf)
            take_gguf_tensor(gguf_tensor_at(w->gguf, i), t);
        else
            take_folder_tensor(safetensors_at(w->tensors, i), t);
        if (is_spare_output(w, t))
            continue;
        if (t->source.type == TENSOR_NONE || tensor_is_w4(t->source.type))
            return error_set(err, HS_ERR_UNSUPPORTED, "%s: tensor \"%s\" %s; quantise the original model", c->in, t->source.name,
                             t->source.type == TENSOR_NONE ? "is not in F32, F16 or BF16" : "is in the 4-bit format already");
        decide(c, &w->desc, t);
        plan->n++;
    }
    qsort(plan->tensors, plan->n, sizeof *plan->tensors, compare_places);
    return 0;
}

/* Adds the output layer that a shared tensor does not give. */
static void add_output(const struct quantize_config *c, struct quantize_plan *plan)
{
    struct quantize_tensor *added = &plan->tensors[plan->n];
    for (uint32_t i = 0; i < plan->n; i++)
        if (plan->tensors[i].source.rows > 0 && plan->tensors[i].source.data == plan->model->desc.output.data)
            *added = plan->tensors[i];
    added->source.name = plan->model->gguf ? "output.weight" : "lm_head.weight";
    added->type = w4_type(c->layout);
    added->bytes = added->source.rows * w4_row_bytes(c->layout, added->source.cols);
    plan->n++;
}

/* ---- the work ---- */

struct work {
    const struct quantize_config *config;
    const struct quantize_plan *plan;
    uint8_t *data; /* of the new file, behind its header */
    uint32_t n_chunks;
    _Atomic uint32_t next_chunk, done_chunks;
    _Atomic uint32_t bad_tensor; /* 1 + its index; 0: none */
    pthread_mutex_t lock;        /* of failed and of the sums */
    bool failed;                 /* a thread had no memory */
    double *squares, *errors;    /* [n_chunks], added in order at the end */
};

static uint32_t chunks_of(const struct quantize_tensor *t)
{
    return (t->source.rows + ROWS_PER_CHUNK - 1) / ROWS_PER_CHUNK;
}

static void quantize_rows(struct work *work, uint32_t tensor, uint32_t first, uint32_t chunk, float *row, float *back)
{
    const struct quantize_tensor *t = &work->plan->tensors[tensor];
    const struct w4_layout layout = work->config->layout;
    const uint64_t row_bytes = w4_row_bytes(layout, t->source.cols);
    const uint32_t last = t->source.rows - first < ROWS_PER_CHUNK ? t->source.rows : first + ROWS_PER_CHUNK;
    for (uint32_t r = first; r < last; r++) {
        uint8_t *out = work->data + t->offset + r * row_bytes;
        dequantize_rows(&t->source, r, 1, row);
        if (!w4_quantize_row(layout, row, t->source.cols, out)) {
            atomic_store(&work->bad_tensor, tensor + 1);
            return;
        }
        w4_dequantize_row(layout, out, t->source.cols, back);
        for (uint32_t i = 0; i < t->source.cols; i++) {
            work->squares[chunk] += (double)row[i] * row[i];
            work->errors[chunk] += (double)(row[i] - back[i]) * (row[i] - back[i]);
        }
    }
}

static void do_chunk(struct work *work, uint32_t chunk, float *row, float *back)
{
    uint32_t base = 0;
    for (uint32_t i = 0; i < work->plan->n; i++) {
        const struct quantize_tensor *t = &work->plan->tensors[i];
        const uint32_t n = t->type == t->source.type ? 1 : chunks_of(t);
        if (chunk < base + n) {
            if (t->type == t->source.type)
                memcpy(work->data + t->offset, t->source.data, t->bytes);
            else
                quantize_rows(work, i, (chunk - base) * ROWS_PER_CHUNK, chunk, row, back);
            return;
        }
        base += n;
    }
}

static uint32_t most_cols(const struct quantize_plan *plan)
{
    uint32_t most = 1;
    for (uint32_t i = 0; i < plan->n; i++)
        most = plan->tensors[i].source.cols > most ? plan->tensors[i].source.cols : most;
    return most;
}

static void work_through(struct work *work, bool reports)
{
    const struct quantize_config *c = work->config;
    const uint32_t cols = most_cols(work->plan);
    float *rows = malloc(2 * (size_t)cols * sizeof *rows);
    if (!rows) {
        pthread_mutex_lock(&work->lock);
        work->failed = true;
        pthread_mutex_unlock(&work->lock);
        return;
    }
    for (uint32_t chunk; (chunk = atomic_fetch_add(&work->next_chunk, 1)) < work->n_chunks && !atomic_load(&work->bad_tensor);) {
        do_chunk(work, chunk, rows, rows + cols);
        uint32_t done = atomic_fetch_add(&work->done_chunks, 1) + 1;
        if (reports && c->progress)
            c->progress(c->progress_arg, (double)done / work->n_chunks);
    }
    free(rows);
}

static void *thread_main(void *arg)
{
    work_through(arg, false);
    return NULL;
}

/* Fewer threads than wanted do as well. */
static void run_threads(struct work *work)
{
    pthread_t threads[MAX_THREADS];
    uint32_t wanted = work->config->threads < MAX_THREADS ? work->config->threads : MAX_THREADS, n = 0;
    while (n + 1 < wanted && pthread_create(&threads[n], NULL, thread_main, work) == 0)
        n++;
    work_through(work, true);
    for (uint32_t i = 0; i < n; i++)
        pthread_join(threads[i], NULL);
}

static int quantize_all(struct work *work, double *relative_error, struct error *err)
{
    const struct quantize_plan *plan = work->plan;
    double squares = 0, errors = 0;
    for (uint32_t i = 0; i < plan->n; i++)
        work->n_chunks += plan->tensors[i].type == plan->tensors[i].source.type ? 1 : chunks_of(&plan->tensors[i]);
    work->squares = calloc(2 * (size_t)work->n_chunks + 1, sizeof *work->squares);
    if (!work->squares)
        return error_set(err, HS_ERR_NO_MEMORY, "%s: out of memory", work->config->in);
    work->errors = work->squares + work->n_chunks;
    pthread_mutex_init(&work->lock, NULL);
    run_threads(work);
    pthread_mutex_destroy(&work->lock);
    for (uint32_t i = 0; i < work->n_chunks; i++) {
        squares += work->squares[i];
        errors += work->errors[i];
    }
    free(work->squares);
    *relative_error = squares > 0 ? sqrt(errors / squares) : 0;
    uint32_t bad = atomic_load(&work->bad_tensor);
    if (bad)
        return error_set(err, HS_ERR_RANGE, "%s: tensor \"%s\" holds values that are not finite or beyond FP16; get a whole copy",
                         work->config->in, plan->tensors[bad - 1].source.name);
    return work->failed && atomic_load(&work->done_chunks) < work->n_chunks
               ? error_set(err, HS_ERR_NO_MEMORY, "%s: out of memory", work->config->in)
               : 0;
}

/* ---- the file ---- */

static int fill_file(const struct quantize_config *c, const struct quantize_plan *plan, int fd, const char *path, double *error_share,
                     struct error *err)
{
    const uint64_t size = plan->header_bytes + plan->data_bytes;
    /* Reserved before it is mapped: a full disk is an error here and not a signal there. */
    int problem = posix_fallocate(fd, 0, (off_t)size);
    if (problem)
        return error_set(err, HS_ERR_IO, "%s: no room for %" PRIu64 " MiB: %s", path, size >> 20, strerror(problem));
    uint8_t *file = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (file == MAP_FAILED)
        return error_set(err, HS_ERR_IO, "%s: cannot be mapped: %s", path, strerror(errno));
    struct work work = {.config = c, .plan = plan, .data = file + plan->header_bytes};
    memcpy(file, plan->header, plan->header_bytes);
    int rc = quantize_all(&work, error_share, err);
    munmap(file, size);
    return rc;
}

static bool same_place(const char *a, const char *b)
{
    struct stat of_a, of_b;
    return stat(a, &of_a) == 0 && stat(b, &of_b) == 0 && of_a.st_dev == of_b.st_dev && of_a.st_ino == of_b.st_ino;
}

static int write_model(const struct quantize_config *c, const struct quantize_plan *plan, const char *path, double *error_share,
                       struct error *err)
{
    struct new_file file;
    int rc = new_file_open(path, &file, err);
    if (rc)
        return rc;
    rc = fill_file(c, plan, file.fd, path, error_share, err);
    if (rc)
        new_file_discard(&file);
    else
        rc = new_file_commit(&file, err);
    return rc;
}

/* ---- all of it ---- */

static void summarize(const struct quantize_plan *plan, struct quantize_summary *out)
{
    for (uint32_t i = 0; i < plan->n; i++) {
        const struct quantize_tensor *t = &plan->tensors[i];
        bool kept = t->type == t->source.type;
        out->n_kept += kept;
        out->n_quantized += !kept;
        out->bytes_in += t->source.bytes;
        out->bytes_out += t->bytes;
    }
}

static int write_folder(const struct quantize_config *c, const struct quantize_plan *plan, double *error_share, struct error *err)
{
    int rc = quantize_copy_folder(c->in, c->out, err);
    char *path = rc == 0 ? model_file_join(c->out, "model.safetensors") : NULL;
    if (rc == 0 && !path)
        rc = error_set(err, HS_ERR_NO_MEMORY, "%s: out of memory", c->out);
    if (rc == 0)
        rc = write_model(c, plan, path, error_share, err);
    free(path);
    return rc;
}

/* Renaming would put a file in the place of anything, a device too. */
static int check_place(const char *out, bool is_folder, struct error *err)
{
    struct stat place;
    if (stat(out, &place) < 0 || (is_folder ? S_ISDIR(place.st_mode) : S_ISREG(place.st_mode)))
        return 0;
    return error_set(err, HS_ERR_INVALID, "%s: is no %s, as the model is one; give another place to write to", out,
                     is_folder ? "folder" : "file");
}

static int quantize_opened(const struct quantize_config *c, struct quantize_plan *plan, struct quantize_summary *summary,
                           struct error *err)
{
    const bool is_folder = plan->model->gguf == NULL;
    int rc = check_place(c->out, is_folder, err);
    if (rc == 0)
        rc = list_tensors(c, plan, err);
    if (rc < 0)
        return rc;
    if (splits_output(c, &plan->model->desc))
        add_output(c, plan);
    rc = is_folder ? quantize_plan_folder(plan, err) : quantize_plan_gguf(plan, err);
    if (rc < 0)
        return rc;
    summarize(plan, summary);
    return is_folder ? write_folder(c, plan, &summary->relative_error, err)
                     : write_model(c, plan, c->out, &summary->relative_error, err);
}

int quantize_model(const struct quantize_config *config, struct quantize_summary *out, struct error *err)
{
    struct model_weights *model;
    struct quantize_summary summary = {0};
    if (same_place(config->in, config->out))
        return error_set(err, HS_ERR_INVALID, "%s: would be overwritten by its own copy; give another place to write to", config->out);
    int rc = model_weights_open(config->in, &model, err);
    if (rc < 0)
        return rc;
    struct quantize_plan plan = {.model = model};
    rc = quantize_opened(config, &plan, &summary, err);
    free(plan.tensors);
    free(plan.header);
    model_weights_close(model);
    if (rc == 0)
        *out = summary;
    return rc;
}

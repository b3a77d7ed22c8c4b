#include "core/model/model_weights.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "core/base/utf8.h"
#include "core/model/dequantize.h"
#include "core/model/model_file.h"

/* general.name, or the last part of the path without ".gguf". NULL without memory. */
static char *choose_name(const struct gguf *gguf, const char *path)
{
    struct gguf_string name;
    if (gguf && gguf_get_string(gguf, "general.name", &name, NULL) == 0 && name.len && name.text[0])
        return strndup(name.text, name.len);
    char *resolved = realpath(path, NULL);
    if (!resolved)
        return errno == ENOMEM ? NULL : strdup(path);
    const char *last = strrchr(resolved, '/');
    char *stem = strdup(last && last[1] ? last + 1 : resolved);
    free(resolved);
    size_t len = stem ? strlen(stem) : 0;
    if (len > 5 && strcmp(stem + len - 5, ".gguf") == 0)
        stem[len - 5] = '\0';
    return stem;
}

/* Names go into answers, logs and terminals: control characters and broken UTF-8 become '_'. */
static void tidy_name(char *name)
{
    size_t left = strlen(name), len;
    for (; left; name += len, left -= len) {
        bool valid;
        len = utf8_next(name, left, &valid);
        if (!valid || (unsigned char)*name < ' ' || *name == 0x7f)
            memset(name, '_', len);
    }
}

static void describe(const struct model_config *c, struct model_weights *w)
{
    w->desc = (struct model_desc){
        .architecture = c->family->name,
        .name = w->name,
        .n_layers = c->n_layers,
        .d_model = c->d_model,
        .d_ff = c->d_ff,
        .n_heads = c->n_heads,
        .n_kv_heads = c->n_kv_heads,
        .d_head = c->d_head,
        .n_context = c->n_context,
        .sliding_window = c->sliding_window,
        .rms_epsilon = (float)c->rms_epsilon,
        .rope_layout = c->rope_layout,
        .rope_inv_freq = w->inv_freq,
        .layers = w->layers,
        .dequantize = dequantize_rows,
        .groups = tensor_groups_of,
        .read_groups = tensor_read_groups,
    };
}

static int compute_rope(const struct model_config *c, const struct tensor_view *factors, struct model_weights *w, const char *path,
                        struct error *err)
{
    float *values = NULL;
    if (tensor_present(factors)) {
        values = calloc(factors->cols, sizeof *values);
        if (!values)
            return error_set(err, HS_ERR_NO_MEMORY, "%s: out of memory", path);
        dequantize_rows(factors, 0, 1, values);
    }
    int rc = rope_frequencies_compute(&c->rope, c->d_head, values, w->inv_freq, &w->desc.rope_magnitude, err);
    free(values);
    return rc < 0 ? error_wrap(err, rc, "%s", path) : 0;
}

/* The part that is the same for both sources, once these are open. */
static int build(const struct model_config *c, const char *path, struct model_weights *w, struct error *err)
{
    struct model_tensors source = {.path = path, .gguf = w->gguf, .tensors = w->tensors};
    struct tensor_view factors;
    w->name = choose_name(w->gguf, path);
    w->layers = calloc(c->n_layers, sizeof *w->layers);
    w->inv_freq = calloc(c->d_head / 2, sizeof *w->inv_freq);
    if (!w->name || !w->layers || !w->inv_freq)
        return error_set(err, HS_ERR_NO_MEMORY, "%s: out of memory", path);
    tidy_name(w->name);
    describe(c, w);
    int rc = model_bind_tensors(&source, c, &w->desc, w->layers, &factors, err);
    return rc < 0 ? rc : compute_rope(c, &factors, w, path, err);
}

/* w->gguf is open. */
static int build_gguf(const char *path, struct model_weights *w, struct error *err)
{
    struct model_config config;
    int rc = model_config_from_gguf(w->gguf, &config, err);
    return rc < 0 ? rc : build(&config, path, w, err);
}

static int open_gguf(const char *path, struct model_weights *w, struct error *err)
{
    int rc = gguf_open(path, &w->gguf, err);
    return rc < 0 ? rc : build_gguf(path, w, err);
}

static int open_folder(const char *folder, struct model_weights *w, struct error *err)
{
    struct model_config config;
    char *config_path = model_file_join(folder, "config.json");
    w->folder = strdup(folder);
    if (!config_path || !w->folder) {
        free(config_path);
        return error_set(err, HS_ERR_NO_MEMORY, "%s: out of memory", folder);
    }
    int rc = model_config_from_json(config_path, &config, err);
    if (rc == HS_ERR_NOT_FOUND)
        rc = error_set(err, rc, "%s: has no config.json; give a Hugging Face model folder or a .gguf file", folder);
    free(config_path);
    if (rc == 0)
        rc = safetensors_open_folder(folder, &w->tensors, err);
    return rc < 0 ? rc : build(&config, folder, w, err);
}

int model_weights_open(const char *path, struct model_weights **out, struct error *err)
{
    struct stat status;
    if (stat(path, &status) < 0)
        return error_set(err, errno == ENOENT ? HS_ERR_NOT_FOUND : HS_ERR_IO,
                         "%s: cannot open: %s; give a .gguf file or a Hugging Face folder", path, strerror(errno));
    struct model_weights *w = calloc(1, sizeof *w);
    if (!w)
        return error_set(err, HS_ERR_NO_MEMORY, "%s: out of memory", path);
    int rc = S_ISDIR(status.st_mode) ? open_folder(path, w, err) : open_gguf(path, w, err);
    if (rc < 0) {
        model_weights_close(w);
        return rc;
    }
    *out = w;
    return 0;
}

int model_weights_open_memory(const void *data, size_t len, const char *name, struct model_weights **out, struct error *err)
{
    struct model_weights *w = calloc(1, sizeof *w);
    if (!w)
        return error_set(err, HS_ERR_NO_MEMORY, "%s: out of memory", name);
    int rc = gguf_open_memory(data, len, name, &w->gguf, err);
    if (rc == 0)
        rc = build_gguf(name, w, err);
    if (rc < 0) {
        model_weights_close(w);
        return rc;
    }
    *out = w;
    return 0;
}

void model_weights_close(struct model_weights *w)
{
    if (!w)
        return;
    gguf_close(w->gguf);
    safetensors_close(w->tensors);
    free(w->folder);
    free(w->name);
    free(w->layers);
    free(w->inv_freq);
    free(w);
}

#include "core/model/loaded_model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/model/fingerprint.h"
#include "core/model/model_file.h"
#include "core/model/model_json.h"
#include "core/model/model_weights.h"

struct opened_model {
    struct loaded_model public;
    struct model_weights *weights;
};

/* The folder's own file for the template, which newer checkpoints use; NULL in *out if there is none. */
static int read_template_file(const char *folder, char **out, struct error *err)
{
    struct model_file file;
    char *path = model_file_join(folder, "chat_template.jinja");
    if (!path)
        return error_set(err, HS_ERR_NO_MEMORY, "%s: out of memory", folder);
    int rc = model_file_map(path, &file, err);
    free(path);
    if (rc == HS_ERR_NOT_FOUND)
        return 0;
    if (rc < 0)
        return rc;
    *out = strndup(file.data ? (const char *)file.data : "", file.len);
    model_file_unmap(&file);
    return *out ? 0 : error_set(err, HS_ERR_NO_MEMORY, "%s: out of memory", folder);
}

/* "chat_template" of tokenizer_config.json: a text, or a list of named texts of which "default" counts. */
static const char *template_in_config(const json_t *config)
{
    const json_t *value = json_object_get(config, "chat_template");
    size_t i;
    json_t *entry;
    json_array_foreach((json_t *)value, i, entry)
    {
        const char *name = json_string_value(json_object_get(entry, "name"));
        if (name && strcmp(name, "default") == 0)
            return json_string_value(json_object_get(entry, "template"));
    }
    return json_string_value(value);
}

static int read_folder_template(const char *folder, char **out, struct error *err)
{
    json_t *config;
    int rc = read_template_file(folder, out, err);
    if (rc < 0 || *out)
        return rc;
    char *path = model_file_join(folder, "tokenizer_config.json");
    if (!path)
        return error_set(err, HS_ERR_NO_MEMORY, "%s: out of memory", folder);
    rc = model_json_read(path, &config, err);
    free(path);
    if (rc == HS_ERR_NOT_FOUND)
        return 0;
    if (rc < 0)
        return rc;
    const char *text = template_in_config(config);
    *out = text ? strdup(text) : NULL;
    if (text && !*out)
        rc = error_set(err, HS_ERR_NO_MEMORY, "%s: out of memory", folder);
    json_decref(config);
    return rc;
}

/* The model's Jinja text on the heap, NULL in *out if it has none. */
static int read_template(const struct model_weights *w, char **out, struct error *err)
{
    struct gguf_string text;
    *out = NULL;
    if (!w->gguf)
        return read_folder_template(w->folder, out, err);
    if (!gguf_find(w->gguf, "tokenizer.chat_template"))
        return 0;
    int rc = gguf_get_string(w->gguf, "tokenizer.chat_template", &text, err);
    if (rc < 0)
        return rc;
    *out = strndup(text.text, text.len);
    return *out ? 0 : error_set(err, HS_ERR_NO_MEMORY, "%s: out of memory", gguf_path(w->gguf));
}

static int choose_template(struct opened_model *m, const char *path, const char *wanted, struct error *err)
{
    char *jinja;
    if (wanted)
        return chat_template_by_name(wanted, &m->public.chat, err);
    int rc = read_template(m->weights, &jinja, err);
    if (rc < 0)
        return rc;
    if (!jinja || !*jinja) {
        snprintf(m->public.chat_missing, sizeof m->public.chat_missing,
                 "%.200s has no chat template; name one with --chat-template (%s) or use /v1/completions", m->public.desc->name,
                 chat_template_names());
    } else {
        rc = chat_template_detect(jinja, &m->public.chat, err);
        if (rc < 0)
            error_wrap(err, rc, "%s", path);
    }
    free(jinja);
    return rc;
}

static int load_tokenizer(struct opened_model *m, const char *path, struct error *err)
{
    struct model_weights *w = m->weights;
    int rc = w->gguf ? tokenizer_from_gguf(w->gguf, &m->public.tokenizer, err)
                     : tokenizer_from_folder(w->folder, &m->public.tokenizer, err);
    if (rc < 0)
        return rc;
    /* Checkpoints pad the embedding, so it may have more rows than there are tokens, but not fewer. */
    if (tokenizer_vocab_size(m->public.tokenizer) > w->desc.n_vocab)
        return error_set(err, HS_ERR_PARSE, "%s: has %u tokens but embeddings for %u; get a whole copy of the model", path,
                         tokenizer_vocab_size(m->public.tokenizer), w->desc.n_vocab);
    return 0;
}

/* Everything beyond the weights. Takes m over, also on failure. */
static int finish_open(struct opened_model *m, const char *path, const char *chat_template, struct loaded_model **out,
                       struct error *err)
{
    uint8_t digest[32];
    m->public.desc = &m->weights->desc;
    int rc = load_tokenizer(m, path, err);
    if (rc == 0)
        rc = choose_template(m, path, chat_template, err);
    if (rc < 0) {
        model_close(&m->public);
        return rc;
    }
    tokenizer_digest(m->public.tokenizer, digest);
    fingerprint_compute(m->public.desc, digest, m->weights->desc.fingerprint);
    *out = &m->public;
    return 0;
}

int model_open(const char *path, const char *chat_template, struct loaded_model **out, struct error *err)
{
    struct opened_model *m = calloc(1, sizeof *m);
    if (!m)
        return error_set(err, HS_ERR_NO_MEMORY, "%s: out of memory", path);
    int rc = model_weights_open(path, &m->weights, err);
    if (rc < 0) {
        free(m);
        return rc;
    }
    return finish_open(m, path, chat_template, out, err);
}

int model_open_memory(const void *data, size_t len, const char *name, const char *chat_template, struct loaded_model **out,
                      struct error *err)
{
    struct opened_model *m = calloc(1, sizeof *m);
    if (!m)
        return error_set(err, HS_ERR_NO_MEMORY, "%s: out of memory", name);
    int rc = model_weights_open_memory(data, len, name, &m->weights, err);
    if (rc < 0) {
        free(m);
        return rc;
    }
    return finish_open(m, name, chat_template, out, err);
}

void model_close(struct loaded_model *model)
{
    struct opened_model *m = (struct opened_model *)model; /* public is its first member */
    if (!m)
        return;
    if (m->public.tokenizer)
        tokenizer_destroy(m->public.tokenizer);
    model_weights_close(m->weights);
    free(m);
}

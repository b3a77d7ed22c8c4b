/*
 * A Hugging Face folder around good weights. Texts with a NUL between them: tokenizer_config.json (which may hold the chat template),
 * chat_template.jinja, config.json, tokenizer.json; for an empty one the tiny model's own stands (no file, for the template).
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/model/model_file.h"
#include "tests/fuzz/fuzz.h"

#define TINY FUZZ_SOURCE_DIR "/tests/vectors/tiny/qwen2/"

static void write_own(const char *name)
{
    struct model_file file;
    char *path = model_file_join(TINY, name);
    hs_assert(path);
    bool there = model_file_map(path, &file, NULL) == 0;
    fuzz_write_file("folder", name, there ? file.data : NULL, there ? file.len : 0);
    if (there)
        model_file_unmap(&file);
    free(path);
}

int fuzz_folder(const uint8_t *data, size_t len)
{
    static const char *const names[] = {"tokenizer_config.json", "chat_template.jinja", "config.json", "tokenizer.json"};
    char path[FUZZ_PATH_BYTES];
    struct loaded_model *model;
    struct error err = {0};
    struct reader in;
    reader_init(&in, data, len);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char *text = fuzz_next_text(&in);
        if (*text)
            fuzz_write_file("folder", names[i], text, strlen(text));
        else
            write_own(names[i]);
        free(text);
    }
    hs_assert(symlink(TINY "model.safetensors", fuzz_path("folder", "model.safetensors", path)) == 0 || errno == EEXIST);
    int rc = model_open(fuzz_path("folder", "", path), NULL, &model, &err);
    if (rc < 0) {
        hs_assert(err.code == rc && err.text[0]);
        return 0;
    }
    hs_assert(model->chat || model->chat_missing[0]);
    model_close(model);
    return 0;
}

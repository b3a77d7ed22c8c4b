#include "tests/fuzz/fuzz.h"

#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/log.h"

#define VECTORS FUZZ_SOURCE_DIR "/tests/vectors/"

static char folder[64];
static struct loaded_model *model;
static struct tokenizer *tokenizers[FUZZ_TOKENIZERS];

static int remove_entry(const char *path, const struct stat *status, int kind, struct FTW *at)
{
    return remove(path);
}

static void clean_up(void)
{
    if (folder[0])
        nftw(folder, remove_entry, 8, FTW_DEPTH | FTW_PHYS);
    for (unsigned i = 0; i < FUZZ_TOKENIZERS; i++)
        tokenizer_destroy(tokenizers[i]);
    model_close(model);
}

void fuzz_init(void)
{
    log_setup(LOG_LEVEL_ERROR, LOG_FORMAT_TEXT);
    atexit(clean_up);
}

void *fuzz_copy(const void *data, size_t len)
{
    void *copy = malloc(len ? len : 1);
    hs_assert(copy);
    if (len)
        memcpy(copy, data, len);
    return copy;
}

char *fuzz_cstring(const void *data, size_t len)
{
    char *text = malloc(len + 1);
    hs_assert(text);
    if (len)
        memcpy(text, data, len);
    text[len] = '\0';
    return text;
}

char *fuzz_next_text(struct reader *in)
{
    size_t left = reader_left(in);
    const uint8_t *start = left ? in->data + in->pos : NULL;
    const uint8_t *end = left ? memchr(start, 0, left) : NULL;
    size_t len = end ? (size_t)(end - start) : left;
    read_view(in, end ? len + 1 : len);
    return fuzz_cstring(start, len);
}

const char *fuzz_path(const char *target, const char *name, char path[FUZZ_PATH_BYTES])
{
    if (!folder[0]) {
        const char *parent = access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp";
        snprintf(folder, sizeof folder, "%s/hearsay-fuzz-XXXXXX", parent);
        hs_assert(mkdtemp(folder));
    }
    snprintf(path, FUZZ_PATH_BYTES, "%s/%s", folder, target);
    mkdir(path, 0700); /* or it is there already */
    snprintf(path, FUZZ_PATH_BYTES, "%s/%s%s%s", folder, target, *name ? "/" : "", name);
    return path;
}

void fuzz_write_file(const char *target, const char *name, const void *data, size_t len)
{
    char path[FUZZ_PATH_BYTES];
    fuzz_path(target, name, path);
    if (!data) {
        unlink(path);
        return;
    }
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    hs_assert(fd >= 0);
    hs_assert(write(fd, data, len) == (ssize_t)len);
    close(fd);
}

const struct loaded_model *fuzz_tiny_model(void)
{
    struct error err = {0};
    if (!model && model_open(VECTORS "tiny/llama3.gguf", NULL, &model, &err) < 0) {
        fprintf(stderr, "%s\n", err.text);
        hs_assert(model);
    }
    return model;
}

const struct tokenizer *fuzz_tiny_tokenizer(unsigned index)
{
    static const char *const folders[FUZZ_TOKENIZERS] = {
        VECTORS "tokenizer_tiny_llama3", VECTORS "tokenizer_tiny_llama2",    VECTORS "tokenizer_tiny_mistral",
        VECTORS "tokenizer_tiny_gemma",  VECTORS "tokenizer_tiny_metaspace", VECTORS "tiny/qwen2",
    };
    struct error err = {0};
    struct tokenizer **slot = &tokenizers[index % FUZZ_TOKENIZERS];
    if (!*slot && tokenizer_from_folder(folders[index % FUZZ_TOKENIZERS], slot, &err) < 0) {
        fprintf(stderr, "%s\n", err.text);
        hs_assert(*slot);
    }
    return *slot;
}

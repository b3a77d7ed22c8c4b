/*
 * A safetensors file; or, when it begins with "{", a model.safetensors.index.json whose shards lie beside it.
 */
#include <stdlib.h>
#include <string.h>

#include "core/model/safetensors.h"
#include "tests/fuzz/fuzz.h"

static void read_all(const struct safetensors *tensors)
{
    volatile uint8_t sum = 0;
    for (size_t i = 0; i < safetensors_count(tensors); i++) {
        const struct safetensors_tensor *t = safetensors_at(tensors, i);
        hs_assert(safetensors_find(tensors, t->name) == t);
        hs_assert(t->n_dims <= 8);
        if (t->bytes)
            sum = (uint8_t)(sum + ((const uint8_t *)t->data)[0] + ((const uint8_t *)t->data)[t->bytes - 1]);
    }
}

/* Two good shards of one tensor each. */
static void write_shards(void)
{
    static const char header[] = "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}";
    uint8_t file[8 + sizeof header + 4];
    for (int i = 0; i < 2; i++) {
        struct writer w;
        writer_init(&w, file, sizeof file);
        write_u64(&w, sizeof header - 1);
        write_bytes(&w, header, sizeof header - 1);
        write_f32(&w, 1);
        file[8 + 2] = (uint8_t)('a' + i);
        fuzz_write_file("safetensors", i ? "two.safetensors" : "one.safetensors", file, w.len);
    }
}

static int open_index(const uint8_t *data, size_t len, struct safetensors **out, struct error *err)
{
    static bool written;
    if (!written)
        write_shards();
    written = true;
    fuzz_write_file("safetensors", "model.safetensors.index.json", data, len);
    char path[FUZZ_PATH_BYTES];
    return safetensors_open_folder(fuzz_path("safetensors", "", path), out, err);
}

int fuzz_safetensors(const uint8_t *data, size_t len)
{
    struct safetensors *tensors;
    struct error err = {0};
    void *file = fuzz_copy(data, len);
    bool index = len && data[0] == '{';
    int rc = index ? open_index(data, len, &tensors, &err) : safetensors_open_memory(file, len, "fuzzed", &tensors, &err);
    if (rc < 0) {
        hs_assert(err.code == rc && err.text[0]);
    } else {
        read_all(tensors);
        safetensors_close(tensors);
    }
    free(file);
    return 0;
}

/* A config.json, read into a model's description and its rotary frequencies. */
#include <stdlib.h>

#include "core/model/model_config.h"
#include "core/model/rope_frequencies.h"
#include "tests/fuzz/fuzz.h"

int fuzz_config(const uint8_t *data, size_t len)
{
    struct model_config config;
    struct error err = {0};
    char path[FUZZ_PATH_BYTES];
    fuzz_write_file("config", "config.json", len ? (const void *)data : "", len);
    int rc = model_config_from_json(fuzz_path("config", "config.json", path), &config, &err);
    if (rc < 0) {
        hs_assert(err.code == rc && err.text[0]);
        return 0;
    }
    hs_assert(config.n_layers && config.d_model && config.d_ff && config.n_heads && config.n_kv_heads && config.n_context);
    hs_assert(config.n_heads % config.n_kv_heads == 0 && config.d_head % 2 == 0);
    float magnitude, *frequencies = malloc(config.d_head / 2 * sizeof *frequencies);
    hs_assert(frequencies);
    rc = rope_frequencies_compute(&config.rope, config.d_head, NULL, frequencies, &magnitude, &err);
    for (uint32_t i = 0; rc == 0 && i < config.d_head / 2; i++)
        hs_assert(frequencies[i] >= 0); /* a number */
    free(frequencies);
    return 0;
}

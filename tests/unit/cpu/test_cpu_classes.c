/*
 * The bits of each arithmetic class as they were when its name got its number: a checksum over the logits of tiny models, on every path that this
 * CPU has. Nothing but IEEE operations in a fixed order goes into them, so no compiler, sanitizer or library changes them.
 *
 * No reference says what is right here; test_cpu_model and test_logits_reference do that. When bits change on purpose: raise the number in
 * cpu_backend.c and put the checksum that this test prints beside the new name.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/base/rng.h"
#include "core/model/model_weights.h"
#include "tests/unit/cpu/session.h"

enum { MOST_TOKENS = 300, CHUNK = 37, PAGES = (MOST_TOKENS + 15) / 16, MODELS = 2 };

static const struct {
    const char *name;
    uint64_t checksum;
} classes[] = {
    {"cpu-generic-f32.1", UINT64_C(0xcc888455a2fd10cf)},
    {"cpu-generic-f32-native.2", UINT64_C(0x80defcf030f576c8)},
    {"cpu-avx2-f32.1", UINT64_C(0x3b923e24505772d3)},
    {"cpu-avx2-f32-native.2", UINT64_C(0xbd5b81a1d4ce8b59)},
    {"cpu-avx512-f32.1", UINT64_C(0x3ce1f22888c1c7f4)},
    {"cpu-avx512-f32-native.2", UINT64_C(0x6bdd14f6d14df966)},
    {"cpu-avx512bf16-bf16.1", UINT64_C(0x99fea391d351cf01)},
    {"cpu-avx512bf16-bf16-native.2", UINT64_C(0xffc99437d77385ff)},
};

/* FNV-1a. */
static uint64_t add_bytes(uint64_t checksum, const void *data, size_t n)
{
    for (const uint8_t *byte = data; n > 0; n--, byte++)
        checksum = (checksum ^ *byte) * UINT64_C(0x100000001b3);
    return checksum;
}

/* The logits of random tokens in steps of a few, over pages that stand backwards. name becomes the class. */
static uint64_t add_model(uint64_t checksum, const char *file, enum cpu_path path, char name[48])
{
    struct model_weights *model;
    struct backend_info info;
    struct error err;
    uint32_t tokens[MOST_TOKENS], pages[PAGES];
    struct rng rng;
    if (model_weights_open(file, &model, &err))
        fail_msg("%s", err.text);
    const uint32_t n = model->desc.n_context < MOST_TOKENS ? model->desc.n_context : MOST_TOKENS;
    struct backend *backend = session_backend(&model->desc, path, 2, PAGES);
    float *logits = calloc((size_t)n * model->desc.n_vocab, sizeof *logits);
    assert_non_null(logits);
    rng_seed(&rng, 1);
    for (uint32_t i = 0; i < n; i++)
        tokens[i] = (uint32_t)rng_below(&rng, model->desc.n_vocab);
    for (uint32_t i = 0; i < PAGES; i++)
        pages[i] = PAGES - 1 - i;
    session_prefill(backend, tokens, n, CHUNK, pages, PAGES, logits);
    backend->ops->info(backend, &info);
    memcpy(name, info.arithmetic, sizeof info.arithmetic);
    checksum = add_bytes(checksum, logits, (size_t)n * model->desc.n_vocab * sizeof *logits);
    free(logits);
    backend->ops->destroy(backend);
    model_weights_close(model);
    return checksum;
}

static void check_classes(const char *const files[MODELS])
{
    for (enum cpu_path path = CPU_PATH_GENERIC; path <= CPU_PATH_AVX512_BF16; path++) {
        uint64_t checksum = UINT64_C(0xcbf29ce484222325), expected = 0;
        char name[48];
        if (!cpu_path_supported(path))
            continue;
        for (int i = 0; i < MODELS; i++)
            checksum = add_model(checksum, files[i], path, name);
        for (size_t i = 0; i < sizeof classes / sizeof classes[0]; i++)
            if (strcmp(classes[i].name, name) == 0)
                expected = classes[i].checksum;
        if (checksum != expected)
            fail_msg("%s: the checksum is 0x%016llx: other bits than those of its number, or a new number", name, (unsigned long long)checksum);
    }
}

static void test_wide(void **state)
{
    check_classes((const char *const[MODELS]){"tests/vectors/tiny/llama3.gguf", "tests/vectors/tiny/qwen2.gguf"});
}

static void test_native(void **state)
{
    check_classes((const char *const[MODELS]){"tests/vectors/tiny/w4.gguf", "tests/vectors/tiny/w4_min"});
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_wide), cmocka_unit_test(test_native)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/*
 * Same bits with the real default model: its prompt in one step and in chunks of 1, 7 and 128, with one and two threads, in
 * other pages; then 64 greedy tokens alone and in a batch of 16. Skipped (exit 77) where the model file is not there.
 */
#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "core/base/rng.h"
#include "core/model/model_weights.h"
#include "tests/unit/cpu/session.h"

enum { PROMPT = 140, ANSWER = 64, PAGES = 256, SPAN_PAGES = 13, BATCH = 16 };

static struct model_weights *model;
static enum cpu_path path;
static struct backend *backends[2]; /* with one thread and with two */
static uint32_t prompts[BATCH][PROMPT + ANSWER];
static uint32_t pages[2][PAGES]; /* ascending, descending */

static float *new_logits(uint32_t n)
{
    float *logits = calloc((size_t)n * model->desc.n_vocab, sizeof *logits);
    assert_non_null(logits);
    return logits;
}

static void test_chunks_and_threads(void **state)
{
    const uint32_t chunks[] = {PROMPT, 1, 7, 128};
    float *expected = new_logits(PROMPT), *logits = new_logits(PROMPT);
    size_t bytes = (size_t)PROMPT * model->desc.n_vocab * sizeof *logits;
    session_prefill(backends[0], prompts[0], PROMPT, PROMPT, pages[0], SPAN_PAGES, expected);
    for (int threads = 0; threads < 2; threads++) {
        for (int i = 0; i < 4; i++) {
            memset(logits, 0, bytes);
            session_prefill(backends[threads], prompts[0], PROMPT, chunks[i], pages[1], SPAN_PAGES, logits);
            if (memcmp(logits, expected, bytes) != 0)
                fail_msg("chunks of %u with %d threads differ", chunks[i], threads + 1);
        }
    }
    free(expected);
    free(logits);
}

/* Decodes ANSWER tokens for the first n_spans prompts together; keeps tokens and logits of the first. */
static void decode(struct backend *backend, uint32_t n_spans, uint32_t *tokens, float *logits)
{
    struct step_span spans[BATCH];
    struct row_result results[BATCH];
    for (uint32_t i = 0; i < ANSWER; i++) {
        for (uint32_t s = 0; s < n_spans; s++) {
            uint32_t n = i == 0 ? PROMPT / (s == 0 ? 1 : 8) : 1; /* the first step prefills; companions are shorter */
            uint32_t position = i == 0 ? 0 : PROMPT / (s == 0 ? 1 : 8) + i - 1;
            spans[s] = (struct step_span){.history = prompts[s],
                                          .position = position,
                                          .n_tokens = n,
                                          .n_prompt = PROMPT,
                                          .pages = pages[0] + s * SPAN_PAGES,
                                          .n_pages = SPAN_PAGES,
                                          .n_outputs = 1,
                                          .sampling = &session_greedy,
                                          .results = &results[s]};
        }
        spans[0].logits = logits + (size_t)i * model->desc.n_vocab;
        /* The row of interest stands last in the batch: another place in its tile. */
        struct step_span first = spans[0];
        spans[0] = spans[n_spans - 1];
        spans[n_spans - 1] = first;
        session_run(backend, spans, n_spans);
        for (uint32_t s = 0; s < n_spans; s++)
            prompts[s][PROMPT / (s == 0 ? 1 : 8) + i] = results[s].token;
        tokens[i] = results[0].token;
    }
}

static void test_answer_in_a_batch(void **state)
{
    uint32_t alone[ANSWER], batched[ANSWER];
    float *expected = new_logits(ANSWER), *logits = new_logits(ANSWER);
    decode(backends[1], 1, alone, expected);
    decode(backends[1], BATCH, batched, logits);
    assert_memory_equal(alone, batched, sizeof alone);
    assert_memory_equal(expected, logits, ANSWER * model->desc.n_vocab * sizeof *logits);
    free(expected);
    free(logits);
}

static int set_up(void **state)
{
    struct rng rng;
    rng_seed(&rng, 1);
    for (uint32_t s = 0; s < BATCH; s++)
        for (uint32_t i = 0; i < PROMPT; i++)
            prompts[s][i] = (uint32_t)rng_below(&rng, model->desc.n_vocab);
    for (uint32_t i = 0; i < PAGES; i++) {
        pages[0][i] = i;
        pages[1][i] = PAGES - 1 - i;
    }
    for (uint32_t i = 0; i < 2; i++)
        backends[i] = session_backend(&model->desc, path, i + 1, PAGES);
    return 0;
}

static int tear_down(void **state)
{
    for (int i = 0; i < 2; i++)
        backends[i]->ops->destroy(backends[i]);
    return 0;
}

int main(int argc, char **argv)
{
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    char file[PATH_MAX];
    struct error err = {0};
    snprintf(file, sizeof file, "%s%s/hearsay/SmolLM2-135M-Instruct.Q4_1.gguf",
             cache && cache[0] ? cache
             : home            ? home
                               : "",
             cache && cache[0] ? "" : "/.cache");
    if (argc > 1 && cpu_path_parse(argv[1], &path)) {
        fprintf(stderr, "unknown path %s\n", argv[1]);
        return 2;
    }
    if (!cpu_path_supported(path)) {
        printf("skipped: this CPU has no %s\n", argv[1]);
        return 77;
    }
    if (argc > 2 && strcmp(argv[2], "native") == 0)
        session_weights = WEIGHT_FORM_NATIVE;
    if (access(file, R_OK)) {
        printf("skipped: %s is not there (tools/quickstart fetches it)\n", file);
        return 77;
    }
    if (model_weights_open(file, &model, &err)) {
        fprintf(stderr, "%s\n", err.text);
        return 1;
    }
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_chunks_and_threads), cmocka_unit_test(test_answer_in_a_batch)};
    int failures = cmocka_run_group_tests(tests, set_up, tear_down);
    model_weights_close(model);
    return failures;
}

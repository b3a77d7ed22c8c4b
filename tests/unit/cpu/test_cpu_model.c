/*
 * Whole models on one path (named by the argument): every variation of the family against the slow double-precision pass,
 * and the promise of same bits: chunk sizes, companions in the batch, threads, page tables and copied pages change nothing.
 * Exit 77 where the CPU lacks the path.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/base/rng.h"
#include "tests/unit/cpu/session.h"
#include "tests/unit/cpu/tiny_model.h"

enum { VOCAB = 301, PAGES = 512, COMPANIONS = 15 };

static enum cpu_path path;

/* Odd sizes on purpose: heads, feed-forward and vocabulary that fill no vector. */
static const struct tiny_options plain = {.n_layers = 2,
                                          .d_model = 72,
                                          .d_ff = 100,
                                          .n_heads = 6,
                                          .n_kv_heads = 2,
                                          .d_head = 24,
                                          .n_vocab = VOCAB,
                                          .type = TENSOR_F32,
                                          .tied = true,
                                          .seed = 1};

static void random_tokens(struct rng *rng, uint32_t *tokens, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        tokens[i] = (uint32_t)rng_below(rng, VOCAB);
}

/* A random choice of pages in random order. */
static void random_pages(struct rng *rng, uint32_t *pages)
{
    for (uint32_t i = 0; i < PAGES; i++)
        pages[i] = i;
    for (uint32_t i = PAGES - 1; i > 0; i--) {
        uint32_t j = (uint32_t)rng_below(rng, i + 1), swap = pages[i];
        pages[i] = pages[j];
        pages[j] = swap;
    }
}

static float *new_logits(uint32_t n)
{
    float *logits = calloc((size_t)n * VOCAB, sizeof *logits);
    assert_non_null(logits);
    return logits;
}

/* ---- against the reference ---- */

static void check_model(const struct tiny_options *given, uint32_t n, uint32_t chunk)
{
    const bool bfloat = path == CPU_PATH_AVX512_BF16;
    struct tiny_options o = *given, *options = &o;
    options->bfloat = bfloat;
    struct tiny_model *model = tiny_model_create(options);
    struct backend *backend = session_backend(tiny_model_desc(model), path, 2, PAGES);
    uint32_t tokens[600], pages[PAGES];
    struct rng rng;
    double *expected = calloc((size_t)n * VOCAB, sizeof *expected), worst = 0, lowest_cosine = 1;
    float *logits = new_logits(n);
    assert_non_null(expected);
    rng_seed(&rng, options->seed + 100);
    random_tokens(&rng, tokens, n);
    random_pages(&rng, pages);
    tiny_model_logits(model, tokens, n, expected);
    session_prefill(backend, tokens, n, chunk, pages, PAGES, logits);
    for (uint32_t p = 0; p < n; p++) {
        double dot = 0, a = 0, b = 0;
        for (uint32_t i = 0; i < VOCAB; i++) {
            double x = expected[(size_t)p * VOCAB + i], y = logits[(size_t)p * VOCAB + i];
            dot += x * y, a += x * x, b += y * y;
            worst = fabs(x - y) > worst ? fabs(x - y) : worst;
        }
        lowest_cosine = dot / sqrt(a * b) < lowest_cosine ? dot / sqrt(a * b) : lowest_cosine;
    }
    print_message("largest difference %.2g, lowest cosine 1 - %.2g\n", worst, 1 - lowest_cosine);
    /* In bf16, queries and softmax weights are rounded too, and a sum's last bit may round its reader's input the other way. */
    assert_true(worst < (bfloat ? 0.1 : 0.001));
    assert_true(lowest_cosine > (bfloat ? 0.9997 : 0.9999999));
    free(expected);
    free(logits);
    backend->ops->destroy(backend);
    tiny_model_destroy(model);
}

static void test_plain_model(void **state)
{
    check_model(&plain, 70, 70);
}

/* Over several KV segments, one row at a time at the end of each. */
static void test_long_sequence(void **state)
{
    check_model(&plain, 560, 100);
}

static void test_interleaved_rope(void **state)
{
    struct tiny_options o = plain;
    o.rope_layout = ROPE_INTERLEAVED;
    o.tied = false;
    o.type = TENSOR_F16;
    o.seed = 2;
    check_model(&o, 50, 7);
}

static void test_biases_like_qwen2(void **state)
{
    struct tiny_options o = plain;
    o.biases = true;
    o.n_heads = 14;
    o.n_kv_heads = 2;
    o.d_head = 16;
    o.type = TENSOR_BF16;
    o.seed = 3;
    check_model(&o, 50, 50);
}

static void test_head_norms_like_qwen3(void **state)
{
    struct tiny_options o = plain;
    o.head_norms = true;
    o.n_heads = o.n_kv_heads = 3;
    o.d_head = 64;
    o.tied = false;
    o.seed = 4;
    check_model(&o, 50, 20);
}

static void test_sliding_window(void **state)
{
    struct tiny_options o = plain;
    o.sliding_window = 37;
    o.seed = 5;
    check_model(&o, 400, 64);
}

static void test_many_heads_share_one(void **state)
{
    struct tiny_options o = plain;
    o.n_heads = 16;
    o.n_kv_heads = 1;
    o.d_head = 8;
    o.seed = 6;
    check_model(&o, 40, 40);
}

/* ---- same bits ---- */

struct fixture {
    struct tiny_model *model;
    uint32_t tokens[600], pages[PAGES];
    uint32_t n;
    float *logits; /* one step of all rows, one thread */
};

static void make_fixture(struct fixture *f, uint32_t sliding_window)
{
    struct tiny_options o = plain;
    struct rng rng;
    o.sliding_window = sliding_window;
    f->n = 500;
    f->model = tiny_model_create(&o);
    f->logits = new_logits(f->n);
    rng_seed(&rng, 42);
    random_tokens(&rng, f->tokens, f->n);
    random_pages(&rng, f->pages);
    struct backend *backend = session_backend(tiny_model_desc(f->model), path, 1, PAGES);
    session_prefill(backend, f->tokens, f->n, f->n, f->pages, PAGES, f->logits);
    backend->ops->destroy(backend);
}

static void end_fixture(struct fixture *f)
{
    free(f->logits);
    tiny_model_destroy(f->model);
}

static void assert_same_logits(const struct fixture *f, const float *logits)
{
    for (uint32_t p = 0; p < f->n; p++)
        if (memcmp(logits + (size_t)p * VOCAB, f->logits + (size_t)p * VOCAB, VOCAB * sizeof *logits) != 0)
            fail_msg("position %u differs", p);
}

static void check_chunks_and_threads(uint32_t sliding_window)
{
    const uint32_t chunks[] = {1, 7, 128, 500};
    struct fixture f;
    make_fixture(&f, sliding_window);
    for (uint32_t threads = 1; threads <= 5; threads += threads == 2 ? 3 : 1) {
        struct backend *backend = session_backend(tiny_model_desc(f.model), path, threads, PAGES);
        for (size_t i = 0; i < sizeof chunks / sizeof chunks[0]; i++) {
            float *logits = new_logits(f.n);
            uint32_t pages[PAGES];
            struct rng rng;
            rng_seed(&rng, i + threads);
            random_pages(&rng, pages);
            session_prefill(backend, f.tokens, f.n, chunks[i], pages, PAGES, logits);
            assert_same_logits(&f, logits);
            free(logits);
        }
        backend->ops->destroy(backend);
    }
    end_fixture(&f);
}

static void test_chunks_threads_pages(void **state)
{
    check_chunks_and_threads(0);
}

static void test_chunks_threads_pages_window(void **state)
{
    check_chunks_and_threads(100);
}

/* The sequence in chunks of changing size, some of its rows wanted, at a changing place among 15 others of changing sizes. */
static void test_in_a_batch(void **state)
{
    struct fixture f;
    struct rng rng;
    make_fixture(&f, 0);
    rng_seed(&rng, 9);
    struct backend *backend = session_backend(tiny_model_desc(f.model), path, 2, PAGES);
    float *logits = new_logits(f.n), *ignored = new_logits(8);
    static struct row_result results[600], other_results[8];
    static bool wanted[600];
    uint32_t others[COMPANIONS][600], position[COMPANIONS] = {0};
    for (uint32_t c = 0; c < COMPANIONS; c++)
        random_tokens(&rng, others[c], 600);
    for (uint32_t done = 0; done < f.n;) {
        uint32_t now = 1 + (uint32_t)rng_below(&rng, 40), own = (uint32_t)rng_below(&rng, COMPANIONS + 1), n_spans = 0;
        struct step_span spans[COMPANIONS + 1];
        now = now < f.n - done ? now : f.n - done;
        uint32_t outputs = (uint32_t)rng_below(&rng, now + 1);
        for (uint32_t c = 0; c <= COMPANIONS; c++) {
            if (c == own)
                spans[n_spans++] = (struct step_span){.history = f.tokens,
                                                      .position = done,
                                                      .n_tokens = now,
                                                      .n_prompt = f.n,
                                                      .pages = f.pages,
                                                      .n_pages = 32,
                                                      .n_outputs = outputs,
                                                      .sampling = &session_greedy,
                                                      .results = results,
                                                      .logits = logits + (size_t)(done + now - outputs) * VOCAB};
            if (c == COMPANIONS)
                break;
            uint32_t rows = 1 + (uint32_t)rng_below(&rng, 8);
            if (position[c] + rows > 480)
                continue;
            spans[n_spans++] = (struct step_span){.history = others[c],
                                                  .position = position[c],
                                                  .n_tokens = rows,
                                                  .n_prompt = 600,
                                                  .pages = f.pages + 32 + 30 * c,
                                                  .n_pages = 30,
                                                  .n_outputs = (uint32_t)rng_below(&rng, rows + 1),
                                                  .sampling = &session_greedy,
                                                  .results = other_results,
                                                  .logits = ignored};
            position[c] += rows;
        }
        session_run(backend, spans, n_spans);
        for (uint32_t i = now - outputs; i < now; i++)
            wanted[done + i] = true;
        done += now;
    }
    for (uint32_t p = 0; p < f.n; p++) /* what nobody asked for counts as right */
        if (!wanted[p])
            memcpy(logits + (size_t)p * VOCAB, f.logits + (size_t)p * VOCAB, VOCAB * sizeof *logits);
    assert_same_logits(&f, logits);
    free(logits);
    free(ignored);
    backend->ops->destroy(backend);
    end_fixture(&f);
}

/* The first 300 positions computed once; then two continuations over copies of those pages, the originals overwritten. */
static void test_after_copied_pages(void **state)
{
    struct fixture f;
    make_fixture(&f, 0);
    struct backend *backend = session_backend(tiny_model_desc(f.model), path, 2, PAGES);
    float *logits = new_logits(f.n);
    uint32_t copies[32];
    const uint32_t *spare = f.pages + 32;
    session_prefill(backend, f.tokens, 300, 300, f.pages, 32, logits);
    for (uint32_t i = 0; i < 32; i++) {
        copies[i] = f.pages[100 + i];
        assert_int_equal(backend->ops->copy_page(backend, spare[i], f.pages[i]), 0); /* and a copy of the copy */
        assert_int_equal(backend->ops->copy_page(backend, copies[i], spare[i]), 0);
    }
    session_prefill(backend, f.tokens + 1, 300, 300, f.pages, 32, logits + (size_t)200 * VOCAB); /* overwrites the originals */
    session_prefill(backend, f.tokens, 300, 300, f.pages, 32, logits);
    struct row_result results[200];
    struct step_span span = {.history = f.tokens,
                             .position = 300,
                             .n_tokens = 200,
                             .n_prompt = 500,
                             .pages = copies,
                             .n_pages = 32,
                             .n_outputs = 200,
                             .sampling = &session_greedy,
                             .results = results,
                             .logits = logits + (size_t)300 * VOCAB};
    session_run(backend, &span, 1);
    assert_same_logits(&f, logits);
    free(logits);
    backend->ops->destroy(backend);
    end_fixture(&f);
}

int main(int argc, char **argv)
{
    if (argc > 1 && cpu_path_parse(argv[1], &path)) {
        fprintf(stderr, "unknown path %s\n", argv[1]);
        return 2;
    }
    if (!cpu_path_supported(path)) {
        printf("skipped: this CPU has no %s\n", argv[1]);
        return 77;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plain_model),
        cmocka_unit_test(test_long_sequence),
        cmocka_unit_test(test_interleaved_rope),
        cmocka_unit_test(test_biases_like_qwen2),
        cmocka_unit_test(test_head_norms_like_qwen3),
        cmocka_unit_test(test_sliding_window),
        cmocka_unit_test(test_many_heads_share_one),
        cmocka_unit_test(test_chunks_threads_pages),
        cmocka_unit_test(test_chunks_threads_pages_window),
        cmocka_unit_test(test_in_a_batch),
        cmocka_unit_test(test_after_copied_pages),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* The contract of backend.h on the CPU backend: what it says of itself, what it refuses, how completions are told. */
#include <math.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/cpu/cpu_backend.h"
#include "tests/unit/cpu/session.h"
#include "tests/unit/cpu/tiny_model.h"

enum { VOCAB = 100, PAGES = 64 };

static const struct tiny_options options = {.n_layers = 1,
                                            .d_model = 32,
                                            .d_ff = 48,
                                            .n_heads = 2,
                                            .n_kv_heads = 1,
                                            .d_head = 16,
                                            .n_vocab = VOCAB,
                                            .type = TENSOR_F16,
                                            .tied = true,
                                            .seed = 1};
static struct tiny_model *model;
static struct backend *backend;
static const uint32_t tokens[64] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20};
static const uint32_t pages[4] = {5, 6, 7, 8};
static struct row_result results[64];

static struct step_span good_span(void)
{
    return (struct step_span){.history = tokens,
                              .n_tokens = 4,
                              .n_prompt = 4,
                              .pages = pages,
                              .n_pages = 4,
                              .n_outputs = 1,
                              .sampling = &session_greedy,
                              .results = results};
}

static struct step step_of(const struct step_span *span, uint64_t id)
{
    return (struct step){.id = id, .spans = span, .n_spans = 1};
}

static int poll_event(int timeout_ms)
{
    struct pollfd wait = {.fd = backend->ops->event_fd(backend), .events = POLLIN};
    return poll(&wait, 1, timeout_ms);
}

/* Copies the first of pages from page to page; the last one. */
static uint32_t copy_on(uint32_t n_copies)
{
    for (uint32_t i = 0; i < n_copies; i++)
        assert_int_equal(backend->ops->copy_page(backend, 10 + (i + 1) % 50, i ? 10 + i % 50 : pages[0]), 0);
    return 10 + n_copies % 50;
}

static void expect_refused(struct step_span span, int code)
{
    const struct step step = step_of(&span, 1);
    struct step_completion completion;
    assert_int_equal(backend->ops->submit(backend, &step), code);
    assert_int_equal(backend->ops->poll(backend, &completion), 0);
}

static void test_info(void **state)
{
    struct backend_info info;
    backend->ops->info(backend, &info);
    assert_string_equal(info.name, "cpu");
    assert_true(strncmp(info.arithmetic, "cpu-", 4) == 0 && strstr(info.arithmetic, "-f32"));
    assert_int_equal(info.n_pages, PAGES);
    assert_int_equal(info.page_tokens, 16);
    assert_int_equal(info.page_bytes, cpu_backend_page_bytes(tiny_model_desc(model), 16));
    assert_int_equal(info.n_vocab, VOCAB);
    assert_int_equal(info.max_rows, CPU_DEFAULT_MAX_ROWS);
    assert_int_equal(info.max_spans, CPU_DEFAULT_MAX_SPANS);
    assert_int_equal(info.max_inflight, 1);
    assert_true(backend->ops->next_deadline_ns(backend) == UINT64_MAX);
}

static void test_refusals(void **state)
{
    struct step_span span = good_span();
    uint32_t bad_page[4] = {5, 6, PAGES, 8}, bad_token[4] = {1, 2, VOCAB, 4}, bad_target = VOCAB;
    span.n_tokens = CPU_DEFAULT_MAX_ROWS + 1;
    expect_refused(span, HS_ERR_LIMIT);
    span = good_span(), span.n_tokens = 0;
    expect_refused(span, HS_ERR_RANGE);
    span = good_span(), span.n_outputs = 5;
    expect_refused(span, HS_ERR_RANGE);
    span = good_span(), span.position = 61; /* one past four pages */
    expect_refused(span, HS_ERR_RANGE);
    span = good_span(), span.position = UINT32_MAX - 1;
    expect_refused(span, HS_ERR_RANGE);
    span = good_span(), span.pages = bad_page, span.position = 30;
    expect_refused(span, HS_ERR_RANGE);
    span = good_span(), span.history = bad_token;
    expect_refused(span, HS_ERR_RANGE);
    span = good_span(), span.targets = &bad_target;
    expect_refused(span, HS_ERR_RANGE);
    span = good_span(), span.sampling = NULL;
    expect_refused(span, HS_ERR_RANGE);
    span = good_span(), span.results = NULL;
    expect_refused(span, HS_ERR_RANGE);
    assert_int_equal(backend->ops->copy_page(backend, PAGES, 0), HS_ERR_RANGE);
    assert_int_equal(backend->ops->copy_page(backend, 0, PAGES), HS_ERR_RANGE);

    struct step_span *many = calloc(CPU_DEFAULT_MAX_SPANS + 1, sizeof *many);
    assert_non_null(many);
    for (int i = 0; i <= CPU_DEFAULT_MAX_SPANS; i++)
        many[i] = (struct step_span){.history = tokens, .n_tokens = 1, .pages = pages, .n_pages = 1};
    struct step step = {.spans = many, .n_spans = CPU_DEFAULT_MAX_SPANS + 1};
    assert_int_equal(backend->ops->submit(backend, &step), HS_ERR_LIMIT);
    step.n_spans = 0;
    assert_int_equal(backend->ops->submit(backend, &step), HS_ERR_RANGE);
    free(many);
}

/* Exactly one completion a step; busy until it was polled; the descriptor is readable then, maybe once before, and no completion after. */
static void test_completion(void **state)
{
    const struct step_span span = good_span();
    const struct step step = step_of(&span, 77);
    struct step_completion completion;
    for (int i = 0; i < 200; i++) {
        assert_int_equal(backend->ops->submit(backend, &step), 0);
        assert_int_equal(backend->ops->submit(backend, &step), HS_ERR_BUSY);
        assert_int_equal(poll_event(60000), 1);
        if (backend->ops->poll(backend, &completion) == 0) { /* that was about its end being near */
            assert_int_equal(poll_event(60000), 1);
            assert_int_equal(backend->ops->poll(backend, &completion), 1);
        }
        assert_int_equal(completion.id, 77);
        assert_int_equal(completion.status, 0);
        assert_int_equal(backend->ops->poll(backend, &completion), 0);
        while (poll_event(0) == 1) /* the earlier event can be written late */
            assert_int_equal(backend->ops->poll(backend, &completion), 0);
    }
}

/* Polled without waiting for the descriptor, its event may come later; it must not stay readable. */
static void test_late_event_is_taken(void **state)
{
    const struct step_span span = good_span();
    const struct step step = step_of(&span, 1);
    struct step_completion completion;
    for (int i = 0; i < 500; i++) {
        assert_int_equal(backend->ops->submit(backend, &step), 0);
        while (backend->ops->poll(backend, &completion) == 0)
            ;
        while (poll_event(0) == 1)
            assert_int_equal(backend->ops->poll(backend, &completion), 0);
    }
}

/* The chosen token is the argmax of the logits handed out; spans without outputs write nothing. */
static void test_results(void **state)
{
    float logits[3 * VOCAB];
    uint32_t targets[2] = {9, 10};
    struct sampling_params scored = session_greedy;
    scored.logprobs = true;
    struct step_span span = good_span();
    span.n_outputs = 3, span.logits = logits;
    memset(results, 0xff, sizeof results);
    session_run(backend, &span, 1);
    for (int r = 0; r < 3; r++) {
        uint32_t best = 0;
        for (uint32_t i = 1; i < VOCAB; i++)
            best = logits[r * VOCAB + i] > logits[r * VOCAB + best] ? i : best;
        assert_int_equal(results[r].token, best);
    }
    assert_int_equal(results[3].token, UINT32_MAX);

    /* Targets are scored instead: their log softmax, from the last two of the same rows. */
    span.n_outputs = 2, span.targets = targets, span.logits = NULL, span.sampling = &scored;
    session_run(backend, &span, 1);
    for (int r = 0; r < 2; r++) {
        const float *row = logits + (r + 1) * VOCAB;
        double total = 0;
        for (int i = 0; i < VOCAB; i++)
            total += exp(row[i] - row[0]);
        assert_int_equal(results[r].token, targets[r]);
        assert_true(fabs(results[r].logprob - (row[targets[r]] - row[0] - log(total))) < 1e-4);
    }

    span = good_span(), span.n_outputs = 0, span.sampling = NULL, span.results = NULL;
    session_run(backend, &span, 1);
}

/* More copies than the list holds between two steps, as a chain: the last page must hold what the first held. */
static void test_many_copies(void **state)
{
    float before[VOCAB], after[VOCAB];
    uint32_t chain[4] = {5, 6, 7, 8};
    struct step_span span = good_span();
    span.n_tokens = 16, span.n_prompt = 17, span.pages = chain, span.n_outputs = 0, span.sampling = NULL, span.results = NULL;
    session_run(backend, &span, 1);
    span = good_span(), span.position = 16, span.n_tokens = 1, span.n_prompt = 17, span.pages = chain, span.logits = before;
    session_run(backend, &span, 1);
    chain[0] = copy_on(5000);
    span.logits = after;
    session_run(backend, &span, 1);
    assert_memory_equal(before, after, sizeof before);
}

/* The same while a step is under way: the copies wait for it, its completion is still told once. */
static void test_many_copies_during_a_step(void **state)
{
    float before[VOCAB], after[VOCAB];
    uint32_t chain[4] = {5, 6, 7, 8};
    struct step_span span = good_span();
    const struct step step = step_of(&span, 5);
    struct step_completion completion;
    span.n_tokens = span.n_prompt = 17, span.pages = chain, span.logits = before;
    assert_int_equal(backend->ops->submit(backend, &step), 0);
    const uint32_t end = copy_on(3000);
    while (backend->ops->poll(backend, &completion) == 0)
        assert_int_equal(poll_event(60000), 1);
    assert_int_equal(completion.id, 5);
    chain[0] = end;
    span.position = 16, span.n_tokens = 1, span.logits = after;
    session_run(backend, &span, 1);
    assert_memory_equal(before, after, sizeof before);
}

static void expect_create_fails(struct cpu_backend_config config, int code, const char *word)
{
    struct backend *made = NULL;
    struct error err = {0};
    assert_int_equal(cpu_backend_create(&config, &made, &err), code);
    assert_null(made);
    if (!strstr(err.text, word))
        fail_msg("\"%s\" does not mention \"%s\"", err.text, word);
}

static void test_creation_refusals(void **state)
{
    struct cpu_backend_config good = {.model = tiny_model_desc(model), .n_pages = 4, .threads = 1}, bad;
    struct model_desc desc;
    struct model_layer layer;
    uint32_t cpu = 1023;
    bad = good, bad.page_tokens = 24;
    expect_create_fails(bad, HS_ERR_INVALID, "24");
    bad = good, bad.n_pages = 0;
    expect_create_fails(bad, HS_ERR_INVALID, "page");
    bad = good, bad.cpus = &cpu, bad.n_cpus = 1;
    expect_create_fails(bad, HS_ERR_INVALID, "1023");
    bad = good, bad.path = CPU_PATH_GENERIC, bad.compute = CPU_COMPUTE_BF16;
    expect_create_fails(bad, HS_ERR_INVALID, "generic");
    bad = good, bad.compute = CPU_COMPUTE_BF16;
    desc = *good.model, desc.d_ff = 101, bad.model = &desc;
    expect_create_fails(bad, HS_ERR_UNSUPPORTED, cpu_compute_supported(CPU_COMPUTE_BF16) ? "odd" : "bf16");
    desc = *good.model, desc.n_kv_heads = 3;
    bad = good, bad.model = &desc;
    expect_create_fails(bad, HS_ERR_UNSUPPORTED, "heads");
    desc = *good.model, layer = desc.layers[0], desc.layers = &layer;
    layer.w_up.rows--;
    expect_create_fails(bad, HS_ERR_UNSUPPORTED, "w_up");
    layer = good.model->layers[0], layer.wo = (struct tensor_view){.name = "wo"};
    expect_create_fails(bad, HS_ERR_UNSUPPORTED, "wo");
}

/* A weight that FP16 cannot hold ends the start instead of becoming infinity. */
static void test_weight_beyond_half(void **state)
{
    struct tiny_options large = options;
    struct error err = {0};
    struct backend *made = NULL;
    large.type = TENSOR_F32;
    struct tiny_model *other = tiny_model_create(&large);
    ((float *)tiny_model_desc(other)->layers[0].w_down.data)[5] = 70000;
    struct cpu_backend_config config = {.model = tiny_model_desc(other), .n_pages = 4, .threads = 1};
    assert_int_equal(cpu_backend_create(&config, &made, &err), HS_ERR_RANGE);
    assert_null(made);
    tiny_model_destroy(other);
}

/* One that is no number ends the start whatever form it is held in, instead of reaching the logits. */
static void test_weight_that_is_no_number(void **state)
{
    struct tiny_options broken = options;
    broken.type = TENSOR_BF16;
    struct tiny_model *other = tiny_model_create(&broken);
    const struct model_desc *desc = tiny_model_desc(other);
    struct cpu_backend_config config = {.model = desc, .n_pages = 4, .threads = 1};
    for (uint32_t i = 0; i < 2; i++) {
        struct error err = {0};
        struct backend *made = NULL;
        ((uint16_t *)desc->layers[0].w_down.data)[5] = i == 0 ? 0x7fc0 : 0xff80; /* not a number, minus infinity */
        assert_int_equal(cpu_backend_create(&config, &made, &err), HS_ERR_PARSE);
        assert_null(made);
        assert_non_null(strstr(err.text, "not finite"));
    }
    tiny_model_destroy(other);
}

static bool zero_groups(const struct tensor_view *t, struct tensor_groups *out)
{
    *out = (struct tensor_groups){.bits = t->type == TENSOR_Q8_0 ? 8 : 4, .size = 32};
    return t->type == TENSOR_Q8_0 || t->type == TENSOR_W4_G32;
}

static void read_zero_groups(const struct tensor_view *t, uint32_t row, int8_t *integers, uint16_t *scales, uint16_t *minima)
{
    memset(integers, 0, t->cols);
    memset(scales, 0, t->cols / 32 * sizeof *scales);
}

static void zero_rows(const struct tensor_view *t, uint32_t first_row, uint32_t n_rows, float *out)
{
    memset(out, 0, (size_t)n_rows * t->cols * sizeof *out);
}

/* Bytes of the weights as a backend holds them, and its class of arithmetic. */
static uint64_t held(const struct model_desc *desc, enum weight_form form, struct backend_info *info)
{
    struct cpu_backend_config config = {.model = desc, .n_pages = 4, .threads = 1, .weights = form};
    struct backend *made;
    assert_int_equal(cpu_backend_create(&config, &made, NULL), 0);
    uint64_t bytes = cpu_backend_weight_bytes(made);
    made->ops->info(made, info);
    made->ops->destroy(made);
    return bytes;
}

/* Backends of one class hold the same: auto keeps the integers of a whole file or of none. */
static void test_weight_forms(void **state)
{
    struct model_desc desc = *tiny_model_desc(model);
    struct model_layer layer = desc.layers[0];
    struct backend_info automatic, native, wide;
    desc.layers = &layer;
    desc.groups = zero_groups;
    desc.read_groups = read_zero_groups;
    desc.dequantize = zero_rows;
    desc.output.type = TENSOR_Q8_0;
    assert_true(held(&desc, WEIGHT_FORM_AUTO, &automatic) == held(&desc, WEIGHT_FORM_16BIT, &wide));
    assert_string_equal(automatic.arithmetic, wide.arithmetic);
    layer.wq.type = TENSOR_W4_G32;
    assert_true(held(&desc, WEIGHT_FORM_AUTO, &automatic) == held(&desc, WEIGHT_FORM_NATIVE, &native));
    assert_string_equal(automatic.arithmetic, native.arithmetic);
    assert_string_not_equal(automatic.arithmetic, wide.arithmetic);
    assert_true(held(&desc, WEIGHT_FORM_NATIVE, &native) < held(&desc, WEIGHT_FORM_16BIT, &wide));
}

static double last_share;

static void note_progress(void *arg, const char *what, double share)
{
    assert_true(share >= last_share && share <= 1);
    last_share = share;
}

static void test_progress_ends_with_all(void **state)
{
    struct cpu_backend_config config = {.model = tiny_model_desc(model), .n_pages = 4, .threads = 2, .progress = note_progress};
    struct backend *made;
    assert_int_equal(cpu_backend_create(&config, &made, NULL), 0);
    assert_true(last_share == 1);
    made->ops->destroy(made);
}

static int set_up(void **state)
{
    model = tiny_model_create(&options);
    backend = session_backend(tiny_model_desc(model), CPU_PATH_AUTO, 2, PAGES);
    return 0;
}

static int tear_down(void **state)
{
    backend->ops->destroy(backend);
    tiny_model_destroy(model);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_info),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_completion),
        cmocka_unit_test(test_late_event_is_taken),
        cmocka_unit_test(test_results),
        cmocka_unit_test(test_many_copies),
        cmocka_unit_test(test_many_copies_during_a_step),
        cmocka_unit_test(test_creation_refusals),
        cmocka_unit_test(test_weight_beyond_half),
        cmocka_unit_test(test_weight_that_is_no_number), cmocka_unit_test(test_weight_forms),
        cmocka_unit_test(test_progress_ends_with_all),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}

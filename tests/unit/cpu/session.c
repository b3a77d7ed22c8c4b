#include "tests/unit/cpu/session.h"

#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

enum weight_form session_weights = WEIGHT_FORM_AUTO;
const struct sampling_params session_greedy = {.top_p = 1, .repetition_penalty = 1};

struct backend *session_backend(const struct model_desc *model, enum cpu_path path, uint32_t threads, uint32_t n_pages)
{
    struct cpu_backend_config config = {.model = model, .n_pages = n_pages, .threads = threads, .path = path, .weights = session_weights};
    struct backend *backend = NULL;
    struct error err = {0};
    if (cpu_backend_create(&config, &backend, &err))
        fail_msg("%s", err.text);
    return backend;
}

void session_run(struct backend *backend, const struct step_span *spans, uint32_t n_spans)
{
    static uint64_t next_id;
    struct step step = {.id = ++next_id, .spans = spans, .n_spans = n_spans};
    struct step_completion completion;
    struct pollfd wait = {.fd = backend->ops->event_fd(backend), .events = POLLIN};
    assert_int_equal(backend->ops->submit(backend, &step), 0);
    while (backend->ops->poll(backend, &completion) == 0)
        assert_int_equal(poll(&wait, 1, 60000), 1);
    assert_int_equal(completion.id, step.id);
    assert_int_equal(completion.status, 0);
}

void session_prefill(struct backend *backend, const uint32_t *tokens, uint32_t n, uint32_t chunk, const uint32_t *pages,
                     uint32_t n_pages, float *logits)
{
    struct backend_info info;
    backend->ops->info(backend, &info);
    struct row_result *results = calloc(chunk, sizeof *results);
    assert_non_null(results);
    for (uint32_t done = 0; done < n; done += chunk) {
        uint32_t now = n - done < chunk ? n - done : chunk;
        struct step_span span = {
            .history = tokens,
            .position = done,
            .n_tokens = now,
            .n_prompt = n,
            .pages = pages,
            .n_pages = n_pages,
            .n_outputs = now,
            .sampling = &session_greedy,
            .results = results,
            .logits = logits + (size_t)done * info.n_vocab,
        };
        session_run(backend, &span, 1);
    }
    free(results);
}

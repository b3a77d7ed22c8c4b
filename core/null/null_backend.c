#include "core/null/null_backend.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "core/base/panic.h"
#include "core/null/null_model.h"

enum { MAX_SPANS = 512, MAX_INFLIGHT = 4, MIN_VOCAB = 64 };

struct inflight {
    const struct step *step;
    uint64_t *states; /* [max_rows] of the rows that want a result, in the order of the spans */
    uint64_t started_ns, deadline_ns;
};

struct null_backend {
    struct backend backend;
    struct null_backend_config config;
    const struct env *env;
    uint64_t *slots; /* [n_pages][page_tokens] chain values: the KV pool */
    struct inflight inflight[MAX_INFLIGHT];
    uint32_t first, n_inflight;
    uint64_t busy_until_ns;
};

static struct null_backend *self_of(struct backend *backend)
{
    return (struct null_backend *)backend;
}

static const struct null_backend *const_self_of(const struct backend *backend)
{
    return (const struct null_backend *)backend;
}

static struct null_backend_config with_defaults(const struct null_backend_config *config)
{
    struct null_backend_config full = *config;
    if (full.page_tokens == 0)
        full.page_tokens = 16;
    if (full.n_vocab == 0)
        full.n_vocab = 49152;
    if (full.max_rows == 0)
        full.max_rows = 2048;
    hs_assert(full.n_vocab >= MIN_VOCAB && full.stop_id < full.n_vocab);
    return full;
}

static void null_info(const struct backend *backend, struct backend_info *out)
{
    const struct null_backend_config *config = &const_self_of(backend)->config;
    *out = (struct backend_info){
        .name = "null",
        .arithmetic = "null",
        .n_pages = config->n_pages,
        .page_tokens = config->page_tokens,
        .page_bytes = config->page_tokens * sizeof(uint64_t),
        .n_vocab = config->n_vocab,
        .max_rows = config->max_rows,
        .max_spans = MAX_SPANS,
        .max_inflight = MAX_INFLIGHT,
    };
}

static int null_copy_page(struct backend *backend, uint32_t dst, uint32_t src)
{
    struct null_backend *self = self_of(backend);
    if (dst >= self->config.n_pages || src >= self->config.n_pages)
        return HS_ERR_RANGE;
    size_t page_tokens = self->config.page_tokens;
    memmove(self->slots + dst * page_tokens, self->slots + src * page_tokens, page_tokens * sizeof *self->slots);
    return 0;
}

static uint64_t *slot_of(const struct null_backend *self, const struct step_span *span, uint32_t position)
{
    uint32_t page_tokens = self->config.page_tokens;
    return &self->slots[(size_t)span->pages[position / page_tokens] * page_tokens + position % page_tokens];
}

static int check_span(const struct null_backend *self, const struct step_span *span)
{
    uint64_t end = (uint64_t)span->position + span->n_tokens;
    if (span->n_tokens == 0 || span->n_outputs > span->n_tokens || end > (uint64_t)span->n_pages * self->config.page_tokens)
        return HS_ERR_RANGE;
    for (uint64_t i = 0; i < (end + self->config.page_tokens - 1) / self->config.page_tokens; i++)
        if (span->pages[i] >= self->config.n_pages)
            return HS_ERR_RANGE;
    for (uint64_t i = 0; i < end; i++)
        if (span->history[i] >= self->config.n_vocab)
            return HS_ERR_RANGE;
    return 0;
}

static int check_step(const struct null_backend *self, const struct step *step)
{
    uint64_t n_rows = 0;
    if (step->n_spans > MAX_SPANS)
        return HS_ERR_LIMIT;
    for (uint32_t i = 0; i < step->n_spans; i++) {
        int rc = check_span(self, &step->spans[i]);
        if (rc)
            return rc;
        n_rows += step->spans[i].n_tokens;
    }
    return n_rows > self->config.max_rows ? HS_ERR_LIMIT : 0;
}

/* The past in the pages is the one that history tells. */
static void check_chain(const struct null_backend *self, const struct step_span *span)
{
    uint64_t state = 0;
    for (uint32_t position = 0; position < span->position; position++) {
        state = null_model_advance(state, span->history[position]);
        hs_assert(*slot_of(self, span, position) == state);
    }
}

/* Writes the span's slots; returns how many states of rows that want a result were noted. */
static uint32_t run_span(struct null_backend *self, const struct step_span *span, uint64_t *states)
{
    uint64_t state = span->position ? *slot_of(self, span, span->position - 1) : 0;
    uint32_t n_states = 0;
    if (self->config.check_chains)
        check_chain(self, span);
    for (uint32_t row = 0; row < span->n_tokens; row++) {
        uint32_t position = span->position + row;
        state = null_model_advance(state, span->history[position]);
        *slot_of(self, span, position) = state;
        if (row >= span->n_tokens - span->n_outputs)
            states[n_states++] = state;
    }
    return n_states;
}

static uint64_t duration_of(const struct null_backend *self, const struct step *step)
{
    uint64_t n_rows = 0, context = 0;
    for (uint32_t i = 0; i < step->n_spans; i++) {
        n_rows += step->spans[i].n_tokens;
        context += step->spans[i].position + step->spans[i].n_tokens;
    }
    return self->config.fixed_ns + n_rows * self->config.row_ns + context * self->config.context_ns / 1024;
}

static int null_submit(struct backend *backend, const struct step *step)
{
    struct null_backend *self = self_of(backend);
    if (self->n_inflight == MAX_INFLIGHT)
        return HS_ERR_BUSY;
    int rc = check_step(self, step);
    if (rc)
        return rc;
    struct inflight *entry = &self->inflight[(self->first + self->n_inflight++) % MAX_INFLIGHT];
    uint64_t now_ns = env_now_ns(self->env);
    entry->step = step;
    entry->started_ns = now_ns > self->busy_until_ns ? now_ns : self->busy_until_ns;
    entry->deadline_ns = self->busy_until_ns = entry->started_ns + duration_of(self, step);
    uint32_t n_states = 0;
    for (uint32_t i = 0; i < step->n_spans; i++)
        n_states += run_span(self, &step->spans[i], entry->states + n_states);
    return 0;
}

static void answer_span(const struct null_backend *self, const struct step_span *span, const uint64_t *states)
{
    for (uint32_t i = 0; i < span->n_outputs; i++) {
        uint32_t n_past = span->position + span->n_tokens - span->n_outputs + i + 1;
        uint32_t n_answer = n_past > span->n_prompt ? n_past - span->n_prompt : 0;
        struct row_result *result = &span->results[i];
        result->token =
            span->targets ? span->targets[i] : null_model_choose(&self->config, span->sampling, states[i], n_past, n_answer);
        null_model_score(&self->config, span->sampling, states[i], n_answer, result);
        if (span->logits)
            null_model_logits(&self->config, span->sampling, states[i], n_answer, span->logits + (size_t)i * self->config.n_vocab);
    }
}

static int null_poll(struct backend *backend, struct step_completion *out)
{
    struct null_backend *self = self_of(backend);
    const struct inflight *entry = &self->inflight[self->first];
    if (self->n_inflight == 0 || env_now_ns(self->env) < entry->deadline_ns)
        return 0;
    const uint64_t *states = entry->states;
    for (uint32_t i = 0; i < entry->step->n_spans; i++) {
        answer_span(self, &entry->step->spans[i], states);
        states += entry->step->spans[i].n_outputs;
    }
    *out = (struct step_completion){.id = entry->step->id, .duration_ns = entry->deadline_ns - entry->started_ns};
    self->first = (self->first + 1) % MAX_INFLIGHT;
    self->n_inflight--;
    return 1;
}

static int null_event_fd(const struct backend *backend)
{
    return -1;
}

static uint64_t null_next_deadline_ns(const struct backend *backend)
{
    const struct null_backend *self = const_self_of(backend);
    return self->n_inflight ? self->inflight[self->first].deadline_ns : UINT64_MAX;
}

static void null_destroy(struct backend *backend)
{
    struct null_backend *self = self_of(backend);
    for (uint32_t i = 0; i < MAX_INFLIGHT; i++)
        free(self->inflight[i].states);
    free(self->slots);
    free(self);
}

struct backend *null_backend_create(const struct null_backend_config *config, const struct env *env)
{
    static const struct backend_ops ops = {
        .info = null_info,
        .copy_page = null_copy_page,
        .submit = null_submit,
        .poll = null_poll,
        .event_fd = null_event_fd,
        .next_deadline_ns = null_next_deadline_ns,
        .destroy = null_destroy,
    };
    struct null_backend *self = calloc(1, sizeof *self);
    if (!self)
        return NULL;
    self->backend.ops = &ops;
    self->config = with_defaults(config);
    self->env = env;
    bool failed = false;
    self->slots = calloc((size_t)self->config.n_pages * self->config.page_tokens + 1, sizeof *self->slots);
    for (uint32_t i = 0; i < MAX_INFLIGHT; i++) {
        self->inflight[i].states = calloc(self->config.max_rows, sizeof(uint64_t));
        failed |= !self->inflight[i].states;
    }
    if (failed || !self->slots) {
        null_destroy(&self->backend);
        return NULL;
    }
    return &self->backend;
}

uint32_t null_backend_next_token(const struct null_backend_config *config, const uint32_t *tokens, uint32_t n, uint32_t n_prompt,
                                 const struct sampling_params *sampling)
{
    struct null_backend_config full = with_defaults(config);
    uint64_t state = 0;
    for (uint32_t i = 0; i < n; i++)
        state = null_model_advance(state, tokens[i]);
    return null_model_choose(&full, sampling, state, n, n > n_prompt ? n - n_prompt : 0);
}

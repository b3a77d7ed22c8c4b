/* Forming a step, and what follows when it is done. */
#include "core/base/log.h"
#include "core/base/panic.h"
#include "core/serve/scheduler_internal.h"

enum {
    PREFILL_QUANTUM = 32,  /* rows that a tenant gets at a time */
    MIN_PREFILL_ROWS = 8,  /* of a step, however many decodes there are */
    MAX_FAILURES = 3,      /* steps in a row after which a sequence gives up */
};

/*
 * The running sequence that still wants rows, of the tenant that was given least. Among a tenant's own of one priority every other
 * turn is the oldest's and every other one that of whoever lacks least: a short prompt need not wait for a long one to end, which
 * in turn loses at most half of its rows; prompts of one length go in order of arrival.
 */
static struct sequence *neediest(const struct scheduler *scheduler, const double *promised)
{
    struct sequence *best = NULL;
    double best_served = 0;
    uint32_t best_lacks = 0;
    for (uint32_t i = 0; i < scheduler->n_running; i++) {
        struct sequence *sequence = scheduler->running[i];
        uint32_t wanted = sequence_rows_wanted(sequence);
        if (wanted <= 1 || sequence->grant >= wanted)
            continue;
        double served = admission_served(&scheduler->admission, sequence->tenant) + promised[sequence->tenant];
        uint32_t lacks = wanted - sequence->grant;
        bool better = !best || served < best_served;
        if (best && sequence->tenant == best->tenant)
            better = sequence->priority < best->priority ||
                     (scheduler->shortest_turn && sequence->priority == best->priority && lacks < best_lacks);
        if (better) {
            best = sequence;
            best_served = served;
            best_lacks = lacks;
        }
    }
    return best;
}

/* Gives out the rows of the next step: one to everyone that decodes, the rest in quanta to prompts. */
static void grant_rows(struct scheduler *scheduler)
{
    uint32_t decodes = 0;
    bool prompts = false;
    for (uint32_t i = 0; i < scheduler->n_running; i++) {
        struct sequence *sequence = scheduler->running[i];
        sequence->grant = sequence_rows_wanted(sequence) == 1;
        decodes += sequence->grant;
        prompts |= !sequence->grant;
    }
    if (!prompts)
        return;
    uint32_t budget = roofline_budget_beside(&scheduler->roofline, decodes), left = budget > decodes ? budget - decodes : 0;
    if (left < MIN_PREFILL_ROWS && !scheduler->config.max_batch_tokens)
        left = MIN_PREFILL_ROWS;
    if (left > scheduler->info.max_rows - decodes)
        left = scheduler->info.max_rows - decodes;
    double promised[ADMISSION_TENANTS] = {0};
    struct sequence *sequence;
    while (left && (sequence = neediest(scheduler, promised))) {
        uint32_t rows = sequence_rows_wanted(sequence) - sequence->grant;
        if (rows > PREFILL_QUANTUM)
            rows = PREFILL_QUANTUM;
        if (rows > left)
            rows = left;
        sequence->grant += rows;
        left -= rows;
        scheduler->shortest_turn = !scheduler->shortest_turn;
        promised[sequence->tenant] += rows / (double)scheduler->admission.tenants[sequence->tenant].weight;
    }
}

/* Pages for as many of the granted rows as there is room; false if for none. */
static bool reserve(struct scheduler *scheduler, struct sequence *sequence, uint64_t now_ns)
{
    struct page_pool *pool = scheduler->config.pool;
    uint32_t page_tokens = scheduler->info.page_tokens;
    uint32_t needed = (sequence->computed + sequence->grant + page_tokens - 1) / page_tokens;
    if (needed > sequence->n_pages) {
        uint32_t missing = needed - sequence->n_pages, free_pages = page_pool_free_pages(pool);
        if (free_pages < missing)
            radix_evict(scheduler->config.tree, missing - free_pages, now_ns);
    }
    while (sequence->n_pages < needed) {
        uint32_t page = page_pool_alloc(pool);
        if (page == PAGE_NONE)
            break;
        sequence->pages[sequence->n_pages++] = page;
    }
    uint32_t room = sequence->n_pages * page_tokens - sequence->computed;
    if (sequence->grant > room)
        sequence->grant = room;
    return sequence->grant > 0;
}

/* Oldest first, so that the oldest gets what it needs, at the youngest's expense. True: somebody had to go, and with him his rows. */
static bool reserve_pages(struct scheduler *scheduler, uint64_t now_ns)
{
    uint32_t n_running = scheduler->n_running;
    for (uint32_t i = 0; i < scheduler->n_running; i++) {
        struct sequence *sequence = scheduler->running[i];
        uint32_t wanted = sequence->grant;
        while (wanted && !reserve(scheduler, sequence, now_ns)) {
            struct sequence *youngest = scheduler->running[scheduler->n_running - 1];
            if (youngest == sequence && scheduler->n_running == 1) {
                /* Nothing else holds pages, and admission refuses what is larger than the pool: somebody leaks. */
                log_error("serve", "no KV page is left for the only running request");
                scheduler_fail(scheduler, sequence, HS_ERR_NO_PAGES, "out of KV pages", now_ns);
                return true;
            }
            scheduler_preempt(scheduler, youngest, now_ns);
            if (youngest == sequence)
                return true; /* it was the last of the list */
            sequence->grant = wanted;
        }
    }
    return scheduler->n_running < n_running;
}

static void form_step(struct scheduler *scheduler)
{
    struct roofline_sample sample = {0};
    uint32_t rows = 0, outputs = 0;
    scheduler->n_spans = 0;
    for (uint32_t i = 0; i < scheduler->n_running; i++) {
        struct sequence *sequence = scheduler->running[i];
        if (!sequence->grant)
            continue;
        struct step_span *span = &scheduler->spans[scheduler->n_spans];
        sequence_span(sequence, span);
        span->results = scheduler->results + outputs;
        outputs += span->n_outputs;
        rows += span->n_tokens;
        if (span->n_tokens == 1)
            sample.decode_rows++;
        else
            sample.prefill_rows += span->n_tokens;
        sample.context += (uint64_t)span->n_tokens * span->position + (uint64_t)span->n_tokens * (span->n_tokens + 1) / 2;
        scheduler->span_sequence[scheduler->n_spans++] = sequence;
    }
    hs_assert(rows <= scheduler->info.max_rows && outputs <= scheduler->info.max_rows);
    scheduler->sample = sample;
}

bool scheduler_run(struct scheduler *scheduler, uint64_t now_ns)
{
    scheduler_admit(scheduler, now_ns); /* also beside a step: whoever follows in this one's head is known at once */
    if (scheduler->in_flight || !scheduler->n_running)
        return false;
    do /* rows of one that had to go are the others': otherwise they may starve at his expense for ever */
        grant_rows(scheduler);
    while (reserve_pages(scheduler, now_ns) && scheduler->n_running);
    form_step(scheduler);
    if (!scheduler->n_spans)
        return false;
    scheduler->step = (struct step){.id = scheduler->step.id + 1, .spans = scheduler->spans, .n_spans = scheduler->n_spans};
    int status = scheduler->config.backend->ops->submit(scheduler->config.backend, &scheduler->step);
    if (status == HS_ERR_BUSY) {
        scheduler->n_spans = 0;
        return false;
    }
    if (status < 0) {
        /* Our own fault, and nothing will make the same step good: everything in it ends. */
        log_error("serve", "the backend refused a step of %u spans: %s", scheduler->n_spans, error_name(status));
        for (uint32_t i = 0; i < scheduler->n_spans; i++)
            scheduler_fail(scheduler, scheduler->span_sequence[i], status, "the backend refused the step", now_ns);
        scheduler->n_spans = 0;
        return true;
    }
    for (uint32_t i = 0; i < scheduler->n_spans; i++)
        scheduler->span_sequence[i]->in_step = true;
    scheduler->in_flight = true;
    scheduler->step_started_ns = now_ns;
    return true;
}

/* The next token of an answer was chosen. */
static void take_token(struct scheduler *scheduler, struct sequence *sequence, const struct row_result *result, uint64_t now_ns)
{
    if (sequence_is_stop(sequence, result->token)) {
        scheduler_end(scheduler, sequence, FINISH_STOP, now_ns);
        return;
    }
    sequence->tokens[sequence->n_tokens++] = result->token;
    if (scheduler->config.metrics)
        counter_add(scheduler->config.metrics->generation_tokens, 1);
    if (!sequence->sink->tokens(sequence, result, 1, now_ns))
        scheduler_fail(scheduler, sequence, HS_ERR_LIMIT, "the reader is too slow", now_ns);
    else if (sequence->n_tokens == sequence->limit)
        scheduler_end(scheduler, sequence, FINISH_LENGTH, now_ns);
}

static void take_scores(struct scheduler *scheduler, struct sequence *sequence, const struct step_span *span, uint64_t now_ns)
{
    sequence->n_scored += span->n_outputs;
    if (!sequence->sink->scored(sequence, span->results, span->n_outputs, now_ns))
        scheduler_fail(scheduler, sequence, HS_ERR_LIMIT, "the reader is too slow", now_ns);
    else if (!sequence_unscored(sequence) && sequence->limit == sequence->n_prompt)
        scheduler_end(scheduler, sequence, FINISH_LENGTH, now_ns);
}

static void complete_span(struct scheduler *scheduler, uint32_t i, int status, uint64_t now_ns)
{
    struct sequence *sequence = scheduler->span_sequence[i];
    const struct step_span *span = &scheduler->spans[i];
    sequence->in_step = false;
    if (sequence->orphan) {
        scheduler_bury(scheduler, sequence);
        return;
    }
    if (status < 0) {
        if (++sequence->failures >= MAX_FAILURES)
            scheduler_fail(scheduler, sequence, HS_ERR_IO, "the backend failed", now_ns);
        return; /* nothing was computed: the same rows come again */
    }
    sequence->failures = 0;
    sequence->computed += span->n_tokens;
    admission_charge(&scheduler->admission, sequence->tenant, span->n_tokens);
    sequence_insert_pages(sequence, scheduler->config.tree, scheduler->config.pool, scheduler->info.page_tokens, now_ns,
                          scheduler->page_scratch);
    if (!span->n_outputs)
        return;
    if (span->targets)
        take_scores(scheduler, sequence, span, now_ns);
    else
        take_token(scheduler, sequence, &span->results[0], now_ns);
}

bool scheduler_poll(struct scheduler *scheduler, uint64_t now_ns)
{
    struct step_completion completion;
    /* Also while no step is under way: an event may come after its completion was taken, and only a poll makes the descriptor quiet. */
    if (scheduler->config.backend->ops->poll(scheduler->config.backend, &completion) != 1)
        return false;
    hs_assert(scheduler->in_flight && completion.id == scheduler->step.id);
    scheduler->in_flight = false;
    if (completion.status < 0) {
        log_error("serve", "a step of %u spans failed: %s", scheduler->n_spans, error_name(completion.status));
    } else {
        scheduler->sample.duration_ns = completion.duration_ns;
        roofline_observe(&scheduler->roofline, &scheduler->sample);
        struct node_metrics *metrics = scheduler->config.metrics;
        if (metrics) {
            histogram_observe(metrics->step_time, (double)completion.duration_ns / 1e9);
            counter_add(metrics->step_rows, scheduler->sample.prefill_rows + scheduler->sample.decode_rows);
        }
    }
    for (uint32_t i = 0; i < scheduler->n_spans; i++)
        complete_span(scheduler, i, completion.status, now_ns);
    scheduler->n_spans = 0;
    return true;
}

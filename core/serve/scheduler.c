#include "core/serve/scheduler.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/panic.h"
#include "core/serve/scheduler_internal.h"

enum {
    CANDIDATES_PER_WALK = 128, /* waiting sequences looked at for each step */
    FIRST_EXPECTED_OUTPUT = 128,
};

struct scheduler *scheduler_create(const struct scheduler_config *config)
{
    struct scheduler *scheduler = calloc(1, sizeof *scheduler);
    if (!scheduler)
        return NULL;
    scheduler->config = *config;
    config->backend->ops->info(config->backend, &scheduler->info);
    if (scheduler->config.max_sequences > scheduler->info.max_spans)
        scheduler->config.max_sequences = scheduler->info.max_spans;
    if (scheduler->config.max_sequences > scheduler->info.max_rows)
        scheduler->config.max_sequences = scheduler->info.max_rows;
    if (config->max_batch_tokens && scheduler->config.max_sequences > config->max_batch_tokens)
        scheduler->config.max_sequences = config->max_batch_tokens; /* all may decode at once */
    uint32_t n = scheduler->config.max_sequences;
    scheduler->running = calloc(n, sizeof(struct sequence *));
    scheduler->spans = calloc(n, sizeof *scheduler->spans);
    scheduler->span_sequence = calloc(n, sizeof(struct sequence *));
    scheduler->results = calloc(scheduler->info.max_rows, sizeof *scheduler->results);
    scheduler->page_scratch = calloc(scheduler->info.n_pages, sizeof(uint32_t));
    if (!scheduler->page_scratch || !scheduler->running || !scheduler->spans || !scheduler->span_sequence || !scheduler->results) {
        scheduler_destroy(scheduler);
        return NULL;
    }
    admission_init(&scheduler->admission);
    roofline_init(&scheduler->roofline, scheduler->info.max_rows, config->max_batch_tokens);
    scheduler->expected_output = FIRST_EXPECTED_OUTPUT;
    return scheduler;
}

void scheduler_bury(struct scheduler *scheduler, struct sequence *orphan)
{
    scheduler->n_orphans--;
    sequence_release_pages(orphan, scheduler->config.pool);
    sequence_destroy(orphan);
}

/* A step under way still reads its sequences and results: it is waited for by polling, which production backends end promptly. */
static void settle(struct scheduler *scheduler)
{
    struct step_completion completion;
    while (scheduler->in_flight) {
        uint64_t deadline = scheduler->config.backend->ops->next_deadline_ns(scheduler->config.backend);
        if (scheduler->config.backend->ops->poll(scheduler->config.backend, &completion) == 1)
            scheduler->in_flight = false;
        else if (deadline != UINT64_MAX)
            break; /* modelled time does not pass by waiting, and a modelled backend reads nothing later */
    }
    for (uint32_t i = 0; i < scheduler->n_spans; i++) {
        struct sequence *sequence = scheduler->span_sequence[i];
        sequence->in_step = false;
        if (sequence->orphan)
            scheduler_bury(scheduler, sequence);
    }
    scheduler->n_spans = 0;
    scheduler->in_flight = false;
}

void scheduler_destroy(struct scheduler *scheduler)
{
    if (!scheduler)
        return;
    settle(scheduler);
    while (scheduler->n_running)
        scheduler_fail(scheduler, scheduler->running[scheduler->n_running - 1], HS_ERR_CLOSED, "the node is stopping", 0);
    admission_walk_begin(&scheduler->admission);
    struct sequence *sequence;
    while ((sequence = admission_walk_next(&scheduler->admission)))
        scheduler_fail(scheduler, sequence, HS_ERR_CLOSED, "the node is stopping", 0);
    free(scheduler->running);
    free(scheduler->spans);
    free(scheduler->span_sequence);
    free(scheduler->results);
    free(scheduler->page_scratch);
    free(scheduler);
}

static uint32_t common_blocks(const struct sequence *a, const struct sequence *b)
{
    uint32_t n = a->n_blocks < b->n_blocks ? a->n_blocks : b->n_blocks, i = 0;
    while (i < n && a->blocks[i] == b->blocks[i])
        i++;
    return i;
}

/*
 * Pages of its prompt that the tree has, or will have soon because a running sequence is computing the block that this one lacks
 * next: then *soon is set, and it had better wait for that.
 */
static uint32_t cached_pages(const struct scheduler *scheduler, const struct sequence *sequence, bool *soon)
{
    uint32_t cacheable = sequence_cacheable_tokens(sequence), useful = cacheable / scheduler->info.page_tokens;
    uint32_t cached = radix_peek(scheduler->config.tree, sequence->namespace_id, sequence->tokens, cacheable);
    *soon = false;
    if (cached >= useful || cached >= sequence->n_blocks)
        return cached;
    uint32_t best = cached;
    for (uint32_t i = 0; i < scheduler->n_running; i++) {
        const struct sequence *other = scheduler->running[i];
        if (other->inserted_pages > cached || other->n_blocks <= cached || other->blocks[cached] != sequence->blocks[cached])
            continue;
        uint32_t common = common_blocks(sequence, other);
        best = common > best ? common : best;
        *soon = true;
    }
    return best < useful ? best : useful;
}

int scheduler_submit(struct scheduler *scheduler, struct sequence *sequence, bool force, uint64_t now_ns)
{
    hs_assert(sequence->state == SEQUENCE_IDLE && sequence->n_tokens > 0);
    if (!force && scheduler_is_full(scheduler))
        return HS_ERR_BUSY;
    sequence->arrival = ++scheduler->arrivals;
    sequence->enqueued_ns = now_ns;
    bool soon;
    sequence->expected_rows = sequence->n_tokens - cached_pages(scheduler, sequence, &soon) * scheduler->info.page_tokens;
    sequence->tenant = admission_enter(&scheduler->admission, sequence->tenant_name);
    admission_enqueue(&scheduler->admission, sequence);
    admission_follow(&scheduler->admission, sequence, soon);
    return 0;
}

void scheduler_unlist(struct scheduler *scheduler, struct sequence *sequence)
{
    uint32_t i = 0;
    while (i < scheduler->n_running && scheduler->running[i] != sequence)
        i++;
    hs_assert(i < scheduler->n_running);
    scheduler->n_running--;
    memmove(scheduler->running + i, scheduler->running + i + 1, (scheduler->n_running - i) * sizeof(struct sequence *));
    sequence->state = SEQUENCE_IDLE;
}

/* Takes a sequence out of wherever it is. */
static void detach(struct scheduler *scheduler, struct sequence *sequence)
{
    if (sequence->state == SEQUENCE_WAITING)
        admission_remove(&scheduler->admission, sequence);
    else
        scheduler_unlist(scheduler, sequence);
    admission_exit(&scheduler->admission, sequence->tenant);
}

void scheduler_end(struct scheduler *scheduler, struct sequence *sequence, enum finish_reason reason, uint64_t now_ns)
{
    scheduler->expected_output += 0.05 * (sequence->n_tokens - sequence->n_prompt - scheduler->expected_output);
    detach(scheduler, sequence);
    sequence_release_pages(sequence, scheduler->config.pool);
    sequence->sink->finished(sequence, reason, now_ns);
}

void scheduler_fail(struct scheduler *scheduler, struct sequence *sequence, int status, const char *text, uint64_t now_ns)
{
    detach(scheduler, sequence);
    sequence_release_pages(sequence, scheduler->config.pool);
    sequence->sink->failed(sequence, status, text, now_ns);
}

void scheduler_drop(struct scheduler *scheduler, struct sequence *sequence, uint64_t now_ns)
{
    hs_assert(sequence->state != SEQUENCE_IDLE);
    detach(scheduler, sequence);
    if (sequence->in_step) {
        scheduler->n_orphans++;
        sequence->orphan = true; /* its pages, tokens and parameters stay until the step is done */
        return;
    }
    sequence_release_pages(sequence, scheduler->config.pool);
    sequence_destroy(sequence);
}

void scheduler_preempt(struct scheduler *scheduler, struct sequence *sequence, uint64_t now_ns)
{
    hs_assert(!sequence->in_step);
    scheduler_unlist(scheduler, sequence);
    sequence_release_pages(sequence, scheduler->config.pool);
    scheduler->preemptions++;
    if (scheduler->config.metrics)
        counter_add(scheduler->config.metrics->preemptions, 1);
    admission_enqueue(&scheduler->admission, sequence); /* by arrival: its old place */
}

/* Room for the rest of its prompt and for one more page of everything that runs; alone it may always try. It holds its cached pages
 * already: until then they would count as room for it, too. */
static bool pages_suffice(const struct scheduler *scheduler, const struct sequence *sequence)
{
    if (!scheduler->n_running)
        return true;
    uint32_t needed = sequence->n_tokens / scheduler->info.page_tokens + 1 - sequence->n_pages + scheduler->n_running;
    uint64_t promised = 0; /* pages that running prompts will still take */
    for (uint32_t i = 0; i < scheduler->n_running; i++) {
        const struct sequence *other = scheduler->running[i];
        uint32_t wants = (other->n_tokens + scheduler->info.page_tokens - 1) / scheduler->info.page_tokens;
        promised += wants > other->n_pages ? wants - other->n_pages : 0;
    }
    return page_pool_free_pages(scheduler->config.pool) + radix_evictable_pages(scheduler->config.tree) >= needed + promised;
}

/* The whole prompt is cached: its last row is computed again for the logits, into a copy of the shared page. */
static void own_last_page(struct scheduler *scheduler, struct sequence *sequence, uint64_t now_ns)
{
    struct page_pool *pool = scheduler->config.pool;
    uint32_t shared = sequence->pages[sequence->n_pages - 1];
    uint32_t own = page_pool_alloc(pool);
    if (own == PAGE_NONE && radix_evict(scheduler->config.tree, 1, now_ns))
        own = page_pool_alloc(pool);
    if (own != PAGE_NONE && scheduler->config.backend->ops->copy_page(scheduler->config.backend, own, shared) == 0) {
        sequence->pages[sequence->n_pages - 1] = own;
        sequence->computed = sequence_cacheable_tokens(sequence);
    } else {
        if (own != PAGE_NONE)
            page_pool_unref(pool, own);
        sequence->n_pages--;
        sequence->computed = sequence->n_pages * scheduler->info.page_tokens;
    }
    page_pool_unref(pool, shared);
    sequence->inserted_pages = sequence->computed / scheduler->info.page_tokens;
}

static void share_cached_pages(struct scheduler *scheduler, struct sequence *sequence, uint64_t now_ns)
{
    uint32_t page_tokens = scheduler->info.page_tokens, cacheable = sequence_cacheable_tokens(sequence);
    /* A prompt that ends with a page may use that page too, less its last row. */
    bool whole = cacheable + 1 == sequence->n_tokens && sequence->n_tokens % page_tokens == 0;
    uint32_t usable = whole ? sequence->n_tokens : cacheable / page_tokens * page_tokens;
    sequence->n_pages = radix_match(scheduler->config.tree, sequence->namespace_id, sequence->tokens, usable, now_ns,
                                    sequence->pages, usable / page_tokens);
    sequence->computed = sequence->n_pages * page_tokens;
    sequence->inserted_pages = sequence->n_pages;
}

/*
 * The prompt leaves the tree inside a page: the part that is known comes by a copy of that page, and only the rest of it is computed. A page
 * costs about a hundredth of a row's time to copy.
 */
static void share_part(struct scheduler *scheduler, struct sequence *sequence, uint64_t now_ns)
{
    struct page_pool *pool = scheduler->config.pool;
    uint32_t source, cacheable = sequence_cacheable_tokens(sequence);
    if (cacheable <= sequence->computed)
        return;
    uint32_t part = radix_match_part(scheduler->config.tree, sequence->namespace_id, sequence->tokens, cacheable, sequence->n_pages, now_ns,
                                     &source);
    uint32_t own = part ? page_pool_alloc(pool) : PAGE_NONE;
    if (own == PAGE_NONE)
        return;
    if (scheduler->config.backend->ops->copy_page(scheduler->config.backend, own, source) < 0) {
        page_pool_unref(pool, own);
        return;
    }
    sequence->pages[sequence->n_pages++] = own;
    sequence->computed += part;
}

static void let_in(struct scheduler *scheduler, struct sequence *sequence, uint64_t now_ns)
{
    admission_remove(&scheduler->admission, sequence);
    if (sequence->computed > sequence_cacheable_tokens(sequence))
        own_last_page(scheduler, sequence, now_ns);
    else
        share_part(scheduler, sequence, now_ns);
    sequence->state = SEQUENCE_RUNNING;
    uint32_t at = scheduler->n_running++;
    for (; at > 0 && scheduler->running[at - 1]->arrival > sequence->arrival; at--)
        scheduler->running[at] = scheduler->running[at - 1];
    scheduler->running[at] = sequence;
    if (sequence->started)
        return;
    sequence->started = true;
    sequence->cached_tokens = sequence->computed;
    struct node_metrics *metrics = scheduler->config.metrics;
    if (metrics) {
        counter_add(metrics->prompt_tokens, sequence->n_prompt);
        counter_add(metrics->prefix_queries, sequence->n_tokens);
        counter_add(metrics->prefix_hits, sequence->cached_tokens);
        histogram_observe(metrics->queue_time, (double)(now_ns - sequence->enqueued_ns) / 1e9);
    }
    sequence->sink->started(sequence, now_ns);
}

void scheduler_admit(struct scheduler *scheduler, uint64_t now_ns)
{
    if (!scheduler->admission.n_waiting || scheduler->n_running == scheduler->config.max_sequences)
        return;
    admission_walk_begin(&scheduler->admission);
    for (uint32_t i = 0; i < scheduler->n_running; i++)
        admission_promise(&scheduler->admission, scheduler->running[i]->tenant, sequence_rows_wanted(scheduler->running[i]));
    for (int looked = 0; looked < CANDIDATES_PER_WALK && scheduler->n_running < scheduler->config.max_sequences; looked++) {
        struct sequence *sequence = admission_walk_next(&scheduler->admission);
        if (!sequence)
            return;
        bool soon;
        uint32_t cached = cached_pages(scheduler, sequence, &soon);
        admission_expect(&scheduler->admission, sequence, sequence->n_tokens - cached * scheduler->info.page_tokens);
        admission_follow(&scheduler->admission, sequence, soon);
        if (soon)
            continue;
        share_cached_pages(scheduler, sequence, now_ns);
        if (!pages_suffice(scheduler, sequence)) {
            sequence_release_pages(sequence, scheduler->config.pool);
            return; /* nobody overtakes for being small: large requests would never get in */
        }
        let_in(scheduler, sequence, now_ns);
        admission_promise(&scheduler->admission, sequence->tenant, sequence_rows_wanted(sequence));
    }
}

bool scheduler_in_step(const struct scheduler *scheduler)
{
    return scheduler->in_flight;
}

int scheduler_set_weight(struct scheduler *scheduler, const char *tenant, float weight)
{
    return admission_set_weight(&scheduler->admission, tenant, weight);
}

uint32_t scheduler_expected_output(const struct scheduler *scheduler, uint32_t at_most)
{
    uint32_t expected = (uint32_t)(scheduler->expected_output + 0.5);
    return expected < at_most ? expected : at_most;
}

void scheduler_load(const struct scheduler *scheduler, struct scheduler_load *out)
{
    uint32_t following = scheduler->admission.n_following;
    *out = (struct scheduler_load){.waiting = scheduler->admission.n_waiting - following,
                                   .running = scheduler->n_running + scheduler->n_orphans + following,
                                   .prefill_tokens = scheduler->admission.waiting_rows,
                                   .decode_tokens = scheduler->admission.n_waiting * (uint64_t)(scheduler->expected_output + 0.5),
                                   .prefill_tokens_per_s = roofline_prefill_tokens_per_s(&scheduler->roofline),
                                   .decode_step_s = roofline_decode_step_s(&scheduler->roofline),
                                   .budget_rows = roofline_budget(&scheduler->roofline),
                                   .step_started_ns = scheduler->in_flight ? scheduler->step_started_ns : 0};
    for (uint32_t i = 0; i < scheduler->n_running; i++) {
        const struct sequence *sequence = scheduler->running[i];
        uint32_t rows = sequence_rows_wanted(sequence);
        out->prefill_tokens += rows > 1 ? rows : 0;
        out->decode_tokens += scheduler_expected_output(scheduler, sequence->limit - sequence->n_tokens);
    }
}

uint64_t scheduler_predict_wait_ns(const struct scheduler *scheduler)
{
    struct scheduler_load load;
    scheduler_load(scheduler, &load);
    if (!load.waiting && load.running < scheduler->config.max_sequences)
        return 0;
    double seconds = load.prefill_tokens_per_s > 0 ? (double)load.prefill_tokens / load.prefill_tokens_per_s : 0;
    /* A slot frees each time one of the batch ends: expected length times step time, over the batch. */
    seconds += (double)(load.waiting + 1) * scheduler->expected_output * load.decode_step_s / scheduler->config.max_sequences;
    return (uint64_t)(seconds * 1e9);
}

bool scheduler_is_full(const struct scheduler *scheduler)
{
    return scheduler->admission.n_waiting >= scheduler->config.max_waiting;
}

uint64_t scheduler_preemptions(const struct scheduler *scheduler)
{
    return scheduler->preemptions;
}

uint32_t scheduler_max_sequences(const struct scheduler *scheduler)
{
    return scheduler->config.max_sequences;
}

void scheduler_tenants(const struct scheduler *scheduler, uint32_t *n, uint64_t *lumped)
{
    *n = scheduler->admission.n_users;
    *lumped = scheduler->admission.lumped;
}

/* Requests that entered here: where each is computed, what its client hears, and who goes on when a node is lost. */
#include <stdio.h>
#include <string.h>

#include "core/base/log.h"
#include "core/base/panic.h"
#include "core/serve/node_internal.h"

enum { MAX_RETRY_AFTER_S = 60 };
static const uint64_t SILENCE_NS = FORWARD_SILENCE_S * UINT64_C(1000000000);

static uint32_t answer_tokens(const struct entry *entry)
{
    return entry->sequence->n_tokens - entry->sequence->n_prompt;
}

/* Whether the client has heard anything: then the answer is carried on, full queue or not. */
static bool begun(const struct entry *entry)
{
    return answer_tokens(entry) || entry->sequence->n_scored;
}

/* The loop's idea of now may be a moment older than a submission. */
static double seconds_since(uint64_t now_ns, uint64_t then_ns)
{
    return now_ns > then_ns ? (double)(now_ns - then_ns) / 1e9 : 0;
}

static void set_state(struct entry *entry, enum entry_state state)
{
    struct node *node = entry->node;
    node->n_routing += (state == ENTRY_ROUTE) - (entry->state == ENTRY_ROUTE);
    node->n_forwarded += (state == ENTRY_REMOTE) - (entry->state == ENTRY_REMOTE);
    entry->state = state;
}

static void free_entry(struct entry *entry)
{
    struct node *node = entry->node;
    set_state(entry, ENTRY_FREE);
    entry->request = NULL;
    entry->sequence = NULL;
    entry->id = 0;
    entry->next_free = node->free_entry;
    node->free_entry = entry;
    node->n_entries--;
}

static bool emit(struct entry *entry, const struct request_event *event)
{
    return entry->request->on_event(entry->request->user, entry->request, event);
}

/* REQUEST_STARTED is told just before the first result, so it names the node that really gave it. */
static bool emit_started(struct entry *entry)
{
    if (entry->told_started)
        return true;
    entry->told_started = true;
    struct request_event event = {.kind = REQUEST_STARTED, .cached_tokens = entry->cached_tokens};
    struct cluster_peer_info info;
    event.computed_by = entry->node->config.cluster.name;
    if (entry->state == ENTRY_REMOTE && node_find_peer(entry->node, entry->ticket.peer, &info))
        event.computed_by = info.name;
    return emit(entry, &event);
}

static bool emit_results(struct entry *entry, enum request_event_kind kind, const struct row_result *results, uint32_t n,
                         uint64_t now_ns)
{
    struct node_metrics *metrics = &entry->node->metrics;
    if (kind == REQUEST_TOKENS) {
        if (entry->last_token_ns)
            for (uint32_t i = 0; i < n; i++)
                histogram_observe(metrics->inter_token, seconds_since(now_ns, entry->last_token_ns) / n);
        else
            histogram_observe(metrics->first_token, seconds_since(now_ns, entry->submitted_ns));
        entry->last_token_ns = now_ns;
    }
    struct request_event event = {.kind = kind, .results = results, .n_results = n};
    return emit_started(entry) && emit(entry, &event);
}

static void close_books(struct entry *entry, enum route_outcome outcome, uint32_t depth)
{
    if (entry->node->cluster && entry->ticket.open)
        cluster_route_finished(entry->node->cluster, &entry->ticket, outcome, depth);
}

/* The sequence is idle: not in the scheduler, no pages. */
static void finish(struct entry *entry, enum finish_reason reason, uint64_t now_ns)
{
    struct node_metrics *metrics = &entry->node->metrics;
    histogram_observe(metrics->end_to_end, seconds_since(now_ns, entry->submitted_ns));
    counter_add(reason == FINISH_STOP ? metrics->success_stop : metrics->success_length, 1);
    close_books(entry, ROUTE_DONE, 0);
    emit_started(entry);
    struct request_event event = {.kind = REQUEST_FINISHED, .reason = reason};
    struct sequence *sequence = entry->sequence;
    emit(entry, &event);
    free_entry(entry);
    sequence_destroy(sequence);
}

static void fail(struct entry *entry, int status, const char *text, uint32_t retry_after_s)
{
    struct node_metrics *metrics = &entry->node->metrics;
    counter_add(status == HS_ERR_CANCELED ? metrics->canceled : metrics->failed, 1);
    close_books(entry, status == HS_ERR_CANCELED ? ROUTE_CANCELED : ROUTE_FAILED, 0);
    struct request_event event = {.kind = REQUEST_FAILED, .status = status, .text = text, .retry_after_s = retry_after_s};
    struct sequence *sequence = entry->sequence;
    emit(entry, &event);
    free_entry(entry);
    sequence_destroy(sequence);
}

void entry_abort(struct entry *entry, int status, const char *text, uint64_t now_ns)
{
    if (entry->state == ENTRY_LOCAL) {
        scheduler_drop(entry->node->scheduler, entry->sequence, now_ns);
        entry->sequence = NULL;
    } else if (entry->state == ENTRY_REMOTE) {
        forward_send_cancel(entry->node, entry->ticket.peer, entry->id, entry->attempt);
    }
    if (status != HS_ERR_CANCELED && status != HS_ERR_CLOSED && entry->ticket.open)
        close_books(entry, ROUTE_CANCELED, 0); /* a slow reader or a deadline is no fault of the peer */
    fail(entry, status, text, 0);
}

/* What the scheduler tells of an entry that is computed here. */
static void local_started(struct sequence *sequence, uint64_t now_ns)
{
    struct entry *entry = sequence->owner;
    entry->cached_tokens = sequence->cached_tokens;
}

static bool local_scored(struct sequence *sequence, const struct row_result *results, uint32_t n, uint64_t now_ns)
{
    return emit_results(sequence->owner, REQUEST_SCORED, results, n, now_ns);
}

static bool local_tokens(struct sequence *sequence, const struct row_result *results, uint32_t n, uint64_t now_ns)
{
    return emit_results(sequence->owner, REQUEST_TOKENS, results, n, now_ns);
}

static void local_finished(struct sequence *sequence, enum finish_reason reason, uint64_t now_ns)
{
    finish(sequence->owner, reason, now_ns);
}

static void local_failed(struct sequence *sequence, int status, const char *text, uint64_t now_ns)
{
    fail(sequence->owner, status, text, 0);
}

static const struct sequence_sink LOCAL_SINK = {
    .started = local_started, .scored = local_scored, .tokens = local_tokens, .finished = local_finished, .failed = local_failed};

static uint32_t retry_after_s(const struct node *node)
{
    uint64_t seconds = scheduler_predict_wait_ns(node->scheduler) / 1000000000u + 1;
    return seconds < MAX_RETRY_AFTER_S ? (uint32_t)seconds : MAX_RETRY_AFTER_S;
}

/* Nobody has room: 429. */
static void fail_full(struct entry *entry)
{
    struct node *node = entry->node;
    char text[160];
    snprintf(text, sizeof text, "all nodes are full; %u requests wait here, which is the limit (--max-waiting)", node->config.max_waiting);
    node_limit_hit(&node->limits, NODE_LIMIT_WAITING);
    fail(entry, HS_ERR_BUSY, text, retry_after_s(node));
}

static void start_local(struct entry *entry, uint64_t now_ns)
{
    struct node *node = entry->node;
    uint64_t deadline = entry->request->deadline_ns;
    bool too_late = deadline && !begun(entry) && now_ns + scheduler_predict_wait_ns(node->scheduler) > deadline;
    set_state(entry, ENTRY_LOCAL);
    if (too_late)
        fail(entry, HS_ERR_BUSY, "the queue is too long for the request's deadline", retry_after_s(node));
    else if (scheduler_submit(node->scheduler, entry->sequence, begun(entry), now_ns) < 0)
        fail_full(entry);
}

/* Time that a round trip to the peer takes, loss included. */
static uint64_t round_trip_ns(const struct node *node, uint32_t peer)
{
    struct transport_peer_stats stats;
    if (node->transport->ops->peer_stats(node->transport, peer, &stats) < 0)
        return 0;
    return stats.rtt_ns + 4 * stats.rtt_variance_ns;
}

static int start_remote(struct entry *entry, uint64_t now_ns)
{
    struct node *node = entry->node;
    int status = forward_send_request(entry, now_ns);
    if (status < 0)
        return status;
    struct cluster_peer_info info;
    node_metrics_forward(&node->metrics, entry->ticket.peer,
                         node_find_peer(node, entry->ticket.peer, &info) && info.name[0] ? info.name : "unknown");
    set_state(entry, ENTRY_REMOTE);
    entry->heard = false;
    entry->timeout_ns = now_ns + node->config.forward_timeout_ns + 2 * round_trip_ns(node, entry->ticket.peer);
    node_look_at(node, entry->timeout_ns);
    return 0;
}

static void route_query(struct entry *entry, bool self_full, struct route_query *query)
{
    struct node *node = entry->node;
    struct sequence *sequence = entry->sequence;
    uint32_t page_tokens = node->backend_info.page_tokens, n_exclude = entry->n_exclude;
    if (self_full)
        entry->exclude[n_exclude++] = ROUTE_SELF; /* for this query alone: beyond n_exclude */
    uint32_t cacheable = sequence_cacheable_tokens(sequence);
    *query = (struct route_query){
        .blocks = sequence->blocks,
        .n_blocks = sequence->n_blocks,
        .n_tokens = sequence->n_tokens,
        .local_cached_tokens = page_tokens * radix_peek(node->tree, sequence->namespace_id, sequence->tokens, cacheable),
        .expected_output_tokens = scheduler_expected_output(node->scheduler, sequence->limit - sequence->n_tokens),
        .exclude = entry->exclude,
        .n_exclude = n_exclude};
}

void entry_route(struct entry *entry, uint64_t now_ns)
{
    struct node *node = entry->node;
    struct sequence *sequence = entry->sequence;
    if (sequence_is_complete(sequence)) {
        finish(entry, FINISH_LENGTH, now_ns);
        return;
    }
    sequence_name_blocks(sequence, &node->hash_key, node->backend_info.page_tokens);
    bool forwardable = node->cluster && forward_encodable(&sequence->sampling);
    if (node->cluster && !forwardable)
        node_limit_hit(&node->limits, NODE_LIMIT_MESSAGE_BYTES);
    bool self_full = !begun(entry) && scheduler_is_full(node->scheduler);
    while (forwardable && entry->n_exclude < ENTRY_MAX_EXCLUDED) {
        struct route_query query;
        route_query(entry, self_full, &query);
        if (cluster_route(node->cluster, &query, &entry->ticket) < 0) {
            if (self_full)
                fail_full(entry);
            else
                start_local(entry, now_ns);
            return;
        }
        counter_add(node->metrics.routes[entry->ticket.reason], 1);
        entry->attempt++;
        if (entry->ticket.peer == ROUTE_SELF)
            break;
        int status = start_remote(entry, now_ns);
        if (status == 0)
            return;
        if (status == HS_ERR_LIMIT && node->outbox.bytes == 0) {
            forwardable = false; /* longer than any message */
            node_limit_hit(&node->limits, NODE_LIMIT_MESSAGE_BYTES);
        }
        entry->exclude[entry->n_exclude++] = entry->ticket.peer;
        close_books(entry, status == HS_ERR_CLOSED ? ROUTE_FAILED : ROUTE_CANCELED, 0);
    }
    start_local(entry, now_ns);
}

void entry_retry(struct entry *entry, enum route_outcome outcome, uint32_t refused_depth, uint64_t now_ns)
{
    hs_assert(entry->state == ENTRY_REMOTE);
    entry->lost = false;
    if (entry->n_exclude < ENTRY_MAX_EXCLUDED)
        entry->exclude[entry->n_exclude++] = entry->ticket.peer;
    counter_add(outcome == ROUTE_FAILED ? entry->node->metrics.takeovers : entry->node->metrics.refused, 1);
    close_books(entry, outcome, refused_depth);
    entry->attempt++; /* whatever the old place still says is dropped */
    set_state(entry, ENTRY_ROUTE);
}

struct entry *entry_find(struct node *node, uint64_t id)
{
    uint32_t slot = id & 0xffff;
    return slot < node->max_entries && node->entries[slot].id == id ? &node->entries[slot] : NULL;
}

/* One line for a request that can never be served, or NULL. */
static const char *refuse_invalid(const struct node *node, const struct request *request, int *status, char *text, size_t size)
{
    *status = HS_ERR_INVALID;
    if (request->n_tokens == 0)
        return "the prompt is empty";
    for (uint32_t i = 0; i < request->n_tokens; i++)
        if (request->tokens[i] >= node->backend_info.n_vocab)
            return "a prompt token is outside the vocabulary";
    *status = HS_ERR_LIMIT;
    if (request->n_tokens > node->config.n_context || (request->n_tokens == node->config.n_context && request->max_tokens)) {
        snprintf(text, size, "the prompt has %u tokens; with an answer this node has room for %u", request->n_tokens,
                 node->config.n_context);
        return text;
    }
    if (node->draining) {
        *status = HS_ERR_CLOSED;
        return "the node is draining";
    }
    if (!node->free_entry) {
        *status = HS_ERR_BUSY;
        snprintf(text, size, "%u requests are under way at this node, which is the limit (--max-waiting and --max-sequences)",
                 node->max_entries);
        return text;
    }
    return NULL;
}

static void refuse(struct node *node, struct request *request, int status, const char *text)
{
    counter_add(node->metrics.failed, 1);
    struct request_event event = {.kind = REQUEST_FAILED, .status = status, .text = text};
    if (status == HS_ERR_BUSY) {
        event.retry_after_s = retry_after_s(node);
        node_limit_hit(&node->limits, NODE_LIMIT_ENTRIES);
    }
    request->on_event(request->user, request, &event);
}

void entry_submit(struct node *node, struct request *request, uint64_t now_ns)
{
    char line[160];
    int status;
    const char *text = refuse_invalid(node, request, &status, line, sizeof line);
    if (text) {
        refuse(node, request, status, text);
        return;
    }
    uint32_t room = node->config.n_context - request->n_tokens;
    struct sequence_spec spec = {.tokens = request->tokens,
                                 .n_tokens = request->n_tokens,
                                 .n_prompt = request->n_tokens,
                                 .limit = request->n_tokens + (request->max_tokens < room ? request->max_tokens : room),
                                 .ignore_eos = request->ignore_eos,
                                 .score_prompt = request->score_prompt,
                                 .priority = request->priority,
                                 .sampling = &request->sampling,
                                 .namespace_id = request->namespace_id,
                                 .tenant = request->tenant};
    struct sequence *sequence = sequence_create(&spec, node->backend_info.page_tokens);
    if (!sequence) {
        refuse(node, request, HS_ERR_NO_MEMORY, "out of memory");
        return;
    }
    struct entry *entry = node->free_entry;
    node->free_entry = entry->next_free;
    *entry = (struct entry){.node = node,
                            .id = (node->next_id++ << 16) | (uint64_t)(entry - node->entries),
                            .request = request,
                            .sequence = sequence,
                            .submitted_ns = now_ns};
    sequence->owner = entry;
    sequence->sink = &LOCAL_SINK;
    node->n_entries++;
    set_state(entry, ENTRY_ROUTE);
    if (request->deadline_ns)
        node_look_at(node, request->deadline_ns);
}

/* The peer's answer is not what this entry waits for: it is not trusted further. */
static void distrust(struct entry *entry, const char *why, uint64_t now_ns)
{
    log_warn("serve", "peer %u answered a forwarded request wrongly (%s): it goes elsewhere", entry->ticket.peer, why);
    forward_send_cancel(entry->node, entry->ticket.peer, entry->id, entry->attempt);
    entry_retry(entry, ROUTE_FAILED, 0, now_ns);
}

static void take_results(struct entry *entry, const struct forward_message *message, uint64_t now_ns)
{
    struct sequence *sequence = entry->sequence;
    const struct row_result *results = message->results.results;
    uint32_t n = message->results.n;
    if (message->results.scored) {
        if (message->results.first != sequence->n_scored || n > sequence_unscored(sequence)) {
            distrust(entry, "scores out of order", now_ns);
            return;
        }
        sequence->n_scored += n;
    } else {
        if (message->results.first != answer_tokens(entry) || n > sequence->limit - sequence->n_tokens ||
            sequence_unscored(sequence)) {
            distrust(entry, "tokens out of order", now_ns);
            return;
        }
        for (uint32_t i = 0; i < n; i++)
            if (results[i].token >= entry->node->backend_info.n_vocab) {
                distrust(entry, "a token outside the vocabulary", now_ns);
                return;
            }
        for (uint32_t i = 0; i < n; i++)
            sequence->tokens[sequence->n_tokens++] = results[i].token;
    }
    if (!emit_results(entry, message->results.scored ? REQUEST_SCORED : REQUEST_TOKENS, results, n, now_ns))
        entry_abort(entry, HS_ERR_LIMIT, "the reader is too slow", now_ns);
}

static void take_finish(struct entry *entry, const struct forward_message *message, uint64_t now_ns)
{
    struct sequence *sequence = entry->sequence;
    bool whole = message->finished.n_answer == answer_tokens(entry) && !sequence_unscored(sequence);
    if (!whole || (message->finished.reason == FINISH_LENGTH && sequence->n_tokens < sequence->limit))
        distrust(entry, "an end in the middle", now_ns);
    else
        finish(entry, message->finished.reason, now_ns);
}

/* What is too large for a peer, or not to its liking, says nothing about its load. */
static enum route_outcome refusal_outcome(enum forward_refusal reason)
{
    return reason == FORWARD_REFUSED_FULL || reason == FORWARD_REFUSED_DRAINING ? ROUTE_REFUSED : ROUTE_CLIENT_ERROR;
}

void entry_message(struct entry *entry, const struct forward_message *message, uint64_t now_ns)
{
    struct node *node = entry->node;
    entry->heard = true;
    entry->timeout_ns = now_ns + SILENCE_NS + 2 * round_trip_ns(node, entry->ticket.peer);
    switch (message->kind) {
    case FORWARD_REFUSE:
        entry_retry(entry, refusal_outcome(message->refuse.reason), message->refuse.depth, now_ns);
        break;
    case FORWARD_STARTED: {
        struct route_query query;
        entry->cached_tokens = message->started.cached_tokens;
        route_query(entry, false, &query);
        cluster_route_started(node->cluster, &entry->ticket, &query, entry->cached_tokens);
        break;
    }
    case FORWARD_RESULTS:
        take_results(entry, message, now_ns);
        break;
    case FORWARD_FINISHED:
        take_finish(entry, message, now_ns);
        break;
    case FORWARD_FAILED:
        log_warn("serve", "peer %u failed a forwarded request: %s", entry->ticket.peer, error_name(message->failed.status));
        entry_retry(entry, ROUTE_FAILED, 0, now_ns);
        break;
    case FORWARD_ACCEPT:
    case FORWARD_ALIVE:
    case FORWARD_REQUEST:
    case FORWARD_CANCEL:
        break;
    }
}

uint64_t entry_check(struct entry *entry, uint64_t now_ns)
{
    uint64_t deadline = entry->request->deadline_ns ? entry->request->deadline_ns : UINT64_MAX;
    if (now_ns >= deadline) {
        entry_abort(entry, HS_ERR_TIMEOUT, "the request's deadline passed", now_ns);
        return UINT64_MAX;
    }
    if (entry->state != ENTRY_REMOTE)
        return deadline;
    if (now_ns >= entry->timeout_ns) {
        log_warn("serve", "peer %u is silent on a forwarded request: it goes elsewhere", entry->ticket.peer);
        node_limit_hit(&entry->node->limits, entry->heard ? NODE_LIMIT_SILENCE : NODE_LIMIT_FIRST_WORD);
        forward_send_cancel(entry->node, entry->ticket.peer, entry->id, entry->attempt);
        entry_retry(entry, ROUTE_FAILED, 0, now_ns);
        return deadline;
    }
    return entry->timeout_ns < deadline ? entry->timeout_ns : deadline;
}

/* Requests of peers that are computed here, and the messages of both sides (docs/protocol-forward.md). */
#include <stdio.h>
#include <string.h>

#include "core/base/log.h"
#include "core/serve/node_internal.h"

static const uint64_t ALIVE_NS = 1000000000u; /* a sign of life at least so often */
static const uint64_t STUCK_NS = FORWARD_STUCK_S * UINT64_C(1000000000);

int forward_send(struct node *node, uint32_t peer, const struct forward_message *message)
{
    int len = forward_encode(message, node->encoded, node->max_message_bytes);
    return len < 0 ? len : forward_outbox_send(&node->outbox, node->transport, peer, node->encoded, (size_t)len);
}

int forward_send_request(struct entry *entry, uint64_t now_ns)
{
    struct node *node = entry->node;
    const struct sequence *sequence = entry->sequence;
    struct forward_message message = {.kind = FORWARD_REQUEST, .id = entry->id, .attempt = entry->attempt};
    uint64_t deadline = entry->request->deadline_ns;
    message.request = (struct forward_request){.hops = FORWARD_HOPS,
                                               .remaining_ns = deadline ? (deadline > now_ns ? deadline - now_ns : 1) : 0,
                                               .n_tokens = sequence->n_tokens,
                                               .n_prompt = sequence->n_prompt,
                                               .limit = sequence->limit,
                                               .n_scored = sequence->n_scored,
                                               .ignore_eos = sequence->ignore_eos,
                                               .score_prompt = sequence->score_prompt,
                                               .priority = sequence->priority,
                                               .sampling = sequence->sampling,
                                               .tokens = sequence->tokens};
    memcpy(message.request.namespace_id, sequence->namespace_id, NAMESPACE_BYTES);
    snprintf(message.request.tenant, sizeof message.request.tenant, "%s", sequence->tenant_name);
    return forward_send(node, entry->ticket.peer, &message);
}

void forward_send_cancel(struct node *node, uint32_t peer, uint64_t id, uint32_t attempt)
{
    struct forward_message message = {.kind = FORWARD_CANCEL, .id = id, .attempt = attempt};
    /* If it cannot be sent the peer is down, or learns of it by the attempt that follows. */
    (void)forward_send(node, peer, &message);
}

static void send_refusal(struct node *node, uint32_t peer, const struct forward_message *about, enum forward_refusal reason)
{
    struct forward_message message = {.kind = FORWARD_REFUSE, .id = about->id, .attempt = about->attempt};
    message.refuse.reason = reason;
    message.refuse.depth = node->load.waiting;
    counter_add(node->metrics.refusals, 1);
    (void)forward_send(node, peer, &message); /* if that fails the entry's time-out speaks */
}

/* Sends a message about a service; false if it could not even be kept. */
static bool service_send(struct service *service, struct forward_message *message, uint64_t now_ns)
{
    message->id = service->id;
    message->attempt = service->attempt;
    service->last_sent_ns = now_ns;
    return forward_send(service->node, service->peer, message) == 0;
}

static void free_service(struct service *service)
{
    service->sequence = NULL;
    service->lost = false;
    service->node->n_services--;
}

static void service_started(struct sequence *sequence, uint64_t now_ns)
{
    struct forward_message message = {.kind = FORWARD_STARTED};
    message.started.cached_tokens = sequence->cached_tokens;
    service_send(sequence->owner, &message, now_ns);
}

static bool send_results(struct service *service, bool scored, uint32_t first, const struct row_result *results, uint32_t n,
                         uint64_t now_ns)
{
    while (n) {
        uint32_t part = n < FORWARD_MAX_RESULTS ? n : FORWARD_MAX_RESULTS;
        struct forward_message message = {.kind = FORWARD_RESULTS};
        message.results.scored = scored;
        message.results.first = first;
        message.results.n = part;
        message.results.results = results;
        if (!service_send(service, &message, now_ns))
            return false;
        first += part;
        results += part;
        n -= part;
    }
    return true;
}

static bool service_scored(struct sequence *sequence, const struct row_result *results, uint32_t n, uint64_t now_ns)
{
    return send_results(sequence->owner, true, sequence->n_scored - n, results, n, now_ns);
}

static bool service_tokens(struct sequence *sequence, const struct row_result *results, uint32_t n, uint64_t now_ns)
{
    return send_results(sequence->owner, false, sequence->n_tokens - sequence->n_prompt - n, results, n, now_ns);
}

static void service_finished(struct sequence *sequence, enum finish_reason reason, uint64_t now_ns)
{
    struct service *service = sequence->owner;
    struct forward_message message = {.kind = FORWARD_FINISHED};
    message.finished.reason = reason;
    message.finished.n_answer = sequence->n_tokens - sequence->n_prompt;
    service_send(service, &message, now_ns);
    free_service(service);
    sequence_destroy(sequence);
}

static void service_failed(struct sequence *sequence, int status, const char *text, uint64_t now_ns)
{
    struct service *service = sequence->owner;
    struct forward_message message = {.kind = FORWARD_FAILED};
    message.failed.status = status;
    snprintf(message.failed.text, sizeof message.failed.text, "%s", text);
    service_send(service, &message, now_ns);
    free_service(service);
    sequence_destroy(sequence);
}

static const struct sequence_sink SERVICE_SINK = {.started = service_started,
                                                  .scored = service_scored,
                                                  .tokens = service_tokens,
                                                  .finished = service_finished,
                                                  .failed = service_failed};

void service_cancel(struct service *service, uint64_t now_ns)
{
    struct sequence *sequence = service->sequence;
    free_service(service);
    scheduler_drop(service->node->scheduler, sequence, now_ns);
}

void service_abandon(struct service *service, int status, const char *text, uint64_t now_ns)
{
    struct forward_message message = {.kind = FORWARD_FAILED};
    message.failed.status = status;
    snprintf(message.failed.text, sizeof message.failed.text, "%s", text);
    service_send(service, &message, now_ns);
    service_cancel(service, now_ns);
}

static struct service *find_service(struct node *node, uint32_t peer, uint64_t id)
{
    for (uint32_t i = 0, seen = 0; seen < node->n_services && i < node->max_services; i++) {
        struct service *service = &node->services[i];
        seen += service->sequence != NULL;
        if (service->sequence && service->peer == peer && service->id == id && !service->lost)
            return service;
    }
    return NULL;
}

/* Whether a peer's request is refused, and why. */
static bool refused(struct node *node, const struct forward_request *request, enum forward_refusal *reason)
{
    if (request->hops != FORWARD_HOPS) {
        *reason = FORWARD_REFUSED_INVALID; /* it was forwarded before: one hop is the limit */
        return true;
    }
    for (uint32_t i = 0; i < request->n_tokens; i++)
        if (request->tokens[i] >= node->backend_info.n_vocab) {
            *reason = FORWARD_REFUSED_INVALID;
            return true;
        }
    if (request->limit > node->config.n_context) {
        *reason = FORWARD_REFUSED_TOO_LARGE;
        return true;
    }
    *reason = node->draining ? FORWARD_REFUSED_DRAINING : FORWARD_REFUSED_FULL;
    if (node->draining)
        return true; /* whatever else is full: no limit was hit */
    if (node->n_services == node->max_services) {
        node_limit_hit(&node->limits, NODE_LIMIT_SERVICES);
        return true;
    }
    uint64_t wait = scheduler_predict_wait_ns(node->scheduler);
    return node->push_back || scheduler_is_full(node->scheduler) ||
           (request->remaining_ns && wait > request->remaining_ns);
}

static struct service *new_service(struct node *node, uint32_t peer, const struct forward_message *message, uint64_t now_ns)
{
    const struct forward_request *request = &message->request;
    struct sequence_spec spec = {.tokens = request->tokens,
                                 .n_tokens = request->n_tokens,
                                 .n_prompt = request->n_prompt,
                                 .limit = request->limit,
                                 .n_scored = request->n_scored,
                                 .ignore_eos = request->ignore_eos,
                                 .score_prompt = request->score_prompt,
                                 .priority = request->priority,
                                 .sampling = &request->sampling,
                                 .namespace_id = request->namespace_id,
                                 .tenant = request->tenant};
    struct sequence *sequence = sequence_create(&spec, node->backend_info.page_tokens);
    if (!sequence)
        return NULL;
    struct service *service = node->services;
    while (service->sequence)
        service++;
    *service = (struct service){.node = node, .sequence = sequence, .peer = peer, .attempt = message->attempt, .id = message->id};
    if (request->remaining_ns && now_ns + request->remaining_ns > now_ns)
        service->deadline_ns = now_ns + request->remaining_ns;
    sequence->sink = &SERVICE_SINK;
    sequence->owner = service;
    node->n_services++;
    return service;
}

static void serve_request(struct node *node, uint32_t peer, const struct forward_message *message, uint64_t now_ns)
{
    struct service *old = find_service(node, peer, message->id);
    if (old && (int32_t)(message->attempt - old->attempt) <= 0)
        return;
    if (old)
        service_cancel(old, now_ns);
    enum forward_refusal reason;
    if (refused(node, &message->request, &reason)) {
        send_refusal(node, peer, message, reason);
        return;
    }
    struct service *service = new_service(node, peer, message, now_ns);
    if (!service) {
        send_refusal(node, peer, message, FORWARD_REFUSED_FULL);
        return;
    }
    struct forward_message accept = {.kind = FORWARD_ACCEPT};
    service_send(service, &accept, now_ns);
    struct sequence *sequence = service->sequence;
    if (sequence_is_complete(sequence)) {
        service_finished(sequence, FINISH_LENGTH, now_ns);
        return;
    }
    sequence_name_blocks(sequence, &node->hash_key, node->backend_info.page_tokens);
    (void)scheduler_submit(node->scheduler, sequence, true, now_ns); /* room was checked */
    node_look_at(node, now_ns + ALIVE_NS);
}

void forward_on_message(struct node *node, uint32_t peer, const uint8_t *data, size_t len, uint64_t now_ns)
{
    struct forward_message decoded, *message = &decoded;
    if (forward_decode(data, len, &node->scratch, message) < 0) {
        counter_add(node->metrics.malformed, 1);
        log_debug("serve", "peer %u sent a malformed message of %zu bytes", peer, len);
        return;
    }
    if (message->kind == FORWARD_REQUEST) {
        serve_request(node, peer, message, now_ns);
        return;
    }
    if (message->kind == FORWARD_CANCEL) {
        struct service *service = find_service(node, peer, message->id);
        if (service && service->attempt == message->attempt)
            service_cancel(service, now_ns);
        return;
    }
    struct entry *entry = entry_find(node, message->id);
    /* Late words of a place that was given up are dropped: only the present attempt counts. One that is still at it has not heard so. */
    if (entry && entry->state == ENTRY_REMOTE && !entry->lost && entry->ticket.peer == peer && entry->attempt == message->attempt)
        entry_message(entry, message, now_ns);
    else if (message->kind == FORWARD_STARTED || message->kind == FORWARD_RESULTS || message->kind == FORWARD_ALIVE)
        forward_send_cancel(node, peer, message->id, message->attempt);
}

void forward_peer_lost(struct node *node, uint32_t peer)
{
    forward_outbox_drop(&node->outbox, peer);
    for (uint32_t i = 0; node->n_forwarded && i < node->max_entries; i++) {
        struct entry *entry = &node->entries[i];
        if (entry->state == ENTRY_REMOTE && entry->ticket.peer == peer)
            node->any_lost = entry->lost = true;
    }
    for (uint32_t i = 0; node->n_services && i < node->max_services; i++) {
        struct service *service = &node->services[i];
        if (service->sequence && service->peer == peer)
            node->any_lost = service->lost = true;
    }
}

uint64_t service_check(struct service *service, uint64_t now_ns)
{
    struct node *node = service->node;
    if (service->deadline_ns && now_ns >= service->deadline_ns) {
        service_abandon(service, HS_ERR_TIMEOUT, "the request's deadline passed", now_ns);
        return UINT64_MAX;
    }
    if (now_ns - service->last_sent_ns >= ALIVE_NS) {
        struct scheduler_load load;
        scheduler_load(node->scheduler, &load);
        struct forward_message message = {.kind = FORWARD_ALIVE};
        if (load.step_started_ns && now_ns - load.step_started_ns >= STUCK_NS) {
            node_limit_hit(&node->limits, NODE_LIMIT_STEP);
            return now_ns + ALIVE_NS;
        }
        service_send(service, &message, now_ns);
    }
    return service->last_sent_ns + ALIVE_NS;
}

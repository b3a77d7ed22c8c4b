#include "core/serve/node_metrics.h"

#include <stdio.h>
#include <string.h>

#include "core/base/error.h"

static const double FIRST_TOKEN_S[] = {0.001, 0.0025, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5,
                                       0.75,  1,      2.5,   5,    7.5,  10,   20,   40,   80,  160,  640};
static const double INTER_TOKEN_S[] = {0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15,
                                       0.2,    0.3,   0.4,    0.5,   0.75, 1,     2.5,  5,     10};
static const double REQUEST_S[] = {0.01, 0.05, 0.1, 0.3, 0.5, 0.8, 1,  1.5, 2,   2.5, 5,
                                   10,   15,   20,  30,  40,  50,  60, 120, 240, 480, 960};
static const double STEP_S[] = {0.00005, 0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5};

#define COUNT(a) ((int)(sizeof(a) / sizeof *(a)))

static const char *const REASONS[NODE_METRICS_REASONS] = {
    [ROUTE_REASON_LOCAL_ONLY] = "local_only", [ROUTE_REASON_CACHED] = "cached",     [ROUTE_REASON_IDLE] = "idle",
    [ROUTE_REASON_COLD_HASH] = "cold_hash",   [ROUTE_REASON_HOT_COPY] = "hot_copy", [ROUTE_REASON_FALLBACK] = "fallback",
};

static void register_known(struct node_metrics *m, struct metrics *r, const char *l)
{
    m->running = metrics_gauge(r, "vllm:num_requests_running", l, "Requests in the batch.", 1);
    m->waiting = metrics_gauge(r, "vllm:num_requests_waiting", l, "Requests waiting to be admitted to the batch.", 1);
    m->cache_usage =
        metrics_gauge(r, "vllm:kv_cache_usage_perc", l, "Share of KV pages that running requests hold, 1 = all.", 1000000);
    m->prefix_queries = metrics_counter(r, "vllm:prefix_cache_queries_total", l, "Tokens looked up in the prefix cache.");
    m->prefix_hits = metrics_counter(r, "vllm:prefix_cache_hits_total", l, "Tokens found in the prefix cache.");
    m->prompt_tokens = metrics_counter(r, "vllm:prompt_tokens_total", l, "Prompt tokens of requests computed here.");
    m->generation_tokens = metrics_counter(r, "vllm:generation_tokens_total", l, "Tokens generated here.");
    m->first_token =
        metrics_histogram(r, "vllm:time_to_first_token_seconds", l, "From submission to the first token, at the entry node.",
                          FIRST_TOKEN_S, COUNT(FIRST_TOKEN_S));
    m->inter_token = metrics_histogram(r, "vllm:inter_token_latency_seconds", l, "Between tokens of one answer, at the entry node.",
                                       INTER_TOKEN_S, COUNT(INTER_TOKEN_S));
    m->end_to_end = metrics_histogram(r, "vllm:e2e_request_latency_seconds", l, "From submission to the end, at the entry node.",
                                      REQUEST_S, COUNT(REQUEST_S));
    m->queue_time = metrics_histogram(r, "vllm:request_queue_time_seconds", l,
                                      "Waiting before admission to the batch, where computed.", REQUEST_S, COUNT(REQUEST_S));
}

static void register_success(struct node_metrics *m, struct metrics *r, const char *l)
{
    char labels[224];
    snprintf(labels, sizeof labels, "%s,finished_reason=\"stop\"", l);
    m->success_stop = metrics_counter(r, "vllm:request_success_total", labels, "Requests answered, at the entry node.");
    snprintf(labels, sizeof labels, "%s,finished_reason=\"length\"", l);
    m->success_length = metrics_counter(r, "vllm:request_success_total", labels, "Requests answered, at the entry node.");
    for (int i = 0; i < NODE_METRICS_REASONS; i++) {
        snprintf(labels, sizeof labels, "%s,reason=\"%s\"", l, REASONS[i]);
        m->routes[i] = metrics_counter(r, "hearsay_routes_total", labels, "Routing decisions of this entry node.");
    }
}

static void register_own(struct node_metrics *m, struct metrics *r, const char *l)
{
    m->failed = metrics_counter(r, "hearsay_requests_failed_total", l, "Requests that ended in an error, at the entry node.");
    m->canceled =
        metrics_counter(r, "hearsay_requests_canceled_total", l, "Requests whose client left or had enough, at the entry node.");
    m->forwarded = metrics_gauge(r, "hearsay_requests_forwarded", l, "Requests of ours that peers are computing.", 1);
    m->computing_for_peers = metrics_gauge(r, "hearsay_requests_for_peers", l, "Requests of peers that we are computing.", 1);
    m->pages_free = metrics_gauge(r, "hearsay_kv_pages_free", l, "KV pages that nothing holds.", 1);
    m->pages_in_tree = metrics_gauge(r, "hearsay_kv_pages_in_tree", l, "KV pages that the prefix cache holds.", 1);
    m->budget_rows = metrics_gauge(r, "hearsay_batch_budget_rows", l, "Row budget of a step, from the measured roofline.", 1);
    m->refusals = metrics_counter(r, "hearsay_refusals_given_total", l, "Requests of peers that we refused.");
    m->refused = metrics_counter(r, "hearsay_refusals_received_total", l, "Requests of ours that peers refused.");
    m->takeovers = metrics_counter(r, "hearsay_takeovers_total", l, "Requests moved on after their node was lost or late.");
    m->preemptions = metrics_counter(r, "hearsay_preemptions_total", l, "Sequences preempted for want of pages.");
    m->evicted_pages = metrics_counter(r, "hearsay_evicted_pages_total", l, "Pages evicted from the prefix cache.");
    m->malformed = metrics_counter(r, "hearsay_forward_malformed_total", l, "Forwarding messages that did not parse.");
    m->step_rows = metrics_counter(r, "hearsay_step_rows_total", l, "Rows computed, prefill and decode.");
    m->step_time = metrics_histogram(r, "hearsay_step_seconds", l, "Compute time of a step.", STEP_S, COUNT(STEP_S));
    m->fabric_missed = metrics_gauge(r, "hearsay_fabric_missed_datagrams", l, "Datagrams that arrived and found no room since start.", 1);
    m->fabric_retransmits = metrics_gauge(r, "hearsay_fabric_retransmits", l, "Datagrams sent again since start.", 1);
    m->fabric_rejected =
        metrics_gauge(r, "hearsay_fabric_rejected", l, "Datagrams that failed authentication or parsing since start.", 1);
}

static void register_other_forwards(struct node_metrics *m, struct metrics *r)
{
    char labels[METRICS_LABEL_BYTES + 16];
    snprintf(labels, sizeof labels, "%s,peer=\"\"", m->model_label); /* no peer is called so */
    m->other_forwards = metrics_counter(r, "hearsay_forwards_total", labels, "Requests forwarded, by peer; \"\" are peers beyond the first 64.");
}

/* Registration fails only when out of memory; every pointer between running and fabric_rejected must be there. */
static bool complete(const struct node_metrics *m)
{
    for (int i = 0; i < NODE_METRICS_REASONS; i++)
        if (!m->routes[i])
            return false;
    return m->running && m->waiting && m->cache_usage && m->prefix_queries && m->prefix_hits && m->prompt_tokens &&
           m->generation_tokens && m->success_stop && m->success_length && m->failed && m->canceled && m->first_token &&
           m->inter_token && m->end_to_end && m->queue_time && m->forwarded && m->computing_for_peers && m->pages_free &&
           m->pages_in_tree && m->budget_rows && m->refusals && m->refused && m->takeovers && m->preemptions && m->evicted_pages &&
           m->malformed && m->step_rows && m->step_time && m->fabric_missed && m->fabric_retransmits && m->fabric_rejected && m->other_forwards;
}

int node_metrics_init(struct node_metrics *metrics, struct metrics *registry, const char *model_name)
{
    memset(metrics, 0, sizeof *metrics);
    if (!registry) {
        registry = metrics->own = metrics_create();
        if (!registry)
            return HS_ERR_NO_MEMORY;
    }
    metrics->registry = registry;
    metrics_label(metrics->model_label, "model_name", model_name ? model_name : "");
    register_known(metrics, registry, metrics->model_label);
    register_success(metrics, registry, metrics->model_label);
    register_own(metrics, registry, metrics->model_label);
    register_other_forwards(metrics, registry);
    if (complete(metrics))
        return 0;
    node_metrics_fini(metrics);
    return HS_ERR_NO_MEMORY;
}

void node_metrics_fini(struct node_metrics *metrics)
{
    metrics_destroy(metrics->own);
    metrics->own = NULL;
}

void node_metrics_forward(struct node_metrics *metrics, uint32_t peer, const char *name)
{
    for (uint32_t i = 0; i < metrics->n_peers; i++)
        if (metrics->peers[i].peer == peer) {
            counter_add(metrics->peers[i].forwards, 1);
            return;
        }
    if (metrics->n_peers == NODE_METRICS_PEERS) {
        counter_add(metrics->other_forwards, 1);
        return;
    }
    char label[METRICS_LABEL_BYTES], labels[2 * METRICS_LABEL_BYTES];
    metrics_label(label, "peer", name);
    snprintf(labels, sizeof labels, "%s,%s", metrics->model_label, label);
    struct counter *forwards = metrics_counter(metrics->registry, "hearsay_forwards_total", labels, "Requests forwarded, by peer.");
    if (!forwards)
        return;
    metrics->peers[metrics->n_peers].peer = peer;
    metrics->peers[metrics->n_peers++].forwards = forwards;
    counter_add(forwards, 1);
}

/* JSON for people and tools: status, /cluster, hearsay-ctl. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "core/serve/node_internal.h"

static void add_text(struct strbuf *out, const char *key, const char *text)
{
    strbuf_printf(out, "\"%s\":", key);
    strbuf_json_string(out, text, strlen(text));
    strbuf_puts(out, ",");
}

/* JSON knows no infinity. */
static double finite_or_zero(double v)
{
    return isfinite(v) ? v : 0;
}

static void add_counts(const struct node *node, struct strbuf *out)
{
    struct node_counts counts;
    node_counts(node, &counts);
    strbuf_printf(out,
                  "\"requests\":{\"entered\":%u,\"waiting\":%u,\"running\":%u,\"forwarded\":%u,\"computing_for_peers\":%u,"
                  "\"answered\":%" PRIu64 ",\"failed\":%" PRIu64 ",\"canceled\":%" PRIu64 ",\"takeovers\":%" PRIu64
                  ",\"preemptions\":%" PRIu64 "},",
                  node->n_entries, counts.waiting, counts.running, counts.forwarded, counts.computing_for_peers,
                  counter_get(node->metrics.success_stop) + counter_get(node->metrics.success_length),
                  counter_get(node->metrics.failed), counter_get(node->metrics.canceled), counter_get(node->metrics.takeovers),
                  scheduler_preemptions(node->scheduler));
    strbuf_printf(out, "\"pages\":{\"total\":%u,\"free\":%u,\"in_tree\":%u,\"page_tokens\":%u,\"page_bytes\":%" PRIu64 "},",
                  counts.pages_total, counts.pages_free, counts.pages_in_tree, node->backend_info.page_tokens,
                  node->backend_info.page_bytes);
}

void node_status_json(const struct node *node, struct strbuf *out)
{
    struct scheduler_load load;
    scheduler_load(node->scheduler, &load);
    strbuf_puts(out, "{");
    add_text(out, "name", node->config.cluster.name);
    add_text(out, "model", node->config.model_name ? node->config.model_name : "");
    add_text(out, "version", HEARSAY_VERSION);
    add_text(out, "http", node->config.cluster.http_address);
    add_text(out, "backend", node->backend_info.name);
    add_text(out, "arithmetic", node->backend_info.arithmetic);
    strbuf_printf(out, "\"uptime_s\":%.3f,\"context\":%u,\"draining\":%s,\"push_back\":%s,",
                  (double)(env_now_ns(&node->env) - node->started_ns) / 1e9, node->config.n_context,
                  node->draining ? "true" : "false", node->push_back ? "true" : "false");
    add_counts(node, out);
    strbuf_printf(
        out,
        "\"rates\":{\"prefill_tokens_per_s\":%.3f,\"decode_step_s\":%.6f,\"budget_rows\":%u,\"queued_prefill_tokens\":%" PRIu64
        ",\"expected_decode_tokens\":%" PRIu64 "},",
        finite_or_zero(load.prefill_tokens_per_s), finite_or_zero(load.decode_step_s), load.budget_rows, load.prefill_tokens,
        load.decode_tokens);
    strbuf_puts(out, "\"cluster\":");
    if (node->cluster)
        cluster_json(node->cluster, out);
    else
        strbuf_puts(out, "null");
    strbuf_puts(out, "}");
}

void node_tree_json(const struct node *node, struct strbuf *out)
{
    struct radix_stats stats;
    radix_stats(node->tree, &stats);
    strbuf_puts(out, "{");
    add_text(out, "name", node->config.cluster.name);
    strbuf_printf(out,
                  "\"pages\":%" PRIu64 ",\"nodes\":%" PRIu64 ",\"namespaces\":%" PRIu64 ",\"bytes\":%" PRIu64
                  ",\"inserted_pages\":%" PRIu64 ",\"evicted_pages\":%" PRIu64
                  ",\"evictable_pages\":%u,\"page_tokens\":%u,\"tokens\":%" PRIu64 "}",
                  stats.pages, stats.nodes, stats.namespaces, stats.bytes, stats.inserted_pages, stats.evicted_pages,
                  radix_evictable_pages(node->tree), node->backend_info.page_tokens, stats.pages * node->backend_info.page_tokens);
}

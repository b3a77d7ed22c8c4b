#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/unit/serve/rig.h"

static uint64_t clock_now(void *self)
{
    return ((struct rig *)self)->now_ns;
}

static uint64_t next_random(void *self)
{
    struct rig *rig = self;
    rig->random = rig->random * 6364136223846793005u + 1442695040888963407u; /* Knuth's MMIX */
    return rig->random ^ rig->random >> 29;
}

static struct spy *spy_of(const struct backend *backend)
{
    return (struct spy *)backend;
}

static void spy_info(const struct backend *b, struct backend_info *out)
{
    spy_of(b)->inner->ops->info(spy_of(b)->inner, out);
}

static int spy_copy_page(struct backend *b, uint32_t dst, uint32_t src)
{
    return spy_of(b)->inner->ops->copy_page(spy_of(b)->inner, dst, src);
}

static int spy_submit(struct backend *b, const struct step *step)
{
    struct spy *spy = spy_of(b);
    int status = spy->inner->ops->submit(spy->inner, step);
    if (status < 0)
        return status;
    uint32_t rows = 0;
    for (uint32_t i = 0; i < step->n_spans; i++)
        rows += step->spans[i].n_tokens;
    spy->rows += rows;
    spy->steps++;
    if (rows > spy->largest_step)
        spy->largest_step = rows;
    return 0;
}

static int spy_poll(struct backend *b, struct step_completion *out)
{
    struct spy *spy = spy_of(b);
    if (spy->hangs)
        return 0;
    int n = spy->inner->ops->poll(spy->inner, out);
    if (n == 1 && spy->fail_next) {
        spy->fail_next--;
        out->status = HS_ERR_IO;
    }
    return n;
}

static int spy_event_fd(const struct backend *b)
{
    return -1;
}

static uint64_t spy_next_deadline_ns(const struct backend *b)
{
    return spy_of(b)->hangs ? UINT64_MAX : spy_of(b)->inner->ops->next_deadline_ns(spy_of(b)->inner);
}

static void spy_destroy(struct backend *b)
{
    spy_of(b)->inner->ops->destroy(spy_of(b)->inner);
}

static const struct backend_ops SPY_OPS = {.info = spy_info,
                                           .copy_page = spy_copy_page,
                                           .submit = spy_submit,
                                           .poll = spy_poll,
                                           .event_fd = spy_event_fd,
                                           .next_deadline_ns = spy_next_deadline_ns,
                                           .destroy = spy_destroy};

void rig_init(struct rig *rig)
{
    memset(rig, 0, sizeof *rig);
    rig->now_ns = 1000000000;
    rig->random = 42;
    rig->backend = (struct null_backend_config){.n_pages = 256,
                                                .page_tokens = RIG_PAGE_TOKENS,
                                                .n_vocab = 49152,
                                                .max_rows = 256,
                                                .fixed_ns = 1000000,
                                                .row_ns = 100000,
                                                .check_chains = true};
    rig->config = (struct node_config){.model_name = "m", .n_context = 1024};
    rig->config.cluster.gossip_interval_ns = 10000000;
}

static void start_one(struct rig *rig, uint32_t i)
{
    struct rig_node *rn = &rig->nodes[i];
    struct error err = {0};
    char name[32];
    snprintf(name, sizeof name, "node%u:1", i);
    rn->env = (struct env){.now_ns = clock_now, .random_u64 = next_random, .self = rig};
    rn->metrics = metrics_create();
    rn->spy = (struct spy){.backend = {.ops = &SPY_OPS}, .inner = null_backend_create(&rig->backend, &rn->env)};
    assert_non_null(rn->spy.inner);
    if (rig->hub)
        assert_int_equal(transport_inproc_create(rig->hub, name, &rn->env, &rn->transport, &err), 0);
    struct node_config config = rig->config;
    snprintf(config.cluster.name, sizeof config.cluster.name, "node%u", i);
    if (node_create(&config, &rn->env, rn->transport, &rn->spy.backend, rn->metrics, &rn->node, &err) < 0)
        fail_msg("node_create: %s", err.text);
    rn->up = true;
    rn->next_ns = rig->now_ns;
}

void rig_start(struct rig *rig, uint32_t n, bool joined)
{
    rig->n_nodes = n;
    if (joined)
        rig->hub = inproc_hub_create();
    for (uint32_t i = 0; i < n; i++)
        start_one(rig, i);
    for (uint32_t i = 0; joined && i < n; i++)
        for (uint32_t k = 0; k < n; k++) {
            char name[32];
            struct error err;
            snprintf(name, sizeof name, "node%u:1", k);
            if (k != i)
                assert_int_equal(node_join(rig->nodes[i].node, name, &err), 0);
        }
    if (joined)
        rig_run_ns(rig, 500000000);
}

void rig_stop_node(struct rig *rig, uint32_t i)
{
    struct rig_node *rn = &rig->nodes[i];
    if (!rn->up)
        return;
    rn->up = false;
    node_destroy(rn->node);
    if (rn->transport)
        rn->transport->ops->destroy(rn->transport);
    rn->spy.backend.ops->destroy(&rn->spy.backend);
    metrics_destroy(rn->metrics);
}

void rig_fini(struct rig *rig)
{
    for (uint32_t i = 0; i < rig->n_nodes; i++)
        rig_stop_node(rig, i);
    if (rig->hub)
        inproc_hub_destroy(rig->hub);
}

bool rig_step(struct rig *rig)
{
    uint64_t next = UINT64_MAX;
    bool busy = false;
    for (uint32_t i = 0; i < rig->n_nodes; i++) {
        struct rig_node *rn = &rig->nodes[i];
        if (!rn->up)
            continue;
        rn->next_ns = node_step(rn->node, rig->now_ns);
        busy |= node_was_busy(rn->node);
        next = rn->next_ns < next ? rn->next_ns : next;
    }
    if (busy)
        return true; /* what one sent may have made work for another at this very moment */
    if (next == UINT64_MAX)
        return false;
    if (next > rig->now_ns)
        rig->now_ns = next;
    else
        rig->now_ns += 1000;
    return true;
}

void rig_run_ns(struct rig *rig, uint64_t ns)
{
    uint64_t end = rig->now_ns + ns;
    while (rig->now_ns < end && rig_step(rig))
        ;
    if (rig->now_ns < end)
        rig->now_ns = end;
}

void rig_finish(struct rig *rig, struct reply *reply)
{
    for (int i = 0; i < 1000000 && !reply->finals; i++)
        if (!rig_step(rig) && !reply->finals)
            fail_msg("nothing happens any more, and the request has no last event");
    assert_int_equal(reply->finals, 1);
}

uint64_t rig_counter(const struct rig *rig, uint32_t node, const char *name)
{
    return counter_get(metrics_counter(rig->nodes[node].metrics, name, "model_name=\"m\"", ""));
}

static const char *limit_label(const char *limit)
{
    static char label[METRICS_LABEL_BYTES];
    metrics_label(label, "limit", limit);
    return label;
}

uint64_t rig_limit_hits(const struct rig *rig, uint32_t node, const char *limit)
{
    return counter_get(metrics_counter(rig->nodes[node].metrics, "hearsay_limit_hits_total", limit_label(limit), ""));
}

int64_t rig_limit_used(const struct rig *rig, uint32_t node, const char *limit)
{
    return gauge_get(metrics_gauge(rig->nodes[node].metrics, "hearsay_limit_used", limit_label(limit), "", 1));
}

int64_t rig_limit(const struct rig *rig, uint32_t node, const char *limit)
{
    return gauge_get(metrics_gauge(rig->nodes[node].metrics, "hearsay_limit", limit_label(limit), "", 1));
}

struct node_counts rig_counts(const struct rig *rig, uint32_t node)
{
    struct node_counts counts;
    node_counts(rig->nodes[node].node, &counts);
    return counts;
}

void rig_assert_idle(const struct rig *rig, uint32_t node)
{
    struct node_counts c = rig_counts(rig, node);
    assert_int_equal(c.waiting + c.running + c.forwarded + c.computing_for_peers, 0);
    assert_int_equal(c.pages_free + c.pages_in_tree, c.pages_total);
}

static bool on_event(void *user, struct request *request, const struct request_event *event)
{
    struct reply *reply = user;
    assert_int_equal(reply->finals, 0);
    switch (event->kind) {
    case REQUEST_STARTED:
        reply->started++;
        reply->cached_tokens = event->cached_tokens;
        snprintf(reply->computed_by, sizeof reply->computed_by, "%s", event->computed_by);
        break;
    case REQUEST_SCORED:
        for (uint32_t i = 0; i < event->n_results; i++, reply->n_scored++)
            reply->score_errors += event->results[i].token != reply->tokens[reply->n_scored + 1];
        break;
    case REQUEST_TOKENS:
        assert_int_equal(reply->started, 1);
        for (uint32_t i = 0; i < event->n_results; i++)
            reply->tokens[reply->n_tokens++] = event->results[i].token;
        return !reply->slow;
    case REQUEST_FINISHED:
        reply->finals++;
        reply->finished = true;
        reply->reason = event->reason;
        reply->final_ns = reply->rig->now_ns;
        break;
    case REQUEST_FAILED:
        reply->finals++;
        reply->status = event->status;
        reply->retry_after_s = event->retry_after_s;
        reply->final_ns = reply->rig->now_ns;
        assert_non_null(event->text);
        snprintf(reply->text, sizeof reply->text, "%s", event->text);
        break;
    }
    return true;
}

void reply_init(struct rig *rig, struct reply *reply, uint32_t first, uint32_t n, uint32_t max_tokens)
{
    memset(reply, 0, sizeof *reply);
    reply->rig = rig;
    for (uint32_t i = 0; i < n; i++)
        reply->tokens[i] = (first + i * 7) % 4000 + 10;
    reply->n_tokens = n;
    reply->stop_id = rig->backend.stop_id;
    reply->request.tokens = reply->tokens;
    reply->request.n_tokens = n;
    reply->request.max_tokens = max_tokens;
    reply->request.sampling = (struct sampling_params){
        .top_p = 1, .repetition_penalty = 1, .stop_ids = &reply->stop_id, .n_stop_ids = rig->backend.stop_every ? 1 : 0};
    reply->request.on_event = on_event;
    reply->request.user = reply;
}

void reply_submit(struct reply *reply, uint32_t node)
{
    node_submit(reply->rig->nodes[node].node, &reply->request);
    reply->rig->nodes[node].next_ns = reply->rig->now_ns;
}

void reply_assert_right(const struct reply *reply)
{
    const struct request *request = &reply->request;
    assert_true(reply->finished);
    assert_int_equal(reply->finals, 1);
    assert_int_equal(reply->started, 1);
    uint32_t room = reply->rig->config.n_context - request->n_tokens;
    uint32_t limit = request->n_tokens + (request->max_tokens < room ? request->max_tokens : room);
    for (uint32_t n = request->n_tokens;; n++) {
        if (n == limit) {
            assert_int_equal(reply->reason, FINISH_LENGTH);
            assert_int_equal(reply->n_tokens, n);
            return;
        }
        uint32_t token = null_backend_next_token(&reply->rig->backend, reply->tokens, n, request->n_tokens, &request->sampling);
        if (!request->ignore_eos && request->sampling.n_stop_ids && token == reply->stop_id) {
            assert_int_equal(reply->reason, FINISH_STOP);
            assert_int_equal(reply->n_tokens, n);
            return;
        }
        assert_true(n < reply->n_tokens);
        assert_int_equal(reply->tokens[n], token);
    }
}

void reply_assert_failed(const struct reply *reply, int status)
{
    assert_int_equal(reply->finals, 1);
    assert_false(reply->finished);
    assert_int_equal(reply->status, status);
}

/* Nodes in a group over the in-process transport: forwarding, refusal, take-over, cancel, and a stranger's messages. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/base/log.h"
#include "core/serve/forward_message.h"
#include "tests/unit/serve/rig.h"

static struct reply replies[64];

/* Prefill is dear and pages plenty, so a request goes where its head is. */
static void start_group(struct rig *rig, uint32_t n)
{
    rig_init(rig);
    rig->backend.row_ns = 2000000;
    rig->config.max_batch_tokens = 64;
    rig_start(rig, n, true);
}

/* Node `at` computes the head; then everybody has heard of it. */
static void warm(struct rig *rig, uint32_t at, uint32_t first, uint32_t n)
{
    struct reply *r = &replies[63];
    reply_init(rig, r, first, n, 1);
    /* Enough of a history that rates are known. */
    reply_submit(r, at);
    rig_finish(rig, r);
    reply_assert_right(r);
    rig_run_ns(rig, 500000000);
}

static uint32_t node_named(const char *name)
{
    return (uint32_t)atoi(name + strlen("node"));
}

/* A head cached at one node, by whichever way the router let it be computed; returns where. */
static uint32_t warm_somewhere(struct rig *rig, uint32_t first, uint32_t n)
{
    warm(rig, 0, first, n);
    return node_named(replies[63].computed_by);
}

/* An entry that is not the holder. */
static uint32_t other_than(const struct rig *rig, uint32_t holder)
{
    return (holder + 1) % rig->n_nodes;
}

/* Submits at an entry where nothing is cached and steps until the holder computes it and some tokens arrived. */
static void submit_remote(struct rig *rig, struct reply *reply, uint32_t entry, uint32_t holder, uint32_t tokens)
{
    reply_submit(reply, entry);
    for (int i = 0; i < 100000 && reply->n_tokens < reply->request.n_tokens + tokens; i++)
        rig_step(rig);
    assert_int_equal(reply->finals, 0);
    assert_int_equal(rig_counts(rig, entry).forwarded, 1);
    assert_int_equal(rig_counts(rig, holder).computing_for_peers, 1);
}

static void a_request_goes_where_its_head_is(void **state)
{
    struct rig rig;
    start_group(&rig, 3);
    uint32_t holder = warm_somewhere(&rig, 3, 480), entry = other_than(&rig, holder);
    reply_init(&rig, &replies[0], 3, 500, 20);
    replies[0].request.sampling.temperature = 0.8f;
    replies[0].request.sampling.seed = 11;
    replies[0].request.sampling.logprobs = true;
    replies[0].request.sampling.n_top_logprobs = 3;
    reply_submit(&replies[0], entry);
    rig_finish(&rig, &replies[0]);
    reply_assert_right(&replies[0]);
    assert_int_equal(node_named(replies[0].computed_by), holder);
    assert_int_equal(replies[0].cached_tokens, 480);
    rig_run_ns(&rig, 10000000);
    for (uint32_t i = 0; i < 3; i++)
        rig_assert_idle(&rig, i);
    rig_fini(&rig);
}

static void scores_travel(void **state)
{
    struct rig rig;
    start_group(&rig, 2);
    uint32_t holder = warm_somewhere(&rig, 3, 480), entry = other_than(&rig, holder);
    for (uint32_t max_tokens = 0; max_tokens < 4; max_tokens += 3) {
        reply_init(&rig, &replies[0], 3, 500, max_tokens);
        replies[0].request.score_prompt = true;
        reply_submit(&replies[0], entry);
        rig_finish(&rig, &replies[0]);
        reply_assert_right(&replies[0]);
        assert_int_equal(replies[0].n_scored, 499);
        assert_int_equal(replies[0].score_errors, 0);
    }
    rig_fini(&rig);
}

/* A transport whose node says nothing any more about requests, and all the rest as ever: the group holds it to be well. */
static struct transport_ops muzzled_ops;
static int (*unmuzzled_send)(struct transport *, uint32_t, const struct iovec *, int, uint32_t);

static int send_muzzled(struct transport *transport, uint32_t peer, const struct iovec *iov, int n, uint32_t flags)
{
    if (*(const uint8_t *)iov[0].iov_base >= CLUSTER_MESSAGE_LIMIT)
        return 0;
    return unmuzzled_send(transport, peer, iov, n, flags);
}

static void muzzle(struct rig *rig, uint32_t node)
{
    struct transport *transport = rig->nodes[node].transport;
    muzzled_ops = *transport->ops;
    unmuzzled_send = transport->ops->send;
    muzzled_ops.send = send_muzzled;
    transport->ops = &muzzled_ops;
}

/* Runs until the request has moved on, which must happen between these moments, and is answered right. */
static void assert_moves_on(struct rig *rig, uint32_t entry, uint64_t from_s, uint64_t to_s)
{
    uint64_t begin = rig->now_ns;
    while (rig_counter(rig, entry, "hearsay_takeovers_total") == 0)
        assert_true(rig_step(rig));
    uint64_t waited = rig->now_ns - begin;
    assert_true(waited >= from_s * 1000000000 && waited <= to_s * 1000000000);
    rig_finish(rig, &replies[0]);
    reply_assert_right(&replies[0]);
    assert_int_equal(rig_counter(rig, entry, "hearsay_takeovers_total"), 1);
    rig_run_ns(rig, 1000000000);
    rig_assert_idle(rig, entry);
}

static void a_peer_that_never_answers(void **state)
{
    struct rig rig;
    start_group(&rig, 3);
    uint32_t holder = warm_somewhere(&rig, 3, 480), entry = other_than(&rig, holder);
    muzzle(&rig, holder);
    reply_init(&rig, &replies[0], 3, 500, 20);
    reply_submit(&replies[0], entry);
    assert_moves_on(&rig, entry, 5, 6);
    assert_int_not_equal(node_named(replies[0].computed_by), holder);
    assert_int_equal(rig_limit_hits(&rig, entry, "forward_answer_seconds"), 1);
    assert_int_equal(rig_limit(&rig, entry, "forward_answer_seconds"), 5);
    assert_int_equal(rig_limit_hits(&rig, entry, "forward_silence_seconds"), 0);
    rig_assert_idle(&rig, holder);
    rig_fini(&rig);
}

static void a_peer_that_falls_silent(void **state)
{
    struct rig rig;
    start_group(&rig, 3);
    uint32_t holder = warm_somewhere(&rig, 3, 480), entry = other_than(&rig, holder);
    reply_init(&rig, &replies[0], 3, 500, 200);
    submit_remote(&rig, &replies[0], entry, holder, 3);
    muzzle(&rig, holder);
    assert_moves_on(&rig, entry, 9, 11);
    assert_int_equal(rig_limit_hits(&rig, entry, "forward_silence_seconds"), 1);
    assert_int_equal(rig_limit(&rig, entry, "forward_silence_seconds"), 10);
    assert_int_equal(rig_limit_hits(&rig, entry, "forward_answer_seconds"), 0);
    struct counter *suspicions = metrics_counter(rig.nodes[entry].metrics, "hearsay_suspicions_total", "", "");
    assert_int_equal(counter_get(suspicions), 0); /* the group never doubted it */
    rig_assert_idle(&rig, holder);
    rig_fini(&rig);
}

/* A backend that hangs: for half a minute its node asks for patience, then it no longer does, and ten seconds later the request is
 * elsewhere. */
static void a_peer_whose_step_never_ends(void **state)
{
    struct rig rig;
    start_group(&rig, 3);
    uint32_t holder = warm_somewhere(&rig, 3, 480), entry = other_than(&rig, holder);
    reply_init(&rig, &replies[0], 3, 500, 200);
    submit_remote(&rig, &replies[0], entry, holder, 3);
    rig.nodes[holder].spy.hangs = true;
    assert_moves_on(&rig, entry, 38, 41);
    assert_true(rig_limit_hits(&rig, holder, "step_seconds") >= 8);
    assert_int_equal(rig_limit(&rig, holder, "step_seconds"), 30);
    assert_int_equal(rig_limit_hits(&rig, entry, "forward_silence_seconds"), 1);
    rig.nodes[holder].spy.hangs = false;
    rig_run_ns(&rig, 1000000000);
    rig_assert_idle(&rig, holder);
    rig_fini(&rig);
}

/* At any moment of a forwarded answer the computing node may die: the client sees the same tokens, and nothing else. */
static void takeover_changes_nothing(void **state)
{
    for (uint32_t tokens = 0; tokens < 20; tokens += 3)
        for (uint32_t scored = 0; scored < 2; scored++) {
            struct rig rig;
            start_group(&rig, 3);
            uint32_t holder = warm_somewhere(&rig, 3, 480), entry = other_than(&rig, holder);
            reply_init(&rig, &replies[0], 3, 500, 20);
            replies[0].request.sampling.temperature = 0.8f;
            replies[0].request.sampling.seed = tokens;
            replies[0].request.score_prompt = scored;
            if (tokens == 0)
                reply_submit(&replies[0], entry);
            else
                submit_remote(&rig, &replies[0], entry, holder, tokens);
            for (uint32_t i = 0; tokens == 0 && i < 3; i++)
                rig_step(&rig);
            rig_stop_node(&rig, holder);
            rig_finish(&rig, &replies[0]);
            reply_assert_right(&replies[0]);
            if (scored) {
                assert_int_equal(replies[0].n_scored, 499);
                assert_int_equal(replies[0].score_errors, 0);
            }
            if (tokens)
                assert_int_equal(rig_counter(&rig, entry, "hearsay_takeovers_total"), 1);
            rig_run_ns(&rig, 10000000);
            rig_assert_idle(&rig, entry);
            rig_fini(&rig);
        }
}

static void a_canceled_request_ends_there_too(void **state)
{
    struct rig rig;
    start_group(&rig, 2);
    uint32_t holder = warm_somewhere(&rig, 3, 480), entry = other_than(&rig, holder);
    reply_init(&rig, &replies[0], 3, 500, 400);
    submit_remote(&rig, &replies[0], entry, holder, 3);
    node_cancel(rig.nodes[entry].node, &replies[0].request);
    reply_assert_failed(&replies[0], HS_ERR_CANCELED);
    rig_run_ns(&rig, 200000000);
    rig_assert_idle(&rig, 0);
    rig_assert_idle(&rig, 1);
    rig_fini(&rig);
}

static void a_slow_reader_ends_the_work_at_the_peer(void **state)
{
    struct rig rig;
    start_group(&rig, 2);
    uint32_t holder = warm_somewhere(&rig, 3, 480), entry = other_than(&rig, holder);
    reply_init(&rig, &replies[0], 3, 500, 400);
    submit_remote(&rig, &replies[0], entry, holder, 3);
    replies[0].slow = true;
    rig_finish(&rig, &replies[0]);
    reply_assert_failed(&replies[0], HS_ERR_LIMIT);
    rig_run_ns(&rig, 200000000);
    rig_assert_idle(&rig, holder);
    rig_fini(&rig);
}

static void work_for_a_dead_entry_ends(void **state)
{
    struct rig rig;
    start_group(&rig, 2);
    uint32_t holder = warm_somewhere(&rig, 3, 480), entry = other_than(&rig, holder);
    reply_init(&rig, &replies[0], 3, 500, 500);
    submit_remote(&rig, &replies[0], entry, holder, 3);
    rig_stop_node(&rig, entry);
    reply_assert_failed(&replies[0], HS_ERR_CLOSED);
    rig_run_ns(&rig, 200000000);
    rig_assert_idle(&rig, holder);
    rig_fini(&rig);
}

/* The holder's queue filled since it last told: it refuses, and the request is answered elsewhere. */
static void a_refused_request_is_answered_all_the_same(void **state)
{
    struct rig rig;
    rig_init(&rig);
    rig.backend.row_ns = 2000000;
    rig.config.max_batch_tokens = 64;
    rig.config.max_sequences = 1;
    rig.config.push_back_depth = 2;
    rig.config.cluster.mode = ROUTE_LONGEST;
    rig.config.cluster.gossip_interval_ns = 300000000;
    rig_start(&rig, 2, true);
    uint32_t holder = warm_somewhere(&rig, 3, 480), entry = other_than(&rig, holder);
    for (uint32_t i = 1; i < 8; i++) {
        reply_init(&rig, &replies[i], 3, 480 + i, 3); /* they stay at the holder, whose cache has their head */
        reply_submit(&replies[i], holder);
    }
    node_step(rig.nodes[holder].node, rig.now_ns); /* the holder alone knows yet */
    reply_init(&rig, &replies[0], 3, 500, 10);
    reply_submit(&replies[0], entry);
    node_step(rig.nodes[entry].node, rig.now_ns); /* and routes by what it heard before */
    for (uint32_t i = 0; i < 8; i++) {
        rig_finish(&rig, &replies[i]);
        reply_assert_right(&replies[i]);
    }
    assert_true(rig_counter(&rig, entry, "hearsay_refusals_received_total") >= 1);
    assert_true(rig_counter(&rig, holder, "hearsay_refusals_given_total") >= 1);
    assert_int_equal(node_named(replies[0].computed_by), entry);
    rig_run_ns(&rig, 10000000);
    rig_assert_idle(&rig, entry);
    rig_assert_idle(&rig, holder);
    rig_fini(&rig);
}

static void a_draining_node_gets_nothing(void **state)
{
    struct rig rig;
    start_group(&rig, 2);
    uint32_t holder = warm_somewhere(&rig, 3, 480), entry = other_than(&rig, holder);
    node_drain(rig.nodes[holder].node, true);
    reply_init(&rig, &replies[0], 3, 500, 5); /* before it could tell: refused; */
    reply_submit(&replies[0], entry);
    rig_finish(&rig, &replies[0]);
    reply_assert_right(&replies[0]);
    assert_int_equal(node_named(replies[0].computed_by), entry);
    rig_fini(&rig);
}

/* A hand-made member of the fabric that says what it likes to node 0. */
struct stranger {
    struct env env;
    struct transport *transport;
    uint32_t peer;
    bool up;
    struct forward_message last;
    uint32_t counts[16]; /* by kind */
    uint32_t tokens[64], n_tokens;
    struct forward_scratch scratch;
    uint32_t scratch_tokens[2048];
};

static struct stranger stranger;

static uint64_t stranger_now(void *self)
{
    return ((struct rig *)self)->now_ns;
}

static uint64_t stranger_random(void *self)
{
    return 4; /* chosen by a fair die */
}

static void stranger_listen(struct rig *rig)
{
    struct transport_event events[16];
    int n = stranger.transport->ops->poll(stranger.transport, rig->now_ns, events, 16);
    for (int i = 0; i < n; i++) {
        stranger.up |= events[i].kind == TRANSPORT_PEER_UP;
        if (events[i].kind != TRANSPORT_MESSAGE || events[i].data[0] < FORWARD_REQUEST)
            continue;
        assert_int_equal(forward_decode(events[i].data, events[i].len, &stranger.scratch, &stranger.last), 0);
        stranger.counts[stranger.last.kind - FORWARD_REQUEST]++;
        if (stranger.last.kind == FORWARD_RESULTS) {
            assert_int_equal(stranger.last.results.first, stranger.n_tokens);
            for (uint32_t k = 0; k < stranger.last.results.n; k++)
                stranger.tokens[stranger.n_tokens++] = stranger.last.results.results[k].token;
        }
    }
}

static void stranger_wait(struct rig *rig, uint64_t ns)
{
    uint64_t end = rig->now_ns + ns;
    while (rig->now_ns < end) {
        rig_step(rig);
        stranger_listen(rig);
    }
}

static void stranger_join(struct rig *rig)
{
    struct error err;
    memset(&stranger, 0, sizeof stranger);
    stranger.scratch.tokens = stranger.scratch_tokens;
    stranger.scratch.cap_tokens = 2048;
    stranger.env = (struct env){.now_ns = stranger_now, .random_u64 = stranger_random, .self = rig};
    assert_int_equal(transport_inproc_create(rig->hub, "stranger:1", &stranger.env, &stranger.transport, &err), 0);
    assert_int_equal(stranger.transport->ops->resolve(stranger.transport, "node0:1", &stranger.peer), 0);
    stranger_wait(rig, 100000000);
    assert_true(stranger.up);
}

static void stranger_send(const void *data, size_t len)
{
    struct iovec piece = {.iov_base = (void *)data, .iov_len = len};
    assert_int_equal(stranger.transport->ops->send(stranger.transport, stranger.peer, &piece, 1, 0), 0);
}

static void stranger_say(const struct forward_message *message)
{
    static uint8_t bytes[16384];
    int len = forward_encode(message, bytes, sizeof bytes);
    assert_true(len > 0);
    stranger_send(bytes, (size_t)len);
}

static struct forward_message stranger_request(uint64_t id, uint32_t attempt, uint32_t *tokens, uint32_t n)
{
    struct forward_message m = {.kind = FORWARD_REQUEST, .id = id, .attempt = attempt};
    for (uint32_t i = 0; i < n; i++)
        tokens[i] = 100 + i;
    m.request = (struct forward_request){.hops = 1, .n_tokens = n, .n_prompt = n, .limit = n + 10, .tokens = tokens};
    m.request.sampling = (struct sampling_params){.top_p = 1, .repetition_penalty = 1};
    return m;
}

static void the_peers_side_by_hand(void **state)
{
    static uint32_t tokens[2048];
    struct rig rig;
    rig_init(&rig);
    rig_start(&rig, 1, true);
    stranger_join(&rig);
    struct forward_message m = stranger_request(7, 1, tokens, 50);
    stranger_say(&m);
    stranger_say(&m); /* the same again is not computed again */
    stranger_wait(&rig, 300000000);
    assert_int_equal(stranger.counts[FORWARD_ACCEPT - FORWARD_REQUEST], 1);
    assert_int_equal(stranger.counts[FORWARD_STARTED - FORWARD_REQUEST], 1);
    assert_int_equal(stranger.last.kind, FORWARD_FINISHED);
    assert_int_equal(stranger.last.finished.n_answer, 10);
    assert_int_equal(stranger.n_tokens, 10);
    for (uint32_t i = 0; i < 10; i++) {
        assert_int_equal(stranger.tokens[i], null_backend_next_token(&rig.backend, tokens, 50 + i, 50, &m.request.sampling));
        tokens[50 + i] = stranger.tokens[i];
    }
    const struct {
        uint8_t hops;
        uint32_t n, limit, token;
        enum forward_refusal reason;
    } bad[] = {{2, 50, 60, 1, FORWARD_REFUSED_INVALID},
               {0, 50, 60, 1, FORWARD_REFUSED_INVALID},
               {1, 50, 1025, 1, FORWARD_REFUSED_TOO_LARGE},
               {1, 50, 60, 49152, FORWARD_REFUSED_INVALID}};
    for (uint32_t i = 0; i < 4; i++) {
        m = stranger_request(100 + i, 1, tokens, bad[i].n);
        m.request.hops = bad[i].hops;
        m.request.limit = bad[i].limit;
        tokens[5] = bad[i].token;
        stranger_say(&m);
        stranger_wait(&rig, 20000000);
        assert_int_equal(stranger.last.kind, FORWARD_REFUSE);
        assert_true(stranger.last.id == 100 + i);
        assert_int_equal(stranger.last.refuse.reason, bad[i].reason);
    }
    /* A cancel of an older attempt is void, of the present one it ends the work. */
    stranger.n_tokens = 0;
    m = stranger_request(9, 2, tokens, 50);
    m.request.limit = 1000;
    stranger_say(&m);
    stranger_wait(&rig, 20000000);
    struct forward_message cancel = {.kind = FORWARD_CANCEL, .id = 9, .attempt = 1};
    stranger_say(&cancel);
    stranger_wait(&rig, 20000000);
    assert_int_equal(rig_counts(&rig, 0).computing_for_peers, 1);
    cancel.attempt = 2;
    stranger_say(&cancel);
    stranger_wait(&rig, 20000000);
    rig_assert_idle(&rig, 0);
    stranger.transport->ops->destroy(stranger.transport);
    rig_fini(&rig);
}

/* A peer that sends more than there is room for is refused, each time, and what it sent before is answered. */
static void a_peer_that_sends_too_much(void **state)
{
    static uint32_t tokens[2048];
    struct rig rig;
    rig_init(&rig);
    rig.backend.row_ns = 100000000; /* so slow that no answer begins */
    rig.config.max_sequences = 2;
    rig.config.max_waiting = 3;
    rig.config.push_back_depth = 100;
    rig_start(&rig, 1, true);
    stranger_join(&rig);
    assert_int_equal(rig_limit(&rig, 0, "requests_for_peers"), 5);
    for (uint32_t i = 0; i < 5; i++) {
        struct forward_message m = stranger_request(10 + i, 1, tokens, 50);
        m.request.limit = 400;
        tokens[0] = i; /* no common head to wait for */
        stranger_say(&m);
        if (i >= 1)
            stranger_wait(&rig, 1000000); /* the first two run by the time that the others come */
    }
    assert_int_equal(rig_counts(&rig, 0).computing_for_peers, 5);
    for (uint32_t i = 0; i < 4; i++) {
        struct forward_message m = stranger_request(20 + i, 1, tokens, 50);
        stranger_say(&m);
    }
    stranger_wait(&rig, 5000000);
    assert_int_equal(stranger.counts[FORWARD_REFUSE - FORWARD_REQUEST], 4);
    assert_int_equal(rig_limit_hits(&rig, 0, "requests_for_peers"), 4);
    node_drain(rig.nodes[0].node, true); /* who takes nothing more has hit no limit */
    struct forward_message late = stranger_request(30, 1, tokens, 50);
    stranger_say(&late);
    stranger_wait(&rig, 5000000);
    assert_int_equal(stranger.last.refuse.reason, FORWARD_REFUSED_DRAINING);
    assert_int_equal(stranger.counts[FORWARD_REFUSE - FORWARD_REQUEST], 5);
    assert_int_equal(rig_limit_hits(&rig, 0, "requests_for_peers"), 4);
    stranger.transport->ops->destroy(stranger.transport);
    rig_run_ns(&rig, 60000000000);
    rig_step(&rig);
    rig_assert_idle(&rig, 0);
    rig_fini(&rig);
}

static void a_waiting_peer_hears_that_we_live(void **state)
{
    static uint32_t tokens[2048];
    struct rig rig;
    rig_init(&rig);
    rig.config.max_sequences = 1;
    rig.config.push_back_depth = 100;
    rig_start(&rig, 1, true);
    stranger_join(&rig);
    for (uint32_t i = 0; i < 5; i++) {
        reply_init(&rig, &replies[i], i * 100, 50, 900);
        reply_submit(&replies[i], 0);
    }
    rig_step(&rig); /* they are in the queue before its request arrives */
    struct forward_message m = stranger_request(7, 1, tokens, 50);
    m.request.remaining_ns = 3500000000;
    stranger_say(&m);
    stranger_wait(&rig, 5000000000);
    assert_int_equal(stranger.counts[FORWARD_ALIVE - FORWARD_REQUEST], 3);
    assert_int_equal(stranger.last.kind, FORWARD_FAILED);
    assert_int_equal(stranger.last.failed.status, HS_ERR_TIMEOUT);
    stranger.transport->ops->destroy(stranger.transport);
    rig_fini(&rig);
}

static void noise_changes_nothing(void **state)
{
    static uint32_t tokens[2048];
    struct rig rig;
    rig_init(&rig);
    rig.config.max_sequences = 4;
    rig_start(&rig, 1, true);
    stranger_join(&rig);
    reply_init(&rig, &replies[0], 3, 100, 800);
    reply_submit(&replies[0], 0);
    uint64_t random = 1;
    for (uint32_t i = 0; i < 5000; i++) {
        uint8_t bytes[128];
        size_t len = 1 + i % 120;
        for (size_t k = 0; k < len; k++)
            bytes[k] = (uint8_t)((random = random * 6364136223846793005u + 1442695040888963407u) >> 56);
        bytes[0] = (uint8_t)(FORWARD_REQUEST + i % 12);
        stranger_send(bytes, len);
        if (i % 16 == 0)
            stranger_wait(&rig, 100000);
    }
    /* Well-formed, and about requests that it has nothing to do with. */
    struct row_result result = {.token = 1};
    for (uint64_t id = 0; id < 70000; id += 7) {
        struct forward_message m = {.kind = FORWARD_RESULTS, .id = id, .attempt = 1};
        m.results.n = 1;
        m.results.results = &result;
        stranger_say(&m);
        if (id % 64 == 0)
            stranger_wait(&rig, 10000);
    }
    assert_true(rig_counter(&rig, 0, "hearsay_forward_malformed_total") > 1000);
    struct forward_message m = stranger_request(7, 1, tokens, 50);
    stranger_say(&m);
    rig_finish(&rig, &replies[0]);
    reply_assert_right(&replies[0]);
    stranger_wait(&rig, 300000000);
    rig_assert_idle(&rig, 0);
    stranger.transport->ops->destroy(stranger.transport);
    rig_fini(&rig);
}

int main(void)
{
    log_setup(LOG_LEVEL_ERROR, LOG_FORMAT_TEXT);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_request_goes_where_its_head_is),
        cmocka_unit_test(scores_travel),
        cmocka_unit_test(takeover_changes_nothing),
        cmocka_unit_test(a_peer_that_never_answers),
        cmocka_unit_test(a_peer_that_falls_silent),
        cmocka_unit_test(a_peer_whose_step_never_ends),
        cmocka_unit_test(a_canceled_request_ends_there_too),
        cmocka_unit_test(a_slow_reader_ends_the_work_at_the_peer),
        cmocka_unit_test(work_for_a_dead_entry_ends),
        cmocka_unit_test(a_refused_request_is_answered_all_the_same),
        cmocka_unit_test(a_draining_node_gets_nothing),
        cmocka_unit_test(the_peers_side_by_hand),
        cmocka_unit_test(a_peer_that_sends_too_much),
        cmocka_unit_test(a_waiting_peer_hears_that_we_live),
        cmocka_unit_test(noise_changes_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

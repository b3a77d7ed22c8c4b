/* Errors, clients that leave or read slowly, many at once, stopping. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "core/base/error.h"
#include "tests/unit/http/fixture.h"
#include "tests/unit/http/harness.h"

#define STREAM "{\"prompt\":\"x\",\"stream\":true,\"max_tokens\":4000}"

static int setup(void **state)
{
    *state = harness_create(false);
    return 0;
}

static int teardown(void **state)
{
    harness_destroy(*state);
    return 0;
}

static void test_error_statuses(void **state)
{
    struct harness *h = *state;
    static const struct {
        const char *method, *path, *headers, *body;
        int status;
        const char *type, *code;
    } cases[] = {
        {"GET", "/nothing", NULL, NULL, 404, "invalid_request_error", "not_found"},
        {"GET", "/v1/completions", NULL, NULL, 405, "invalid_request_error", "method_not_allowed"},
        {"POST", "/health", NULL, "{}", 405, "invalid_request_error", "method_not_allowed"},
        {"GET", "/v1/models/other", NULL, NULL, 404, "invalid_request_error", "model_not_found"},
        {"POST", "/v1/completions", NULL, "{", 400, "invalid_request_error", "invalid_json"},
        {"POST", "/v1/completions", NULL, "{\"prompt\":\"x\",\"n\":\"2\"}", 400, "invalid_request_error", "invalid_type"},
        {"POST", "/v1/completions", NULL, "{\"prompt\":\"x\",\"model\":\"y\"}", 404, "invalid_request_error", "model_not_found"},
        {"POST", "/v1/completions", NULL, "{\"prompt\":\"\"}", 400, "invalid_request_error", "invalid_value"},
        {"POST", "/v1/completions", NULL, "{\"prompt\":\"x\",\"max_tokens\":4096}", 400, "invalid_request_error", "context_length_exceeded"},
        {"POST", "/v1/completions", "x-tenant-id: a b\r\n", "{\"prompt\":\"x\"}", 400, "invalid_request_error", "invalid_value"},
        {"POST", "/v1/chat/completions", NULL, "{\"messages\":[]}", 400, "invalid_request_error", "invalid_value"},
        {"POST", "/v1/completions", NULL, "{\"prompt\":\"x\",\"seed\" : 99999999999999999999}", 400, "invalid_request_error", "invalid_value"},
        {"POST", "/v1/completions", "Content-Encoding: gzip\r\n", "{\"prompt\":\"x\"}", 400, "invalid_request_error", "unsupported_value"},
        {"POST", "/v1/completions", "Content-Length: 3\r\n", "{\"prompt\":\"x\"}", 400, "invalid_request_error", "invalid_value"},
        {"POST", "/v1/completions", "Transfer-Encoding: chunked\r\n", "{\"prompt\":\"x\"}", 400, "invalid_request_error", "invalid_value"},
        {"POST", "/admin/drain", "Origin: http://evil.example\r\n", "{}", 403, "permission_error", NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct reply reply = client_request(h->port, cases[i].method, cases[i].path, cases[i].headers, cases[i].body);
        char allow[200];
        assert_int_equal(*reply_header(&reply, "Allow", allow) != '\0', cases[i].status == 405);
        json_t *root = harness_json(&reply, cases[i].status);
        assert_string_equal(text_at(root, "error.type"), cases[i].type);
        assert_true(strlen(text_at(root, "error.message")) > 5);
        at(root, "error.param");
        if (cases[i].code)
            assert_string_equal(text_at(root, "error.code"), cases[i].code);
        else
            assert_true(json_is_null(at(root, "error.code")));
        json_decref(root);
    }
}

/* Far more connections than the usual 1,024, each with half a request, leave room for one that asks. */
static void test_many_idle_connections(void **state)
{
    static int fds[1500];
    struct rlimit before;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    if (before.rlim_max < 8192)
        skip();
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &(struct rlimit){8192, before.rlim_max}), 0);
    struct harness *h = harness_create(false); /* chooses its limit of connections */
    for (size_t i = 0; i < sizeof fds / sizeof *fds; i++) {
        fds[i] = client_connect(h->port, 0);
        assert_true(send(fds[i], "POST /v1/com", 12, 0) == 12);
    }
    struct reply reply = client_request(h->port, "GET", "/health", NULL, NULL);
    json_decref(harness_json(&reply, 200));
    for (size_t i = 0; i < sizeof fds / sizeof *fds; i++)
        close(fds[i]);
    harness_destroy(h);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
}

static void test_body_limit(void **state)
{
    struct harness *h = *state;
    static char body[300 << 10]; /* the limit is 64 KiB */
    memset(body, ' ', sizeof body);
    memcpy(body, "{\"prompt\":\"x\"}", 14);
    harness_answer(h, "a", (struct fake_script){0});
    static const struct {
        size_t len;
        int status;
    } cases[] = {{64 << 10, 200}, {(64 << 10) + 1, 413}, {sizeof body, 413}};
    for (size_t i = 0; i < 3; i++) {
        int fd = client_connect(h->port, 0);
        client_send(fd, "POST", "/v1/completions", NULL, body, cases[i].len);
        struct reply reply = client_read(fd);
        json_decref(harness_json(&reply, cases[i].status));
    }
}

/* 4,096 tokens of context and one for the answer: the prompt may have 4,095, and a far longer one is refused as such. */
static void test_prompts_of_the_context_length(void **state)
{
    struct harness *h = *state;
    static const struct {
        size_t ids;
        int status;
    } cases[] = {{4095, 200}, {4096, 400}, {4097, 400}, {4098, 400}, {30000, 400}};
    harness_answer(h, "a", (struct fake_script){0});
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct strbuf body = {0};
        strbuf_puts(&body, "{\"max_tokens\":1,\"prompt\":[");
        for (size_t k = 0; k < cases[i].ids; k++)
            strbuf_puts(&body, k ? ",1" : "1");
        strbuf_puts(&body, "]}");
        struct reply reply = harness_post(h, "/v1/completions", strbuf_text(&body));
        json_t *root = harness_json(&reply, cases[i].status);
        if (cases[i].status == 400)
            assert_string_equal(text_at(root, "error.code"), "context_length_exceeded");
        json_decref(root);
        strbuf_fini(&body);
    }
}

static void test_failures_before_the_first_token(void **state)
{
    struct harness *h = *state;
    static const struct {
        struct fake_script script;
        int status;
        const char *message, *retry_after;
    } cases[] = {
        {{.submit_status = HS_ERR_BUSY}, 429, "Too many", "1"},
        {{.submit_status = HS_ERR_CLOSED}, 503, "draining", ""},
        {{.fails = true, .no_start = true, .fail_status = HS_ERR_BUSY, .fail_text = "all nodes are full", .retry_after_s = 7}, 429,
         "all nodes are full", "7"},
        {{.fails = true, .no_start = true, .fail_status = HS_ERR_LIMIT, .fail_text = "too long for the pool"}, 400, "too long", ""},
        {{.fails = true, .fail_status = HS_ERR_IO}, 500, "input/output failed", ""},
        {{.fails = true, .fail_status = HS_ERR_TIMEOUT}, 503, "timed out", ""},
    };
    for (size_t i = 0; i < 2 * sizeof cases / sizeof *cases; i++) {
        harness_answer(h, "abc", cases[i / 2].script);
        struct reply reply = harness_post(h, "/v1/completions", i % 2 ? STREAM : "{\"prompt\":\"x\"}");
        char value[200];
        assert_string_equal(reply_header(&reply, "Retry-After", value), cases[i / 2].retry_after);
        json_t *root = harness_json(&reply, cases[i / 2].status);
        assert_non_null(strstr(text_at(root, "error.message"), cases[i / 2].message));
        json_decref(root);
    }
    /* After some tokens a whole answer is still a plain error. */
    harness_answer(h, "abc", (struct fake_script){.fails = true, .fail_after = 2, .fail_status = HS_ERR_IO});
    struct reply reply = harness_post(h, "/v1/completions", "{\"prompt\":\"x\"}");
    json_decref(harness_json(&reply, 500));
}

static void test_a_failure_in_a_stream_is_no_clean_end(void **state)
{
    struct harness *h = *state;
    harness_answer(h, "abcdef", (struct fake_script){.fails = true, .fail_after = 3, .fail_status = HS_ERR_IO, .fail_text = "it broke"});
    fake_node_pause(h->inbox, true); /* after the first token */
    int fd = client_connect(h->port, 0);
    client_send(fd, "POST", "/v1/completions", NULL, STREAM, strlen(STREAM));
    client_await(fd, "data: ");
    fake_node_pause(h->inbox, false);
    struct reply reply = client_read(fd);
    bool done;
    json_t *events = harness_events(&reply, &done);
    size_t n = json_array_size(events);
    assert_false(done);
    assert_string_equal(text_at(json_array_get(events, n - 1), "error.message"), "it broke");
    for (size_t i = 0; i + 1 < n; i++)
        assert_true(json_is_null(at(json_array_get(events, i), "choices.0.finish_reason")));
    struct strbuf text = {0};
    harness_stream_text(events, 0, false, &text);
    assert_string_equal(strbuf_text(&text), "abc");
    strbuf_fini(&text);
    json_decref(events);
}

static void test_a_client_that_leaves_cancels(void **state)
{
    struct harness *h = *state;
    static const char *const bodies[] = {STREAM, "{\"prompt\":\"x\",\"max_tokens\":4000,\"n\":2}"};
    fake_node_pause(h->inbox, true); /* after its first token a request waits, and its connection with it */
    harness_answer(h, "abcdef", (struct fake_script){0});
    uint32_t wanted = 0;
    for (size_t i = 0; i < 2; i++) {
        int fd = client_connect(h->port, 0);
        client_send(fd, "POST", "/v1/completions", NULL, bodies[i], strlen(bodies[i]));
        assert_true(fake_node_wait_active(h->inbox, 1 + (uint32_t)i));
        close(fd);
        wanted += 1 + (uint32_t)i;
        assert_true(fake_node_wait_canceled(h->inbox, wanted));
        assert_int_equal(fake_node_counts(h->inbox).active, 0);
    }
    fake_node_pause(h->inbox, false);
}

static int64_t metric(struct harness *h, const char *line)
{
    struct reply reply = client_request(h->port, "GET", "/metrics", NULL, NULL);
    const char *found = strstr(strbuf_text(&reply.body), line);
    int64_t value = found ? strtoll(found + strlen(line), NULL, 10) : -1;
    assert_int_equal(reply.status, 200);
    reply_fini(&reply);
    return value;
}

static void test_metrics(void **state)
{
    struct harness *h = harness_create(false);
    harness_answer(h, "ab#", (struct fake_script){0});
    fake_node_pause(h->inbox, true);
    struct reply reply = harness_post(h, "/v1/completions", "{\"prompt\":\"x\",\"stop\":\"a\"}");
    json_decref(harness_json(&reply, 200));
    assert_true(fake_node_wait_canceled(h->inbox, 1));
    int fd = client_connect(h->port, 0);
    client_send(fd, "POST", "/v1/completions", NULL, STREAM, strlen(STREAM));
    client_await(fd, "data: ");
    close(fd);
    assert_true(fake_node_wait_canceled(h->inbox, 2));
    fake_node_pause(h->inbox, false);
    harness_answer(h, "abc", (struct fake_script){.fails = true, .fail_status = HS_ERR_IO});
    reply = harness_post(h, "/v1/completions", "{\"prompt\":\"x\"}");
    json_decref(harness_json(&reply, 500));
    assert_int_equal(metric(h, "vllm:request_success_total{model_name=\"tiny\",finished_reason=\"stop\"} "), 1);
    assert_int_equal(metric(h, "vllm:request_success_total{model_name=\"tiny\",finished_reason=\"abort\"} "), 1);
    assert_int_equal(metric(h, "vllm:request_success_total{model_name=\"tiny\",finished_reason=\"error\"} "), 1);
    assert_int_equal(metric(h, "hearsay_http_responses_total{class=\"5xx\"} "), 1);
    assert_int_equal(metric(h, "hearsay_http_responses_total{class=\"4xx\"} "), 0);
    harness_destroy(h);
}

struct job {
    pthread_t thread;
    struct harness *h;
    struct reply reply;
};

static void *post_stream(void *arg)
{
    struct job *job = arg;
    job->reply = harness_post(job->h, "/v1/completions",
                              "{\"prompt\":\"x\",\"stream\":true,\"max_tokens\":4000,\"stream_options\":{\"include_usage\":true}}");
    return NULL;
}

static void test_64_streams_at_once(void **state)
{
    struct harness *h = *state;
    static struct job jobs[64];
    harness_answer(h, "The quick brown fox \xf0\x9f\xa6\x8a jumps. ", (struct fake_script){.repeats = 20});
    fake_node_pause(h->inbox, true); /* until all are there */
    for (size_t i = 0; i < 64; i++) {
        jobs[i].h = h;
        assert_int_equal(pthread_create(&jobs[i].thread, NULL, post_stream, &jobs[i]), 0);
    }
    assert_true(fake_node_wait_active(h->inbox, 64));
    fake_node_pause(h->inbox, false);
    for (size_t i = 0; i < 64; i++) {
        bool done;
        struct strbuf text = {0};
        pthread_join(jobs[i].thread, NULL);
        json_t *events = harness_events(&jobs[i].reply, &done);
        assert_true(done);
        harness_stream_text(events, 0, false, &text);
        assert_int_equal(text.len, 20 * strlen("The quick brown fox \xf0\x9f\xa6\x8a jumps. "));
        assert_int_equal(number_at(json_array_get(events, json_array_size(events) - 1), "usage.completion_tokens"),
                         20 * (int64_t)h->tokens.n);
        strbuf_fini(&text);
        json_decref(events);
    }
}

/* The buffer of a stream that nobody reads fills up; its own request ends, another one does not notice. */
static void test_a_slow_reader_is_ended(void **state)
{
    struct harness *h = harness_create(false);
    int slow = harness_stream_unread(h);
    struct reply other = harness_post(h, "/v1/completions", "{\"prompt\":\"x\",\"stream\":true}");
    bool done;
    json_decref(harness_events(&other, &done));
    assert_true(done);
    struct reply reply = client_read(slow);
    assert_true(fake_node_counts(h->inbox).refused_events > 0);
    assert_non_null(strstr(strbuf_text(&reply.body), "read too slowly"));
    assert_null(strstr(strbuf_text(&reply.body), "[DONE]"));
    reply_fini(&reply);
    harness_destroy(h);
}

static void test_the_node_is_asked(void **state)
{
    struct harness *h = harness_create(false);
    static const struct {
        const char *method, *path;
        int status;
        const char *query;
    } cases[] = {
        {"GET", "/health", 200, "health"},      {"GET", "/cluster", 200, "cluster"}, {"GET", "/admin/tree", 200, "tree"},
        {"POST", "/admin/flush", 200, "flush"}, {"POST", "/admin/drain", 200, "drain"}, {"GET", "/health", 503, NULL},
        {"POST", "/admin/undrain", 200, "undrain"}, {"GET", "/health", 200, "health"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct reply reply = client_request(h->port, cases[i].method, cases[i].path, NULL, *cases[i].method == 'P' ? "{}" : NULL);
        json_t *root = harness_json(&reply, cases[i].status);
        if (cases[i].query)
            assert_string_equal(text_at(root, "query"), cases[i].query);
        json_decref(root);
    }
    fake_node_script(h->inbox, &(struct fake_script){.mute = true});
    struct reply reply = client_request(h->port, "GET", "/health", NULL, NULL); /* a node that hangs cannot serve */
    json_decref(harness_json(&reply, 503));
    fake_node_script(h->inbox, &(struct fake_script){0}); /* the late answer is dropped */
    reply = client_request(h->port, "GET", "/v1/models", NULL, NULL);
    json_t *root = harness_json(&reply, 200);
    assert_string_equal(text_at(root, "data.0.id"), "tiny");
    json_decref(root);
    harness_destroy(h);
}

/* One connection, several requests: the watch on its descriptor is renewed each time. */
static void test_connections_are_kept(void **state)
{
    struct harness *h = *state;
    static const char request[] = "POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 14\r\n\r\n{\"prompt\":\"x\"}";
    harness_answer(h, "abc", (struct fake_script){0});
    int fd = client_connect(h->port, 0);
    for (int i = 0; i < 3; i++) {
        char data[4096];
        size_t len = 0;
        assert_int_equal(send(fd, request, sizeof request - 1, 0), sizeof request - 1);
        do {
            ssize_t n = recv(fd, data + len, sizeof data - len - 1, 0);
            assert_true(n > 0);
            len += (size_t)n;
            data[len] = '\0';
        } while (!strstr(data, "\"usage\"") || data[len - 1] != '}');
        assert_memory_equal(data, "HTTP/1.1 200", 12);
    }
    close(fd);
}

/* The server's side of a connection is found by its peer's address: this process has both. */
static int server_side_of(int client)
{
    struct sockaddr_in mine = {0}, peer;
    socklen_t len = sizeof mine;
    getsockname(client, (struct sockaddr *)&mine, &len);
    for (int fd = 3; fd < 1024; fd++) {
        len = sizeof peer;
        if (fd != client && getpeername(fd, (struct sockaddr *)&peer, &len) == 0 && peer.sin_port == mine.sin_port)
            return fd;
    }
    return -1;
}

static void test_chunks_are_not_delayed(void **state)
{
    struct harness *h = *state;
    fake_node_pause(h->inbox, true);
    harness_answer(h, "abc", (struct fake_script){0});
    int fd = client_connect(h->port, 0);
    client_send(fd, "POST", "/v1/completions", NULL, STREAM, strlen(STREAM));
    client_await(fd, "data: "); /* the first chunk is there */
    int no_delay = 0, server = server_side_of(fd);
    socklen_t size = sizeof no_delay;
    assert_true(server >= 0);
    assert_int_equal(getsockopt(server, IPPROTO_TCP, TCP_NODELAY, &no_delay, &size), 0);
    assert_int_not_equal(no_delay, 0);
    fake_node_pause(h->inbox, false);
    struct reply reply = client_read(fd);
    assert_true(reply.whole);
    reply_fini(&reply);
}

static void test_stopping_ends_what_is_under_way(void **state)
{
    struct harness *h = harness_create(false);
    fake_node_pause(h->inbox, true);
    harness_answer(h, "abc", (struct fake_script){0});
    int streaming = client_connect(h->port, 0), waiting = client_connect(h->port, 0), idle = client_connect(h->port, 0);
    client_send(streaming, "POST", "/v1/completions", NULL, STREAM, strlen(STREAM));
    client_send(waiting, "POST", "/v1/completions", NULL, "{\"prompt\":\"x\"}", 14);
    assert_true(fake_node_wait_active(h->inbox, 2));
    harness_destroy(h);
    struct reply reply = client_read(streaming);
    assert_null(strstr(strbuf_text(&reply.body), "[DONE]"));
    reply_fini(&reply);
    reply = client_read(waiting);
    assert_false(reply.status == 200);
    reply_fini(&reply);
    close(idle);
}

static void test_addresses(void **state)
{
    struct harness *h = *state;
    struct http_server *server = NULL;
    struct http_config config = h->config;
    char taken[32];
    snprintf(taken, sizeof taken, "127.0.0.1:%u", h->port);
    const char *const bad[] = {"", "127.0.0.1", "127.0.0.1:", ":80", "127.0.0.1:99999", "no.such.host.invalid:80", taken};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct error err = {0};
        config.address = bad[i];
        assert_true(http_server_create(&config, &server, &err) < 0);
        assert_true(strlen(err.text) > 10);
        assert_null(server);
    }
}

static void *stop_server(void *h)
{
    harness_destroy(h);
    return NULL;
}

/* Answers that are complete still go out, here to a reader who is slow to take them. */
static void test_stopping_delivers_what_is_complete(void **state)
{
    struct harness *h = harness_create(false);
    static const char body[] = "{\"prompt\":\"x\",\"max_tokens\":250,\"n\":40,\"logprobs\":20,\"stream\":true}";
    harness_answer(h, "abcdefghijklmnopqrstuvwxyz", (struct fake_script){.repeats = 8, .per_event = 64});
    fake_node_pause(h->inbox, true); /* after the first tokens */
    int fd = client_connect(h->port, 2048);
    client_send(fd, "POST", "/v1/completions", NULL, body, strlen(body));
    client_await(fd, "data: ");
    fake_node_pause(h->inbox, false);
    while (fake_node_counts(h->inbox).active)
        sched_yield();
    pthread_t stopping;
    assert_int_equal(pthread_create(&stopping, NULL, stop_server, h), 0);
    struct reply reply = client_read(fd);
    bool done;
    json_decref(harness_events(&reply, &done));
    assert_true(done);
    pthread_join(stopping, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_error_statuses),
        cmocka_unit_test(test_many_idle_connections),
        cmocka_unit_test(test_body_limit),
        cmocka_unit_test(test_prompts_of_the_context_length),
        cmocka_unit_test(test_failures_before_the_first_token),
        cmocka_unit_test(test_a_failure_in_a_stream_is_no_clean_end),
        cmocka_unit_test(test_a_client_that_leaves_cancels),
        cmocka_unit_test(test_metrics),
        cmocka_unit_test(test_64_streams_at_once),
        cmocka_unit_test(test_a_slow_reader_is_ended),
        cmocka_unit_test(test_the_node_is_asked),
        cmocka_unit_test(test_connections_are_kept),
        cmocka_unit_test(test_chunks_are_not_delayed),
        cmocka_unit_test(test_stopping_ends_what_is_under_way),
        cmocka_unit_test(test_stopping_delivers_what_is_complete),
        cmocka_unit_test(test_addresses),
    };
    int failed = cmocka_run_group_tests(tests, setup, teardown);
    fixture_close();
    return failed;
}

/* Every limit of the HTTP edge: over it there is an answer that names the limit, and a count; below it all is well. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "core/base/error.h"
#include "tests/unit/http/fixture.h"
#include "tests/unit/http/harness.h"

/* Value of family{limit="name"}; fails the test if it is not shown. */
static int64_t shown(struct harness *h, const char *family, const char *name)
{
    char line[120];
    struct strbuf text = {0};
    metrics_write(h->metrics, &text);
    snprintf(line, sizeof line, "\n%s{limit=\"%s\"} ", family, name);
    const char *found = strstr(strbuf_text(&text), line);
    if (!found)
        fail_msg("no %s", line + 1);
    int64_t value = strtoll(found + strlen(line), NULL, 10);
    strbuf_fini(&text);
    return value;
}

static int64_t hits(struct harness *h, const char *name)
{
    return shown(h, "hearsay_limit_hits_total", name);
}

/* Sends head, n times piece, tail; the reply must have that status and words, and count one hit. */
struct over {
    const char *limit;
    int64_t max;
    const char *head, *piece;
    int n; /* one more than goes */
    const char *tail;
    int status;
    const char *words;
};

static const struct over bodies[] = {
    {"json_depth", 64, "{\"prompt\":\"x\",\"y\":", "[", 64, "", 400, "65 levels deep; at most 64"},
    {"choices", 128, "{\"prompt\":[\"x\"", ",\"x\"", 128, "]}", 400, "129 prompts; it must hold 1 to 128"},
    {"choices", 128, "{\"prompt\":\"x\",\"n\":129", "", 0, "}", 400, "n is 129; it must be from 1 to 128"},
    {"choices", 128, "{\"prompt\":[\"x\",\"y\",\"z\"],\"n\":43", "", 0, "}", 400, "more than 128 answers"},
    {"stop_strings", 4, "{\"prompt\":\"x\",\"stop\":[\"x\"", ",\"x\"", 4, "]}", 400, "stop has 5 strings; at most 4"},
    {"stop_string_bytes", 1024, "{\"prompt\":\"x\",\"stop\":\"", "x", 1025, "\"}", 400, "has 1025 bytes; it must have 1 to 1024"},
    {"top_logprobs", 20, "{\"prompt\":\"x\",\"logprobs\":21", "", 0, "}", 400, "logprobs is 21; it must be from 0 to 20"},
    {"cache_salt_bytes", 1024, "{\"prompt\":\"x\",\"cache_salt\":\"", "x", 1025, "\"}", 400, "cache_salt is longer than 1024 bytes"},
    {"context_tokens", 4096, "{\"prompt\":\"x\",\"max_tokens\":", "4096", 1, "}", 400, "context has 4096 tokens"},
    {"context_tokens", 4096, "{\"prompt\":\"", " a b c d", 4000, "\"}", 400, "context has 4096 tokens"},
    {"http_body_bytes", 65536, "{\"prompt\":\"", "x", 70000, "\"}", 413, "has 70013 bytes; at most 65536 are taken (--max-body)"},
};

static void check_over(struct harness *h, const struct over *over, const char *headers)
{
    int64_t before = hits(h, over->limit);
    assert_int_equal(shown(h, "hearsay_limit", over->limit), over->max);
    struct strbuf body = {0};
    strbuf_puts(&body, over->head);
    for (int i = 0; i < over->n; i++)
        strbuf_puts(&body, over->piece);
    strbuf_puts(&body, over->tail);
    struct reply reply = client_request(h->port, "POST", "/v1/completions", headers, strbuf_text(&body));
    if (reply.status != over->status || !strstr(strbuf_text(&reply.body), over->words))
        fail_msg("%s: status %d: %s", over->limit, reply.status, strbuf_text(&reply.body));
    assert_int_equal(hits(h, over->limit), before + 1);
    reply_fini(&reply);
    strbuf_fini(&body);
}

static void test_bodies(void **state)
{
    struct harness *h = *state;
    for (size_t i = 0; i < sizeof bodies / sizeof *bodies; i++)
        check_over(h, &bodies[i], NULL);
    /* Ids of logit_bias must differ, so this one is not made of one piece. */
    struct strbuf bias = {0};
    strbuf_puts(&bias, "{\"prompt\":\"x\",\"logit_bias\":{\"0\":1");
    for (int i = 1; i < 1025; i++)
        strbuf_printf(&bias, ",\"%d\":1", i);
    struct over over = {"logit_bias_entries", 1024, strbuf_text(&bias), "", 0, "}}", 400, "logit_bias has 1025 entries; at most 1024"};
    check_over(h, &over, NULL);
    strbuf_fini(&bias);
    /* What is wrong for another reason hits no limit. */
    int64_t before = hits(h, "choices");
    struct reply reply = harness_post(h, "/v1/completions", "{\"prompt\":\"x\",\"n\":0}");
    json_decref(harness_json(&reply, 400));
    assert_int_equal(hits(h, "choices"), before);
}

static void test_headers(void **state)
{
    struct harness *h = *state;
    struct over tenant = {"tenant_name_bytes", 63, "{\"prompt\":\"x\"}", "", 0, "", 400, "at most 63 visible"};
    check_over(h, &tenant, "x-tenant-id: 0123456789012345678901234567890123456789012345678901234567890123\r\n");
    static const size_t sizes[] = {40000, 200000}; /* answered by us, and by libmicrohttpd whose memory it does not fit */
    for (int i = 0; i < 2; i++) {
        int64_t before = hits(h, "http_header_bytes");
        char *headers = malloc(sizes[1] + 100);
        size_t at = (size_t)sprintf(headers, "x-long: ");
        memset(headers + at, 'a', sizes[i]);
        memcpy(headers + at + sizes[i], "\r\n", 3);
        struct reply reply = client_request(h->port, "POST", "/v1/completions", headers, "{\"prompt\":\"x\"}");
        assert_int_equal(reply.status, 431);
        if (i == 0)
            assert_non_null(strstr(strbuf_text(&reply.body), "at most 32768 are taken"));
        assert_int_equal(hits(h, "http_header_bytes"), before + 1);
        reply_fini(&reply);
        free(headers);
    }
    assert_int_equal(shown(h, "hearsay_limit", "http_header_bytes"), 32768);
}

static void test_connections(void **state)
{
    struct harness *h = harness_create(false);
    http_server_destroy(h->server);
    struct error err = {0};
    h->config.max_connections = 3;
    assert_int_equal(http_server_create(&h->config, &h->server, &err), 0);
    h->port = http_server_port(h->server);
    int idle[3];
    for (int i = 0; i < 3; i++) {
        idle[i] = client_connect(h->port, 0);
        while (shown(h, "hearsay_limit_used", "http_connections") < i + 1)
            sched_yield();
    }
    assert_int_equal(shown(h, "hearsay_limit", "http_connections"), 3);
    for (int i = 0; i < 2; i++) {
        char seconds[200];
        struct reply reply = client_request(h->port, "GET", "/v1/models", NULL, NULL);
        assert_int_equal(reply.status, 503);
        assert_non_null(strstr(strbuf_text(&reply.body), "3 connections, which is its limit (--max-connections)"));
        assert_string_equal(reply_header(&reply, "retry-after", seconds), "1");
        assert_int_equal(hits(h, "http_connections"), i + 1);
        reply_fini(&reply);
    }
    for (int i = 0; i < 3; i++)
        close(idle[i]);
    while (shown(h, "hearsay_limit_used", "http_connections") > 0)
        sched_yield();
    struct reply reply = client_request(h->port, "GET", "/v1/models", NULL, NULL);
    json_decref(harness_json(&reply, 200));
    harness_destroy(h);
}

static void test_idle_connections(void **state)
{
    struct harness *h = harness_create(false);
    http_server_destroy(h->server);
    struct error err = {0};
    h->config.idle_s = 1;
    assert_int_equal(http_server_create(&h->config, &h->server, &err), 0);
    h->port = http_server_port(h->server);
    static const char half[] = "POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{\"prompt\":";
    int fd = client_connect(h->port, 0);
    assert_int_equal(send(fd, half, sizeof half - 1, 0), sizeof half - 1);
    struct reply reply = client_read(fd); /* to the end that the server makes */
    assert_false(reply.status == 200);
    while (hits(h, "http_idle_seconds") == 0)
        sched_yield();
    assert_int_equal(shown(h, "hearsay_limit", "http_idle_seconds"), 1);
    reply_fini(&reply);
    harness_destroy(h);
}

static void test_unread_tokens(void **state)
{
    struct harness *h = harness_create(false);
    int slow = harness_stream_unread(h);
    while (hits(h, "http_unread_tokens") == 0)
        sched_yield();
    struct reply reply = client_read(slow);
    assert_non_null(strstr(strbuf_text(&reply.body), "read too slowly and was ended: at most 1024 tokens wait for a reader"));
    assert_int_equal(shown(h, "hearsay_limit", "http_unread_tokens"), 1024);
    reply_fini(&reply);
    harness_destroy(h);
}

static void test_inbox(void **state)
{
    struct harness *h = *state;
    int64_t before = hits(h, "inbox_requests");
    fake_node_script(h->inbox, &(struct fake_script){.submit_status = HS_ERR_BUSY});
    struct reply reply = harness_post(h, "/v1/completions", "{\"prompt\":\"x\"}");
    assert_non_null(strstr(strbuf_text(&reply.body), "Too many requests wait to be taken in"));
    json_decref(harness_json(&reply, 429));
    assert_int_equal(hits(h, "inbox_requests"), before + 1);
    fake_node_script(h->inbox, &(struct fake_script){0});
}

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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bodies),      cmocka_unit_test(test_headers),           cmocka_unit_test(test_inbox),
        cmocka_unit_test(test_connections), cmocka_unit_test(test_idle_connections), cmocka_unit_test(test_unread_tokens),
    };
    int failed = cmocka_run_group_tests(tests, setup, teardown);
    fixture_close();
    return failed;
}

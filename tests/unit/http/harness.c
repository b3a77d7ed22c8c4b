#include "tests/unit/http/harness.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "core/base/utf8.h"
#include "tests/unit/http/fixture.h"

static uint64_t now_ns(void *self)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static uint64_t random_u64(void *self)
{
    static _Atomic uint64_t counter = 1;
    return atomic_fetch_add(&counter, 1) * 0x9e3779b97f4a7c15u;
}

static int64_t unix_time(void *arg)
{
    return 1700000000;
}

struct harness *harness_create(bool isolate_tenants)
{
    static const struct env env = {now_ns, random_u64, NULL};
    struct harness *h = calloc(1, sizeof *h);
    struct error err = {0};
    h->inbox = fake_node_create();
    h->metrics = metrics_create();
    h->config = (struct http_config){
        .address = "127.0.0.1:0",
        .node_name = "entry-1",
        .model_id = "tiny",
        .model = fixture_model(),
        .n_context = 4096,
        .isolate_tenants = isolate_tenants,
        .max_body_bytes = 64 << 10,
        .deliver_ms = 60000, /* no test may hang on the machine's speed */
        .inbox = h->inbox,
        .metrics = h->metrics,
        .env = &env,
        .unix_time_s = unix_time,
    };
    if (http_server_create(&h->config, &h->server, &err))
        fail_msg("%s", err.text);
    h->port = http_server_port(h->server);
    return h;
}

void harness_destroy(struct harness *h)
{
    http_server_destroy(h->server);
    fake_node_destroy(h->inbox);
    metrics_destroy(h->metrics);
    token_list_fini(&h->tokens);
    free(h);
}

void harness_answer(struct harness *h, const char *text, struct fake_script script)
{
    token_list_fini(&h->tokens);
    h->tokens = fixture_tokens(text, strlen(text));
    script.tokens = h->tokens.ids;
    script.n_tokens = (uint32_t)h->tokens.n;
    fake_node_script(h->inbox, &script);
}

int harness_stream_unread(struct harness *h)
{
    static const char body[] = "{\"prompt\":\"x\",\"stream\":true,\"max_tokens\":4000,\"n\":40,\"logprobs\":20}";
    harness_answer(h, "abcdefghijklmnopqrstuvwxyz", (struct fake_script){.repeats = 400, .per_event = 64});
    int fd = client_connect(h->port, 2048);
    client_send(fd, "POST", "/v1/completions", NULL, body, strlen(body));
    assert_true(fake_node_wait_submitted(h->inbox, 1));
    return fd;
}

struct reply harness_post(struct harness *h, const char *path, const char *body)
{
    return client_request(h->port, "POST", path, NULL, body);
}

json_t *harness_json(struct reply *reply, int status)
{
    json_error_t where;
    json_t *root = json_loadb(strbuf_text(&reply->body), reply->body.len, 0, &where);
    if (reply->status != status || !root || !reply->whole)
        fail_msg("status %d, body %s", reply->status, strbuf_text(&reply->body));
    reply_fini(reply);
    return root;
}

json_t *at(json_t *root, const char *path)
{
    json_t *value = root;
    for (const char *p = path; *p && value;) {
        char name[64];
        size_t len = strcspn(p, ".");
        memcpy(name, p, len);
        name[len] = '\0';
        value = json_is_array(value) ? json_array_get(value, strtoul(name, NULL, 10)) : json_object_get(value, name);
        p += len + (p[len] == '.');
    }
    if (!value)
        fail_msg("%s is not there", path);
    return value;
}

const char *text_at(json_t *root, const char *path)
{
    const char *text = json_string_value(at(root, path));
    if (!text)
        fail_msg("%s is no string", path);
    return text;
}

int64_t number_at(json_t *root, const char *path)
{
    json_t *value = at(root, path);
    assert_true(json_is_integer(value));
    return json_integer_value(value);
}

json_t *harness_events(struct reply *reply, bool *done)
{
    if (reply->status != 200 || !reply->whole)
        fail_msg("status %d, whole %d, body %s", reply->status, reply->whole, strbuf_text(&reply->body));
    json_t *events = json_array();
    *done = false;
    for (const char *p = strbuf_text(&reply->body); *p;) {
        const char *end = strstr(p, "\n\n");
        assert_non_null(end);
        assert_false(*done); /* nothing after [DONE] */
        assert_memory_equal(p, "data: ", 6);
        assert_null(memchr(p, '\n', (size_t)(end - p)));
        assert_true(utf8_is_clean(p, (size_t)(end - p)));
        if (end - p == 12 && memcmp(p, "data: [DONE]", 12) == 0) {
            *done = true;
        } else {
            json_t *event = json_loadb(p + 6, (size_t)(end - p) - 6, 0, NULL);
            assert_non_null(event);
            json_array_append_new(events, event);
        }
        p = end + 2;
    }
    reply_fini(reply);
    return events;
}

void harness_stream_text(json_t *events, int64_t choice, bool chat, struct strbuf *out)
{
    size_t i;
    json_t *event;
    json_array_foreach(events, i, event) {
        json_t *part = json_array_get(json_object_get(event, "choices"), 0);
        if (!part || json_integer_value(json_object_get(part, "index")) != choice)
            continue;
        json_t *text = chat ? json_object_get(json_object_get(part, "delta"), "content") : json_object_get(part, "text");
        if (text)
            strbuf_puts(out, json_string_value(text));
    }
}

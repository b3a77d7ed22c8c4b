/* A server over the fake node, and helpers to look at what it answers. */
#ifndef HEARSAY_TESTS_HTTP_HARNESS_H
#define HEARSAY_TESTS_HTTP_HARNESS_H

#include <jansson.h>

#include "core/serve/http/http.h"
#include "tests/unit/http/client.h"
#include "tests/unit/http/fake_node.h"

struct harness {
    struct node_inbox *inbox;
    struct metrics *metrics;
    struct http_config config;
    struct http_server *server;
    uint16_t port;
    struct token_list tokens; /* of the scripted answer */
};

/* max_body_bytes 64 KiB, context 4096, model "tiny". */
struct harness *harness_create(bool isolate_tenants);
void harness_destroy(struct harness *h);
/* The node answers with the tokens of text. Other fields of script may be set; tokens are filled in. */
void harness_answer(struct harness *h, const char *text, struct fake_script script);

/* A long stream that nobody reads yet, under way at the node; its answer is what client_read of the descriptor returns. */
int harness_stream_unread(struct harness *h);

struct reply harness_post(struct harness *h, const char *path, const char *body);
/* The body as JSON; fails the test if it is none or the status differs. Freed by json_decref. */
json_t *harness_json(struct reply *reply, int status);
/* Member by a path such as "choices.0.message.content"; fails the test if absent. */
json_t *at(json_t *root, const char *path);
const char *text_at(json_t *root, const char *path);
int64_t number_at(json_t *root, const char *path);

/*
 * The events of a stream as a JSON array, without [DONE]; checks that there is nothing but "data: " lines and blank ones.
 * *done tells whether [DONE] was last. Freed by json_decref.
 */
json_t *harness_events(struct reply *reply, bool *done);
/* All pieces of a choice's text in order. */
void harness_stream_text(json_t *events, int64_t choice, bool chat, struct strbuf *out);

#endif

/*
 * Every allocation fails once: each scenario runs again and again, with the first, second, third ... allocation failing, until
 * none is left to fail. Each time it must come to a clean end: a negative code with a text where texts are given, exactly one
 * last event for a request, nothing leaked (the build with AddressSanitizer sees to that), no crash. A scenario may also bear the
 * loss and succeed, but then its result must be right.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/cpu/cpu_backend.h"
#include "core/null/null_backend.h"
#include "core/serve/http/answer_text.h"
#include "core/serve/http/http.h"
#include "core/serve/http/prompt.h"
#include "core/serve/inbox.h"
#include "core/serve/node.h"
#include "core/serve/node_loop.h"
#include "net/net.h"
#include "net/sim_carrier.h"
#include "tests/fuzz/fuzz.h"
#include "tests/unit/cache/fail_malloc.h"
#include "tools/hearsay/node_options.h"

static struct error err; /* of the scenario that runs */

/* Runs it with each allocation failing in turn; returns how many there are. */
static uint32_t fail_each(int (*scenario)(void))
{
    for (uint32_t n = 1; n < 1000000; n++) {
        err = (struct error){0};
        fail_malloc_after(n);
        int rc = scenario();
        if (!fail_malloc_done()) {
            assert_int_equal(rc, 0);
            return n - 1;
        }
        if (rc > 0)
            fail_msg("allocation %u failed, and the result was wrong", n);
    }
    fail_msg("there is no end of allocations");
    return 0;
}

static int clean(int rc)
{
    if (rc < 0) {
        if (rc != HS_ERR_NO_MEMORY)
            fail_msg("an allocation failed, and the error was %d, %s", rc, err.text);
        assert_true(err.text[0]);
    }
    return rc;
}

/* ---- models and tokenizers ---- */

static const char *path;
static uint8_t fingerprint[32];

/* What opens is the whole model: description, tokenizer and weights all enter its fingerprint. */
static int open_model(void)
{
    struct loaded_model *model;
    int rc = model_open(path, NULL, &model, &err);
    if (rc == 0) {
        rc = memcmp(model->desc->fingerprint, fingerprint, sizeof fingerprint) != 0 || !model->chat;
        model_close(model);
    }
    return clean(rc);
}

static uint32_t fail_each_open(const char *model_path)
{
    struct loaded_model *model;
    path = model_path;
    assert_int_equal(model_open(path, NULL, &model, &err), 0);
    memcpy(fingerprint, model->desc->fingerprint, sizeof fingerprint);
    model_close(model);
    return fail_each(open_model);
}

static int open_sentencepiece(void)
{
    struct tokenizer *tokenizer;
    int rc = tokenizer_from_folder(FUZZ_SOURCE_DIR "/tests/vectors/tokenizer_tiny_gemma", &tokenizer, &err);
    if (rc == 0)
        tokenizer_destroy(tokenizer);
    return clean(rc);
}

static void test_open(void **state)
{
    assert_true(fail_each_open(FUZZ_SOURCE_DIR "/tests/vectors/tiny/qwen3.gguf") > 20);
    assert_true(fail_each_open(FUZZ_SOURCE_DIR "/tests/vectors/tiny/qwen2_yarn") > 100);
    assert_true(fail_each(open_sentencepiece) > 100);
}

static const char text[] = "e\xCC\x81 Hello, <|im_end|> w\xC3\xB6rld 123!\n\n \xFF";

static int encode_with(unsigned index)
{
    struct token_list list = {0};
    struct strbuf back = {0};
    const struct tokenizer *tokenizer = fuzz_tiny_tokenizer(index);
    int rc = tokenizer_encode(tokenizer, text, sizeof text - 1, TOKENIZE_ADD_BOS | TOKENIZE_PARSE_SPECIAL, &list);
    if (rc == 0)
        prompt_detokenize(tokenizer, list.ids, list.n, true, &back);
    if (rc == 0 && back.failed)
        rc = HS_ERR_NO_MEMORY;
    if (rc == 0 && !strstr(strbuf_text(&back), "Hello, "))
        rc = 1;
    strbuf_fini(&back);
    token_list_fini(&list);
    assert_true(rc >= 0 || rc == HS_ERR_NO_MEMORY);
    return rc;
}

static unsigned encoder;

static int encode(void)
{
    return encode_with(encoder);
}

static void test_encode(void **state)
{
    for (encoder = 0; encoder < FUZZ_TOKENIZERS; encoder++)
        fuzz_tiny_tokenizer(encoder);
    for (encoder = 0; encoder < FUZZ_TOKENIZERS; encoder++)
        assert_true(fail_each(encode) > 2);
}

/* ---- conversations and requests ---- */

static const char *family;

static int render(void)
{
    static const struct chat_message messages[] = {{"system", "Be kind.", 8}, {"user", "Hi", 2}, {"assistant", "Ho", 2}, {"user", "Bye", 3}};
    const struct chat_template *chat;
    struct chat_text rendered = {0};
    struct token_list list = {0};
    assert_int_equal(chat_template_by_name(family, &chat, &err), 0);
    int rc = chat_template_render(chat, messages, 4, true, &rendered, &err);
    if (rc == 0) {
        rc = chat_text_tokenize(&rendered, fuzz_tiny_tokenizer(0), &list);
        if (rc == 0 && list.n < 8)
            rc = 1;
    }
    chat_text_fini(&rendered);
    token_list_fini(&list);
    if (rc < 0 && rc != HS_ERR_NO_MEMORY)
        fail_msg("%s: an allocation failed, and the error was %d, %s", family, rc, err.text);
    return rc;
}

static void test_render(void **state)
{
    static const char *const families[] = {"chatml", "qwen3", "llama3.1", "gemma3", "llama2", "mistral-v3", "zephyr"};
    for (size_t i = 0; i < sizeof families / sizeof families[0]; i++) {
        family = families[i];
        assert_true(fail_each(render) > 3);
    }
}

static enum api_endpoint endpoint;
static const char *body;

static int answer(const struct api_request *request, const struct token_list *tokens)
{
    struct answer_text shown;
    struct strbuf out = {0};
    answer_text_init(&shown, fuzz_tiny_model()->tokenizer, &request->stops);
    for (size_t i = 0; i < tokens->n && !answer_text_push(&shown, tokens->ids[i]); i++)
        answer_text_take(&shown, &out);
    answer_text_finish(&shown);
    answer_text_take(&shown, &out);
    int rc = shown.failed || out.failed ? HS_ERR_NO_MEMORY : 0;
    answer_text_fini(&shown);
    strbuf_fini(&out);
    return rc;
}

static int ask(void)
{
    const struct loaded_model *model = fuzz_tiny_model();
    struct api_limits limits = {.model_id = "tiny", .n_vocab = model->desc->n_vocab, .n_context = 4096};
    struct api_request request;
    struct api_error error = {0};
    struct token_list tokens = {0};
    int rc = api_request_parse(&request, endpoint, body, strlen(body), &limits, &error) ? HS_ERR_NO_MEMORY : 0;
    if (rc == 0) {
        rc = prompt_tokenize(&request, 0, model, limits.n_context, &tokens, &error) ? HS_ERR_NO_MEMORY : 0;
        if (rc == 0)
            rc = answer(&request, &tokens);
        else
            assert_int_equal(error.status, 500); /* not the client's fault */
        api_request_fini(&request);
    } else {
        assert_int_equal(error.status, 500);
    }
    token_list_fini(&tokens);
    return rc;
}

static void test_ask(void **state)
{
    endpoint = API_CHAT;
    body = "{\"model\":\"tiny\",\"messages\":[{\"role\":\"system\",\"content\":\"s\"},{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"hi\"},"
           "{\"type\":\"text\",\"text\":\"ho\"}]}],\"stop\":[\"ab\",\"hi\"],\"logit_bias\":{\"5\":-100,\"7\":1},\"cache_salt\":\"x\"}";
    assert_true(fail_each(ask) > 20);
    endpoint = API_COMPLETIONS;
    body = "{\"prompt\":[\"once upon\",\"a time\"],\"echo\":true,\"logprobs\":2,\"stop\":\"upo\"}";
    assert_true(fail_each(ask) > 10);
    body = "{\"prompt\":[[1,2,3],[4]]}";
    assert_true(fail_each(ask) > 5);
}

/* ---- nodes ---- */

enum { NODES = 2, PROMPT = 48, ANSWER = 6 };

struct world {
    struct sim_net *net;
    uint64_t now_ns;
    struct env env[NODES];
    struct metrics *metrics[NODES];
    struct transport *transports[NODES];
    struct backend *backends[NODES];
    struct node *nodes[NODES];
};

static const struct null_backend_config backend_config = {.n_pages = 32, .n_vocab = 1000, .max_rows = 64, .fixed_ns = 1000000, .check_chains = true};

static int open_node(struct world *world, uint32_t i)
{
    static const struct net_tuning tuning;
    char name[24];
    struct carrier *carrier;
    snprintf(name, sizeof name, "node%u:1", i);
    int rc = sim_net_env(world->net, i, &world->env[i]);
    if (rc == 0)
        rc = sim_carrier_create(world->net, name, &carrier, &err);
    if (rc < 0)
        return rc;
    rc = transport_reliable_create(carrier, "simulated", NULL, &tuning, &world->env[i], &world->transports[i], &err);
    if (rc < 0) {
        carrier->ops->destroy(carrier);
        return rc;
    }
    world->metrics[i] = metrics_create();
    world->backends[i] = null_backend_create(&backend_config, &world->env[i]);
    if (!world->metrics[i] || !world->backends[i])
        return HS_ERR_NO_MEMORY;
    struct node_config config = {.model_name = "m", .n_context = 256};
    snprintf(config.cluster.name, sizeof config.cluster.name, "node%u", i);
    config.cluster.gossip_interval_ns = 10000000;
    return clean(node_create(&config, &world->env[i], world->transports[i], world->backends[i], world->metrics[i], &world->nodes[i], &err));
}

static void close_node(struct world *world, uint32_t i)
{
    if (world->nodes[i])
        node_destroy(world->nodes[i]);
    if (world->backends[i])
        world->backends[i]->ops->destroy(world->backends[i]);
    if (world->transports[i])
        world->transports[i]->ops->destroy(world->transports[i]);
    if (world->metrics[i])
        metrics_destroy(world->metrics[i]);
}

/* Until *stop, or for some time. */
static void run(struct world *world, uint64_t ns, const uint32_t *stop)
{
    uint64_t end = world->now_ns + ns;
    while (world->now_ns < end && !(stop && *stop)) {
        uint64_t next = sim_net_next_event_ns(world->net);
        bool busy = false;
        for (uint32_t i = 0; i < NODES; i++) {
            uint64_t due = world->nodes[i] ? node_step(world->nodes[i], world->now_ns) : UINT64_MAX;
            busy |= world->nodes[i] && node_was_busy(world->nodes[i]);
            next = due < next ? due : next;
        }
        if (busy)
            continue;
        next = sim_net_next_event_ns(world->net) < next ? sim_net_next_event_ns(world->net) : next;
        world->now_ns = next > world->now_ns && next < end ? next : next <= world->now_ns ? world->now_ns + 1000 : end;
        sim_net_advance(world->net, world->now_ns);
    }
}

struct asked {
    struct request request;
    uint32_t tokens[PROMPT + ANSWER], n_tokens, finals, wrong;
    int status;
};

static bool on_event(void *user, struct request *request, const struct request_event *event)
{
    struct asked *asked = user;
    for (uint32_t i = 0; event->kind == REQUEST_TOKENS && i < event->n_results; i++) {
        uint32_t right = null_backend_next_token(&backend_config, asked->tokens, asked->n_tokens, PROMPT, &request->sampling);
        asked->wrong += event->results[i].token != right;
        asked->tokens[asked->n_tokens++] = event->results[i].token;
    }
    if (event->kind == REQUEST_FINISHED || event->kind == REQUEST_FAILED) {
        asked->finals++;
        asked->status = event->kind == REQUEST_FAILED ? event->status : 0;
    }
    return true;
}

/* 0: answered rightly; below: failed cleanly; above: wrong. */
static int ask_node(struct world *world, uint32_t i, uint32_t first)
{
    struct asked asked = {.n_tokens = PROMPT};
    for (uint32_t k = 0; k < PROMPT; k++)
        asked.tokens[k] = (first + k * 7) % 900 + 10;
    asked.request = (struct request){.tokens = asked.tokens, .n_tokens = PROMPT, .max_tokens = ANSWER, .on_event = on_event, .user = &asked};
    asked.request.sampling = (struct sampling_params){.top_p = 1, .repetition_penalty = 1};
    node_submit(world->nodes[i], &asked.request);
    run(world, 20000000000, &asked.finals);
    if (asked.finals != 1 || asked.wrong)
        return 1;
    return asked.status ? asked.status : asked.n_tokens == PROMPT + ANSWER ? 0 : 1;
}

/* One node answers alone; two that found each other answer, the second time from the first one's cache. */
static uint32_t group_size;

static int serve(void)
{
    struct world world = {.now_ns = 1000000000};
    struct sim_net_config config = {.seed = 1, .link = {.delay_ns = 100000}};
    int rc = 0;
    world.net = sim_net_create(&config);
    if (!world.net)
        return HS_ERR_NO_MEMORY;
    sim_net_advance(world.net, world.now_ns);
    for (uint32_t i = 0; i < group_size && rc == 0; i++)
        rc = open_node(&world, i);
    for (uint32_t i = 1; i < group_size && rc == 0; i++)
        rc = node_join(world.nodes[i], "node0:1", &err);
    if (rc == 0) {
        if (group_size > 1)
            run(&world, 300000000, NULL);
        rc = ask_node(&world, 0, 5);
        run(&world, 200000000, NULL);
        int again = ask_node(&world, group_size - 1, 5);
        rc = again > 0 || rc == 0 ? again : rc;
    }
    for (uint32_t i = 0; i < group_size; i++)
        close_node(&world, i);
    sim_net_destroy(world.net);
    return rc;
}

static void test_serve(void **state)
{
    group_size = 1;
    assert_true(fail_each(serve) > 50);
    group_size = 2;
    assert_true(fail_each(serve) > 100);
}

/* ---- the process around a node ---- */

static int parse_options(void)
{
    char *words[] = {"hearsay", "--model", "m", "--join=node[1-3]:7070", "--cpus", "0", "--kv-memory", "1G", NULL};
    static struct node_options options;
    return clean(node_options_parse(8, words, &options, &err));
}

static int open_sockets(void)
{
    static const struct transport_sockets_config config = {.bind = "127.0.0.1:0"};
    struct env env = node_env_kernel();
    struct transport *transport;
    int rc = transport_sockets_create(&config, &env, &transport, &err);
    if (rc == 0)
        transport->ops->destroy(transport);
    return clean(rc);
}

static int open_cpu_backend(void)
{
    struct cpu_backend_config config = {.model = fuzz_tiny_model()->desc, .n_pages = 4, .threads = 2, .max_rows = 16, .max_spans = 4};
    struct backend *backend;
    int rc = cpu_backend_create(&config, &backend, &err);
    if (rc == 0)
        backend->ops->destroy(backend);
    return clean(rc);
}

static int64_t no_time(void *arg)
{
    return 0;
}

static int open_http(void)
{
    struct env env = node_env_kernel();
    struct metrics *metrics = metrics_create();
    struct node_inbox *inbox = metrics ? node_inbox_create(16) : NULL;
    struct http_config config = {.address = "127.0.0.1:0", .node_name = "a", .model = fuzz_tiny_model(), .threads = 1, .max_connections = 16,
                                 .inbox = inbox, .metrics = metrics, .env = &env, .unix_time_s = no_time};
    struct http_server *server;
    int rc = HS_ERR_NO_MEMORY;
    if (inbox) {
        rc = clean(http_server_create(&config, &server, &err));
        if (rc == 0)
            http_server_destroy(server);
        node_inbox_destroy(inbox);
    }
    if (metrics)
        metrics_destroy(metrics);
    return rc;
}

static void test_process(void **state)
{
    assert_true(fail_each(parse_options) > 1);
    assert_true(fail_each(open_sockets) > 5);
    assert_true(fail_each(open_cpu_backend) > 10);
    assert_true(fail_each(open_http) > 10);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_open), cmocka_unit_test(test_encode), cmocka_unit_test(test_render),
        cmocka_unit_test(test_ask),  cmocka_unit_test(test_serve),  cmocka_unit_test(test_process),
    };
    fuzz_init();
    fuzz_tiny_model();
    fuzz_tiny_tokenizer(0);
    return cmocka_run_group_tests_name("allocation", tests, NULL, NULL);
}

#include "core/serve/http/routes.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "core/serve/http/answer.h"
#include "core/serve/http/prompt.h"

enum { QUERY_TIMEOUT_S = 2 };

struct route {
    const char *method; /* GET also serves HEAD */
    const char *path;   /* ending in "/": a prefix */
    enum MHD_Result (*run)(struct exchange *ex);
    bool loopback_only;
    union {
        enum node_query query;
        enum api_endpoint endpoint;
    };
};

/* ---- answers at once ---- */

static void write_model(struct exchange *ex, struct strbuf *out)
{
    const struct http_server *server = ex->server;
    strbuf_puts(out, "{\"id\":");
    strbuf_json_string(out, server->model_id, strlen(server->model_id));
    strbuf_printf(out, ",\"object\":\"model\",\"created\":%lld,\"owned_by\":\"hearsay\",\"max_model_len\":%u}",
                  (long long)server->created, server->limits.n_context);
}

static enum MHD_Result run_models(struct exchange *ex)
{
    struct strbuf out = {0};
    strbuf_puts(&out, "{\"object\":\"list\",\"data\":[");
    write_model(ex, &out);
    strbuf_puts(&out, "]}");
    return exchange_respond(ex, 200, "application/json", &out, NULL, 0);
}

static enum MHD_Result run_model(struct exchange *ex)
{
    const char *name = ex->path + strlen("/v1/models/");
    if (strcmp(name, ex->server->model_id) != 0) {
        struct api_error error;
        api_error_set(&error, 404, "model", "model_not_found", "The model \"%.200s\" is not served here.", name);
        return exchange_respond_error(ex, &error);
    }
    struct strbuf out = {0};
    write_model(ex, &out);
    return exchange_respond(ex, 200, "application/json", &out, NULL, 0);
}

static enum MHD_Result run_metrics(struct exchange *ex)
{
    struct strbuf out = {0};
    metrics_write(ex->server->config.metrics, &out);
    return exchange_respond(ex, 200, "text/plain; version=0.0.4; charset=utf-8", &out, NULL, 0);
}

static enum MHD_Result run_tokenize(struct exchange *ex)
{
    const struct loaded_model *model = ex->server->config.model;
    struct api_request api;
    struct api_error error;
    if (api_request_parse(&api, API_TOKENIZE, strbuf_text(&ex->body), ex->body.len, &ex->server->limits, &error))
        return exchange_respond_error(ex, &error);
    struct token_list tokens = {0};
    int rc = prompt_tokenize(&api, 0, model, 0, &tokens, &error);
    api_request_fini(&api);
    if (rc) {
        token_list_fini(&tokens);
        return exchange_respond_error(ex, &error);
    }
    struct strbuf out = {0};
    strbuf_printf(&out, "{\"count\":%zu,\"max_model_len\":%u,\"tokens\":[", tokens.n, ex->server->limits.n_context);
    for (size_t i = 0; i < tokens.n; i++)
        strbuf_printf(&out, "%s%u", i ? "," : "", tokens.ids[i]);
    strbuf_puts(&out, "]}");
    token_list_fini(&tokens);
    return exchange_respond(ex, 200, "application/json", &out, NULL, 0);
}

static enum MHD_Result run_detokenize(struct exchange *ex)
{
    struct api_request api;
    struct api_error error;
    if (api_request_parse(&api, API_DETOKENIZE, strbuf_text(&ex->body), ex->body.len, &ex->server->limits, &error))
        return exchange_respond_error(ex, &error);
    struct strbuf text = {0}, out = {0};
    prompt_detokenize(ex->server->config.model->tokenizer, api.prompts[0].ids, api.prompts[0].n_ids, true, &text);
    strbuf_puts(&out, "{\"prompt\":");
    strbuf_json_string(&out, strbuf_text(&text), text.len);
    strbuf_puts(&out, "}");
    out.failed |= text.failed;
    strbuf_fini(&text);
    api_request_fini(&api);
    return exchange_respond(ex, 200, "application/json", &out, NULL, 0);
}

/* ---- answers by the node ---- */

/* Begins to wait, now that the work is under way. A server that began to stop meanwhile might not see this exchange. */
static enum MHD_Result begin_waiting(struct exchange *ex, bool has_deadline)
{
    struct api_error error;
    bool stopping = exchange_watch(ex, has_deadline, &error) != 0;
    if (!stopping && atomic_load(&ex->server->stopping)) {
        api_error_set(&error, 503, NULL, NULL, "This node is stopping.");
        stopping = true;
    }
    if (stopping) {
        answer_cancel(ex->answer);
        return exchange_respond_error(ex, &error);
    }
    ex->state = EXCHANGE_WAITING;
    return routes_continue(ex);
}

static enum MHD_Result run_completion(struct exchange *ex)
{
    struct api_request api;
    struct api_error error;
    if (api_request_parse(&api, ex->route->endpoint, strbuf_text(&ex->body), ex->body.len, &ex->server->limits, &error) ||
        answer_create(ex, &api, &ex->answer, &error))
        return exchange_respond_error(ex, &error);
    strbuf_fini(&ex->body);
    answer_submit(ex->answer);
    return begin_waiting(ex, false);
}

static void take_query_answer(void *user, int status, const char *json)
{
    struct exchange *ex = user;
    pthread_mutex_lock(&ex->lock);
    if (!ex->query.expired) {
        ex->query.pending = false;
        ex->query.status = status;
        strbuf_puts(&ex->query.json, json ? json : "{}");
        exchange_wake_locked(ex);
    }
    pthread_mutex_unlock(&ex->lock);
    exchange_unref(ex);
}

static enum MHD_Result run_query(struct exchange *ex)
{
    const struct http_config *config = &ex->server->config;
    exchange_ref(ex); /* the answer's */
    pthread_mutex_lock(&ex->lock);
    ex->query.pending = true;
    ex->query.deadline_ns = env_now_ns(config->env) + QUERY_TIMEOUT_S * 1000000000ull;
    pthread_mutex_unlock(&ex->lock);
    int rc = node_inbox_query(config->inbox, ex->route->query, take_query_answer, ex);
    if (rc) {
        exchange_unref(ex);
        struct api_error error;
        api_error_set_limit(&error, rc == HS_ERR_BUSY ? API_LIMIT_INBOX : API_LIMIT_NONE, 503, NULL, NULL,
                            "This node cannot answer now: %s.", error_name(rc));
        return exchange_respond_error(ex, &error);
    }
    return begin_waiting(ex, true);
}

static enum MHD_Result respond_query(struct exchange *ex, int status, struct strbuf *json)
{
    if (!status)
        return exchange_respond(ex, 200, "application/json", json, NULL, 0);
    struct api_error error;
    bool closed = status == HS_ERR_CLOSED;
    api_error_set(&error, closed || status == HS_ERR_BUSY || status == HS_ERR_TIMEOUT ? 503 : 500, NULL, NULL, "%s.",
                  closed ? "This node is draining" : error_name(status));
    strbuf_fini(json);
    return exchange_respond_error(ex, &error);
}

static enum MHD_Result continue_query(struct exchange *ex)
{
    for (;;) {
        struct strbuf json = {0};
        pthread_mutex_lock(&ex->lock);
        bool done = !ex->query.pending, expired = ex->query.expired;
        int status = ex->query.status;
        if (done) {
            json = ex->query.json;
            ex->query.json = (struct strbuf){0};
        }
        pthread_mutex_unlock(&ex->lock);
        if (done || expired)
            return respond_query(ex, done ? status : HS_ERR_TIMEOUT, &json);
        if (exchange_sleep(ex))
            return MHD_YES;
        if (exchange_is_gone(ex))
            return MHD_NO;
    }
}

static enum MHD_Result continue_answer(struct exchange *ex)
{
    for (;;) {
        struct api_error error;
        char computed_by[REQUEST_NODE_NAME_BYTES];
        enum answer_progress progress = answer_poll(ex->answer, &error);
        if (progress == ANSWER_FAILED)
            return exchange_respond_error(ex, &error);
        answer_computed_by(ex->answer, computed_by);
        if (progress == ANSWER_READY && ex->answer->api.stream)
            return exchange_respond_stream(ex, computed_by);
        if (progress == ANSWER_READY) {
            struct strbuf out = {0};
            answer_write_whole(ex->answer, &out);
            return exchange_respond(ex, 200, "application/json", &out, computed_by, 0);
        }
        if (exchange_sleep(ex))
            return MHD_YES;
        if (exchange_is_gone(ex))
            return MHD_NO;
    }
}

enum MHD_Result routes_continue(struct exchange *ex)
{
    if (exchange_is_gone(ex))
        return MHD_NO;
    return ex->answer ? continue_answer(ex) : continue_query(ex);
}

/* ---- choosing ---- */

static const struct route routes[] = {
    {"POST", "/v1/completions", run_completion, false, {.endpoint = API_COMPLETIONS}},
    {"POST", "/v1/chat/completions", run_completion, false, {.endpoint = API_CHAT}},
    {"POST", "/tokenize", run_tokenize, false, {0}},
    {"POST", "/detokenize", run_detokenize, false, {0}},
    {"GET", "/v1/models", run_models, false, {0}},
    {"GET", "/v1/models/", run_model, false, {0}},
    {"GET", "/metrics", run_metrics, false, {0}},
    {"GET", "/health", run_query, false, {.query = NODE_QUERY_HEALTH}},
    {"GET", "/cluster", run_query, false, {.query = NODE_QUERY_CLUSTER}},
    {"GET", "/admin/tree", run_query, true, {.query = NODE_QUERY_TREE}},
    {"POST", "/admin/drain", run_query, true, {.query = NODE_QUERY_DRAIN}},
    {"POST", "/admin/undrain", run_query, true, {.query = NODE_QUERY_UNDRAIN}},
    {"POST", "/admin/flush", run_query, true, {.query = NODE_QUERY_FLUSH}},
};

static bool path_matches(const struct route *route, const char *path)
{
    size_t len = strlen(route->path);
    if (route->path[len - 1] == '/')
        return strncmp(path, route->path, len) == 0 && path[len];
    return strcmp(path, route->path) == 0;
}

const char *exchange_allowed_method(const struct exchange *ex)
{
    return strcmp(ex->route->method, "GET") == 0 ? "GET, HEAD" : ex->route->method;
}

static bool from_loopback(struct exchange *ex)
{
    const union MHD_ConnectionInfo *info = MHD_get_connection_info(ex->connection, MHD_CONNECTION_INFO_CLIENT_ADDRESS);
    if (!info || !info->client_addr)
        return false;
    if (info->client_addr->sa_family == AF_INET) {
        const struct sockaddr_in *v4 = (const struct sockaddr_in *)info->client_addr;
        return ntohl(v4->sin_addr.s_addr) >> 24 == 127;
    }
    if (info->client_addr->sa_family != AF_INET6)
        return false;
    const struct in6_addr *v6 = &((const struct sockaddr_in6 *)info->client_addr)->sin6_addr;
    return IN6_IS_ADDR_LOOPBACK(v6) || (IN6_IS_ADDR_V4MAPPED(v6) && v6->s6_addr[12] == 127);
}

static int check_admin(struct exchange *ex, struct api_error *error)
{
    if (!from_loopback(ex))
        return api_error_set(error, 403, NULL, NULL, "%.100s is only possible from this machine itself.", ex->path);
    /* A page in a browser on this machine also comes from loopback, but it says where it is from. */
    if (MHD_lookup_connection_value(ex->connection, MHD_HEADER_KIND, "Origin"))
        return api_error_set(error, 403, NULL, NULL, "%.100s is not possible from a web page.", ex->path);
    return 0;
}

static enum MHD_Result count_framing(void *count, enum MHD_ValueKind kind, const char *key, const char *value)
{
    *(unsigned *)count += strcasecmp(key, "Content-Length") == 0 || strcasecmp(key, "Transfer-Encoding") == 0;
    return MHD_YES;
}

/* The body must have one length, which a proxy in front of us sees as we do, and come as it is. */
static int check_body_headers(struct exchange *ex, struct api_error *error)
{
    unsigned framing = 0;
    MHD_get_connection_values(ex->connection, MHD_HEADER_KIND, count_framing, &framing);
    if (framing > 1)
        return api_error_set(error, 400, NULL, "invalid_value", "The request says more than once how long its body is.");
    const char *encoding = MHD_lookup_connection_value(ex->connection, MHD_HEADER_KIND, "Content-Encoding");
    if (encoding && strcasecmp(encoding, "identity") != 0)
        return api_error_set(error, 400, "Content-Encoding", "unsupported_value",
                             "Content-Encoding \"%.40s\" is not supported here; send the body as it is.", encoding);
    const char *length = MHD_lookup_connection_value(ex->connection, MHD_HEADER_KIND, "Content-Length");
    uint64_t limit = ex->server->config.max_body_bytes;
    /* Far beyond the limit is refused before it is sent; a little is read and dropped, so that the client sees the answer. */
    if (length && strtoull(length, NULL, 10) / 4 > limit)
        return api_error_set_limit(error, API_LIMIT_BODY_BYTES, 413, NULL, "body_too_large",
                                   "The body has %.20s bytes; at most %llu are taken (--max-body).", length, (unsigned long long)limit);
    return 0;
}

int routes_choose(struct exchange *ex, const char *method, struct api_error *error)
{
    for (size_t i = 0; i < sizeof routes / sizeof *routes && !ex->route; i++)
        if (path_matches(&routes[i], ex->path))
            ex->route = &routes[i];
    if (!ex->route)
        return api_error_set(error, 404, NULL, "not_found", "There is nothing at %.200s.", ex->path);
    bool get = strcmp(ex->route->method, "GET") == 0;
    if (strcmp(method, ex->route->method) != 0 && !(get && strcmp(method, "HEAD") == 0))
        return api_error_set(error, 405, NULL, "method_not_allowed", "%.100s takes %s only.", ex->path, ex->route->method);
    if (ex->route->loopback_only && check_admin(ex, error))
        return -1;
    return check_body_headers(ex, error);
}

enum MHD_Result routes_dispatch(struct exchange *ex)
{
    struct api_error error;
    if (ex->body_too_large)
        api_error_set_limit(&error, API_LIMIT_BODY_BYTES, 413, NULL, "body_too_large",
                            "The body has %llu bytes; at most %zu are taken (--max-body).", (unsigned long long)ex->body_received,
                            ex->server->config.max_body_bytes);
    else if (atomic_load(&ex->server->stopping))
        api_error_set(&error, 503, NULL, NULL, "This node is stopping.");
    else
        return ex->route->run(ex);
    return exchange_respond_error(ex, &error);
}

#include "core/serve/http/server.h"

#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <sodium.h>

#include "core/base/log.h"
#include "core/base/parse.h"
#include "core/serve/http/exchange.h"
#include "core/serve/http/routes.h"
#include "core/serve/http/watcher.h"

enum {
    IDLE_S = 30, /* idle, half a request, or a reader that takes nothing; suspended ones do not count */
    MAX_CONNECTIONS = 8192,
    REFUSED_CONNECTIONS = 64, /* beyond the limit, at once, so that each can be told why; more wait in the kernel */
    OTHER_DESCRIPTORS = 64,   /* the model, the fabric, event descriptors, the log */
    CONNECTION_MEMORY_BYTES = 2 * HTTP_HEADER_BYTES_MAX,
    STOP_WAIT_ROUNDS = 200, /* of 50 ms */
    STOP_WAIT_MS = 10000,
    DELIVER_MS = 2000,
    EXPECTED_AT_ONCE = 4, /* exchanges that wait awake: each takes CPU time from the end of the step */
};

/* ---- requests ---- */

/* What is wrong before anything of the request is looked at. 0, or -1 with error filled. */
static int check_connection(struct http_server *server, struct MHD_Connection *connection, struct api_error *error)
{
    const union MHD_ConnectionInfo *info = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    if (info && info->socket_context) { /* it came when all were taken; counted then */
        api_error_set(error, 503, NULL, "too_many_connections",
                      "This node has %u connections, which is its limit (--max-connections); try again later or ask another node.",
                      server->config.max_connections);
        error->retry_after_s = 1;
        return -1;
    }
    info = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_REQUEST_HEADER_SIZE);
    if (info && info->header_size > HTTP_HEADER_BYTES_MAX)
        return api_error_set_limit(error, API_LIMIT_HEADER_BYTES, 431, NULL, "headers_too_large",
                                   "The request line and headers have %zu bytes; at most %d are taken.", info->header_size,
                                   HTTP_HEADER_BYTES_MAX);
    return 0;
}

static enum MHD_Result begin(struct http_server *server, struct MHD_Connection *connection, const char *path, const char *method,
                             void **state)
{
    struct exchange *ex = exchange_create(server, connection, path);
    if (!ex)
        return MHD_NO;
    *state = ex;
    struct api_error error;
    ex->close_after = check_connection(server, connection, &error);
    return ex->close_after || routes_choose(ex, method, &error) ? exchange_respond_error(ex, &error) : MHD_YES;
}

static enum MHD_Result receive(struct exchange *ex, const char *data, size_t *len)
{
    size_t limit = ex->server->config.max_body_bytes;
    ex->body_received += *len;
    ex->body_too_large |= *len > limit - ex->body.len;
    if (ex->body_received / 8 > limit) /* a body without an announced length that never ends */
        return MHD_NO;
    if (!ex->body_too_large)
        strbuf_add(&ex->body, data, *len);
    *len = 0;
    return ex->body.failed ? MHD_NO : MHD_YES;
}

static enum MHD_Result handle(void *cls, struct MHD_Connection *connection, const char *path, const char *method,
                              const char *version, const char *upload, size_t *upload_len, void **state)
{
    struct exchange *ex = *state;
    if (!ex)
        return begin(cls, connection, path, method, state);
    if (*upload_len)
        return receive(ex, upload, upload_len);
    if (ex->state == EXCHANGE_WAITING)
        return routes_continue(ex);
    return routes_dispatch(ex);
}

/* The context of a connection says whether it is one too many. */
static void notice_connection(void *cls, struct MHD_Connection *connection, void **context,
                              enum MHD_ConnectionNotificationCode what)
{
    struct http_server *server = cls;
    struct limit *limit = server->metrics.limits[API_LIMIT_CONNECTIONS];
    if (what == MHD_CONNECTION_NOTIFY_CLOSED) {
        atomic_fetch_sub_explicit(&server->n_connections, 1, memory_order_relaxed);
        gauge_add(limit->used, -1);
        return;
    }
    bool refused = atomic_fetch_add_explicit(&server->n_connections, 1, memory_order_relaxed) >= server->config.max_connections;
    gauge_add(limit->used, 1);
    if (refused)
        limit_hit(limit, 1);
    *context = refused ? server : NULL;
}

static void complete(void *cls, struct MHD_Connection *connection, void **state, enum MHD_RequestTerminationCode why)
{
    struct http_server *server = cls;
    if (why == MHD_REQUEST_TERMINATED_TIMEOUT_REACHED)
        limit_hit(server->metrics.limits[API_LIMIT_IDLE], 1);
    if (*state)
        exchange_complete(*state);
    *state = NULL;
}

/* libmicrohttpd answers some requests by itself, headers beyond its memory among them, and tells of it here only. */
static void count_own_answer(struct http_server *server, const char *text)
{
    const char *code = strstr(text, "HTTP response code is ");
    unsigned long status = code ? strtoul(code + strlen("HTTP response code is "), NULL, 10) : 0;
    if (status == 431 || status == 414 || status == 413)
        limit_hit(server->metrics.limits[API_LIMIT_HEADER_BYTES], 1);
    if (status >= 400)
        counter_add(status >= 500 ? server->metrics.responses_5xx : server->metrics.responses_4xx, 1);
}

static void log_daemon(void *cls, const char *format, va_list args)
{
    char text[400];
    vsnprintf(text, sizeof text, format, args);
    count_own_answer(cls, text);
    text[strcspn(text, "\n")] = '\0';
    log_debug("http", "%s", text);
}

/* ---- life ---- */

/* Splits "host:port" or "[v6]:port". */
static int split_address(const char *address, char host[256], char port[8], struct error *err)
{
    const char *colon = strrchr(address, ':');
    size_t host_len = colon ? (size_t)(colon - address) : 0;
    const char *start = address;
    if (host_len >= 2 && start[0] == '[' && start[host_len - 1] == ']') {
        start++;
        host_len -= 2;
    }
    uint64_t number;
    if (!host_len || host_len > 255 || strlen(colon + 1) > 5 || parse_u64(colon + 1, 0, 65535, &number, NULL))
        return error_set(err, HS_ERR_PARSE, "\"%s\" is not an address with a port; write for example 127.0.0.1:8080", address);
    snprintf(host, 256, "%.*s", (int)host_len, start);
    snprintf(port, 8, "%s", colon + 1);
    return 0;
}

static uint16_t bound_port(int fd)
{
    struct sockaddr_storage address = {0};
    socklen_t len = sizeof address;
    char port[8] = "0";
    getsockname(fd, (struct sockaddr *)&address, &len);
    getnameinfo((struct sockaddr *)&address, len, NULL, 0, port, sizeof port, NI_NUMERICSERV);
    return (uint16_t)strtoul(port, NULL, 10);
}

static int open_socket(struct http_server *server, struct error *err)
{
    char host[256], port[8];
    int rc = split_address(server->config.address, host, port, err);
    if (rc)
        return rc;
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE | AI_NUMERICSERV}, *found;
    int failure = getaddrinfo(host, port, &hints, &found);
    if (failure)
        return error_set(err, HS_ERR_IO, "\"%s\" cannot be resolved: %s", server->config.address, gai_strerror(failure));
    int one = 1, fd = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    bool good = fd >= 0 && !setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one) &&
                !bind(fd, found->ai_addr, found->ai_addrlen) && !listen(fd, SOMAXCONN);
    freeaddrinfo(found);
    if (!good) {
        rc = error_set(err, HS_ERR_IO, "cannot listen on %s: %s%s", server->config.address, strerror(errno),
                       errno == EADDRINUSE ? "; choose another port" : "");
        if (fd >= 0)
            close(fd);
        return rc;
    }
    server->listen_fd = fd;
    server->port = bound_port(fd);
    return 0;
}

static int start_daemon(struct http_server *server, struct error *err)
{
    unsigned flags = MHD_USE_EPOLL_INTERNAL_THREAD | MHD_ALLOW_SUSPEND_RESUME | MHD_USE_ERROR_LOG | MHD_USE_ITC;
    struct MHD_OptionItem options[] = {
        {MHD_OPTION_EXTERNAL_LOGGER, (intptr_t)log_daemon, server},
        {MHD_OPTION_LISTEN_SOCKET, server->listen_fd, NULL},
        {MHD_OPTION_NOTIFY_COMPLETED, (intptr_t)complete, server},
        {MHD_OPTION_NOTIFY_CONNECTION, (intptr_t)notice_connection, server},
        {MHD_OPTION_CONNECTION_LIMIT, server->config.max_connections + REFUSED_CONNECTIONS, NULL},
        {MHD_OPTION_CONNECTION_TIMEOUT, server->config.idle_s, NULL},
        {MHD_OPTION_CONNECTION_MEMORY_LIMIT, CONNECTION_MEMORY_BYTES, NULL},
        /* A pool of one is refused: that is the plain internal thread. */
        {server->config.threads > 1 ? MHD_OPTION_THREAD_POOL_SIZE : MHD_OPTION_END, server->config.threads, NULL},
        {MHD_OPTION_END, 0, NULL},
    };
    server->daemon = MHD_start_daemon(flags, 0, NULL, NULL, handle, server, MHD_OPTION_ARRAY, options, MHD_OPTION_END);
    return server->daemon ? 0 : error_set(err, HS_ERR_IO, "the HTTP server on %s cannot start", server->config.address);
}

/* One descriptor each: beyond the process's limit accept() would fail again and again, and the thread would spin on it. */
static uint32_t affordable_connections(void)
{
    const uint32_t others = OTHER_DESCRIPTORS + REFUSED_CONNECTIONS;
    struct rlimit files;
    if (getrlimit(RLIMIT_NOFILE, &files) || files.rlim_cur >= UINT32_MAX)
        return UINT32_MAX;
    uint32_t limit = (uint32_t)files.rlim_cur;
    return limit >= 2 * others ? limit - others : limit / 4 + 1;
}

static void choose_connections(struct http_config *config)
{
    uint32_t affordable = affordable_connections();
    if (config->max_connections > affordable)
        log_warn("http", "--max-connections: %u need more open files than this process may have: %u are possible; raise ulimit -n",
                 config->max_connections, affordable);
    if (!config->max_connections)
        config->max_connections = MAX_CONNECTIONS;
    if (config->max_connections > affordable)
        config->max_connections = affordable;
}

static void apply_defaults(struct http_server *server)
{
    struct http_config *config = &server->config;
    const struct model_desc *desc = config->model->desc;
    if (!config->n_context)
        config->n_context = desc->n_context;
    if (!config->threads)
        config->threads = 2;
    choose_connections(config);
    if (!config->max_body_bytes)
        config->max_body_bytes = 8 << 20;
    if (!config->idle_s)
        config->idle_s = IDLE_S;
    server->model_id = config->model_id ? config->model_id : desc->name;
    server->limits = (struct api_limits){server->model_id, desc->n_vocab, config->n_context};
    size_t n = (size_t)snprintf(server->fingerprint, sizeof server->fingerprint, "hs-");
    for (size_t i = 0; i < 6; i++)
        n += (size_t)snprintf(server->fingerprint + n, sizeof server->fingerprint - n, "%02x", desc->fingerprint[i]);
}

int http_server_create(const struct http_config *config, struct http_server **out, struct error *err)
{
    static const struct watcher_ops ops = {.gone = exchange_abort, .tick = exchange_tick};
    struct http_server *server = calloc(1, sizeof *server);
    if (!server)
        return error_set(err, HS_ERR_NO_MEMORY, "%s", error_name(HS_ERR_NO_MEMORY));
    server->config = *config;
    apply_defaults(server);
    server->created = config->unix_time_s(config->unix_time_arg);
    int rc = HS_ERR_NO_MEMORY;
    if (sodium_init() < 0 || http_metrics_init(&server->metrics, &server->config, server->model_id))
        goto free_server;
    server->freed_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    server->watcher = watcher_create(&ops);
    if (server->freed_fd < 0 || !server->watcher)
        goto close_watcher;
    rc = open_socket(server, err);
    if (rc)
        goto close_watcher;
    rc = start_daemon(server, err);
    if (rc)
        goto close_socket;
    *out = server;
    return 0;

close_socket:
    close(server->listen_fd);
close_watcher:
    watcher_destroy(server->watcher);
    if (server->freed_fd >= 0)
        close(server->freed_fd);
free_server:
    free(server);
    if (rc == HS_ERR_NO_MEMORY)
        error_set(err, rc, "%s", error_name(rc));
    return rc;
}

/* Sleeps until an exchange is freed, or 50 ms. */
static void wait_for_change(struct http_server *server)
{
    struct pollfd change = {.fd = server->freed_fd, .events = POLLIN};
    uint64_t count;
    if (poll(&change, 1, 50) > 0 && read(server->freed_fd, &count, sizeof count) < 0) {
        /* Nothing to read after all: the caller looks again anyway. */
    }
}

void http_server_destroy(struct http_server *server)
{
    if (!server)
        return;
    atomic_store(&server->stopping, true);
    http_server_wake(server); /* of the node's last events */
    int listen_fd = MHD_quiesce_daemon(server->daemon);
    if (listen_fd >= 0)
        close(listen_fd);
    /* MHD must not be stopped with suspended connections: each is woken and closes itself. */
    uint32_t deliver_ms = server->config.deliver_ms ? server->config.deliver_ms : DELIVER_MS;
    uint64_t now_ns = env_now_ns(server->config.env);
    uint64_t deliver_until_ns = now_ns + deliver_ms * 1000000ull;
    while (watcher_count(server->watcher) && now_ns < deliver_until_ns + STOP_WAIT_MS * 1000000ull) {
        watcher_visit(server->watcher, now_ns < deliver_until_ns ? exchange_abort_unfinished : exchange_abort);
        wait_for_change(server);
        now_ns = env_now_ns(server->config.env);
    }
    MHD_stop_daemon(server->daemon);
    for (int round = 0; atomic_load_explicit(&server->n_exchanges, memory_order_acquire); round++) {
        if (round == STOP_WAIT_ROUNDS) {
            log_error("http", "the node still holds %u requests after the HTTP server stopped; their memory is left alone",
                      atomic_load(&server->n_exchanges));
            return;
        }
        wait_for_change(server);
    }
    watcher_destroy(server->watcher);
    close(server->freed_fd);
    free(server);
}

void http_server_wake(struct http_server *server)
{
    struct exchange *next = server->to_wake;
    server->to_wake = NULL;
    while (next) {
        struct exchange *ex = next;
        next = ex->next_to_wake;
        ex->to_wake = false;
        exchange_wake(ex);
        exchange_unref(ex);
    }
}

void http_server_expect(struct http_server *server)
{
    if (watcher_count(server->watcher) <= EXPECTED_AT_ONCE)
        watcher_visit(server->watcher, exchange_expect);
}

uint16_t http_server_port(const struct http_server *server)
{
    return server->port;
}

#include "core/serve/http/exchange.h"

#include <ctype.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "core/base/panic.h"
#include "core/serve/http/answer.h"
#include "core/serve/http/watcher.h"

/* A step that is said to end soon has ended by then; while an exchange waits awake its thread serves nobody else. */
static const uint64_t EXPECT_NS = 1000000;

/* The client's x-request-id if it is fit for a header, else one of our own. */
static void choose_request_id(struct exchange *ex)
{
    const char *given = MHD_lookup_connection_value(ex->connection, MHD_HEADER_KIND, "x-request-id");
    bool fit = given && *given && strlen(given) < sizeof ex->request_id;
    for (const char *c = given; fit && *c; c++)
        fit = isprint((unsigned char)*c);
    if (fit)
        snprintf(ex->request_id, sizeof ex->request_id, "%s", given);
    else
        snprintf(ex->request_id, sizeof ex->request_id, "req-%016llx",
                 (unsigned long long)env_random_u64(ex->server->config.env));
}

struct exchange *exchange_create(struct http_server *server, struct MHD_Connection *connection, const char *path)
{
    struct exchange *ex = calloc(1, sizeof *ex);
    if (!ex)
        return NULL;
    ex->path_copy = strdup(path);
    if (!ex->path_copy) {
        free(ex);
        return NULL;
    }
    ex->path = ex->path_copy;
    ex->server = server;
    ex->connection = connection;
    ex->id = atomic_fetch_add_explicit(&server->next_id, 1, memory_order_relaxed);
    ex->refs = 1;
    pthread_mutex_init(&ex->lock, NULL);
    const union MHD_ConnectionInfo *info = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
    ex->fd = info ? info->connect_fd : -1;
    choose_request_id(ex);
    atomic_fetch_add_explicit(&server->n_exchanges, 1, memory_order_relaxed);
    return ex;
}

void exchange_ref(struct exchange *ex)
{
    atomic_fetch_add_explicit(&ex->refs, 1, memory_order_relaxed);
}

/* The release half of the decrement pairs with the acquire half of the last one: the last owner sees everybody's writes. */
void exchange_unref(struct exchange *ex)
{
    if (atomic_fetch_sub_explicit(&ex->refs, 1, memory_order_acq_rel) != 1)
        return;
    struct http_server *server = ex->server;
    answer_destroy(ex->answer);
    strbuf_fini(&ex->body);
    strbuf_fini(&ex->stream);
    strbuf_fini(&ex->query.json);
    pthread_mutex_destroy(&ex->lock);
    free(ex->path_copy);
    free(ex);
    uint64_t one = 1;
    int freed_fd = server->freed_fd; /* the server may go as soon as the count is down */
    if (write(freed_fd, &one, sizeof one) < 0) {
        /* The counter is at its limit: whoever waits is awake. */
    }
    atomic_fetch_sub_explicit(&server->n_exchanges, 1, memory_order_release);
}

void exchange_wake_locked(struct exchange *ex)
{
    ex->news = true;
    if (!ex->suspended)
        return;
    ex->suspended = false;
    MHD_resume_connection(ex->connection);
}

/* Outside the lock, which MHD's thread takes first: it may run before this one goes on. Until it is resumed the connection stays. */
void exchange_wake(struct exchange *ex)
{
    pthread_mutex_lock(&ex->lock);
    bool resume = ex->suspended;
    struct MHD_Connection *connection = ex->connection;
    ex->suspended = false;
    pthread_mutex_unlock(&ex->lock);
    if (resume)
        MHD_resume_connection(connection);
}

void exchange_wake_by_node(struct exchange *ex)
{
    struct http_server *server = ex->server;
    if (!server->config.wake_by_step) {
        exchange_wake(ex);
        return;
    }
    if (ex->to_wake)
        return;
    exchange_ref(ex);
    ex->to_wake = true;
    ex->next_to_wake = server->to_wake;
    server->to_wake = ex;
}

void exchange_expect(void *item)
{
    struct exchange *ex = item;
    pthread_mutex_lock(&ex->lock);
    bool expects = ex->suspended && ex->answer && ex->answer->wake_each; /* others hear nothing of most steps */
    if (expects)
        ex->expected_until_ns = env_now_ns(ex->server->config.env) + EXPECT_NS;
    pthread_mutex_unlock(&ex->lock);
    if (expects)
        exchange_wake(ex);
}

/* Yields to those who compute until there is news, or too much time has passed. Holds the lock, but for the yielding. */
static void wait_awake(struct exchange *ex)
{
    while (!ex->news && env_now_ns(ex->server->config.env) < ex->expected_until_ns) {
        pthread_mutex_unlock(&ex->lock);
        sched_yield();
        pthread_mutex_lock(&ex->lock);
    }
    ex->expected_until_ns = 0;
}

bool exchange_sleep(struct exchange *ex)
{
    pthread_mutex_lock(&ex->lock);
    if (ex->expected_until_ns)
        wait_awake(ex);
    bool sleep = !ex->news;
    ex->news = false;
    if (sleep) {
        ex->suspended = true;
        MHD_suspend_connection(ex->connection);
    }
    pthread_mutex_unlock(&ex->lock);
    return sleep;
}

bool exchange_is_gone(struct exchange *ex)
{
    pthread_mutex_lock(&ex->lock);
    bool gone = ex->gone;
    pthread_mutex_unlock(&ex->lock);
    return gone;
}

void exchange_abort(void *item)
{
    struct exchange *ex = item;
    pthread_mutex_lock(&ex->lock);
    ex->gone = true;
    exchange_wake_locked(ex);
    pthread_mutex_unlock(&ex->lock);
    answer_cancel(ex->answer);
}

void exchange_abort_unfinished(void *item)
{
    struct exchange *ex = item;
    pthread_mutex_lock(&ex->lock);
    bool finished = ex->answer ? answer_ended_locked(ex->answer) : !ex->query.pending;
    pthread_mutex_unlock(&ex->lock);
    if (!finished)
        exchange_abort(ex);
}

void exchange_tick(void *item)
{
    struct exchange *ex = item;
    uint64_t now = env_now_ns(ex->server->config.env);
    pthread_mutex_lock(&ex->lock);
    if (ex->query.pending && !ex->query.expired && now >= ex->query.deadline_ns) {
        ex->query.expired = true;
        exchange_wake_locked(ex);
    }
    pthread_mutex_unlock(&ex->lock);
}

int exchange_watch(struct exchange *ex, bool has_deadline, struct api_error *error)
{
    if (watcher_add(ex->server->watcher, ex->fd, ex->id, ex, has_deadline))
        return api_error_set(error, 503, NULL, NULL, "This node is out of memory or descriptors.");
    ex->watched = true;
    return 0;
}

void exchange_cork(struct exchange *ex, bool on)
{
    int value = on;
    /* MHD never corks by itself (it relies on TCP_NODELAY and MSG_MORE), so it does not notice. */
    if (ex->corked != on && setsockopt(ex->fd, IPPROTO_TCP, TCP_CORK, &value, sizeof value) == 0)
        ex->corked = on;
}

void exchange_complete(struct exchange *ex)
{
    exchange_cork(ex, false); /* the descriptor is still the connection's: MHD closes it later */
    if (ex->watched)
        watcher_remove(ex->server->watcher, ex->fd, ex->id);
    pthread_mutex_lock(&ex->lock);
    hs_assert(!ex->suspended);
    ex->connection = NULL;
    pthread_mutex_unlock(&ex->lock);
    answer_cancel(ex->answer);
    exchange_unref(ex);
}

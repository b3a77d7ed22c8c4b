/*
 * One HTTP request and its response.
 *
 *     headers -> body -> dispatch --+--> answered at once
 *                                   +--> waiting (suspended <-> resumed by events) --> whole answer, or stream of chunks
 *
 * References: the connection holds one until libmicrohttpd says that the request is over, the response object of a stream one, and each
 * piece of work given to the node one until its last event. The last one frees.
 *
 * Threading: MHD's thread drives it. The node's and the watcher's threads only set fields under the lock and wake it.
 */
#ifndef HEARSAY_SERVE_HTTP_EXCHANGE_H
#define HEARSAY_SERVE_HTTP_EXCHANGE_H

#include <pthread.h>

#include "core/base/strbuf.h"
#include "core/serve/http/api_error.h"
#include "core/serve/http/server.h"

struct answer;
struct route;

enum exchange_state { EXCHANGE_RECEIVING, EXCHANGE_WAITING, EXCHANGE_ANSWERED };

struct exchange {
    struct http_server *server;
    uint64_t id;
    _Atomic uint32_t refs;

    pthread_mutex_t lock; /* guards the next block and the fields of answer that say so */
    struct MHD_Connection *connection; /* NULL once the request is over */
    bool suspended;
    bool news; /* something happened since MHD's thread last looked */
    uint64_t expected_until_ns; /* so long it waits awake; 0: asleep */
    bool gone; /* the client left, or the server stops */
    struct {
        bool pending, expired;
        int status;
        struct strbuf json;
        uint64_t deadline_ns;
    } query;

    /* the node's thread only */
    struct exchange *next_to_wake;
    bool to_wake; /* it is in the server's list */

    /* MHD's thread only */
    enum exchange_state state;
    const struct route *route;
    const char *path; /* copy of the URL's path */
    char *path_copy;
    int fd;
    bool watched;
    bool corked; /* the kernel holds back what is sent */
    struct strbuf body;
    bool body_too_large, close_after; /* close_after: what would follow on this connection would fare no better */
    uint64_t body_received;
    char request_id[128];
    struct answer *answer;
    struct strbuf stream; /* what the client has yet to read */
    size_t stream_pos;
};

struct exchange *exchange_create(struct http_server *server, struct MHD_Connection *connection, const char *path);
void exchange_ref(struct exchange *exchange);
void exchange_unref(struct exchange *exchange);

/* The caller holds the lock: notes that something happened and resumes the connection if it sleeps. */
void exchange_wake_locked(struct exchange *exchange);
/* On the node's thread, without the lock: something happened, which the node's thread has noted under it (news). The connection is
 * resumed, at once or by http_server_wake. */
void exchange_wake_by_node(struct exchange *exchange);
/* Resumes the connection if it sleeps. */
void exchange_wake(struct exchange *exchange);
/* Suspends the connection unless there is news (which is then taken); true if it sleeps now. On MHD's thread, inside a callback. */
bool exchange_sleep(struct exchange *exchange);
/* Tokens are about to come: an exchange that sleeps until the next ones wakes and waits for them awake. Under the watcher's lock. */
void exchange_expect(void *exchange);
bool exchange_is_gone(struct exchange *exchange);
/* The client left or the server stops: wakes the exchange and cancels its work. On the watcher's thread. */
void exchange_abort(void *exchange);
/* The server stops: aborts the exchange, but lets an answer go out that is complete. Under the watcher's lock. */
void exchange_abort_unfinished(void *exchange);
/* Wakes a query that took too long. On the watcher's thread. */
void exchange_tick(void *exchange);
/*
 * While it is on, the kernel gathers what MHD sends (for 200 ms at most, and never more than a segment), so that pieces made right after each
 * other, a stream's header and its first event, leave as one and wake the client once. On MHD's thread.
 */
void exchange_cork(struct exchange *exchange, bool on);
/* The request is over for MHD. */
void exchange_complete(struct exchange *exchange);
/* Starts to watch the client. 0, or -1 with error filled. */
int exchange_watch(struct exchange *exchange, bool has_deadline, struct api_error *error);

/* The methods that the path of a 405 would take. */
const char *exchange_allowed_method(const struct exchange *exchange);

/* Queue a response; text is consumed (and emptied). node_name NULL: this node's. */
enum MHD_Result exchange_respond(struct exchange *exchange, int status, const char *content_type, struct strbuf *text,
                                 const char *node_name, uint32_t retry_after_s);
enum MHD_Result exchange_respond_error(struct exchange *exchange, const struct api_error *error);
/* Queues a response whose body comes from the answer, chunk by chunk. */
enum MHD_Result exchange_respond_stream(struct exchange *exchange, const char *node_name);

#endif

/*
 * Both ends of a measurement over one of hearsay's fabrics. The server keeps no state but a count for each peer: every message says
 * what it asks for.
 *
 *     ECHO    comes back as it is, as an ANSWER
 *     STREAM  is read once and counted; every `value` of them a CREDIT with the count goes back
 *     FETCH   brings `value` bytes of the region as an ANSWER: what a read is where there are no one-sided ones
 */
#include "perf/bench_fabric.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "perf/progress.h"

enum message_kind { ECHO = 1, STREAM, FETCH, ANSWER, CREDIT };

struct head {
    uint32_t kind, value;
};

enum { MAX_PEERS = 1024, MAX_BYTES = 2 << 20, PATIENCE_MS = 5000, LOOKS_PER_CONTROL = 4096 };

/* ---- the server ---- */

struct server {
    struct fabric_endpoint endpoint;
    uint32_t streamed[MAX_PEERS];
    uint8_t region[FABRIC_REGION_BYTES];
};

static int reply(struct server *server, uint32_t peer, const struct head *head, const uint8_t *rest, uint32_t rest_len)
{
    struct transport *transport = server->endpoint.transport;
    struct iovec iov[2] = {{.iov_base = (void *)(uintptr_t)head, .iov_len = sizeof *head},
                           {.iov_base = (void *)(uintptr_t)rest, .iov_len = rest_len}};
    return transport->ops->send(transport, peer, iov, rest_len ? 2 : 1, 0);
}

/* An answer that finds no room is left out: the caller then says so. Callers keep their requests below what fits. */
static void serve_message(struct server *server, const struct transport_event *event)
{
    struct head head;
    if (event->len < sizeof head)
        return;
    memcpy(&head, event->data, sizeof head);
    switch ((enum message_kind)head.kind) {
    case ECHO:
        head.kind = ANSWER;
        reply(server, event->peer, &head, event->data + sizeof head, event->len - (uint32_t)sizeof head);
        break;
    case STREAM:
        if (event->peer < MAX_PEERS && head.value != 0 && fabric_read_message(event->data + sizeof head, event->len - sizeof head) && ++server->streamed[event->peer] % head.value == 0)
            reply(server, event->peer, &(struct head){.kind = CREDIT, .value = server->streamed[event->peer]}, NULL, 0);
        break;
    case FETCH:
        head.kind = ANSWER;
        if (head.value <= FABRIC_REGION_BYTES && head.value > sizeof head)
            reply(server, event->peer, &head, server->region, head.value - (uint32_t)sizeof head);
        break;
    case ANSWER:
    case CREDIT:
        break;
    }
}

static void serve_until(struct server *server, int control)
{
    server->endpoint.control = control;
    for (uint32_t looks = 0;; looks++) {
        int n = fabric_endpoint_poll(&server->endpoint);
        for (int i = 0; i < n; i++) {
            const struct transport_event *event = &server->endpoint.events[i];
            if (event->kind == TRANSPORT_MESSAGE)
                serve_message(server, event);
            else if (event->kind == TRANSPORT_PEER_UP && event->peer < MAX_PEERS)
                server->streamed[event->peer] = 0;
        }
        if (n == 0 && (server->endpoint.adaptive || looks % LOOKS_PER_CONTROL == 0) && fabric_is_over(control))
            return;
    }
}

static int open_server(const struct fabric_job *job, struct server **out, struct transport_info *info, struct error *err)
{
    struct server *server = calloc(1, sizeof *server);
    if (!server)
        return error_set(err, HS_ERR_NO_MEMORY, "%s", error_name(HS_ERR_NO_MEMORY));
    int rc = fabric_endpoint_open(&server->endpoint, job, true, err);
    if (rc) {
        free(server);
        return rc;
    }
    struct transport *transport = server->endpoint.transport;
    if (transport->ops->publish(transport, FABRIC_REGION, 1, FABRIC_REGION_BYTES) == 0) /* unsupported: FETCH serves */
        transport->ops->write_page(transport, FABRIC_REGION, 0, server->region, job->bytes < FABRIC_REGION_BYTES ? job->bytes : FABRIC_REGION_BYTES);
    transport->ops->info(transport, info);
    *out = server;
    return 0;
}

static void close_server(struct server *server)
{
    fabric_endpoint_close(&server->endpoint);
    free(server);
}

static int serve(const struct fabric_job *job, int (*ready)(int control, const char *address), struct error *err)
{
    struct server *server;
    struct transport_info info;
    int rc = open_server(job, &server, &info, err);
    if (rc)
        return rc;
    rc = ready(job->control, info.local);
    if (rc == 0)
        serve_until(server, job->control);
    close_server(server);
    return rc;
}

int fabric_serve_forever(const struct perf_config *config, struct error *err)
{
    struct fabric_job job = {.config = config};
    struct server *server;
    struct transport_info info;
    sigset_t signals;
    sigemptyset(&signals);
    sigaddset(&signals, SIGINT);
    sigaddset(&signals, SIGTERM);
    sigprocmask(SIG_BLOCK, &signals, NULL);
    int over = signalfd(-1, &signals, SFD_CLOEXEC);
    if (over < 0)
        return error_set(err, HS_ERR_IO, "signalfd: %s", strerror(errno));
    int rc = open_server(&job, &server, &info, err);
    if (rc == 0) {
        printf("serving at %s until interrupted; over there: hearsay-perf fabric --fabric %s --connect %s\n", info.local,
               config->fabric, info.local);
        fflush(stdout);
        serve_until(server, over);
        close_server(server);
    }
    close(over);
    return rc;
}

/* ---- callers ---- */

struct caller {
    struct fabric_endpoint endpoint;
    uint32_t peer, bytes;
    uint8_t *message; /* [MAX_BYTES], its head in front */
    bool one_sided;
    uint32_t answers, credited, reads;
    bool lost;
};

static void look(struct caller *caller)
{
    int n = fabric_endpoint_poll(&caller->endpoint);
    for (int i = 0; i < n; i++) {
        const struct transport_event *event = &caller->endpoint.events[i];
        struct head head;
        if (event->kind == TRANSPORT_PEER_DOWN || (event->kind == TRANSPORT_READ_DONE && event->status))
            caller->lost = true;
        else if (event->kind == TRANSPORT_READ_DONE)
            caller->reads++;
        if (event->kind != TRANSPORT_MESSAGE || event->len < sizeof head)
            continue;
        memcpy(&head, event->data, sizeof head);
        caller->answers += head.kind == ANSWER;
        if (head.kind == CREDIT)
            caller->credited = head.value;
    }
}

static int request(struct caller *caller, enum message_kind kind, uint32_t value, uint32_t bytes)
{
    struct transport *transport = caller->endpoint.transport;
    memcpy(caller->message, &(struct head){.kind = kind, .value = value}, sizeof(struct head));
    struct iovec iov = {.iov_base = caller->message, .iov_len = bytes};
    return transport->ops->send(transport, caller->peer, &iov, 1, 0);
}

static int wait_until(struct caller *caller, const uint32_t *count, uint32_t wanted, struct error *err)
{
    uint64_t end_ns = 0;
    for (uint32_t looks = 1; *count != wanted; looks++) {
        look(caller);
        if (looks % 1024 == 0 || caller->lost) {
            uint64_t now_ns = perf_now_ns();
            end_ns = end_ns ? end_ns : now_ns + PATIENCE_MS * UINT64_C(1000000);
            if (now_ns > end_ns || caller->lost)
                return error_set(err, HS_ERR_TIMEOUT, "the serving side stopped answering");
        }
    }
    return 0;
}

static int echo_once(void *arg, struct error *err)
{
    struct caller *caller = arg;
    int rc = request(caller, ECHO, 0, caller->bytes);
    return rc ? error_set(err, rc, "a message of %u bytes: %s", caller->bytes, error_name(rc))
              : wait_until(caller, &caller->answers, caller->answers + 1, err);
}

static int read_once(void *arg, struct error *err)
{
    struct caller *caller = arg;
    struct transport *transport = caller->endpoint.transport;
    if (!caller->one_sided) {
        int rc = request(caller, FETCH, caller->bytes, sizeof(struct head));
        return rc ? error_set(err, rc, "a request: %s", error_name(rc))
                  : wait_until(caller, &caller->answers, caller->answers + 1, err);
    }
    int rc = transport->ops->read_page(transport, caller->peer, FABRIC_REGION, 0, caller->bytes, 1);
    return rc ? error_set(err, rc, "a read of %u bytes: %s", caller->bytes, error_name(rc))
              : wait_until(caller, &caller->reads, caller->reads + 1, err);
}

static int stream(struct caller *caller, const struct perf_config *config, double *bytes_per_s, struct error *err)
{
    uint32_t each = fabric_acknowledged_each(config), sent = 0, credited = 0;
    struct stream_meter meter;
    stream_meter_begin(&meter, config->duration_ns);
    uint64_t credited_ns = meter.now_ns;
    do {
        if (caller->credited != credited) {
            credited = caller->credited;
            credited_ns = meter.now_ns;
        }
        if (caller->lost || meter.now_ns - credited_ns > PATIENCE_MS * UINT64_C(1000000))
            return error_set(err, HS_ERR_TIMEOUT, "the serving side stopped acknowledging");
        while (sent - caller->credited < config->window && request(caller, STREAM, each, caller->bytes) == 0)
            sent++;
        look(caller);
    } while (stream_meter_goes_on(&meter, caller->credited));
    *bytes_per_s = stream_meter_bytes_per_s(&meter, caller->bytes);
    return 0;
}

static int open_caller(struct caller *caller, const struct fabric_job *job, const char *address, struct error *err)
{
    *caller = (struct caller){.bytes = job->bytes};
    caller->message = calloc(1, MAX_BYTES);
    if (!caller->message)
        return error_set(err, HS_ERR_NO_MEMORY, "%s", error_name(HS_ERR_NO_MEMORY));
    int rc = fabric_endpoint_open(&caller->endpoint, job, false, err);
    if (rc)
        return rc;
    struct transport *transport = caller->endpoint.transport;
    struct transport_info info;
    transport->ops->info(transport, &info);
    caller->one_sided = info.reads_pages;
    return fabric_endpoint_connect(&caller->endpoint, address, &caller->peer, err);
}

static int call(const struct fabric_job *job, const char *address, struct fabric_result *out, struct error *err)
{
    struct caller caller;
    int rc = open_caller(&caller, job, address, err);
    if (rc == 0 && job->pattern == FABRIC_STREAM)
        rc = stream(&caller, job->config, &out->bytes_per_s, err);
    else if (rc == 0)
        rc = fabric_time_each(job->pattern == FABRIC_READ ? read_once : echo_once, &caller, job->config->duration_ns, &out->times_us, err);
    out->one_sided = caller.one_sided;
    if (caller.endpoint.transport)
        caller.endpoint.transport->ops->stats(caller.endpoint.transport, &out->sum);
    fabric_endpoint_close(&caller.endpoint);
    free(caller.message);
    return rc;
}

const struct fabric_side fabric_hearsay = {
    .name = "hearsay", .patterns = FABRIC_PING | FABRIC_READ | FABRIC_STREAM, .serve = serve, .call = call};

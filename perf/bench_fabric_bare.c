/*
 * What the same machine does without hearsay: minimal programs over the kernel's sockets that sleep in the kernel or spin on it. Messages
 * have one length, which both ends know; in a stream the server acknowledges every quarter of the window with one byte.
 *
 * Programs over bare verbs and a bare EAL, in files of their own, are rows of the table at the end, beside their fabrics.
 */
#include "perf/bench_fabric.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "perf/bench_fabric_dpdk.h"
#include "perf/bench_fabric_verbs.h"
#include "perf/progress.h"

enum { SOCKET_BYTES = 8 << 20, LOOKS_PER_CONTROL = 4096 };

struct wire {
    int fd, control;
    bool stream; /* TCP: no boundaries between messages */
    int flags;   /* MSG_DONTWAIT: spins */
    uint8_t *buffer;
};

static int fail(struct error *err, const char *what)
{
    return error_set(err, HS_ERR_IO, "%s: %s", what, strerror(errno));
}

/* One whole message of len bytes. False: over (the server's end) or failed. */
static bool take(struct wire *wire, uint32_t len)
{
    uint32_t done = 0;
    for (uint32_t looks = 1;; looks++) {
        ssize_t n = recv(wire->fd, wire->buffer + done, len - done, wire->flags);
        if (n > 0)
            done += (uint32_t)n;
        if (done == len || (n > 0 && !wire->stream))
            return done == len;
        if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR))
            return false;
        bool look = n < 0 && ((wire->flags & MSG_DONTWAIT) == 0 || looks % LOOKS_PER_CONTROL == 0);
        if (look && fabric_is_over(wire->control))
            return false;
    }
}

static bool give(struct wire *wire, uint32_t len)
{
    for (uint32_t done = 0; done < len;) {
        ssize_t n = send(wire->fd, wire->buffer + done, len - done, wire->flags | MSG_NOSIGNAL);
        if (n > 0)
            done += (uint32_t)n;
        else if (n < 0 && errno != EAGAIN && errno != EINTR && errno != ENOBUFS)
            return false;
    }
    return true;
}

/* ---- making sockets ---- */

static int bound(int type, struct sockaddr_in *address, struct error *err)
{
    socklen_t len = sizeof *address;
    int size = SOCKET_BYTES;
    *address = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    int fd = socket(AF_INET, type | SOCK_CLOEXEC, 0);
    if (fd < 0 || bind(fd, (struct sockaddr *)address, len) != 0 || getsockname(fd, (struct sockaddr *)address, &len) != 0) {
        int rc = fail(err, "a socket on loopback");
        if (fd >= 0)
            close(fd);
        return rc;
    }
    if (setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &size, sizeof size) != 0)
        setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &size, sizeof size); /* TCP tunes itself, UDP gets what is allowed */
    return fd;
}

static int be_ready(const struct fabric_job *job, const struct sockaddr_in *address, int (*ready)(int control, const char *address))
{
    char text[32];
    snprintf(text, sizeof text, "%u", ntohs(address->sin_port));
    return ready(job->control, text);
}

/* Waits for fd or for the end, so that a blocking server can be ended. */
static bool wait_readable(int fd, int control)
{
    struct pollfd fds[2] = {{.fd = fd, .events = POLLIN}, {.fd = control, .events = POLLIN}};
    return poll(fds, 2, -1) > 0 && fds[1].revents == 0;
}

/* The server's connected socket: UDP learns its peer from the first datagram (an empty one), TCP accepts. */
static int meet(const struct fabric_job *job, int type, int listening, struct error *err)
{
    struct sockaddr_in peer;
    socklen_t len = sizeof peer;
    if (!wait_readable(listening, job->control))
        return error_set(err, HS_ERR_CANCELED, "nobody called");
    if (type == SOCK_DGRAM) {
        if (recvfrom(listening, NULL, 0, 0, (struct sockaddr *)&peer, &len) < 0 ||
            connect(listening, (struct sockaddr *)&peer, len) != 0)
            return fail(err, "connect");
        return listening;
    }
    int fd = accept4(listening, NULL, NULL, SOCK_CLOEXEC), on = 1;
    if (fd < 0)
        return fail(err, "accept");
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    return fd;
}

static bool open_wire(struct wire *wire, int fd, int control, int type, int flags)
{
    struct timeval patience = {.tv_usec = 200000}; /* so that a blocking end looks whether it is over */
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    *wire = (struct wire){.fd = fd, .control = control, .stream = type == SOCK_STREAM, .flags = flags, .buffer = calloc(1, 1 << 21)};
    return wire->buffer != NULL;
}

/* ---- both ends ---- */

static int serve(const struct fabric_job *job, int (*ready)(int control, const char *address), int type, int flags, struct error *err)
{
    struct sockaddr_in address;
    struct wire wire = {0};
    int listening = bound(type, &address, err), fd = -1;
    if (listening < 0)
        return listening;
    if (type == SOCK_STREAM && listen(listening, 1) != 0) {
        close(listening);
        return fail(err, "listen");
    }
    int rc = be_ready(job, &address, ready);
    if (rc == 0)
        fd = meet(job, type, listening, err);
    if (fd >= 0 && open_wire(&wire, fd, job->control, type, flags))
        for (uint32_t count = 1; take(&wire, job->bytes); count++)
            if (job->pattern == FABRIC_PING ? !give(&wire, job->bytes)
                                            : count % fabric_acknowledged_each(job->config) == 0 && !give(&wire, 1))
                break;
    free(wire.buffer);
    if (fd >= 0 && fd != listening)
        close(fd);
    close(listening);
    return 0;
}

static int stream(struct wire *wire, const struct fabric_job *job, double *bytes_per_s)
{
    uint32_t each = fabric_acknowledged_each(job->config), window = job->config->window, sent = 0, credited = 0;
    struct stream_meter meter;
    stream_meter_begin(&meter, job->config->duration_ns);
    do {
        while (sent - credited < window) {
            if (!give(wire, job->bytes))
                return HS_ERR_IO;
            sent++;
        }
        if (!take(wire, 1)) /* lost datagrams are not repeated: none are lost while the window fits the socket's buffer */
            return HS_ERR_IO;
        credited += each;
    } while (stream_meter_goes_on(&meter, credited));
    *bytes_per_s = stream_meter_bytes_per_s(&meter, job->bytes);
    return 0;
}

struct pinger {
    struct wire *wire;
    uint32_t bytes;
};

static int ping_once(void *arg, struct error *err)
{
    struct pinger *pinger = arg;
    return give(pinger->wire, pinger->bytes) && take(pinger->wire, pinger->bytes) ? 0 : HS_ERR_IO;
}

static int pings(struct wire *wire, const struct fabric_job *job, struct samples *times_us)
{
    return fabric_time_each(ping_once, &(struct pinger){wire, job->bytes}, job->config->duration_ns, times_us, NULL);
}

static int call(const struct fabric_job *job, const char *port, struct fabric_result *out, int type, int flags, struct error *err)
{
    struct sockaddr_in own, there = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    struct wire wire = {0};
    int fd = bound(type, &own, err), on = 1;
    if (fd < 0)
        return fd;
    there.sin_port = htons((uint16_t)strtoul(port, NULL, 10));
    int rc = HS_ERR_IO;
    if (connect(fd, (struct sockaddr *)&there, sizeof there) == 0 && (type == SOCK_STREAM || send(fd, "", 0, 0) == 0)) {
        if (type == SOCK_STREAM)
            setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
        if (open_wire(&wire, fd, -1, type, flags))
            rc = job->pattern == FABRIC_PING ? pings(&wire, job, &out->times_us) : stream(&wire, job, &out->bytes_per_s);
    }
    if (rc)
        fail(err, "a bare socket");
    free(wire.buffer);
    close(fd);
    return rc;
}

/* ---- the table ---- */

#define KERNEL_SOCKETS(id, type, flags)                                                                                            \
    static int serve_##id(const struct fabric_job *job, int (*ready)(int control, const char *address), struct error *err)         \
    {                                                                                                                              \
        return serve(job, ready, type, flags, err);                                                                                \
    }                                                                                                                              \
    static int call_##id(const struct fabric_job *job, const char *address, struct fabric_result *out, struct error *err)          \
    {                                                                                                                              \
        return call(job, address, out, type, flags, err);                                                                          \
    }

KERNEL_SOCKETS(udp_spinning, SOCK_DGRAM, MSG_DONTWAIT)
KERNEL_SOCKETS(udp_blocking, SOCK_DGRAM, 0)
KERNEL_SOCKETS(tcp_spinning, SOCK_STREAM, MSG_DONTWAIT)
KERNEL_SOCKETS(tcp_blocking, SOCK_STREAM, 0)

/* The first that can play is what hearsay is compared with. */
static const struct fabric_side sides[] = {
    {"bare verbs", "verbs", false, FABRIC_PING | FABRIC_READ | FABRIC_STREAM, fabric_verbs_serve_bare, fabric_verbs_call_bare},
    {"bare verbs datagrams", "verbs-ud", false, FABRIC_PING | FABRIC_STREAM, fabric_verbs_serve_bare, fabric_verbs_call_bare},
    {"perftest", "verbs", true, FABRIC_PING | FABRIC_READ | FABRIC_STREAM, fabric_perftest_serve, fabric_perftest_call},
    {"bare DPDK", "dpdk", false, FABRIC_PING | FABRIC_STREAM, fabric_dpdk_serve_bare, fabric_dpdk_call_bare},
    {"bare DPDK, untouched", "dpdk", false, FABRIC_STREAM, fabric_dpdk_serve_untouched, fabric_dpdk_call_untouched},
    {"bare UDP, spinning", NULL, false, FABRIC_PING | FABRIC_STREAM, serve_udp_spinning, call_udp_spinning},
    {"bare UDP, blocking", NULL, false, FABRIC_PING | FABRIC_STREAM, serve_udp_blocking, call_udp_blocking},
    {"bare TCP, spinning", "sockets", false, FABRIC_PING | FABRIC_STREAM, serve_tcp_spinning, call_tcp_spinning},
    {"bare TCP, blocking", "sockets", false, FABRIC_PING | FABRIC_STREAM, serve_tcp_blocking, call_tcp_blocking},
};

const struct fabric_side *fabric_bare_sides(uint32_t *n)
{
    *n = sizeof sides / sizeof sides[0];
    return sides;
}

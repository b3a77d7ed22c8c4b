#include "net/dpdk/callers.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <rte_interrupts.h>

#include "core/base/log.h"
#include "net/dpdk/interrupts.h"

enum { GREETING_BYTES = 512, WAITING = 64 };

struct name {
    struct sockaddr_un address;
    socklen_t len;
};

/* Of one memif socket; lives as long as the process, as EAL's devices do. */
struct door {
    int outer; /* has the address that callers know */
    struct name inner; /* where the driver listens now */
    struct rte_intr_handle *handle;
    struct door *next;
};

struct visit {
    int caller, inner; /* inner: ours, by which the driver is called in the caller's place */
    struct name name;  /* of inner */
    struct rte_intr_handle *handle;
};

static struct door *doors;

/* ---- descriptors ---- */

static void close_if_open(int fd)
{
    if (fd >= 0)
        close(fd);
}

/* A socket with an address that the kernel chooses; -1: none. */
static int open_named(struct name *name)
{
    const struct sockaddr_un any = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    name->len = sizeof name->address;
    if (fd >= 0 && bind(fd, (const struct sockaddr *)&any, sizeof any.sun_family) == 0 &&
        getsockname(fd, (struct sockaddr *)&name->address, &name->len) == 0)
        return fd;
    close_if_open(fd);
    return -1;
}

static int number_option(int fd, int option)
{
    int value = -1;
    socklen_t len = sizeof value;
    return getsockopt(fd, SOL_SOCKET, option, &value, &len) == 0 ? value : -1;
}

static bool is_listener(int fd)
{
    return number_option(fd, SO_DOMAIN) == AF_UNIX && number_option(fd, SO_TYPE) == SOCK_SEQPACKET && number_option(fd, SO_ACCEPTCONN) == 1;
}

/* The descriptor whose peer is called so: what the driver made of our call. */
static int find_peer_of(const struct name *name)
{
    for (int fd = 0, end = dpdk_interrupts_descriptors(); fd < end; fd++) {
        struct sockaddr_un peer;
        socklen_t len = sizeof peer;
        if (getpeername(fd, (struct sockaddr *)&peer, &len) == 0 && len == name->len && memcmp(&peer, &name->address, len) == 0)
            return fd;
    }
    return -1;
}

static bool has_hung_up(int fd)
{
    struct pollfd look = {.fd = fd, .events = POLLRDHUP};
    return poll(&look, 1, 0) != 0;
}

/* ---- EAL's list ---- */

static struct rte_intr_handle *enter(int fd, rte_intr_callback_fn callback, void *arg)
{
    struct rte_intr_handle *handle = rte_intr_instance_alloc(RTE_INTR_INSTANCE_F_PRIVATE);
    if (handle != NULL && rte_intr_type_set(handle, RTE_INTR_HANDLE_EXT) == 0 && rte_intr_fd_set(handle, fd) == 0 &&
        rte_intr_callback_register(handle, callback, arg) == 0)
        return handle;
    rte_intr_instance_free(handle);
    return NULL;
}

/* ---- a visit ---- */

static void end_visit(struct visit *visit)
{
    close_if_open(visit->inner);
    close_if_open(visit->caller);
    rte_intr_instance_free(visit->handle);
    free(visit);
}

static void after_greeting(struct rte_intr_handle *handle, void *arg)
{
    (void)handle;
    end_visit(arg);
}

/* Leaving EAL's list makes it look at all descriptors anew, so at what the driver's number stands for now. */
static void on_greeting(void *arg)
{
    struct visit *visit = arg;
    char greeting[GREETING_BYTES];
    ssize_t len = recv(visit->inner, greeting, sizeof greeting, 0);
    if (len < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (len > 0 && send(visit->caller, greeting, (size_t)len, MSG_DONTWAIT | MSG_NOSIGNAL) == len) {
        int accepted = find_peer_of(&visit->name);
        if (accepted >= 0 && dup2(visit->caller, accepted) < 0)
            log_warn("dpdk", "a memif caller cannot be passed on: %s", strerror(errno));
    }
    rte_intr_callback_unregister_pending(visit->handle, on_greeting, visit, after_greeting);
}

/* In the list before the driver is called: from then on our end stays open until it has greeted. */
static bool call_driver(struct visit *visit, const struct door *door)
{
    visit->inner = open_named(&visit->name);
    visit->handle = visit->inner >= 0 ? enter(visit->inner, on_greeting, visit) : NULL;
    if (visit->handle == NULL)
        return false;
    if (connect(visit->inner, (const struct sockaddr *)&door->inner.address, door->inner.len) == 0)
        return true;
    rte_intr_callback_unregister(visit->handle, on_greeting, visit);
    return false;
}

static void receive_caller(const struct door *door, int caller)
{
    struct visit *visit = has_hung_up(caller) ? NULL : calloc(1, sizeof *visit);
    if (visit == NULL) {
        close(caller);
        return;
    }
    *visit = (struct visit){.caller = caller, .inner = -1};
    if (call_driver(visit, door))
        return;
    log_debug("dpdk", "a memif caller is turned away: %s", strerror(errno));
    end_visit(visit);
}

static void on_call(void *arg)
{
    const struct door *door = arg;
    for (int i = 0; i < WAITING; i++) {
        int caller = accept4(door->outer, NULL, NULL, SOCK_CLOEXEC);
        if (caller < 0)
            return;
        receive_caller(door, caller);
    }
}

/* ---- doors ---- */

/* The driver's number stands for the inner listener from now on; the socket that callers reach is ours. */
static bool replace(int listener, struct door *door)
{
    int inner = open_named(&door->inner);
    door->outer = fcntl(listener, F_DUPFD_CLOEXEC, 0);
    bool good = inner >= 0 && door->outer >= 0 && listen(inner, WAITING) == 0 && listen(door->outer, WAITING) == 0 &&
                fcntl(door->outer, F_SETFL, O_NONBLOCK) == 0 && dup2(inner, listener) >= 0;
    close_if_open(inner);
    if (!good)
        close_if_open(door->outer);
    return good;
}

static void guard(int listener)
{
    struct door *door = calloc(1, sizeof *door);
    if (door == NULL || !replace(listener, door)) {
        log_warn("dpdk", "who calls a memif server cannot be looked at: %s", strerror(errno));
        free(door);
        return;
    }
    door->next = doors;
    doors = door;
    door->handle = enter(door->outer, on_call, door);
    if (door->handle == NULL)
        log_warn("dpdk", "a memif server hears nobody: %s", strerror(errno));
}

void dpdk_callers_watch(void)
{
    for (int fd = 0, end = dpdk_interrupts_descriptors(); fd < end; fd++)
        if (is_listener(fd) && dpdk_interrupts_serve(fd))
            guard(fd);
}

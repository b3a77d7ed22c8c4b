#include "net/dpdk/callers.h"

#include <errno.h>
#include <poll.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <rte_interrupts.h>

#include "core/base/log.h"
#include "net/dpdk/eal_arguments.h"
#include "net/dpdk/interrupts.h"

enum { GREETING_BYTES = 512, WAITING = 64 };

static const char DEFAULT_SOCKET[] = "/run/memif.sock"; /* the driver's */

struct name {
    struct sockaddr_un address;
    socklen_t len;
};

/* Of one memif socket; lives as long as the process, as EAL's devices do. */
struct door {
    int outer;                /* has the address that callers know */
    struct name known, inner; /* that address; where the driver listens */
    bool has_visit;
    struct rte_intr_handle *handle; /* NULL: not open yet */
    struct door *next;
};

struct visit {
    struct door *door;
    int caller, inner; /* inner: ours, by which the driver is called in the caller's place */
    struct name name;  /* of inner */
    struct rte_intr_handle *handle;
};

static struct door *doors;

/* ---- names ---- */

/* The driver puts a byte of zero behind an abstract name, too. */
static size_t longest_name(bool is_abstract)
{
    return sizeof((struct sockaddr_un){0}.sun_path) - (is_abstract ? 2 : 1);
}

/* As the driver has them; text is not too long. */
static void set_name(struct name *name, const char *text, bool is_abstract)
{
    size_t len = strlen(text);
    *name = (struct name){.address.sun_family = AF_UNIX, .len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + len)};
    memcpy(name->address.sun_path + is_abstract, text, len);
}

static bool is_same(const struct name *a, const struct name *b)
{
    return a->len == b->len && memcmp(&a->address, &b->address, a->len) == 0;
}

/* Nobody else has it. */
static void make_up(char *text, size_t size)
{
    uint64_t number = 0;
    if (getrandom(&number, sizeof number, 0) != sizeof number)
        log_debug("dpdk", "no random number for the name of a socket: %s", strerror(errno));
    snprintf(text, size, "hearsay-%d-%016llx", (int)getpid(), (unsigned long long)number);
}

/* ---- descriptors ---- */

static void close_if_open(int fd)
{
    if (fd >= 0)
        close(fd);
}

static int open_socket(void)
{
    return socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
}

/* A socket with an address that the kernel chooses; -1: none. */
static int open_named(struct name *name)
{
    const struct sockaddr_un any = {.sun_family = AF_UNIX};
    int fd = open_socket();
    name->len = sizeof name->address;
    if (fd >= 0 && bind(fd, (const struct sockaddr *)&any, sizeof any.sun_family) == 0 &&
        getsockname(fd, (struct sockaddr *)&name->address, &name->len) == 0)
        return fd;
    close_if_open(fd);
    return -1;
}

/* The descriptor whose peer is called so: what the driver made of our call. */
static int find_peer_of(const struct name *name)
{
    for (int fd = 0, end = dpdk_interrupts_descriptors(); fd < end; fd++) {
        struct name peer = {.len = sizeof peer.address};
        if (getpeername(fd, (struct sockaddr *)&peer.address, &peer.len) == 0 && is_same(&peer, name))
            return fd;
    }
    return -1;
}

/* Callers may have all descriptors but an eighth: without any, EAL ends the process over its next list. accepted: its number is the lowest that was
 * free but for two, which every visit takes before and gives back. */
static bool is_one_too_many(int accepted)
{
    int end = dpdk_interrupts_descriptors();
    return accepted >= end - end / 8;
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
    visit->door->has_visit = false;
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
    int accepted = len > 0 ? find_peer_of(&visit->name) : -1;
    if (accepted >= 0 && is_one_too_many(accepted))
        log_debug("dpdk", "a memif caller is turned away: there are too many");
    else if (accepted >= 0 && send(visit->caller, greeting, (size_t)len, MSG_DONTWAIT | MSG_NOSIGNAL) == len && dup2(visit->caller, accepted) < 0)
        log_warn("dpdk", "a memif caller cannot be passed on: %s", strerror(errno));
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

static void receive_caller(struct door *door, int caller)
{
    struct visit *visit = has_hung_up(caller) ? NULL : calloc(1, sizeof *visit);
    if (visit == NULL) {
        close(caller);
        return;
    }
    *visit = (struct visit){.door = door, .caller = caller, .inner = -1};
    door->has_visit = true;
    if (call_driver(visit, door))
        return;
    log_debug("dpdk", "a memif caller is turned away: %s", strerror(errno));
    end_visit(visit);
}

/* One after the other, as each takes three descriptors until it has been greeted; those who hung up do not count. */
static void on_call(void *arg)
{
    struct door *door = arg;
    for (int i = 0; i < WAITING && !door->has_visit; i++) {
        int caller = accept4(door->outer, NULL, NULL, SOCK_CLOEXEC);
        if (caller < 0)
            return;
        receive_caller(door, caller);
    }
}

/* ---- doors ---- */

static struct door *find_door(const struct name *known)
{
    struct door *door = doors;
    while (door != NULL && !is_same(&door->known, known))
        door = door->next;
    return door;
}

static int make_door(const struct name *known, const char *text, struct door **out, struct error *err)
{
    char inner[48];
    struct door *door = calloc(1, sizeof *door);
    if (door == NULL)
        return error_set(err, HS_ERR_NO_MEMORY, "out of memory for a memif server");
    door->known = *known;
    door->outer = open_socket();
    if (door->outer < 0 || bind(door->outer, (const struct sockaddr *)&known->address, known->len) != 0) {
        error_set(err, HS_ERR_IO, "no memif server can be at \"%s\": %s", text, errno == EADDRINUSE ? "another one is there" : strerror(errno));
        close_if_open(door->outer);
        free(door);
        return HS_ERR_IO;
    }
    make_up(inner, sizeof inner);
    set_name(&door->inner, inner, true);
    door->next = doors;
    *out = doors = door;
    return 0;
}

int dpdk_callers_take(const char *device, char *more, size_t size, struct error *err)
{
    char text[EAL_ARGUMENT_BYTES], abstract[8] = "yes";
    struct name known;
    *more = '\0';
    if (!eal_device_is_memif_server(device))
        return 0;
    snprintf(text, sizeof text, "%s", DEFAULT_SOCKET);
    eal_device_value(device, "socket", text, sizeof text);
    eal_device_value(device, "socket-abstract", abstract, sizeof abstract);
    const bool is_abstract = strcmp(abstract, "no") != 0;
    if (strlen(text) > longest_name(is_abstract))
        return error_set(err, HS_ERR_INVALID, "the socket of a memif server may have a name of %zu bytes at most, not \"%s\"",
                         longest_name(is_abstract), text);
    set_name(&known, text, is_abstract);
    struct door *door = find_door(&known);
    int rc = door == NULL ? make_door(&known, text, &door, err) : 0;
    if (rc != 0)
        return rc;
    snprintf(more, size, ",socket=%s,socket-abstract=yes", door->inner.address.sun_path + 1);
    return 0;
}

int dpdk_callers_open(struct error *err)
{
    for (struct door *door = doors; door != NULL; door = door->next) {
        if (door->handle != NULL)
            continue;
        if (listen(door->outer, WAITING) == 0)
            door->handle = enter(door->outer, on_call, door);
        if (door->handle == NULL)
            return error_set(err, HS_ERR_IO, "a memif server cannot take calls: %s", strerror(errno));
    }
    return 0;
}

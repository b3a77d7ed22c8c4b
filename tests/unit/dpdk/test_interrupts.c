/* DPDK's interrupt thread works only while nobody polls, and nobody polls while it works; whoever calls a listener of its is there when greeted. */
#include <dirent.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>
#include <rte_interrupts.h>

#include "net/dpdk/callers.h"
#include "net/dpdk/eal.h"
#include "net/dpdk/eal_arguments.h"
#include "net/dpdk/interrupts.h"

enum { QUIET_MS = 30, PATIENCE_MS = 20000, ROUNDS = 200, CALLERS = 400 };

static struct dpdk_poller a, b;
static int device, listener;
static struct sockaddr_un address = {.sun_family = AF_UNIX}, inner = {.sun_family = AF_UNIX}; /* that callers know; of the "driver" */
static atomic_int calls, overlaps, accepted, ended, greeted_in_vain;

static void wait_ms(uint32_t ms)
{
    nanosleep(&(struct timespec){.tv_sec = ms / 1000, .tv_nsec = (long)(ms % 1000) * 1000000}, NULL);
}

static bool comes_to(const atomic_int *count, int wanted)
{
    for (int i = 0; i < PATIENCE_MS && atomic_load(count) < wanted; i++)
        wait_ms(1);
    return atomic_load(count) >= wanted;
}

/* What a driver does there must not meet a burst. */
static void serve_device(void *arg)
{
    uint64_t count;
    (void)arg;
    assert_int_equal(read(device, &count, sizeof count), sizeof count);
    for (int i = 0; i < 10; i++)
        atomic_fetch_add(&overlaps, atomic_load(&a.polls) && !atomic_load(&dpdk_interrupts_run));
    atomic_fetch_add(&calls, 1);
}

static struct rte_intr_handle *register_fd(int fd, rte_intr_callback_fn callback, void *arg)
{
    struct rte_intr_handle *handle = rte_intr_instance_alloc(RTE_INTR_INSTANCE_F_PRIVATE);
    assert_non_null(handle);
    assert_int_equal(rte_intr_type_set(handle, RTE_INTR_HANDLE_EXT), 0);
    assert_int_equal(rte_intr_fd_set(handle, fd), 0);
    assert_true(rte_intr_callback_register(handle, callback, arg) >= 0);
    return handle;
}

/* What the driver of memif does with callers: accepts one, enters it into the list, greets it, answers; ends what hung up. */
struct guest {
    struct rte_intr_handle *handle;
    int fd;
};

static void after_guest(struct rte_intr_handle *handle, void *arg)
{
    struct guest *guest = arg;
    (void)handle;
    close(guest->fd);
    rte_intr_instance_free(guest->handle);
    free(guest);
    atomic_fetch_add(&ended, 1);
}

static void serve_guest(void *arg)
{
    struct guest *guest = arg;
    char text[16];
    ssize_t len = recv(guest->fd, text, sizeof text, 0);
    if (len <= 0 || send(guest->fd, text, (size_t)len, MSG_NOSIGNAL) != len)
        rte_intr_callback_unregister_pending(guest->handle, serve_guest, guest, after_guest);
}

static void serve_listener(void *arg)
{
    int fd = accept(listener, NULL, NULL);
    (void)arg;
    if (fd < 0)
        return;
    struct guest *guest = calloc(1, sizeof *guest);
    guest->fd = fd;
    guest->handle = register_fd(fd, serve_guest, guest);
    atomic_fetch_add(&greeted_in_vain, send(fd, "hello", 5, MSG_NOSIGNAL) != 5); /* the driver would close it here and leave it in the list */
    atomic_fetch_add(&accepted, 1);
}

static void raise_device(void)
{
    const uint64_t count = 1;
    assert_int_equal(write(device, &count, sizeof count), sizeof count);
}

/* The interrupt thread has noticed; on a busy machine that may take a while. */
static void wait_for_a_closed_door(void)
{
    for (int i = 0; i < PATIENCE_MS && !atomic_load(&dpdk_interrupts_run); i++)
        wait_ms(1);
    assert_true(atomic_load(&dpdk_interrupts_run));
}

static socklen_t length_of(const struct sockaddr_un *name)
{
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + strlen(name->sun_path + 1));
}

/* The socket's name is taken, and is nobody else's; the "driver" gets another one. */
static void take_name(void)
{
    struct error err = {0};
    char server[160], client[160], longer[400], more[128], again[128];
    snprintf(address.sun_path + 1, sizeof address.sun_path - 1, "hearsay-test-interrupts-%d", (int)getpid()); /* abstract */
    snprintf(server, sizeof server, "net_memif0,role=server,socket=%s", address.sun_path + 1);
    snprintf(client, sizeof client, "net_memif0,role=client,socket=%s", address.sun_path + 1);
    assert_int_equal(dpdk_callers_take(client, more, sizeof more, &err), 0);
    assert_string_equal(more, "");
    snprintf(longer, sizeof longer, "net_memif0,role=server,socket=%0300d", 0); /* not taken for one without a name */
    assert_int_equal(dpdk_callers_take(longer, more, sizeof more, &err), HS_ERR_INVALID);
    int other = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(other, (struct sockaddr *)&address, length_of(&address)), 0);
    assert_int_equal(dpdk_callers_take(server, more, sizeof more, &err), HS_ERR_IO);
    assert_non_null(strstr(err.text, "another one is there"));
    close(other);
    assert_int_equal(dpdk_callers_take(server, more, sizeof more, &err), 0);
    assert_int_equal(dpdk_callers_take(server, again, sizeof again, &err), 0); /* several devices on one socket */
    assert_string_equal(again, more);
    assert_true(eal_device_value(more, "socket", inner.sun_path + 1, sizeof inner.sun_path - 1));
}

static int call_listener(void)
{
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&address, length_of(&address)), 0);
    return fd;
}

static int setup(void **state)
{
    struct error err = {0};
    (void)state;
    take_name();
    if (dpdk_eal_start("--no-huge --no-pci -m 32", &err) != 0)
        fail_msg("%s", err.text);
    device = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(listener, (struct sockaddr *)&inner, length_of(&inner)), 0);
    assert_int_equal(listen(listener, 1), 0);
    register_fd(device, serve_device, NULL);
    register_fd(listener, serve_listener, NULL);
    assert_int_equal(dpdk_interrupts_hold(&err), 0);
    assert_int_equal(dpdk_interrupts_hold(&err), 0); /* again: nothing */
    dpdk_poller_join(&a);
    dpdk_poller_join(&b);
    int early = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0); /* nobody is heard before the door is open */
    assert_int_equal(connect(early, (struct sockaddr *)&address, length_of(&address)), -1);
    close(early);
    assert_int_equal(dpdk_callers_open(&err), 0);
    assert_int_equal(dpdk_callers_open(&err), 0);
    return 0;
}

static void test_waits_for_pollers(void **state)
{
    (void)state;
    int before = atomic_load(&calls);
    dpdk_poller_begin_waiting(&a);
    dpdk_poller_begin_waiting(&b);
    raise_device();
    wait_for_a_closed_door();
    wait_ms(QUIET_MS);
    assert_int_equal(atomic_load(&calls), before);
    dpdk_poller_end(&a);
    wait_ms(QUIET_MS);
    assert_int_equal(atomic_load(&calls), before); /* b still polls ... */
    assert_false(dpdk_poller_begin(&a));           /* ... and nobody may begin */
    dpdk_poller_end(&b);
    assert_true(comes_to(&calls, before + 1));
    dpdk_poller_begin_waiting(&a); /* it is held again */
    dpdk_poller_end(&a);
}

static void test_never_together(void **state)
{
    (void)state;
    int before = atomic_load(&calls);
    uint64_t polls = 0;
    for (int i = 1; i <= ROUNDS; i++) {
        raise_device();
        for (int spins = 0; atomic_load(&calls) < before + i; spins++) {
            if (dpdk_poller_begin(&a)) {
                polls++;
                dpdk_poller_end(&a);
            }
            if (spins % 1000 == 999)
                wait_ms(1);
        }
    }
    assert_int_equal(atomic_load(&overlaps), 0);
    assert_true(polls > 0);
}

static void test_who_left_is_not_waited_for(void **state)
{
    (void)state;
    int before = atomic_load(&calls);
    dpdk_poller_begin_waiting(&b);
    dpdk_poller_leave(&b);
    raise_device();
    assert_true(comes_to(&calls, before + 1));
    dpdk_poller_join(&b);
    dpdk_poller_end(&b);
}

static void expect(int fd, const char *text)
{
    char got[16] = "";
    struct pollfd look = {.fd = fd, .events = POLLIN};
    assert_int_equal(poll(&look, 1, PATIENCE_MS), 1);
    assert_int_equal(recv(fd, got, sizeof got - 1, 0), strlen(text));
    assert_string_equal(got, text);
}

static void test_callers_are_passed_on(void **state)
{
    enum { AT_ONCE = 8 };
    int before = atomic_load(&ended), fds[AT_ONCE];
    (void)state;
    for (int i = 0; i < AT_ONCE; i++)
        fds[i] = call_listener();
    for (int i = 0; i < AT_ONCE; i++) {
        expect(fds[i], "hello");
        assert_int_equal(send(fds[i], i % 2 ? "odd" : "even", 3 + !(i % 2), 0), 3 + !(i % 2));
    }
    for (int i = 0; i < AT_ONCE; i++)
        expect(fds[i], i % 2 ? "odd" : "even");
    assert_int_equal(atomic_load(&ended), before);
    for (int i = 0; i < AT_ONCE; i++)
        close(fds[i]);
    assert_true(comes_to(&ended, before + AT_ONCE));
}

static int count_descriptors(void)
{
    int n = 0;
    DIR *folder = opendir("/proc/self/fd");
    assert_non_null(folder);
    while (readdir(folder) != NULL)
        n++;
    closedir(folder);
    return n;
}

/* At any time between the call and the greeting: each waits a little longer than the one before. */
static void test_callers_that_hang_up(void **state)
{
    int descriptors = count_descriptors();
    (void)state;
    for (int i = 0; i < CALLERS; i++) {
        int fd = call_listener();
        nanosleep(&(struct timespec){.tv_nsec = i % 100 * 2000}, NULL);
        if (i % 3 == 0)
            shutdown(fd, SHUT_RDWR);
        if (i % 5 == 0)
            send(fd, "x", 1, MSG_NOSIGNAL);
        close(fd);
    }
    int last = call_listener();
    expect(last, "hello");
    close(last);
    for (int i = 0; i < PATIENCE_MS && (atomic_load(&ended) < atomic_load(&accepted) || count_descriptors() > descriptors); i++)
        wait_ms(1);
    assert_int_equal(atomic_load(&ended), atomic_load(&accepted));
    assert_int_equal(atomic_load(&greeted_in_vain), 0);
    assert_int_equal(count_descriptors(), descriptors);
}

/* A child stops this process and calls meanwhile: who waited it out is greeted, who did not is no harm. */
static void test_callers_after_a_stall(void **state)
{
    (void)state;
    pid_t parent = getpid(), child = fork();
    if (child == 0) {
        kill(parent, SIGSTOP);
        wait_ms(QUIET_MS);
        int gone = call_listener(), there = call_listener();
        char text[16] = "";
        close(gone);
        wait_ms(QUIET_MS);
        kill(parent, SIGCONT);
        _exit(recv(there, text, sizeof text, 0) == 5 && strcmp(text, "hello") == 0 ? 0 : 1);
    }
    int status = -1;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_int_equal(atomic_load(&greeted_in_vain), 0);
}

static void limit_descriptors(rlim_t soft, rlim_t hard)
{
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &(struct rlimit){soft, hard}), 0);
}

/* A child calls more often than this process has descriptors, and stays: an eighth is left for others, and ports can be polled. */
static void test_callers_leave_some(void **state)
{
    enum { LIMIT = 256, MANY = 300, ON_THE_WAY = 8 };
    struct rlimit before;
    int ends[2], turned_away_before = atomic_load(&ended), status = -1;
    char token = 0;
    (void)state;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    if (before.rlim_max < 2 * MANY)
        skip();
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
    pid_t child = fork();
    if (child == 0) {
        int last = -1;
        close(ends[0]);
        limit_descriptors(before.rlim_max, before.rlim_max);
        for (int i = 0; i < MANY; i++)
            last = call_listener();
        bool is_away = recv(last, &token, 1, 0) == 0;
        _exit(is_away && write(ends[1], &token, 1) == 1 && read(ends[1], &token, 1) == 1 ? 0 : 1);
    }
    close(ends[1]);
    limit_descriptors(LIMIT, before.rlim_max);
    assert_int_equal(read(ends[0], &token, 1), 1);
    assert_true(comes_to(&ended, turned_away_before + MANY - LIMIT));
    assert_in_range(count_descriptors(), LIMIT / 2, LIMIT - LIMIT / 8 + ON_THE_WAY);
    dpdk_poller_begin_waiting(&a);
    dpdk_poller_end(&a);
    limit_descriptors(before.rlim_cur, before.rlim_max);
    assert_int_equal(write(ends[0], &token, 1), 1);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    close(ends[0]);
    assert_true(comes_to(&ended, atomic_load(&accepted)));
    assert_int_equal(atomic_load(&greeted_in_vain), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_waits_for_pollers),
        cmocka_unit_test(test_never_together),
        cmocka_unit_test(test_who_left_is_not_waited_for),
        cmocka_unit_test(test_callers_are_passed_on),
        cmocka_unit_test(test_callers_that_hang_up),
        cmocka_unit_test(test_callers_after_a_stall),
        cmocka_unit_test(test_callers_leave_some),
    };
    return cmocka_run_group_tests(tests, setup, NULL);
}

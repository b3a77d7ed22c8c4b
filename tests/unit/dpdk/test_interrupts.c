/* DPDK's interrupt thread works only while nobody polls, and nobody polls while it works; callers that waited out a stall are turned away. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>
#include <rte_interrupts.h>

#include "net/dpdk/eal.h"
#include "net/dpdk/interrupts.h"

enum { QUIET_MS = 30, PATIENCE_MS = 5000, ROUNDS = 200 };

static struct dpdk_poller a, b;
static int device, listener;
static struct sockaddr_un address = {.sun_family = AF_UNIX};
static atomic_int calls, overlaps, accepted;

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

static void serve_listener(void *arg)
{
    (void)arg;
    int caller = accept(listener, NULL, NULL);
    if (caller >= 0)
        close(caller);
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

static void register_fd(int fd, rte_intr_callback_fn callback)
{
    struct rte_intr_handle *handle = rte_intr_instance_alloc(RTE_INTR_INSTANCE_F_PRIVATE);
    assert_non_null(handle);
    assert_int_equal(rte_intr_type_set(handle, RTE_INTR_HANDLE_EXT), 0);
    assert_int_equal(rte_intr_fd_set(handle, fd), 0);
    assert_true(rte_intr_callback_register(handle, callback, NULL) >= 0);
}

static int setup(void **state)
{
    struct error err = {0};
    (void)state;
    if (dpdk_eal_start("--no-huge --no-pci -m 32", &err) != 0)
        fail_msg("%s", err.text);
    device = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    snprintf(address.sun_path + 1, sizeof address.sun_path - 1, "hearsay-test-interrupts-%d", (int)getpid()); /* abstract */
    assert_int_equal(bind(listener, (struct sockaddr *)&address, sizeof address), 0);
    assert_int_equal(listen(listener, 4), 0);
    register_fd(device, serve_device);
    register_fd(listener, serve_listener);
    assert_int_equal(dpdk_interrupts_hold(&err), 0);
    assert_int_equal(dpdk_interrupts_hold(&err), 0); /* again: nothing */
    dpdk_poller_join(&a);
    dpdk_poller_join(&b);
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

static int call_listener(void)
{
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&address, sizeof address), 0);
    return fd;
}

/* A child stops this process for longer than a stall is, and calls meanwhile. */
static void test_callers_after_a_stall(void **state)
{
    (void)state;
    int before = atomic_load(&accepted);
    close(call_listener());
    assert_true(comes_to(&accepted, before + 1)); /* as ever */
    wait_ms(QUIET_MS);
    before = atomic_load(&accepted);
    pid_t parent = getpid(), child = fork();
    if (child == 0) {
        kill(parent, SIGSTOP);
        wait_ms(100);
        int gone = call_listener(), there = call_listener();
        char byte;
        close(gone);
        wait_ms(1500);
        kill(parent, SIGCONT);
        _exit(recv(there, &byte, 1, 0) == 0 ? 0 : 1); /* turned away, too */
    }
    int status = -1;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    wait_ms(QUIET_MS);
    assert_int_equal(atomic_load(&accepted), before);
    close(call_listener());
    assert_true(comes_to(&accepted, before + 1));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_waits_for_pollers),
        cmocka_unit_test(test_never_together),
        cmocka_unit_test(test_who_left_is_not_waited_for),
        cmocka_unit_test(test_callers_after_a_stall),
    };
    return cmocka_run_group_tests(tests, setup, NULL);
}

/* A memif client whose server takes no callers: its call is ended with the carrier, and the port can be claimed again. */
#include <errno.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h>

#include "net/dpdk/dpdk.h"

enum { PATIENCE_MS = 20000, CALLERS = 64 };

static struct sockaddr_un address = {.sun_family = AF_UNIX};
static socklen_t address_len;
static char eal[256];
static int listener, waiting[CALLERS], n_waiting;

/* A server that hangs, with as many callers as it may have. */
static int setup(void **state)
{
    (void)state;
    snprintf(address.sun_path + 1, sizeof address.sun_path - 1, "hearsay-test-call-%d", (int)getpid()); /* abstract, as the driver has it */
    address_len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + strlen(address.sun_path + 1));
    snprintf(eal, sizeof eal, "--no-huge --no-pci -m 64 --vdev=net_memif0,role=client,socket=%s", address.sun_path + 1);
    listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(listener, (struct sockaddr *)&address, address_len), 0);
    assert_int_equal(listen(listener, 0), 0);
    return 0;
}

static void fill(void)
{
    while (n_waiting < CALLERS) {
        int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        if (connect(fd, (struct sockaddr *)&address, address_len) != 0) {
            assert_int_equal(errno, EAGAIN);
            close(fd);
            return;
        }
        waiting[n_waiting++] = fd;
    }
    fail_msg("the listener takes any number of callers");
}

static void drain(void)
{
    for (; n_waiting > 0; n_waiting--) {
        close(accept(listener, NULL, NULL));
        close(waiting[n_waiting - 1]);
    }
}

static struct carrier *open_carrier(struct error *err)
{
    const struct dpdk_carrier_config config = {.bind = "10.0.0.1:7070", .eal = eal};
    struct carrier *carrier = NULL;
    *err = (struct error){0};
    return dpdk_carrier_create(&config, &carrier, err) == 0 ? carrier : NULL;
}

static void test_claimed_again(void **state)
{
    struct error err;
    struct pollfd look = {.fd = listener, .events = POLLIN};
    (void)state;
    for (int round = 0; round < 3; round++) {
        fill();
        struct carrier *carrier = open_carrier(&err);
        if (carrier == NULL)
            fail_msg("round %d: %s", round, err.text);
        carrier->ops->destroy(carrier);
        drain();
    }
    struct carrier *carrier = open_carrier(&err);
    if (carrier == NULL)
        fail_msg("%s", err.text);
    assert_int_equal(poll(&look, 1, PATIENCE_MS), 1); /* it calls */
    close(accept(listener, NULL, NULL));
    carrier->ops->destroy(carrier);
}

static void on_signal(int number)
{
    (void)number;
}

/* Where nothing can end the call: one line that says so. The last test, as the port is lost. */
static void test_lost(void **state)
{
    struct error err;
    (void)state;
    struct sigaction taken = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    for (int number = SIGRTMIN; number <= SIGRTMAX; number++)
        assert_int_equal(sigaction(number, &taken, NULL), 0);
    fill();
    struct carrier *carrier = open_carrier(&err);
    if (carrier == NULL)
        fail_msg("%s", err.text);
    carrier->ops->destroy(carrier);
    assert_null(open_carrier(&err));
    if (err.code != HS_ERR_BUSY)
        fail_msg("%s", err.text);
    assert_non_null(strstr(err.text, "never ended: start the program anew"));
    drain();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_claimed_again),
        cmocka_unit_test(test_lost),
    };
    return cmocka_run_group_tests(tests, setup, NULL);
}

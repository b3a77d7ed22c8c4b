#include "perf/udp_echo.h"

#include <errno.h>
#include <netinet/in.h>
#include <pthread.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "perf/progress.h"

enum { BYTES_MAX = 9000 };

static int bound_socket(struct sockaddr_in *address)
{
    socklen_t len = sizeof *address;
    *address = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd >= 0 && bind(fd, (struct sockaddr *)address, len) == 0 && getsockname(fd, (struct sockaddr *)address, &len) == 0)
        return fd;
    if (fd >= 0)
        close(fd);
    return -1;
}

/* Sends back what comes, until an empty datagram does. */
static void *echo(void *arg)
{
    int fd = *(const int *)arg;
    char buffer[BYTES_MAX];
    for (;;) {
        struct sockaddr_in from;
        socklen_t len = sizeof from;
        ssize_t n = recvfrom(fd, buffer, sizeof buffer, 0, (struct sockaddr *)&from, &len);
        if (n == 0 || (n < 0 && errno != EINTR))
            return NULL;
        sendto(fd, buffer, (size_t)n, 0, (struct sockaddr *)&from, len);
    }
}

static int round_trips(int fd, uint32_t n, uint32_t bytes, uint64_t pause_ns, struct samples *round_trips_us)
{
    char buffer[BYTES_MAX] = {0};
    struct timespec pause = {.tv_sec = (time_t)(pause_ns / 1000000000u), .tv_nsec = (long)(pause_ns % 1000000000u)};
    for (uint32_t i = 0; i < n; i++) {
        nanosleep(&pause, NULL);
        uint64_t start_ns = perf_now_ns();
        if (send(fd, buffer, bytes, 0) < 0 || recv(fd, buffer, sizeof buffer, 0) != (ssize_t)bytes)
            return HS_ERR_IO;
        samples_add(round_trips_us, (double)(perf_now_ns() - start_ns) / 1e3);
    }
    return 0;
}

int udp_echo_measure(uint32_t n, uint32_t bytes, uint64_t pause_ns, struct samples *round_trips_us, struct error *err)
{
    struct sockaddr_in here, there;
    pthread_t thread;
    int near = bound_socket(&here), far = bound_socket(&there);
    struct timeval patience = {.tv_sec = 2};
    bool good = near >= 0 && far >= 0 && connect(near, (struct sockaddr *)&there, sizeof there) == 0 &&
                setsockopt(near, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience) == 0 &&
                pthread_create(&thread, NULL, echo, &far) == 0;
    int rc = HS_ERR_IO;
    if (good) {
        rc = round_trips(near, n, bytes < BYTES_MAX ? bytes : BYTES_MAX, pause_ns, round_trips_us);
        good = rc == 0;
        send(near, "", 0, 0);
        pthread_join(thread, NULL);
    }
    if (!good)
        rc = error_set(err, HS_ERR_IO, "UDP on loopback: %s", strerror(errno));
    if (near >= 0)
        close(near);
    if (far >= 0)
        close(far);
    return rc;
}

/*
 * perftest's programs as a side of the benchmark: each run starts one at either end, on the fabric's own choice of device, and reads the
 * one line of figures that the calling end prints. Its latency of a send is half a round trip, its MB are 2^20 bytes.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "net/verbs/rails.h"
#include "perf/bench_fabric_verbs.h"
#include "perf/progress.h"

enum { ROUNDS = 1000, STREAM_ROUNDS = 500, PATIENCE_MS = 15000, OUTPUT = 8192, COMMAND = 512 };

struct program {
    const char *name;
    int column;   /* of the figure, from 0 */
    double scale; /* to us or bytes/s */
    uint32_t rounds;
};

static struct program program_for(enum fabric_pattern pattern)
{
    if (pattern == FABRIC_PING)
        return (struct program){"ib_send_lat", 4, 2, ROUNDS};
    if (pattern == FABRIC_READ)
        return (struct program){"ib_read_lat", 4, 1, ROUNDS};
    return (struct program){"ib_send_bw", 3, 1 << 20, STREAM_ROUNDS};
}

/* The command without the address that makes it the calling end. */
static int write_command(const struct fabric_job *job, bool serves, const char *tcp_port, char out[COMMAND], struct error *err)
{
    struct transport_verbs_config config = {.bind = serves ? job->config->bind : job->config->bind_calls};
    struct device_rail rails[DEVICE_MAX_RAILS];
    struct program program = program_for(job->pattern);
    uint32_t n;
    int rc = rails_choose(&config, rails, &n, err);
    if (rc)
        return rc;
    int len = snprintf(out, COMMAND, "exec %s -F -d %s -i %u -p %s -s %u -n %u", program.name, rails[0].device, rails[0].port, tcp_port,
                       job->bytes, program.rounds);
    if (rails[0].link == DEVICE_LINK_ETHERNET)
        snprintf(out + len, COMMAND - (size_t)len, " -x %u", rails[0].gid_index);
    return 0;
}

/* Runs a command with its output in a pipe; the pid, or an error. */
static pid_t start(const char *command, int *output, struct error *err)
{
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0)
        return error_set(err, HS_ERR_IO, "pipe: %s", strerror(errno));
    pid_t pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        dup2(ends[1], STDOUT_FILENO);
        dup2(ends[1], STDERR_FILENO);
        execl("/bin/sh", "sh", "-c", command, (char *)NULL);
        _exit(127);
    }
    close(ends[1]);
    *output = ends[0];
    if (pid < 0) {
        close(ends[0]);
        return error_set(err, HS_ERR_IO, "fork: %s", strerror(errno));
    }
    return pid;
}

static void end(pid_t pid, int output)
{
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    close(output);
}

static int free_port(char text[16], struct error *err)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t len = sizeof address;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int failed = fd < 0 || bind(fd, (struct sockaddr *)&address, len) != 0 || getsockname(fd, (struct sockaddr *)&address, &len) != 0;
    if (fd >= 0)
        close(fd);
    snprintf(text, 16, "%u", ntohs(address.sin_port));
    return failed ? error_set(err, HS_ERR_IO, "a port for perftest: %s", strerror(errno)) : 0;
}

int fabric_perftest_serve(const struct fabric_job *job, int (*ready)(int control, const char *address), struct error *err)
{
    char command[COMMAND], tcp_port[16];
    int output, rc = free_port(tcp_port, err);
    if (rc == 0)
        rc = write_command(job, true, tcp_port, command, err);
    pid_t pid = rc ? rc : start(command, &output, err);
    if (pid < 0)
        return pid;
    rc = ready(job->control, tcp_port);
    struct pollfd over = {.fd = job->control, .events = POLLIN};
    while (rc == 0 && poll(&over, 1, -1) <= 0)
        ;
    end(pid, output);
    return rc;
}

/* The figure in the only line that begins with the message's length. */
static double find_figure(char *text, uint32_t bytes, int column)
{
    char *rest, *line = strtok_r(text, "\n", &rest);
    for (; line; line = strtok_r(NULL, "\n", &rest)) {
        char *next;
        double value = strtod(line, &next);
        if (next == line || value != bytes)
            continue;
        for (int i = 0; i < column; i++)
            value = strtod(next, &next);
        return value;
    }
    return NAN;
}

/* The whole output, once the program has ended; its exit status. */
static int read_output(pid_t pid, int output, char text[OUTPUT])
{
    size_t len = 0;
    int status = -1;
    for (struct pollfd fd = {.fd = output, .events = POLLIN}; len + 1 < OUTPUT && poll(&fd, 1, PATIENCE_MS) > 0;) {
        ssize_t n = read(output, text + len, OUTPUT - 1 - len);
        if (n <= 0) {
            waitpid(pid, &status, 0);
            break;
        }
        len += (size_t)n;
    }
    text[len] = '\0';
    if (status == -1)
        end(pid, output);
    else
        close(output);
    return status;
}

int fabric_perftest_call(const struct fabric_job *job, const char *address, struct fabric_result *out, struct error *err)
{
    struct program program = program_for(job->pattern);
    char command[COMMAND], text[OUTPUT];
    int status = -1, rc = write_command(job, false, address, command, err);
    if (rc)
        return rc;
    strncat(command, " 127.0.0.1", sizeof command - strlen(command) - 1);
    uint64_t end_ns = perf_now_ns() + PATIENCE_MS * UINT64_C(1000000);
    do { /* the serving end may not listen yet */
        int output;
        pid_t pid = start(command, &output, err);
        if (pid < 0)
            return pid;
        status = read_output(pid, output, text);
        if (WIFEXITED(status) && WEXITSTATUS(status) == 127)
            return error_set(err, HS_ERR_UNSUPPORTED, "%s is not installed (Debian: perftest)", program.name);
        if (status != 0)
            poll(NULL, 0, 100);
    } while (status != 0 && perf_now_ns() < end_ns);
    double figure = status == 0 ? program.scale * find_figure(text, job->bytes, program.column) : NAN;
    if (!(figure > 0) || !isfinite(figure)) { /* on machines without time to themselves it fails, or prints 0.00 or inf: the run counts without it */
        progress_clear();
        fprintf(stderr, "hearsay-perf: no figure from perftest; by hand: %s\n", command + strlen("exec "));
        return 0;
    }
    if (job->pattern == FABRIC_STREAM)
        out->bytes_per_s = figure;
    else
        samples_add(&out->times_us, figure);
    return 0;
}

#include "perf/bench_fabric.h"

#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "perf/progress.h"

enum { READY_TIMEOUT_MS = 15000, CALL_EXTRA_MS = 20000 };

/* What a child says first: the server its address, a caller its figures with n_times doubles behind. */
struct child_report {
    int status;
    char text[sizeof((struct error){0}.text)]; /* the server's address, or what went wrong */
    double bytes_per_s, cpu_share;
    bool one_sided;
    struct transport_stats sum;
    uint64_t n_times;
};

struct child {
    pid_t pid;
    int fd; /* the server's control socket, a caller's pipe */
};

/* ---- in the children ---- */

static bool write_all(int fd, const void *data, size_t len)
{
    for (size_t done = 0; done < len;) {
        ssize_t n = write(fd, (const char *)data + done, len - done);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return false;
        done += (size_t)n;
    }
    return true;
}

static void settle(const struct fabric_job *job)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* nobody stays behind */
    prctl(PR_SET_TIMERSLACK, 1000, 0, 0, 0);
    signal(SIGPIPE, SIG_IGN);
    if (job->cpu < CPU_SETSIZE) {
        cpu_set_t set;
        CPU_ZERO(&set);
        CPU_SET(job->cpu, &set);
        sched_setaffinity(0, sizeof set, &set); /* a hint: unpinned works, too */
    }
}

static int say_ready(int control, const char *address)
{
    struct child_report report = {0};
    snprintf(report.text, sizeof report.text, "%s", address);
    return write_all(control, &report, sizeof report) ? 0 : HS_ERR_IO;
}

bool fabric_is_over(int control)
{
    struct pollfd fd = {.fd = control, .events = POLLIN};
    return control >= 0 && poll(&fd, 1, 0) > 0;
}

static void be_server(const struct fabric_side *side, const struct fabric_job *job)
{
    struct error err = {0};
    settle(job);
    int rc = side->serve(job, say_ready, &err);
    if (rc) {
        struct child_report report = {.status = rc};
        snprintf(report.text, sizeof report.text, "%s", err.text);
        write_all(job->control, &report, sizeof report);
    }
}

static double cpu_seconds(void)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
           (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
}

static void be_caller(const struct fabric_side *side, const struct fabric_job *job, const char *address, int pipe)
{
    struct error err = {0};
    struct fabric_result result = {0};
    settle(job);
    uint64_t start_ns = perf_now_ns();
    int rc = side->call(job, address, &result, &err);
    struct child_report report = {.status = rc,
                                  .bytes_per_s = result.bytes_per_s,
                                  .cpu_share = cpu_seconds() / ((double)(perf_now_ns() - start_ns) / 1e9),
                                  .one_sided = result.one_sided,
                                  .sum = result.sum,
                                  .n_times = rc ? 0 : result.times_us.n};
    snprintf(report.text, sizeof report.text, "%s", err.text);
    if (write_all(pipe, &report, sizeof report))
        write_all(pipe, result.times_us.values, report.n_times * sizeof(double));
    fabric_result_fini(&result);
}

/* ---- in the parent ---- */

static bool read_all(int fd, void *data, size_t len, int timeout_ms)
{
    for (size_t done = 0; done < len;) {
        struct pollfd wait = {.fd = fd, .events = POLLIN};
        if (poll(&wait, 1, timeout_ms) <= 0)
            return false;
        ssize_t n = read(fd, (char *)data + done, len - done);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return false;
        done += (size_t)n;
    }
    return true;
}

static uint32_t cpu_for(const struct perf_config *config, uint32_t i)
{
    return config->n_cpus ? config->cpus[i % config->n_cpus] : UINT32_MAX;
}

static int start(struct child *child, const struct fabric_side *side, const struct fabric_job *job, const char *address,
                 struct error *err)
{
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
        return error_set(err, HS_ERR_IO, "socketpair: %s", strerror(errno));
    fflush(NULL);
    child->pid = fork();
    if (child->pid < 0) {
        close(ends[0]);
        close(ends[1]);
        return error_set(err, HS_ERR_IO, "fork: %s", strerror(errno));
    }
    if (child->pid == 0) {
        struct fabric_job own = *job;
        own.control = ends[1];
        close(ends[0]);
        if (address)
            be_caller(side, &own, address, ends[1]);
        else
            be_server(side, &own);
        _exit(0);
    }
    close(ends[1]);
    child->fd = ends[0];
    return 0;
}

static void end(struct child *child)
{
    if (child->pid <= 0)
        return;
    close(child->fd); /* the server ends itself when its socket closes */
    for (int ms = 0; ms < 3000; ms++) {
        if (waitpid(child->pid, NULL, WNOHANG) != 0)
            goto gone;
        poll(NULL, 0, 1);
    }
    kill(child->pid, SIGKILL);
    waitpid(child->pid, NULL, 0);
gone:
    child->pid = 0;
}

/* Adds what one caller found to out. */
static int collect(struct child *caller, int timeout_ms, struct fabric_result *out, struct error *err)
{
    struct child_report report;
    if (!read_all(caller->fd, &report, sizeof report, timeout_ms))
        return error_set(err, HS_ERR_IO, "a calling process ended or hung without a result");
    report.text[sizeof report.text - 1] = '\0';
    if (report.status)
        return error_set(err, report.status, "%s", report.text);
    for (uint64_t left = report.n_times; left > 0;) {
        double us[512];
        uint64_t n = left < 512 ? left : 512;
        if (!read_all(caller->fd, us, n * sizeof us[0], timeout_ms))
            return error_set(err, HS_ERR_IO, "a calling process ended while it told its result");
        for (uint64_t i = 0; i < n; i++)
            samples_add(&out->times_us, us[i]);
        left -= n;
    }
    out->bytes_per_s += report.bytes_per_s;
    out->cpu_share += report.cpu_share;
    out->one_sided = report.one_sided;
    out->sum.retransmits += report.sum.retransmits;
    out->sum.sent_messages += report.sum.sent_messages;
    return 0;
}

static int await_server(struct child *server, char address[TRANSPORT_ADDRESS_TEXT], struct error *err)
{
    struct child_report report;
    if (!read_all(server->fd, &report, sizeof report, READY_TIMEOUT_MS))
        return error_set(err, HS_ERR_IO, "the serving process did not start");
    report.text[sizeof report.text - 1] = '\0';
    if (report.status)
        return error_set(err, report.status, "%s", report.text);
    snprintf(address, TRANSPORT_ADDRESS_TEXT, "%.*s", TRANSPORT_ADDRESS_TEXT - 1, report.text);
    return 0;
}

int fabric_measure(const struct fabric_side *side, const struct fabric_job *job, const char *address, struct fabric_result *out,
                   struct error *err)
{
    struct child server = {0}, callers[FABRIC_MAX_SENDERS] = {{0}};
    struct fabric_job own = *job;
    char started[TRANSPORT_ADDRESS_TEXT];
    int rc = 0, timeout_ms = (int)(job->config->duration_ns / 1000000) + CALL_EXTRA_MS;
    *out = (struct fabric_result){0};
    if (!address) {
        own.cpu = cpu_for(job->config, 0);
        rc = start(&server, side, &own, NULL, err);
        if (rc == 0)
            rc = await_server(&server, started, err);
        address = started;
    }
    for (uint32_t i = 0; rc == 0 && i < job->senders; i++) {
        own.cpu = cpu_for(job->config, i + 1);
        own.caller = i;
        rc = start(&callers[i], side, &own, address, err);
    }
    for (uint32_t i = 0; rc == 0 && i < job->senders; i++)
        rc = collect(&callers[i], timeout_ms, out, err);
    for (uint32_t i = 0; i < job->senders; i++)
        end(&callers[i]);
    end(&server);
    if (rc == 0 && out->times_us.failed)
        rc = error_set(err, HS_ERR_NO_MEMORY, "%s", error_name(HS_ERR_NO_MEMORY));
    if (rc)
        fabric_result_fini(out);
    return rc;
}

void fabric_result_fini(struct fabric_result *result)
{
    samples_fini(&result->times_us);
}

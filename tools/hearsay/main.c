/* hearsay: one node of a group. Everything is in running_node.c; here are the command line, the signals and the exit status. */
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "core/base/log.h"
#include "core/base/output.h"
#include "tools/hearsay/node_options.h"
#include "tools/hearsay/running_node.h"

enum { EXIT_GOOD = 0, EXIT_FAILED = 1, EXIT_USAGE = 2, EXIT_NOT_HERE = 77 };

/* What a failed start means to whoever started us. */
static int exit_status(int code)
{
    switch (code) {
    case HS_ERR_NO_MEMORY:
    case HS_ERR_CLOSED:
    case HS_ERR_TIMEOUT:
        return EXIT_FAILED;
    case HS_ERR_UNSUPPORTED:
        return EXIT_NOT_HERE;
    default:
        return EXIT_USAGE; /* a file, a port, a value: something on the command line is not as it must be */
    }
}

/* SIGTERM and SIGINT are taken by sigwait in a thread of their own: every other thread inherits the block. */
struct end_signals {
    sigset_t set;
    pthread_t waiter;
    atomic_bool serves; /* there may be something that wants to be finished */
    int received;
};

static void end_at_once(int number)
{
    raise(number); /* the default action by now: whoever started us sees what ended us */
    _exit(128 + number); /* the first process of a container has no default actions; a shell would say the same */
}

/* From now on, in this thread and for whatever comes: a signal ends the process. */
static void let_signals_end(const sigset_t *set)
{
    const struct sigaction action = {.sa_handler = end_at_once, .sa_flags = (int)SA_RESETHAND | SA_NODEFER};
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGINT, &action, NULL);
    pthread_sigmask(SIG_UNBLOCK, set, NULL);
}

static void *await_signal(void *arg)
{
    struct end_signals *ends = arg;
    sigwait(&ends->set, &ends->received);
    if (!atomic_load(&ends->serves)) { /* a large model loads for minutes: whoever changes their mind need not wait */
        log_info("start", "%s: ended before anything was served", strsignal(ends->received));
        let_signals_end(&ends->set);
        raise(ends->received);
    }
    return NULL;
}

static int end_signals_init(struct end_signals *ends, struct error *err)
{
    sigemptyset(&ends->set);
    sigaddset(&ends->set, SIGTERM);
    sigaddset(&ends->set, SIGINT);
    pthread_sigmask(SIG_BLOCK, &ends->set, NULL);
    signal(SIGPIPE, SIG_IGN);
    int rc = pthread_create(&ends->waiter, NULL, await_signal, ends);
    return rc ? error_set(err, HS_ERR_NO_MEMORY, "no thread can be made: %s", strerror(rc)) : 0;
}

/* Every client is a descriptor, and the usual soft limit is meant for programs that use select(). */
static void raise_descriptor_limit(void)
{
    struct rlimit files;
    if (getrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_cur < files.rlim_max) {
        files.rlim_cur = files.rlim_max;
        setrlimit(RLIMIT_NOFILE, &files);
    }
}

static int failed(int status, const struct error *err)
{
    fprintf(stderr, "hearsay: %s\n", err->text);
    return status;
}

static int run(const struct node_options *options, struct end_signals *ends, struct error *err)
{
    struct running_node *running;
    raise_descriptor_limit();
    int rc = running_node_open(options, &running, err);
    if (rc)
        return failed(exit_status(rc), err);
    if (options->check) {
        running_node_describe(running);
        running_node_close(running, 0);
        return output_finish("hearsay");
    }
    atomic_store(&ends->serves, true); /* before it does: whoever gets an answer, or reads that it serves, may stop it in the same moment */
    rc = running_node_serve(running, err);
    if (rc) {
        running_node_close(running, 0);
        return failed(exit_status(rc), err);
    }
    pthread_join(ends->waiter, NULL);
    log_info("start", "%s: finishing what runs, then ending (again: at once)", strsignal(ends->received));
    let_signals_end(&ends->set);
    running_node_close(running, options->drain_timeout_ns);
    return EXIT_GOOD;
}

int main(int argc, char **argv)
{
    struct end_signals ends = {0};
    struct node_options options;
    struct error err = {0};
    int rc = end_signals_init(&ends, &err);
    if (rc)
        return failed(EXIT_FAILED, &err);
    rc = node_options_parse(argc, argv, &options, &err);
    if (rc > 0)
        return output_finish("hearsay");
    if (rc < 0)
        return failed(EXIT_USAGE, &err);
    log_setup(options.check ? LOG_LEVEL_ERROR : options.log_level, options.log_format);
    return run(&options, &ends, &err);
}

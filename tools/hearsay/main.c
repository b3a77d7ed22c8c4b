/* hearsay: one node of a group. Everything is in running_node.c; here are the command line, the signals and the exit status. */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

#include "core/base/log.h"
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
    atomic_bool started; /* something runs that wants to be finished */
    int received;
};

static void use_default_actions(const sigset_t *set)
{
    signal(SIGTERM, SIG_DFL);
    signal(SIGINT, SIG_DFL);
    pthread_sigmask(SIG_UNBLOCK, set, NULL);
}

static void *await_signal(void *arg)
{
    struct end_signals *ends = arg;
    sigwait(&ends->set, &ends->received);
    if (!atomic_load(&ends->started)) {
        use_default_actions(&ends->set);
        raise(ends->received); /* a large model loads for minutes: whoever changes their mind need not wait */
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

/* What was printed is what was asked for: a full disk is a failure. */
static int printed(void)
{
    if (!fflush(stdout) && !ferror(stdout))
        return EXIT_GOOD;
    fprintf(stderr, "hearsay: the output cannot be written: %s\n", strerror(errno));
    return EXIT_FAILED;
}

static int run(const struct node_options *options, struct error *err)
{
    struct end_signals ends = {0};
    struct running_node *running;
    raise_descriptor_limit();
    int rc = end_signals_init(&ends, err);
    if (!rc)
        rc = running_node_open(options, &running, err);
    if (rc) {
        fprintf(stderr, "hearsay: %s\n", err->text);
        return exit_status(rc);
    }
    if (options->check) {
        running_node_describe(running);
        running_node_close(running, 0);
        return printed();
    }
    atomic_store(&ends.started, true); /* before anyone is told: whoever reads that it serves may stop it in the same moment */
    running_node_announce(running);
    pthread_join(ends.waiter, NULL);
    log_info("start", "%s: finishing what runs, then ending (again: at once)", strsignal(ends.received));
    use_default_actions(&ends.set);
    running_node_close(running, options->drain_timeout_ns);
    return EXIT_GOOD;
}

int main(int argc, char **argv)
{
    struct node_options options;
    struct error err = {0};
    int rc = node_options_parse(argc, argv, &options, &err);
    if (rc > 0)
        return printed();
    if (rc < 0) {
        fprintf(stderr, "hearsay: %s\n", err.text);
        return EXIT_USAGE;
    }
    log_setup(options.check ? LOG_LEVEL_ERROR : options.log_level, options.log_format);
    return run(&options, &err);
}
